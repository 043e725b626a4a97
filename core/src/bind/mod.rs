//! What the plan makes of a process's environment.
//!
//! [`edits`] is the library's one pure function for a rank: the plugin,
//! `gpubind exec` and `gpubind plan` all call it with the inputs that they have
//! gathered; `exec` by way of [`edits_for_process`], which knows what a process's own
//! environment says of those inputs. What does *not* live here: gathering them, and
//! applying the edits.

mod arming;
mod cpus;
#[cfg(test)]
mod cpus_tests;
mod device_lists;
mod edits;
mod inherited;
mod local_cpus;
mod locality;
mod process;
mod rank;
mod rank_variables;
mod report;
mod task;
mod visible;
mod warning;

pub use device_lists::{DEVICE_LISTS, restore};
pub use edits::{Edits, Outcome, SkipReason, edits, edits_by, shape};
pub use gpubind_shim_core::record::LIBRARY;
pub use inherited::{inherited, preload_without_shim};
pub use locality::Locality;
pub use process::{Process, edits_for_process, skip_reason};
pub use rank::{Rank, Shim};
pub use report::{OwnDevice, RankReport};
pub use task::{Decision, Task, decide};
pub use warning::Warning;
