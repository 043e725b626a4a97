//! What is wrong with what was typed about CPUs.

use gpubind_core::node::{IdSet, IdSetError};
use gpubind_core::step::CpuBindError;

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
        "--cpu-bind: `{0}` tells no CPUs; write cores, sockets, threads, ldoms, rank_ldom or none, or mask_cpu:, map_cpu:, mask_ldom: or map_ldom: and a list"
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
