//! What the calling process can reach: the GPUs that the device cgroup lets
//! through, and its CPUs.

use std::path::Path;

use rustix::fs::access;
use rustix::io::Errno;
use rustix::process::Pid;

use crate::node::{IdSet, Node};

/// Whether the calling process may use a device file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It may open the file.
    Open,
    /// The file is there, and the kernel refuses it: a device cgroup, or its mode.
    Denied,
    /// There is no such file: the process is in a container that lacks it.
    Missing,
}

/// The access of the calling process to each GPU of a node, in the node's order.
/// A GPU that a list says nothing about counts as open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// For each of [`Node::gpus`].
    pub gpus: Vec<Access>,
    /// For each of [`Node::unusable`].
    pub unusable: Vec<Access>,
}

/// Asks for each GPU whether the calling process may open its device file.
///
/// access(2) consults the device cgroup (v1 and v2, `devcgroup_check_permission`
/// in the kernel's security/device_cgroup.c) without opening the device, so it
/// wakes no GPU. Only the final cgroup counts: ask in the task, not earlier. A
/// GPU whose minor number is not known counts as open.
pub fn reach(node: &Node, dev: &Path) -> Reach {
    let ask = |minor: Option<u32>| {
        let Some(minor) = minor else { return Access::Open };
        let file = dev.join(format!("nvidia{minor}"));
        match access(&file, rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK) {
            Ok(()) => Access::Open,
            Err(Errno::NOENT | Errno::NOTDIR) => Access::Missing,
            Err(_) => Access::Denied,
        }
    };
    Reach {
        gpus: node.gpus.iter().map(|gpu| ask(gpu.minor.known().copied())).collect(),
        unusable: node.unusable.iter().map(|unusable| ask(unusable.minor)).collect(),
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

/// Has the calling process run on these CPUs only, and what it starts, by
/// sched_setaffinity(2); it must have one thread. The kernel takes those away that its
/// cpuset lacks.
///
/// # Errors
/// The kernel refuses, and all stays as it was: none of them is in the process's cpuset, or
/// a seccomp filter forbids it. Or there are none below [`AFFINITY_CPUS`].
pub fn set_own_cpus(cpus: &IdSet) -> std::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    cpus.iter().filter(|cpu| *cpu < AFFINITY_CPUS).for_each(|cpu| set.set(cpu));
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

fn allowed(process: Option<Pid>) -> IdSet {
    match rustix::thread::sched_getaffinity(process) {
        Ok(set) => {
            // Most machines have far fewer CPUs than there is room for.
            let count = usize::try_from(set.count()).unwrap_or(AFFINITY_CPUS);
            (0..AFFINITY_CPUS).filter(|cpu| set.is_set(*cpu)).take(count).collect()
        }
        Err(_) => IdSet::default(),
    }
}
