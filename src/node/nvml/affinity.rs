//! Which CPUs and NUMA nodes a GPU is near to.

use nvml_wrapper::Device;

use super::Machine;
use super::raw::fact;
use crate::node::sysfs::PciDevice;
use crate::node::{CpuSet, Fact};

/// `NVML_AFFINITY_SCOPE_NODE`.
const NODE: u32 = 0;
/// `NVML_AFFINITY_SCOPE_SOCKET`.
const SOCKET: u32 = 1;
/// Words of a NUMA node mask: 1024 nodes, the kernel's limit.
const NUMA_WORDS: usize = 16;

/// The local CPUs: NVML's for the NUMA node, else for the socket, else sysfs's.
pub(super) fn cpus(device: &Device, machine: &Machine, sysfs: Option<&PciDevice>) -> Fact<CpuSet> {
    let words = machine.cpu_words;
    let near = mask(fact(device.cpu_affinity_within_scope(words, NODE)));
    let sources: [&dyn Fn() -> Fact<CpuSet>; 3] = [
        // Libraries before R450 have no scopes.
        &|| mask(fact(device.cpu_affinity(words))),
        &|| mask(fact(device.cpu_affinity_within_scope(words, SOCKET))),
        // Where the kernel does not know the device's node it lists all CPUs,
        // which says nothing.
        &|| {
            let placed = sysfs.filter(|pci| pci.numa.is_some());
            placed.and_then(|pci| pci.cpus.clone()).filter(|cpus| !cpus.is_empty()).into()
        },
    ];
    first_known(near, &sources)
}

/// The NUMA nodes with CPUs that are near: NVML's memory affinity, else sysfs's
/// `numa_node`. Nodes without CPUs (a GPU's own memory, CXL) do not count.
pub(super) fn numa(
    device: &Device,
    machine: &Machine,
    sysfs: Option<&PciDevice>,
    own: Fact<u32>,
) -> Fact<Vec<u32>> {
    let nodes = |scope| {
        let mask = mask(fact(device.memory_affinity(NUMA_WORDS, scope)));
        let ids = mask.map(|ids| ids.iter().filter_map(|id| u32::try_from(id).ok()).collect());
        with_cpus(ids, machine, own)
    };
    let sources: [&dyn Fn() -> Fact<Vec<u32>>; 2] = [
        &|| with_cpus(sysfs.and_then(|pci| pci.numa).map(|id| vec![id]).into(), machine, own),
        &|| nodes(SOCKET),
    ];
    first_known(nodes(NODE), &sources)
}

/// The NUMA node that is the GPU's own memory; a node with CPUs cannot be it.
pub(super) fn gpu_numa_id(device: &Device, machine: &Machine) -> Fact<u32> {
    match fact(device.numa_node_id()) {
        Fact::Known(id) if id == u32::MAX => Fact::Unsupported,
        Fact::Known(id) if !machine.numa.is_empty() && machine.has_cpus(id) => Fact::Unsupported,
        answer => answer,
    }
}

/// The first answer if it is known, else the first known one of the others;
/// else the first answer's refusal.
fn first_known<T>(first: Fact<T>, others: &[&dyn Fn() -> Fact<T>]) -> Fact<T> {
    if first.known().is_some() {
        return first;
    }
    others.iter().map(|ask| ask()).find(|fact| fact.known().is_some()).unwrap_or(first)
}

fn with_cpus(ids: Fact<Vec<u32>>, machine: &Machine, own: Fact<u32>) -> Fact<Vec<u32>> {
    let ids = ids.map(|mut ids: Vec<u32>| {
        ids.retain(|id| machine.has_cpus(*id) && own.known() != Some(id));
        ids
    });
    match ids {
        Fact::Known(ids) if ids.is_empty() => Fact::Unsupported,
        ids => ids,
    }
}

/// The numbers of the bits that are set; an empty mask tells nothing.
fn mask(words: Fact<Vec<std::ffi::c_ulong>>) -> Fact<CpuSet> {
    let bits = std::ffi::c_ulong::BITS as usize;
    let set = words.map(|words| {
        words
            .iter()
            .enumerate()
            .flat_map(|(at, word)| {
                (0..bits).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * bits + bit)
            })
            .collect::<CpuSet>()
    });
    match set {
        Fact::Known(set) if set.is_empty() => Fact::Unsupported,
        set => set,
    }
}
