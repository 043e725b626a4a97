//! What the plan makes of a process's environment.
//!
//! [`edits`] is the library's one pure function for a rank: the plugin,
//! `gpubind exec` and `gpubind plan` all call it with the inputs that they have
//! gathered; `exec` by way of [`edits_here`], which knows what a process's own
//! environment says of those inputs. What does *not* live here: gathering them, and
//! applying the edits.

mod edits;
mod here;
mod report;
mod visible;
mod warning;

pub use edits::{
    Edits, GIVEN, Outcome, Rank, SHARED, StandAside, edits, edits_by, leftovers, shape,
};
pub use here::{Here, aside, edits_here};
pub use report::{Locality, RankReport};
pub use warning::Warning;
