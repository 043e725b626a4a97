//! Which CPUs are threads of one core, as the kernel tells.

use crate::node::{IdSet, Roots, read_small};

/// The CPUs that are threads of the same core as `cpu`, itself among them, from
/// /sys/devices/system/cpu/cpuN/topology/thread_siblings_list; empty where the kernel, or
/// a container, does not show it.
pub fn core_threads(roots: &Roots, cpu: usize) -> IdSet {
    let folder = roots.sys().join(format!("devices/system/cpu/cpu{cpu}/topology"));
    let list = read_small(&folder.join("thread_siblings_list")).unwrap_or_default();
    list.parse().unwrap_or_default()
}
