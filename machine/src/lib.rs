//! A machine described in one file, for people and for tests.
//!
//! A machine fixture (TOML, see `tests/machines/`) states each fact once: NUMA
//! nodes with their CPUs, GPUs with their place in the PCIe tree, NVLinks, MIG
//! instances, network adapters, and faults. Everything else follows, so that a
//! description cannot contradict itself. [`Machine::to_node`] gives what a
//! perfect reader of that machine would report; the fake NVML answers from the
//! same [`Machine`].
//!
//! | file | what lives there |
//! |---|---|
//! | `file` | the text form, as written |
//! | `model` | the machine, checked and complete |
//! | `build` | checking the text form and filling in what follows from it |
//! | `pcie` | places in the PCIe tree and the levels between them |
//! | `mig` | MIG instances and their UUIDs |
//! | `identity` | made-up UUIDs |
//! | `nvlink` | each GPU's NVLinks and where they end |
//! | `faults` | what does not work, and how |
//! | `check_faults` | faults from the text form |
//! | `calls` | the NVML functions that a fault can name |
//! | `report` | from a machine to the node model |
//!
//! What does *not* live here: C, NVML's data structures, and the file system.

mod build;
mod calls;
mod check_faults;
mod error;
mod faults;
mod file;
mod identity;
mod mig;
mod model;
mod nvlink;
mod pcie;
mod report;
#[cfg(test)]
mod tests;

pub use calls::CALLS;
pub use error::{MachineError, MachineProblem};
pub use faults::{CallFault, Faults};
pub use file::Hidden;
pub use model::{Machine, MachineGpu, MachineMig, MachineNic};
pub use nvlink::{FarEnd, NvLink};
pub use pcie::{PciePath, PciePathError, Place};
