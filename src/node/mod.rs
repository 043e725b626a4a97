//! What a machine has: its GPUs, NUMA nodes, CPUs and links.
//!
//! [`Node`] is plain data: it can be read from NVML, from a snapshot file, from
//! a machine fixture or from pasted text, and everything else in the library
//! works on it without knowing which. What does *not* live here: anything that
//! depends on a job, a step or a task (see [`crate::step`]).

mod cpuset;
mod fact;
mod link;
mod model;
mod pci;

pub use cpuset::{CpuSet, CpuSetError};
pub use fact::Fact;
pub use link::Link;
pub use model::{Device, Gpu, MigInstance, Nic, Node, NumaNode, SickGpu};
pub use pci::{PciAddress, PciAddressError};
