//! What must happen before Slurm looks at the plugin: its version word.
//!
//! Slurm reads `plugin_version` right after dlopen(3) and refuses a plugin of
//! another release. The dynamic linker runs this constructor inside dlopen, so
//! one binary can give the word of whichever Slurm has loaded it.

use std::ffi::{c_char, c_int, c_long};
use std::sync::atomic::{AtomicU32, Ordering};

use gpubind_core::SlurmRelease;

use crate::argv;

/// The release that it is for. No release has number 1: the constructor writes the
/// right one before Slurm reads it.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "Slurm's name")]
pub static plugin_version: AtomicU32 = AtomicU32::new(1);

/// Functions in this section are called by the dynamic linker with main's
/// arguments (glibc, elf/dl-init.c).
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) = constructor;

extern "C" fn constructor(argc: c_int, argv: *mut *mut c_char, _env: *mut *mut c_char) {
    argv::remember(argc, argv);
    if let Some(version) = api_number().and_then(gpubind_core::plugin_version) {
        plugin_version.store(version, Ordering::Relaxed);
    }
}

/// The release of the Slurm that has loaded the plugin.
pub fn release() -> Option<SlurmRelease> {
    SlurmRelease::from_api(api_number()?)
}

/// `slurm_api_version()` of the process that loads the plugin. Looked up at run
/// time: where it is missing the version word stays as it is and Slurm skips the plugin.
fn api_number() -> Option<u32> {
    // SAFETY: dlsym(3) with a constant, terminated name.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"slurm_api_version".as_ptr()) };
    if symbol.is_null() {
        return None;
    }
    // SAFETY: `long slurm_api_version(void)` in every release (slurm/slurm.h).
    let function: extern "C" fn() -> c_long = unsafe { std::mem::transmute(symbol) };
    u32::try_from(function()).ok()
}
