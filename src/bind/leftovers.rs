//! What gpubind sets besides lists of devices, and takes back where it does not hold.

use crate::config::{Change, RANK_ENV_SET};

use super::arming::PRELOAD;
use super::worker::{RECORD, without_shim};

/// What an unmodified `env://` program reads.
pub(super) const RANK_VARIABLES: [&str; 7] = [
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
];

/// CUDA_VISIBLE_DEVICES as gpubind has set it. Where both are the same, the list is
/// gpubind's: in plan order, and not to be planned again.
pub const GIVEN: &str = "GPUBIND_VISIBLE";

/// `on` where several ranks on a device are wanted.
pub const SHARED: &str = "GPUBIND_SHARE";

/// What tells logs, scripts and gpubind itself about the rank's own devices.
pub(super) const FACTS: [&str; 8] = [
    "GPUBIND_GPU_UUID",
    "GPUBIND_GPU_PCI",
    "GPUBIND_GPU_INDEX",
    "GPUBIND_NUMA_NODE",
    "GPUBIND_LOCAL_RANK",
    "GPUBIND_WHY",
    GIVEN,
    SHARED,
];

/// Takes away what gpubind has set in an outer step, and does not hold in this one:
/// facts about devices, the worker shim, and those rank variables that were not the
/// user's own.
pub fn leftovers(env: &dyn Fn(&str) -> Option<String>) -> Vec<Change> {
    let ranks = env(RANK_ENV_SET).unwrap_or_default();
    let ranks = ranks.split(',').filter(|name| RANK_VARIABLES.contains(name));
    let unset = ranks
        .chain(FACTS)
        .chain([RANK_ENV_SET, RECORD])
        .filter(|name| env(name).is_some())
        .map(|name| (name.to_owned(), None));
    let preload = env(PRELOAD).and_then(|preload| {
        let others = others(&preload)?;
        Some((PRELOAD.to_owned(), (!others.is_empty()).then_some(others)))
    });
    unset.chain(preload).collect()
}

/// LD_PRELOAD without the shim, or `None` if the shim is not in it.
pub(super) fn others(preload: &str) -> Option<String> {
    let (before, after) = without_shim(preload.as_bytes())?;
    let others = String::from_utf8_lossy(&[before, after].concat()).into_owned();
    // Written twice by somebody else, perhaps.
    Some(self::others(&others).unwrap_or(others))
}
