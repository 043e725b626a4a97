//! Which CPUs and NUMA nodes a GPU is near to.

use nvml_wrapper::Device;

use super::host_info::HostInfo;
use super::raw::probed;
use crate::sysfs::PciDevice;
use gpubind_core::node::{IdSet, Probed};

/// `NVML_AFFINITY_SCOPE_NODE`.
const NODE: u32 = 0;
/// `NVML_AFFINITY_SCOPE_SOCKET`.
const SOCKET: u32 = 1;
/// Words of a NUMA node mask: 1024 nodes, the kernel's limit.
const NUMA_WORDS: usize = 16;

/// The local CPUs: NVML's for the NUMA node, else for the socket, else sysfs's.
pub(super) fn cpus(device: &Device, reader: &HostInfo, sysfs: Option<&PciDevice>) -> Probed<IdSet> {
    let words = reader.cpu_words;
    let near = mask(probed(device.cpu_affinity_within_scope(words, NODE)));
    let sources: [&dyn Fn() -> Probed<IdSet>; 3] = [
        // Libraries before R450 have no scopes.
        &|| mask(probed(device.cpu_affinity(words))),
        &|| mask(probed(device.cpu_affinity_within_scope(words, SOCKET))),
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
    reader: &HostInfo,
    sysfs: Option<&PciDevice>,
    own: Probed<u32>,
) -> Probed<Vec<u32>> {
    let nodes = |scope| {
        let mask = mask(probed(device.memory_affinity(NUMA_WORDS, scope)));
        let ids = mask.map(|ids| ids.iter().filter_map(|id| u32::try_from(id).ok()).collect());
        with_cpus(ids, reader, own)
    };
    let sources: [&dyn Fn() -> Probed<Vec<u32>>; 2] = [
        &|| with_cpus(sysfs.and_then(|pci| pci.numa).map(|id| vec![id]).into(), reader, own),
        &|| nodes(SOCKET),
    ];
    first_known(nodes(NODE), &sources)
}

/// The NUMA node that is the GPU's own memory; a node with CPUs cannot be it.
pub(super) fn gpu_numa_id(device: &Device, reader: &HostInfo) -> Probed<u32> {
    match probed(device.numa_node_id()) {
        Probed::Known(id) if id == u32::MAX => Probed::Unsupported,
        Probed::Known(id) if !reader.numa.is_empty() && reader.has_cpus(id) => Probed::Unsupported,
        answer => answer,
    }
}

/// The first answer if it is known, else the first known one of the others;
/// else the first answer's refusal.
fn first_known<T>(first: Probed<T>, others: &[&dyn Fn() -> Probed<T>]) -> Probed<T> {
    if first.known().is_some() {
        return first;
    }
    others.iter().map(|ask| ask()).find(|probed| probed.known().is_some()).unwrap_or(first)
}

fn with_cpus(ids: Probed<Vec<u32>>, reader: &HostInfo, own: Probed<u32>) -> Probed<Vec<u32>> {
    let ids = ids.map(|mut ids: Vec<u32>| {
        ids.retain(|id| reader.has_cpus(*id) && own.known() != Some(id));
        ids
    });
    match ids {
        Probed::Known(ids) if ids.is_empty() => Probed::Unsupported,
        ids => ids,
    }
}

/// The numbers of the bits that are set; an empty mask tells nothing.
fn mask(words: Probed<Vec<std::ffi::c_ulong>>) -> Probed<IdSet> {
    match words.map(IdSet::from_words) {
        Probed::Known(set) if set.is_empty() => Probed::Unsupported,
        set => set,
    }
}
