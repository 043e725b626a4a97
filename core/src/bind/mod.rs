//! What the plan makes of a process's environment.
//!
//! [`edits`] is the library's one pure function for a rank: the plugin,
//! `gpubind exec` and `gpubind plan` all call it with the inputs that they have
//! gathered; `exec` by way of [`edits_for_process`], which knows what a process's own
//! environment says of those inputs. What does *not* live here: gathering them, and
//! applying the edits.

mod arming;
mod edits;
mod leftovers;
mod process;
mod report;
mod visible;
mod warning;

pub use arming::Shim;
pub use edits::{Edits, Outcome, Rank, SkipReason, edits, edits_by, shape};
pub use gpubind_shim_core::record::LIBRARY;
pub use leftovers::leftovers;
pub use process::{Process, edits_for_process, skip_reason};
pub use report::{Locality, RankReport};
pub use warning::Warning;
