//! What the plan makes of a process's environment.
//!
//! [`edits`] is the library's one pure function for a rank: the plugin,
//! `gpubind exec` and `gpubind plan` all call it with the inputs that they have
//! gathered; `exec` by way of [`edits_here`], which knows what a process's own
//! environment says of those inputs. What does *not* live here: gathering them, and
//! applying the edits.

mod arming;
mod edits;
mod here;
mod leftovers;
mod report;
mod visible;
mod warning;
pub mod worker;

pub use arming::Shim;
pub use edits::{Edits, Outcome, Rank, StandAside, edits, edits_by, shape};
pub use here::{Here, aside, edits_here};
pub use leftovers::{GIVEN, SHARED, leftovers};
pub use report::{Locality, RankReport};
pub use warning::Warning;
pub use worker::LIBRARY;
