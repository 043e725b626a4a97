//! The parts of Slurm's plugin interface that are in use (slurm/spank.h, the same from
//! 22.05 to 26.05). The tests' build compares them with the bindings of slurm-spank.

use std::ffi::{c_char, c_int, c_uint};
use std::marker::{PhantomData, PhantomPinned};

/// Slurm's handle of a plugin stack; only ever behind a pointer.
#[repr(C)]
pub struct Handle {
    opaque: [u8; 0],
    not_ours: PhantomData<(*mut u8, PhantomPinned)>,
}

/// `struct spank_option`.
#[repr(C)]
pub struct SpankOption {
    pub name: *const c_char,
    pub arginfo: *const c_char,
    pub usage: *const c_char,
    pub has_arg: c_int,
    pub val: c_int,
    pub callback: Option<unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int>,
}

/// `ESPANK_SUCCESS`.
pub const SUCCESS: c_uint = 0;
/// `ESPANK_NOSPACE` (slurm/slurm_errno.h).
pub const NO_SPACE: c_uint = 3005;

/// `spank_context_t`.
pub const CONTEXT_LOCAL: c_uint = 1;
pub const CONTEXT_REMOTE: c_uint = 2;
pub const CONTEXT_ALLOCATOR: c_uint = 3;
pub const CONTEXT_SLURMD: c_uint = 4;

/// `spank_item_t`, with the type that spank_get_item(3) writes.
pub const JOB_ID: c_uint = 2;
pub const JOB_STEP_ID: c_uint = 3;
pub const JOB_LOCAL_TASK_COUNT: c_uint = 6;
pub const JOB_TOTAL_TASK_COUNT: c_uint = 7;
pub const JOB_ENV: c_uint = 10;
pub const TASK_ID: c_uint = 11;
pub const TASK_GLOBAL_ID: c_uint = 12;
pub const TASK_PID: c_uint = 14;

unsafe extern "C" {
    pub fn spank_context() -> c_uint;
    pub fn spank_option_register(spank: *mut Handle, option: *mut SpankOption) -> c_uint;
    pub fn spank_option_getopt(
        spank: *mut Handle,
        option: *mut SpankOption,
        value: *mut *mut c_char,
    ) -> c_uint;
    pub fn spank_get_item(spank: *mut Handle, item: c_uint, ...) -> c_uint;
    pub fn spank_getenv(
        spank: *mut Handle,
        name: *const c_char,
        buffer: *mut c_char,
        length: c_int,
    ) -> c_uint;
    pub fn spank_setenv(
        spank: *mut Handle,
        name: *const c_char,
        value: *const c_char,
        overwrite: c_int,
    ) -> c_uint;
    pub fn spank_unsetenv(spank: *mut Handle, name: *const c_char) -> c_uint;
    pub fn slurm_error(format: *const c_char, ...);
    pub fn slurm_info(format: *const c_char, ...);
    pub fn slurm_verbose(format: *const c_char, ...);
    pub fn slurm_debug(format: *const c_char, ...);
    pub fn slurm_debug2(format: *const c_char, ...);
    pub fn slurm_spank_log(format: *const c_char, ...);
}

#[cfg(test)]
mod compared_with_slurm_spank {
    use std::mem::{offset_of, size_of};

    use slurm_spank::spank_sys as other;

    const _: () = {
        assert!(super::SUCCESS == other::ESPANK_SUCCESS);
        assert!(super::NO_SPACE == other::slurm_err_t_ESPANK_NOSPACE);
        assert!(super::CONTEXT_LOCAL == other::spank_context_S_CTX_LOCAL);
        assert!(super::CONTEXT_REMOTE == other::spank_context_S_CTX_REMOTE);
        assert!(super::CONTEXT_ALLOCATOR == other::spank_context_S_CTX_ALLOCATOR);
        assert!(super::CONTEXT_SLURMD == other::spank_context_S_CTX_SLURMD);
        assert!(super::JOB_ID == other::spank_item_S_JOB_ID);
        assert!(super::JOB_STEP_ID == other::spank_item_S_JOB_STEPID);
        assert!(super::JOB_LOCAL_TASK_COUNT == other::spank_item_S_JOB_LOCAL_TASK_COUNT);
        assert!(super::JOB_TOTAL_TASK_COUNT == other::spank_item_S_JOB_TOTAL_TASK_COUNT);
        assert!(super::JOB_ENV == other::spank_item_S_JOB_ENV);
        assert!(super::TASK_ID == other::spank_item_S_TASK_ID);
        assert!(super::TASK_GLOBAL_ID == other::spank_item_S_TASK_GLOBAL_ID);
        assert!(super::TASK_PID == other::spank_item_S_TASK_PID);
        assert!(size_of::<super::SpankOption>() == size_of::<other::spank_option>());
        assert!(offset_of!(super::SpankOption, usage) == offset_of!(other::spank_option, usage));
        assert!(offset_of!(super::SpankOption, val) == offset_of!(other::spank_option, val));
        assert!(offset_of!(super::SpankOption, callback) == offset_of!(other::spank_option, cb));
    };
}
