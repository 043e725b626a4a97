//! A `libnvidia-ml.so.1` that answers from a machine fixture: a test double
//! for machines with GPUs.
//!
//! | file | what lives there |
//! |---|---|
//! | `model` | what each question's answer is; immutable, derived from the [`gpubind_machine::Machine`] |
//! | `affinity`, `links` | the same for CPUs near a GPU, and for NVLinks |
//! | `view` | which GPUs this process may see |
//! | `state` | init and shutdown, faults, the call log |
//! | `exports` | NVML's C functions, thin, by group as in nvml.h |
//! | `ffi` | pointers from and to C |
//! | `code` | NVML's return codes |
//!
//! Environment:
//! * `FAKE_NVML_MACHINE`: the fixture; else `machine.toml` beside the library.
//! * `FAKE_NVML_DEV`: folder with the `nvidia<minor>` files that say which GPUs
//!   this process may use; else `../dev` beside the library's folder, where that
//!   exists; else every GPU is shown.
//! * `FAKE_NVML_CALLS`: a file that gains a line for every init, and one with
//!   the number of calls of each function for every last shutdown.
//!
//! What does *not* live here: the file system around the library (`/proc`,
//! sysfs), which the program `fake-machine` lays out.

mod affinity;
mod code;
mod exports;
mod ffi;
mod links;
mod model;
mod state;
mod view;

use std::path::PathBuf;

/// The C library that cargo built along with the running test, if it can be
/// found: it lies in the test's own folder or the one above it.
pub fn library() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let folders = test.ancestors().skip(1).take(2);
    let files = folders.map(|folder| folder.join("libnvidia_ml.so"));
    files.filter(|file| file.is_file()).max_by_key(|file| {
        // Both can be there, from different cargo commands; the newer one is
        // the one that matches the sources.
        file.metadata().and_then(|data| data.modified()).ok()
    })
}
