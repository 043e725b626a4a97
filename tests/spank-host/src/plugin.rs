//! The plugin: loaded as Slurm loads it, and its hooks.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::c_string::c_string;
use crate::environment::Environment;
use crate::mark;
use crate::settings::{Marks, Settings, StepSettings};
use crate::state::{Context, state};

/// All hooks of spank.h, in the order in which they run.
pub const HOOKS: [&str; 12] = [
    "slurm_spank_init",
    "slurm_spank_slurmd_exit",
    "slurm_spank_job_prolog",
    "slurm_spank_init_post_opt",
    "slurm_spank_local_user_init",
    "slurm_spank_user_init",
    "slurm_spank_task_init_privileged",
    "slurm_spank_task_init",
    "slurm_spank_task_post_fork",
    "slurm_spank_task_exit",
    "slurm_spank_job_epilog",
    "slurm_spank_exit",
];

/// What hooks get as spank_t; its address is all that counts.
pub static HANDLE: [u8; 1] = [0];

/// Releases by year and month; the first has API number 38.
const RELEASES: [(u32, u32); 10] =
    [(22, 5), (23, 2), (23, 11), (24, 5), (24, 11), (25, 5), (25, 11), (26, 5), (26, 11), (27, 5)];

type Hook = unsafe extern "C" fn(*const c_void, c_int, *mut *mut c_char) -> c_int;

/// Why a plugin cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// dlopen(3) refuses it.
    #[error("{0}")]
    Load(String),
    /// Slurm wants it in every plugin.
    #[error("the plugin has no symbol `{0}`")]
    Symbol(&'static str),
    /// Another plugin's type.
    #[error("the plugin's type is `{0}`, not spank")]
    Type(String),
    /// Slurm would refuse it.
    #[error("the plugin is for version {found:#x}, this Slurm has {expected:#x}")]
    Version {
        /// Its version word.
        found: c_uint,
        /// The release's.
        expected: c_uint,
    },
    /// No such release.
    #[error("unknown Slurm release `{0}`, valid: 22.05 to 27.05")]
    Release(String),
    /// No header of valgrind's when this program was built.
    #[error("built without valgrind/callgrind.h: install valgrind and build spank-host again")]
    Marks,
}

/// A loaded plugin. It stays loaded, as in Slurm's daemons.
pub struct Plugin {
    library: *mut c_void,
    args: Environment,
    marks: Option<Marks>,
    step: StepSettings,
}

impl Plugin {
    /// Makes the process one of Slurm's release and loads the plugin into it.
    pub fn load(settings: &Settings, context: Context) -> Result<Plugin, PluginError> {
        if !mark::can(settings.marks) {
            return Err(PluginError::Marks);
        }
        let (number, release) = release(&settings.slurm)?;
        {
            let mut state = state();
            state.context = context;
            state.api_version = i64::from(number) << 16;
            let (year, month) = release;
            let texts =
                [&format!("{year}.{month:02}.0"), &year.to_string(), &format!("{month:02}"), "0"];
            state.version = texts.map(c_string).to_vec();
            state.log_level = settings.log_level;
            state.options.clear();
        }
        let path = c_string(settings.plugin.as_os_str().as_bytes());
        let library = mark::around(
            settings.marks,
            || "dlopen".to_owned(),
            || {
                // SAFETY: a C string; the plugin's constructors are trusted to be sound.
                unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY) }
            },
        );
        if library.is_null() {
            return Err(PluginError::Load(dl_error(&settings.plugin)));
        }
        let args = settings.args.iter().map(|word| c_string(word.as_str())).collect();
        let args = Environment::from_strings(args);
        let plugin = Plugin { library, args, marks: settings.marks, step: settings.step.clone() };
        plugin.check(release)?;
        Ok(plugin)
    }

    /// What Slurm checks (src/common/plugin.c, _verify_syms).
    fn check(&self, (year, month): (u32, u32)) -> Result<(), PluginError> {
        let symbol = |name: &'static str| self.symbol(name).ok_or(PluginError::Symbol(name));
        symbol("plugin_name")?;
        // SAFETY: Slurm's plugins have `const char plugin_type[]`.
        let kind = unsafe { CStr::from_ptr(symbol("plugin_type")?.cast()) };
        if kind != c"spank" {
            return Err(PluginError::Type(kind.to_string_lossy().into_owned()));
        }
        // SAFETY: Slurm's plugins have `const unsigned int plugin_version`.
        let found = unsafe { *symbol("plugin_version")?.cast::<c_uint>() };
        let expected = year << 16 | month << 8;
        if found & 0x00ff_ff00 == expected {
            Ok(())
        } else {
            Err(PluginError::Version { found, expected })
        }
    }

    fn symbol(&self, name: &str) -> Option<*mut c_void> {
        let name = CString::new(name).ok()?;
        // SAFETY: a loaded library and a C string.
        let symbol = unsafe { libc::dlsym(self.library, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol)
    }

    /// Runs a hook, if the plugin has it; false where it does not return 0.
    pub fn run(&mut self, name: &'static str) -> bool {
        let Some(symbol) = self.symbol(name) else { return true };
        state().hook = name;
        // SAFETY: the plugin's hooks have this type (slurm/spank.h, spank_f).
        let hook: Hook = unsafe { std::mem::transmute(symbol) };
        let (count, args) = (self.args.len(), self.args.as_array());
        let sampled = state().task.is_none_or(|task| self.step.is_sampled(task.local));
        let result = mark::around(
            self.marks.filter(|_| sampled),
            || label(name),
            || {
                // SAFETY: the handle is never looked into, the arguments are C strings.
                unsafe { hook(HANDLE.as_ptr().cast(), c_int::try_from(count).unwrap_or(0), args) }
            },
        );
        if result != 0 {
            eprintln!("spank-host: {name} returned {result}");
        }
        result == 0
    }
}

/// The hook's name, with the task's number where it runs for one.
fn label(name: &str) -> String {
    state().task.map_or(name.to_owned(), |task| format!("{name}:{}", task.local))
}

/// API number, year and month of a release.
fn release(text: &str) -> Result<(u32, (u32, u32)), PluginError> {
    let known =
        (38..).zip(RELEASES).find(|(_, (year, month))| format!("{year}.{month:02}") == text);
    known.ok_or_else(|| PluginError::Release(text.to_owned()))
}

fn dl_error(plugin: &Path) -> String {
    // SAFETY: dlerror(3) gives null or a C string.
    let text = unsafe {
        let text = libc::dlerror();
        if text.is_null() { c"" } else { CStr::from_ptr(text) }
    };
    match text.to_string_lossy() {
        text if text.is_empty() => format!("cannot load {}", plugin.display()),
        text => text.into_owned(),
    }
}
