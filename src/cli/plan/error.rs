//! Why `gpubind plan` cannot show a plan.

use super::super::ending::Failure;
use super::devices::DeviceError;
use crate::nvml::NvmlError;
use crate::slurm::LayoutError;
use gpubind_core::node::{IdSet, IdSetError};
use gpubind_core::plan::{MAX_TASKS, PlanError};
use gpubind_core::request::RequestError;
use gpubind_core::step::CpuBindError;

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

/// What is wrong with the options about CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpusError {
    /// No CPU for a task.
    #[error(
        "--cpus: the list of task {0} is empty; write CPU numbers and ranges like 0-15,128-143"
    )]
    Empty(usize),
    /// A list that cannot be read.
    #[error("--cpus: task {task}: {source}")]
    List {
        /// The task's local rank.
        task: usize,
        /// What is wrong with its list.
        source: IdSetError,
    },
    /// Not as many lists as tasks.
    #[error("--cpus: {tasks} tasks need as many lists, `;` between; given: {lists}")]
    Count {
        /// Lists given.
        lists: usize,
        /// Tasks asked for.
        tasks: usize,
    },
    /// CPUs that are not there.
    #[error("{option}: task {task}: the node has no CPU {lacks}; it has {valid}")]
    Lacks {
        /// The option.
        option: &'static str,
        /// The task's local rank.
        task: usize,
        /// What is not there.
        lacks: IdSet,
        /// What is there.
        valid: IdSet,
    },
    /// A binding without a list of CPUs.
    #[error(
        "--cpu-bind: `{0}` tells no CPUs; write mask_cpu:, map_cpu:, mask_ldom: or map_ldom: and a list"
    )]
    Kind(String),
    /// A list that cannot be read.
    #[error("--cpu-bind: {0}")]
    CpuBind(#[from] CpuBindError),
    /// An entry that leaves a task without a CPU.
    #[error("--cpu-bind: the entry of task {0} names no CPU")]
    NoCpu(usize),
    /// A multiplier that is no number of tasks.
    #[error("--cpu-bind: `{0}` is not an entry and a number of repetitions like 0x3*4")]
    Repeat(String),
    /// A task needs a CPU.
    #[error("--cpus-per-task 0: a task has at least 1 CPU")]
    None,
    /// Nothing to deal out.
    #[error("this node's CPUs are unknown, so Slurm's distribution of them is; give --cpus")]
    Unknown,
}
