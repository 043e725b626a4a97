//! The `gpubind` program, and the readers that only it needs.
//!
//! | module | what lives there |
//! |---|---|
//! | [`cli`] | the commands, a file or folder each |
//! | [`nvml`] | the machine, read from NVML |
//! | [`sysfs`] | what sysfs says of PCI devices, NUMA nodes and adapters |
//! | [`slurm`] | Slurm's own files, whether they fit the machine, and what Slurm would do |
//! | [`read_any`] | a node from whatever file a user has of it |
//!
//! What does *not* live here: anything that a Slurm daemon or a task runs. That is
//! `gpubind_core`, and what a plan or a request means is decided there.

pub mod cli;
mod node_file;
pub mod nvml;
pub mod slurm;
pub mod sysfs;

pub use node_file::{ReadAnyError, read_any};
