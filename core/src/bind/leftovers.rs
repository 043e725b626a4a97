//! What gpubind sets besides lists of devices, and takes back where it does not hold.

use crate::request::Change;
use crate::variables;

use gpubind_shim_core::record::without_shim;

/// What an unmodified `env://` program reads.
pub(super) const RANK_VARIABLES: [&str; 7] = [
    variables::RANK,
    variables::WORLD_SIZE,
    variables::LOCAL_RANK,
    variables::LOCAL_WORLD_SIZE,
    variables::NODE_RANK,
    variables::MASTER_ADDR,
    variables::MASTER_PORT,
];

/// What tells logs, scripts and gpubind itself about the rank's own devices.
pub(super) const GPUBIND_VARS: [&str; 8] = [
    variables::GPU_UUID,
    variables::GPU_PCI,
    variables::GPU_INDEX,
    variables::NUMA_NODE,
    variables::BOUND_LOCAL_RANK,
    variables::WHY,
    variables::ASSIGNED_LIST,
    variables::SHARING_WANTED,
];

/// Takes away what gpubind has set in an outer step, and does not hold in this one:
/// facts about devices, the worker shim, and those rank variables that were not the
/// user's own.
pub fn leftovers(env: &dyn Fn(&str) -> Option<String>) -> Vec<Change> {
    let ranks = env(variables::RANK_VARIABLES_SET).unwrap_or_default();
    let ranks = ranks.split(',').filter(|name| RANK_VARIABLES.contains(name));
    let unset = ranks
        .chain(GPUBIND_VARS)
        .chain([variables::RANK_VARIABLES_SET, variables::WORKERS])
        .filter(|name| env(name).is_some())
        .map(|name| (name.to_owned(), None));
    let preload = env(variables::LD_PRELOAD).and_then(|preload| {
        let others = others(&preload)?;
        Some((variables::LD_PRELOAD.to_owned(), (!others.is_empty()).then_some(others)))
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
