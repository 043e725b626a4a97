//! What must happen before Slurm looks at the plugin: its version word.
//!
//! Slurm reads `plugin_version` right after dlopen(3) and refuses a plugin of
//! another release. The dynamic linker runs this constructor inside dlopen, so
//! one binary can give the word of whichever Slurm has loaded it.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use crate::argv;

/// Functions in this section are called by the dynamic linker with main's
/// arguments (glibc, elf/dl-init.c).
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) = constructor;

extern "C" fn constructor(argc: c_int, argv: *mut *mut c_char, _env: *mut *mut c_char) {
    argv::remember(argc, argv);
    if let Some(version) = api_number().and_then(gpubind_core::plugin_version) {
        write_version(version);
    }
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

/// Writes the word into the constant that the plugin macro has made.
fn write_version(version: c_uint) {
    let word = (&raw const crate::symbols::plugin_version).cast_mut();
    // SAFETY: no memory is touched.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let start = (word as usize & !(page - 1)) as *mut c_void;
    // SAFETY: the page holds this library's constants and nobody else has the
    // library yet; an aligned word does not cross into the next page. Nothing in
    // Rust reads the constant. The page is read-only again afterwards.
    unsafe {
        if libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) == 0 {
            word.write_volatile(version);
            libc::mprotect(start, page, libc::PROT_READ);
        }
    }
}
