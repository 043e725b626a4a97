//! What sysfs tells about a machine: NUMA nodes, PCI devices and the bridges
//! between them, network adapters.
//!
//! It fills what NVML refuses, and answers what NVML is not asked. Nothing here
//! wakes a GPU. What does not live here: /proc/driver/nvidia (see
//! [`super::procfs`]).

mod nic;
mod numa;
mod pci;

pub use nic::nics;
pub use numa::{numa_nodes, possible_cpus};
pub use pci::{PciDevice, level};
