//! Why `gpubind plan` cannot show a plan.

use super::super::ending::Failure;
use super::cpus_error::CpusError;
use super::devices::DeviceError;
use crate::nvml::NvmlError;
use crate::slurm::LayoutError;
use gpubind_core::plan::{MAX_TASKS, PlanError};
use gpubind_core::request::RequestError;

impl Failure for PlanCommandError {}

/// Why there is no plan to show.
#[derive(Debug, thiserror::Error)]
pub enum PlanCommandError {
    /// The arguments contradict themselves or the machine.
    #[error(transparent)]
    Wrong(#[from] Wrong),
    /// This machine cannot be read.
    #[error("{0}; `--from FILE` plans for a machine that a file describes")]
    Nvml(#[from] NvmlError),
    /// There is nothing to give.
    #[error("the machine has no GPU that can be used, so there is nothing to plan")]
    NoGpu,
}

/// Arguments that contradict themselves or the machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A number of tasks that no step has.
    #[error("--tasks {0}: a step has 1 to {MAX_TASKS} tasks on a node")]
    Tasks(usize),
    /// Something in `--devices`.
    #[error("--devices: {0}")]
    Devices(#[from] DeviceError),
    /// Something in `--cpus`, `--cpu-bind`, `--distribution` or `--cpus-per-task`.
    #[error(transparent)]
    Cpus(#[from] CpusError),
    /// CPUs that the node has not.
    #[error("--cpus-per-task: {0}")]
    TaskLayout(#[from] LayoutError),
    /// Items that exclude each other.
    #[error("--mode: {0}")]
    Mode(#[from] RequestError),
    /// More than can be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
}
