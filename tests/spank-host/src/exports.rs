//! The functions that a plugin finds in Slurm's programs, but for the variadic ones.
//!
//! Each checks as Slurm's own does (src/common/spank.c): a null argument, the wrong
//! context, a variable that is not there.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};

use crate::options;
use crate::plugin::{HANDLE, HOOKS};
use crate::registered::{Registered, SpankOption};
use crate::state::{Context, State, state};

/// enum spank_err and slurm_errno.h.
pub const SUCCESS: c_int = 0;
pub const BAD_ARG: c_int = 3001;
pub const NOT_TASK: c_int = 3002;
pub const ENV_EXISTS: c_int = 3003;
pub const ENV_NOEXIST: c_int = 3004;
pub const NOSPACE: c_int = 3005;
pub const NOT_REMOTE: c_int = 3006;
pub const NOEXIST: c_int = 3007;
pub const NOT_AVAIL: c_int = 3009;
pub const NOT_LOCAL: c_int = 3010;

/// Whether a handle is the one that hooks get.
pub fn is_handle(spank: *const c_void) -> bool {
    std::ptr::eq(spank, HANDLE.as_ptr().cast())
}

/// A C string of the plugin's.
///
/// # Safety
/// It is null, or a C string that lives while the exported function runs.
unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a CStr> {
    // SAFETY: not null, so a C string.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) })
}

#[unsafe(no_mangle)]
extern "C" fn slurm_api_version() -> c_long {
    state().api_version
}

#[unsafe(no_mangle)]
extern "C" fn spank_context() -> c_uint {
    state().context as c_uint
}

#[unsafe(no_mangle)]
extern "C" fn spank_remote(spank: *mut c_void) -> c_int {
    if is_handle(spank) { c_int::from(state().context == Context::Remote) } else { -1 }
}

#[unsafe(no_mangle)]
extern "C" fn spank_symbol_supported(symbol: *const c_char) -> c_int {
    // SAFETY: the plugin gives a C string or null.
    let symbol = unsafe { text(symbol) };
    symbol.map_or(-1, |symbol| {
        c_int::from(HOOKS.iter().any(|hook| hook.as_bytes() == symbol.to_bytes()))
    })
}

#[unsafe(no_mangle)]
extern "C" fn spank_strerror(_error: c_uint) -> *const c_char {
    c"an error of spank-host".as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn slurm_strerror(_error: c_int) -> *mut c_char {
    c"an error of spank-host".as_ptr().cast_mut()
}

#[unsafe(no_mangle)]
extern "C" fn spank_option_register(spank: *mut c_void, option: *mut SpankOption) -> c_int {
    let mut state = state();
    // Anywhere else Slurm refuses it.
    if !is_handle(spank) || option.is_null() || state.hook != "slurm_spank_init" {
        return BAD_ARG;
    }
    // SAFETY: the plugin gives a struct spank_option, whose name is a C string or null.
    let registered = unsafe { Registered::new(&*option) };
    match registered {
        Some(option) if state.options.iter().all(|other| other.name != option.name) => {
            state.options.push(option);
            SUCCESS
        }
        _ => BAD_ARG,
    }
}

#[unsafe(no_mangle)]
extern "C" fn spank_option_getopt(
    spank: *mut c_void,
    option: *mut SpankOption,
    value: *mut *const c_char,
) -> c_int {
    const REFUSED: [&str; 4] = [
        "slurm_spank_init",
        "slurm_spank_init_post_opt",
        "slurm_spank_task_post_fork",
        "slurm_spank_exit",
    ];
    if !is_handle(spank) || option.is_null() {
        return BAD_ARG;
    }
    if REFUSED.contains(&state().hook) {
        return NOT_AVAIL;
    }
    // SAFETY: the plugin gives a struct spank_option, whose name is a C string or null.
    let Some(name) = (unsafe { text((*option).name) }) else { return BAD_ARG };
    match options::value(name) {
        Some(found) if !found.is_null() => {
            if !value.is_null() {
                // SAFETY: the plugin's own variable.
                unsafe { *value = found };
            }
            SUCCESS
        }
        _ => 3000,
    }
}

/// Which of the two environments, and where it can be used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Step,
    Control,
}

impl Which {
    fn refuses(self, state: &State) -> Option<c_int> {
        let local = matches!(state.context, Context::Local | Context::Allocator);
        match self {
            Which::Step => (state.context != Context::Remote).then_some(NOT_REMOTE),
            Which::Control => (!local).then_some(NOT_LOCAL),
        }
    }
}

fn get(
    which: Which,
    spank: *mut c_void,
    name: *const c_char,
    buffer: *mut c_char,
    size: c_int,
) -> c_int {
    let state = state();
    // SAFETY: the plugin gives a C string or null.
    let name = unsafe { text(name) };
    let size = usize::try_from(size).unwrap_or(0);
    let Some(name) = name.filter(|_| is_handle(spank) && !buffer.is_null() && size > 0) else {
        return BAD_ARG;
    };
    if let Some(error) = which.refuses(&state) {
        return error;
    }
    let env = if which == Which::Step { &state.env } else { &state.control };
    let Some(value) = env.get(name) else { return ENV_NOEXIST };
    let length = value.len().min(size - 1);
    // SAFETY: the plugin's buffer has `size` bytes, of which length + 1 are written.
    unsafe {
        buffer.copy_from_nonoverlapping(value.as_ptr().cast(), length);
        buffer.add(length).write(0);
    }
    if value.len() < size { SUCCESS } else { NOSPACE }
}

fn set(
    which: Which,
    spank: *mut c_void,
    name: *const c_char,
    value: *const c_char,
    over: c_int,
) -> c_int {
    let mut state = state();
    // SAFETY: the plugin gives C strings or nulls.
    let (name, value) = unsafe { (text(name), text(value)) };
    let (Some(name), Some(value), true) = (name, value, is_handle(spank)) else {
        return BAD_ARG;
    };
    if let Some(error) = which.refuses(&state) {
        return error;
    }
    let env = if which == Which::Step { &mut state.env } else { &mut state.control };
    if over == 0 && env.get(name).is_some() {
        return ENV_EXISTS;
    }
    env.set(name.to_bytes(), value.to_bytes());
    SUCCESS
}

fn unset(which: Which, spank: *mut c_void, name: *const c_char) -> c_int {
    let mut state = state();
    // SAFETY: the plugin gives a C string or null.
    let name = unsafe { text(name) };
    let Some(name) = name.filter(|_| is_handle(spank)) else { return BAD_ARG };
    if let Some(error) = which.refuses(&state) {
        return error;
    }
    let env = if which == Which::Step { &mut state.env } else { &mut state.control };
    env.unset(name.to_bytes());
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn spank_getenv(
    spank: *mut c_void,
    name: *const c_char,
    buffer: *mut c_char,
    size: c_int,
) -> c_int {
    get(Which::Step, spank, name, buffer, size)
}

#[unsafe(no_mangle)]
extern "C" fn spank_setenv(
    spank: *mut c_void,
    name: *const c_char,
    value: *const c_char,
    over: c_int,
) -> c_int {
    set(Which::Step, spank, name, value, over)
}

#[unsafe(no_mangle)]
extern "C" fn spank_unsetenv(spank: *mut c_void, name: *const c_char) -> c_int {
    unset(Which::Step, spank, name)
}

#[unsafe(no_mangle)]
extern "C" fn spank_job_control_getenv(
    spank: *mut c_void,
    name: *const c_char,
    buffer: *mut c_char,
    size: c_int,
) -> c_int {
    get(Which::Control, spank, name, buffer, size)
}

#[unsafe(no_mangle)]
extern "C" fn spank_job_control_setenv(
    spank: *mut c_void,
    name: *const c_char,
    value: *const c_char,
    over: c_int,
) -> c_int {
    set(Which::Control, spank, name, value, over)
}

#[unsafe(no_mangle)]
extern "C" fn spank_job_control_unsetenv(spank: *mut c_void, name: *const c_char) -> c_int {
    unset(Which::Control, spank, name)
}

/// Rust does not see who calls these, and would leave C's functions out as unused.
#[used]
static VARIADIC: [Variadic; 8] = [
    Variadic(spank_get_item),
    Variadic(slurm_spank_log),
    Variadic(slurm_error),
    Variadic(slurm_info),
    Variadic(slurm_verbose),
    Variadic(slurm_debug),
    Variadic(slurm_debug2),
    Variadic(slurm_debug3),
];

#[repr(transparent)]
struct Variadic(#[allow(dead_code, reason = "only its address matters")] unsafe extern "C" fn());

unsafe extern "C" {
    fn spank_get_item();
    fn slurm_spank_log();
    fn slurm_error();
    fn slurm_info();
    fn slurm_verbose();
    fn slurm_debug();
    fn slurm_debug2();
    fn slurm_debug3();
}
