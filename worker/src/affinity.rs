//! On which CPUs a worker runs, and all that it starts.

use core::ffi::c_int;
use core::mem::size_of;

use gpubind_shim_core::cpus::CpuMask;

/// Has the process run on these of its CPUs. Where some of them are not its own, its
/// launcher or a script has chosen others, which is respected. Nothing here is fatal.
pub fn leave(list: &[u8]) {
    let Some(wanted) = CpuMask::read(list) else { return };
    let mut own = CpuMask::default();
    let size = size_of::<CpuMask>();
    // SAFETY: the kernel writes no more than the mask's size. It is the calling thread's
    // own, and before main there is no other.
    let found: c_int = unsafe { libc::sched_getaffinity(0, size, (&raw mut own).cast()) };
    if found == 0 && wanted.is_less_than(&own) {
        // SAFETY: the kernel reads no more than the mask's size.
        let _ = unsafe { libc::sched_setaffinity(0, size, (&raw const wanted).cast()) };
    }
}
