//! What Slurm gave this step on this node: devices, CPU sets, tasks, ranks.
//!
//! These are the inputs of the plan that depend on a job; they are read from the
//! step's environment and from what the task can reach. What the machine has is
//! in [`crate::node`]; who gets what is in [`crate::plan`].

mod affinity;
mod allocation;
mod container;
mod contradiction;
mod cores;
mod cpu_bind;
mod rank_info;
mod ranks;
mod reach;
mod slots;

pub use affinity::Affinity;
pub use allocation::{Allocation, Entry, GpuLists};
pub use container::{CONTAINER_OPTIONS, is_mounted_by_enroot};
pub use contradiction::{Contradiction, contradiction};
pub use cores::core_threads;
pub use cpu_bind::{CpuBindError, listed_cpus, task_cpus};
pub use gpubind_shim_core::{LAUNCHERS, Launcher};
pub use rank_info::{
    MAX_TASKS, RankInfo, RankSource, WORKER, is_noted, is_worker, most_tasks, rank_info,
    step_gpu_count, task, task_ranks,
};
pub use ranks::{Ranks, master_port};
pub use reach::{Access, Reach, cpus_of, own_cpus, reach, set_own_cpus};
pub use slots::names;
