//! A process's clean start and hard end, for what reads NVML.
//!
//! Slurm's daemons start it with signals blocked or ignored and may leave descriptors
//! open. Rust's standard library changes neither when it starts a program, so the
//! program does it itself, first of all.

use std::fs;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// The highest signal number (signal(7)).
const LAST_SIGNAL: i32 = 64;
/// Standard input, output and error are below this.
const FIRST_OTHER: u32 = 3;

/// Unblocks all signals, gives each its default action and closes all descriptors but
/// the standard ones. To be called before anything is opened.
pub(super) fn clean() {
    for signal in 1..=LAST_SIGNAL {
        // SAFETY: the default action runs no code of this process. What cannot be
        // changed (SIGKILL, SIGSTOP, the C library's own two) stays as it is.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is filled in before it is used, and the old mask is not asked for.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), null_mut());
    }
    close_from(FIRST_OTHER);
}

fn close_from(first: u32) {
    // SAFETY: nothing in this process uses a descriptor beyond the standard ones yet.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if closed == 0 {
        return;
    }
    // Linux before 5.9 has no such call.
    let listed: Vec<i32> = match fs::read_dir("/proc/self/fd") {
        Ok(names) => {
            names.flatten().filter_map(|it| it.file_name().to_str()?.parse().ok()).collect()
        }
        Err(_) => return,
    };
    for descriptor in listed.into_iter().filter(|it| *it >= first as i32) {
        // SAFETY: nothing uses these either; the list's own descriptor is closed by now.
        unsafe { libc::close(descriptor) };
    }
}

/// Ends the process at once: no destructor of any library runs, since one may wait for
/// a lock that a hanging call has.
pub(super) fn leave(code: i32) -> ! {
    // SAFETY: ends the process; nothing of Rust's is used afterwards.
    unsafe { libc::_exit(code) }
}
