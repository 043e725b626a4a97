//! What gpubind has set in an outer step and what is not in effect in this one.

use std::ffi::{OsStr, OsString};

use gpubind_shim_core::record::without_shim;

use crate::request::Change;
use crate::step::is_noted;
use crate::variables;

use super::rank_variables::RANK_VARIABLES;

/// What tells logs, scripts and gpubind itself about a rank's own devices.
pub(super) const GPUBIND_VARS: [&str; 10] = [
    variables::GPU_UUID,
    variables::GPU_PCI,
    variables::GPU_INDEX,
    variables::GPU_ORDINAL,
    variables::NUMA_NODE,
    variables::BOUND_LOCAL_RANK,
    variables::WHY,
    variables::ASSIGNED_LIST,
    variables::SHARING_WANTED,
    variables::CPUS,
];

/// Takes away what gpubind has set in an outer step: what it tells about devices, the
/// worker shim's record, and those rank variables that still have the value that gpubind
/// gave them. A value that the user has set since stays.
pub fn inherited(env: &dyn Fn(&str) -> Option<String>) -> Vec<Change> {
    let is_stale = |name: &&str| env(name).is_some_and(|value| is_noted(env, name, &value));
    let noted = RANK_VARIABLES
        .into_iter()
        .chain([variables::CUDA_DEVICE_ORDER, variables::OMP_NUM_THREADS]);
    let ranks = noted.filter(is_stale);
    let own = GPUBIND_VARS.into_iter().chain([variables::RANK_VARIABLES_SET, variables::WORKERS]);
    let own = own.filter(|name| env(name).is_some());
    ranks.chain(own).map(|name| (name.to_owned(), None)).collect()
}

/// LD_PRELOAD without the shim, or `None` if the shim is not in it. Its bytes may be any.
pub fn preload_without_shim(preload: &OsStr) -> Option<OsString> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut preload = preload.as_bytes().to_vec();
    let mut found = false;
    // Written twice by somebody else, perhaps.
    while let Some((before, after)) = without_shim(&preload) {
        preload = [before, after].concat();
        found = true;
    }
    found.then(|| OsString::from_vec(preload))
}
