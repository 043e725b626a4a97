//! Slurm's SPANK calls, safe to make. One [`Spank`] lives as long as its hook.

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_uint};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Mutex;

use crate::sys;

/// The longest value of a variable that is read; Linux has none longer
/// (execve(2), MAX_ARG_STRLEN).
const LONGEST_VALUE: usize = 128 * 1024;

/// What the user gave to the plugin's option, as Slurm has parsed it.
static OPTION: Mutex<Option<OsString>> = Mutex::new(None);

/// Which program has loaded the plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// srun.
    Local,
    /// sbatch or salloc.
    Allocator,
    /// slurmd.
    Slurmd,
    /// slurmstepd.
    Remote,
    /// Another one: gpubind has nothing to do there.
    Other,
}

/// Slurm has refused a call; the code is spank.h's.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("Slurm answered with code {0}")]
pub struct Refused(pub c_uint);

/// A hook's handle.
pub struct Spank {
    handle: *mut sys::Handle,
    /// All variables as NAME=VALUE, if they have been read since the last change.
    strings: RefCell<Option<Vec<Box<[u8]>>>>,
}

impl Spank {
    /// # Safety
    /// `handle` is what Slurm has given to the hook that is running.
    pub unsafe fn new(handle: *mut sys::Handle) -> Spank {
        Spank { handle, strings: RefCell::new(None) }
    }

    pub fn context(&self) -> Context {
        // SAFETY: takes nothing and cannot fail.
        match unsafe { sys::spank_context() } {
            sys::CONTEXT_LOCAL => Context::Local,
            sys::CONTEXT_ALLOCATOR => Context::Allocator,
            sys::CONTEXT_SLURMD => Context::Slurmd,
            sys::CONTEXT_REMOTE => Context::Remote,
            _ => Context::Other,
        }
    }

    /// Registers the plugin's one option, which takes a value.
    pub fn register_option(
        &self,
        name: &CStr,
        argument: &CStr,
        usage: &CStr,
    ) -> Result<(), Refused> {
        let mut option = sys::SpankOption {
            name: name.as_ptr(),
            arginfo: argument.as_ptr(),
            usage: usage.as_ptr(),
            has_arg: 1,
            val: 0,
            callback: Some(take_option),
        };
        // SAFETY: Slurm copies the structure and its texts (K:spank_option_register).
        accepted(unsafe { sys::spank_option_register(self.handle, &raw mut option) })
    }

    /// The value of the plugin's option, if it was given.
    pub fn option(&self) -> Option<OsString> {
        OPTION.lock().map_or(None, |option| option.clone())
    }

    /// Whether the step has this option of any plugin, with a value. Slurm looks options up
    /// by their name alone (src/common/plugstack.c, spank.c: spank_option_getopt), and not
    /// before the tasks are forked.
    pub fn has_option(&self, name: &str) -> bool {
        let Ok(name) = CString::new(name) else { return false };
        let mut option = sys::SpankOption {
            name: name.as_ptr(),
            arginfo: c"VALUE".as_ptr(),
            usage: c"".as_ptr(),
            has_arg: 1,
            val: 0,
            callback: Some(ignore_option),
        };
        let mut value = std::ptr::null_mut();
        // SAFETY: Slurm reads the structure during the call only; the value stays Slurm's.
        let code =
            unsafe { sys::spank_option_getopt(self.handle, &raw mut option, &raw mut value) };
        code == sys::SUCCESS
    }

    pub fn job_id(&self) -> Option<u32> {
        self.item(sys::JOB_ID)
    }

    pub fn step_id(&self) -> Option<u32> {
        self.item(sys::JOB_STEP_ID)
    }

    pub fn local_task_count(&self) -> Option<u32> {
        self.item(sys::JOB_LOCAL_TASK_COUNT)
    }

    pub fn total_task_count(&self) -> Option<u32> {
        self.item(sys::JOB_TOTAL_TASK_COUNT)
    }

    /// The task's number on its node.
    pub fn task_id(&self) -> Option<u32> {
        let id: c_int = self.item(sys::TASK_ID)?;
        u32::try_from(id).ok()
    }

    pub fn global_task_id(&self) -> Option<u32> {
        self.item(sys::TASK_GLOBAL_ID)
    }

    pub fn task_pid(&self) -> Option<libc::pid_t> {
        self.item(sys::TASK_PID)
    }

    /// An item of one number, all of which are as long as [`c_uint`] (spank.h).
    fn item<N: Number>(&self, item: c_uint) -> Option<N> {
        let mut value = N::default();
        // SAFETY: spank_get_item writes one number of this type for these items.
        let code = unsafe { sys::spank_get_item(self.handle, item, &raw mut value) };
        accepted(code).ok().map(|()| value)
    }

    /// A variable of the step or, in task_init, of the task.
    pub fn variable(&self, name: &str) -> Option<OsString> {
        if let Some(strings) = &*self.strings.borrow() {
            return value_of(name.as_bytes(), strings);
        }
        let name = CString::new(name).ok()?;
        let mut buffer = vec![0_u8; 1024];
        loop {
            let length = c_int::try_from(buffer.len()).ok()?;
            // SAFETY: the buffer is that long; Slurm ends what it writes with a null.
            let code = unsafe {
                sys::spank_getenv(self.handle, name.as_ptr(), buffer.as_mut_ptr().cast(), length)
            };
            match code {
                sys::SUCCESS => break,
                sys::NO_SPACE if buffer.len() <= LONGEST_VALUE => {
                    buffer.resize(buffer.len() * 16, 0);
                }
                _ => return None,
            }
        }
        let value = CStr::from_bytes_until_nul(&buffer).ok()?;
        Some(OsString::from_vec(value.to_bytes().to_vec()))
    }

    /// Reads all variables at once, for the look-ups up to the next change: spank_getenv
    /// goes through Slurm's list in each of them, and a task has more than a hundred.
    pub fn read_variables(&self) {
        let mut array: *mut *mut c_char = std::ptr::null_mut();
        // SAFETY: spank_get_item writes one pointer of this type for this item.
        let code = unsafe { sys::spank_get_item(self.handle, sys::JOB_ENV, &raw mut array) };
        if code != sys::SUCCESS || array.is_null() {
            return;
        }
        let mut strings: Vec<Box<[u8]>> = Vec::with_capacity(128);
        // SAFETY: C strings up to a null, Slurm's own, which nothing changes meanwhile.
        while let Some(string) = unsafe { array.as_ref() }.filter(|string| !string.is_null()) {
            // SAFETY: see above; the string is copied.
            strings.push(unsafe { CStr::from_ptr(*string) }.to_bytes().into());
            // SAFETY: the null has not been reached.
            array = unsafe { array.add(1) };
        }
        self.strings.replace(Some(strings));
    }

    /// Sets a variable.
    pub fn set_variable(&self, name: &str, value: &OsStr) -> Result<(), Refused> {
        self.strings.take();
        let refused = |_| Refused(sys::NO_SPACE);
        let name = CString::new(name).map_err(refused)?;
        let value = CString::new(value.as_bytes()).map_err(refused)?;
        // SAFETY: two C strings, which Slurm copies.
        accepted(unsafe { sys::spank_setenv(self.handle, name.as_ptr(), value.as_ptr(), 1) })
    }

    /// Takes a variable away.
    pub fn remove_variable(&self, name: &str) -> Result<(), Refused> {
        self.strings.take();
        let name = CString::new(name).map_err(|_| Refused(sys::NO_SPACE))?;
        // SAFETY: a C string.
        accepted(unsafe { sys::spank_unsetenv(self.handle, name.as_ptr()) })
    }
}

/// The value of the first string NAME=VALUE with this name, as spank_getenv has it.
fn value_of(name: &[u8], strings: &[Box<[u8]>]) -> Option<OsString> {
    let value = strings.iter().find_map(|string| {
        // Most strings differ in this byte.
        let is_it = string.get(name.len()) == Some(&b'=') && string.starts_with(name);
        string.get(name.len() + 1..).filter(|_| is_it)
    });
    value.map(|value| OsStr::from_bytes(value).to_owned())
}

/// The numbers that items have.
trait Number: Default {}
impl Number for u32 {}
impl Number for c_int {}

fn accepted(code: c_uint) -> Result<(), Refused> {
    if code == sys::SUCCESS { Ok(()) } else { Err(Refused(code)) }
}

/// For an option that is only looked up: Slurm wants a function, and calls none.
unsafe extern "C" fn ignore_option(_: c_int, _: *const c_char, _: c_int) -> c_int {
    0
}

/// Slurm calls this for each value of the option, in the order of its sources: the last
/// one counts.
unsafe extern "C" fn take_option(_: c_int, value: *const c_char, _: c_int) -> c_int {
    if value.is_null() {
        return 0;
    }
    // SAFETY: a C string, which is copied.
    let value = unsafe { CStr::from_ptr(value) };
    if let Ok(mut option) = OPTION.lock() {
        *option = Some(OsStr::from_bytes(value.to_bytes()).to_owned());
    }
    0
}
