//! What a machine has: its GPUs, NUMA nodes, CPUs and links.
//!
//! [`Node`] is plain data: it can be read from NVML, from a snapshot file, from
//! a machine fixture or from pasted text, and everything else works on it without
//! knowing which. What does *not* live here: those readers, but for the snapshot's,
//! and anything that depends on a job, a step or a task (see [`crate::step`]).

mod check;
mod id_set;
mod link;
mod load;
mod model;
mod pci;
mod probed;
pub mod procfs;
mod roots;
pub mod snapshot;

pub use check::NodeError;
pub use id_set::{IdSet, IdSetError};
pub use link::Link;
pub use load::{BACKGROUND_DEADLINE, LoadOrProbeError, ProbeOptions, load_or_probe, refresh};
pub use model::{Device, Gpu, MigInstance, Nic, Node, NumaNode, UnusableGpu};
pub use pci::{PciAddress, PciAddressError};
pub use probed::Probed;
pub use roots::{Roots, names, read_small};
