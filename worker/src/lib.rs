//! gpubind's worker shim: in a task that keeps several devices it is preloaded into
//! every process, and gives each one that a launcher has numbered a device of its own.
//!
//! What a process is, and what becomes of its variables, is the shared crate's to say:
//! shim-core/src/record.rs. Here is only how that is done inside a process of any program
//! at all, before its main runs: nothing is allocated by malloc, locked or started, nothing
//! is printed but a line by a worker beyond the number of devices, and nothing can panic.
//!
//! Shipped builds have no standard library (`--profile worker`), so that nothing
//! but the C library is loaded beside it; test builds have.
#![cfg_attr(all(panic = "abort", not(test)), no_std)]

mod affinity;
mod environment;
mod shim;
mod space;

/// Functions in this section are called by the dynamic linker before main, after
/// the C library's own (it is a dependency). glibc passes main's arguments, musl
/// does not, so there are none.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = shim::run;

/// No code here may panic; that none does, the linker proves: nothing defines
/// the function that this calls (build.rs).
#[cfg(all(panic = "abort", not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    unsafe extern "C" {
        fn gpubind_worker_has_a_panic_path() -> !;
    }
    // SAFETY: never linked.
    unsafe { gpubind_worker_has_a_panic_path() }
}
