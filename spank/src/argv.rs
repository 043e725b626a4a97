//! The command line of the process that has loaded the plugin, as main sees it.
//!
//! srun, sbatch and salloc parse main's own array after slurm_spank_init, so an
//! element that is replaced there is what they read.

use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

static ARGC: AtomicI32 = AtomicI32::new(0);
static ARGV: AtomicPtr<*mut c_char> = AtomicPtr::new(null_mut());

/// Keeps what the dynamic linker told the constructor.
pub fn remember(argc: c_int, argv: *mut *mut c_char) {
    ARGC.store(argc, Ordering::Relaxed);
    ARGV.store(argv, Ordering::Relaxed);
}

/// A copy of the command line; empty where it is not known. Only for srun,
/// sbatch and salloc: daemons move their arguments to show a title.
pub fn words() -> Vec<OsString> {
    let argv = ARGV.load(Ordering::Relaxed);
    let argc = usize::try_from(ARGC.load(Ordering::Relaxed)).unwrap_or(0);
    let mut words = Vec::new();
    for position in 0..if argv.is_null() { 0 } else { argc } {
        // SAFETY: argv has argc elements, each a C string that lives as long as
        // the process; a null ends the list early.
        let word = unsafe {
            let word = *argv.add(position);
            if word.is_null() { break } else { CStr::from_ptr(word) }
        };
        words.push(OsStr::from_bytes(word.to_bytes()).to_owned());
    }
    words
}

/// Puts another word in the place of one of main's. The new word is never freed.
pub fn replace(position: usize, word: &str) {
    let argv = ARGV.load(Ordering::Relaxed);
    let argc = usize::try_from(ARGC.load(Ordering::Relaxed)).unwrap_or(0);
    let Ok(word) = CString::new(word) else {
        return;
    };
    if !argv.is_null() && position < argc {
        // SAFETY: the element exists; main has only this thread so far and has
        // not yet looked at its options.
        unsafe { *argv.add(position) = word.into_raw() };
    }
}
