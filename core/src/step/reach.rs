//! What the calling process can reach: the GPUs that the device cgroup lets
//! through, and its CPUs.

use std::path::Path;

use rustix::fs::{Access, access};
use rustix::process::Pid;

use crate::node::{IdSet, Node};

/// Whether the calling process may use each GPU of a node, in the node's order.
/// A GPU that a list says nothing about counts as reachable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// For each of [`Node::gpus`].
    pub gpus: Vec<bool>,
    /// For each of [`Node::unusable`].
    pub unusable: Vec<bool>,
}

/// Asks for each GPU whether the calling process may open its device file.
///
/// access(2) consults the device cgroup (v1 and v2, `devcgroup_check_permission`
/// in the kernel's security/device_cgroup.c) without opening the device, so it
/// wakes no GPU. Only the final cgroup counts: ask in the task, not earlier. A
/// GPU whose minor number is not known counts as reachable.
pub fn reach(node: &Node, dev: &Path) -> Reach {
    let may_open = |minor: Option<u32>| {
        minor.is_none_or(|minor| {
            let file = dev.join(format!("nvidia{minor}"));
            access(&file, Access::READ_OK | Access::WRITE_OK).is_ok()
        })
    };
    Reach {
        gpus: node.gpus.iter().map(|gpu| may_open(gpu.minor.known().copied())).collect(),
        unusable: node.unusable.iter().map(|unusable| may_open(unusable.minor)).collect(),
    }
}

/// How many CPUs the kernel is asked about; of a machine with more nothing is known.
pub(super) const AFFINITY_CPUS: usize = rustix::thread::CpuSet::MAX_CPU;

/// The calling process's own CPUs, from sched_getaffinity(2); empty where they
/// cannot be told (more than [`AFFINITY_CPUS`] CPUs).
pub fn own_cpus() -> IdSet {
    allowed(None)
}

/// The CPUs of the process with this id; empty where they cannot be told, also
/// because there is no such process.
pub fn cpus_of(process: i32) -> IdSet {
    Pid::from_raw(process).map_or_else(IdSet::default, |process| allowed(Some(process)))
}

fn allowed(process: Option<Pid>) -> IdSet {
    match rustix::thread::sched_getaffinity(process) {
        Ok(set) => (0..AFFINITY_CPUS).filter(|cpu| set.is_set(*cpu)).collect(),
        Err(_) => IdSet::default(),
    }
}
