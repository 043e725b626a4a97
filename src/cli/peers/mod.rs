//! The ranks of one node: which processes they are, and how they tell each other what
//! they have. What they tell is their callers': `report --check`, `exec`.

mod exchange;
mod group;

pub use exchange::{PeerGroup, exchange};
pub use group::{is_in_step, launcher, peer_group};
