//! NUMA nodes: /sys/devices/system/node.

use gpubind_core::node::{IdSet, NumaNode};
use gpubind_core::node::{Roots, names, read_small};

/// The NUMA nodes in id order, those without CPUs too (memory of a GPU, CXL);
/// empty where the kernel has no NUMA support.
pub fn numa_nodes(roots: &Roots) -> Vec<NumaNode> {
    let folder = roots.sys().join("devices/system/node");
    let mut ids: Vec<u32> =
        names(&folder).iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect();
    ids.sort_unstable();
    let count = ids.len();
    ids.into_iter()
        .map(|id| {
            let folder = folder.join(format!("node{id}"));
            let cpus: Option<IdSet> =
                read_small(&folder.join("cpulist")).ok().and_then(|list| list.parse().ok());
            let distance: Option<Vec<u32>> = read_small(&folder.join("distance"))
                .ok()
                .and_then(|row| row.split_whitespace().map(|word| word.parse().ok()).collect());
            NumaNode {
                id,
                cpus: cpus.unwrap_or_default(),
                // One word for each node; another count tells nothing.
                distance: distance.filter(|row| row.len() == count).unwrap_or_default(),
            }
        })
        .collect()
}

/// The CPUs that may ever come up (/sys/devices/system/cpu/possible).
pub fn possible_cpus(roots: &Roots) -> Option<IdSet> {
    read_small(&roots.sys().join("devices/system/cpu/possible")).ok()?.parse().ok()
}
