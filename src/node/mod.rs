//! What a machine has: its GPUs, NUMA nodes, CPUs and links.
//!
//! [`Node`] is plain data: it can be read from NVML, from a snapshot file, from
//! a machine fixture or from pasted text, and everything else in the library
//! works on it without knowing which. What does *not* live here: anything that
//! depends on a job, a step or a task (see [`crate::step`]).

mod check;
mod cpuset;
mod fact;
mod link;
pub mod machine;
mod model;
#[cfg(feature = "cli")]
pub mod nvml;
mod obtain;
mod pci;
pub mod probe;
pub mod procfs;
mod read_any;
mod roots;
pub mod snapshot;
pub mod sysfs;
pub mod topo_text;

pub use check::NodeError;
pub use cpuset::{CpuSet, CpuSetError};
pub use fact::Fact;
pub use link::Link;
pub use machine::{Machine, MachineError};
pub use model::{Device, Gpu, MigInstance, Nic, Node, NumaNode, SickGpu};
pub use obtain::{ObtainError, Source, obtain, refresh};
pub use pci::{PciAddress, PciAddressError};
pub use read_any::{ReadAnyError, read_any};
pub use roots::Roots;
