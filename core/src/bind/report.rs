//! What a rank got, in one line for people.

use std::fmt;

use crate::node::{Device, IdSet, Node};
use crate::plan::Why;

use super::locality::{Locality, numa_list};

/// What a rank got and why; displayed as the `verbose` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankReport {
    /// The task's number on the node.
    pub local_rank: usize,
    /// Its CPUs; empty where unknown.
    pub cpus: IdSet,
    /// Each of its own devices, in words, with its locality.
    pub own: Vec<(String, Locality)>,
    /// CUDA_VISIBLE_DEVICES.
    pub visible: String,
    /// Why these devices.
    pub why: Why,
}

impl fmt::Display for RankReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "local rank {}: ", self.local_rank)?;
        for (position, (device, locality)) in self.own.iter().enumerate() {
            let separator = if position == 0 { "" } else { " + " };
            write!(f, "{separator}{device}")?;
            match (locality, self.cpus.is_empty()) {
                (Locality::Unknown, _) => write!(f, ", {locality}")?,
                (_, true) => {}
                (_, false) => write!(f, ", {locality} to CPUs {}", self.cpus)?,
            }
        }
        write!(f, "; CUDA_VISIBLE_DEVICES={}; {}", self.visible, self.why)
    }
}

/// A device in words: index, UUID, PCI address, NUMA node.
pub(super) fn describe(node: &Node, device: Device) -> String {
    let Some(gpu) = node.gpu(device) else {
        return "unknown GPU".to_owned();
    };
    let part = match device.mig.and_then(|mig| gpu.mig.get(mig)) {
        Some(instance) => format!(" instance {}/{}", instance.gi, instance.ci),
        None => String::new(),
    };
    let uuid = node.uuid(device).unwrap_or("UUID unknown");
    let numa = match gpu.numa.known().map(Vec::as_slice) {
        Some([]) | None => "NUMA node unknown".to_owned(),
        Some(ids) => format!("NUMA node {}", numa_list(ids)),
    };
    let pci = gpu.pci.known().map_or("PCI address unknown".to_owned(), |pci| pci.to_string());
    format!("GPU {}{part} ({uuid}, {pci}, {numa})", gpu.index)
}
