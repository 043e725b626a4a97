//! What Slurm gave this step on this node: devices, CPU sets, tasks, ranks.
//!
//! These are the inputs of the plan that depend on a job; they are read from the
//! step's environment and from what the task can reach. What the machine has is
//! in [`crate::node`]; who gets what is in [`crate::plan`].

mod affinity;
mod allocation;
mod component;
mod cpu_bind;
mod launcher;
mod layout;
mod ranks;
mod reach;
mod standing;

pub use affinity::Affinity;
pub use allocation::{Allocation, Entry, GpuLists, names};
pub use component::{NotAsked, Place, Wanted, wanted};
pub use cpu_bind::{CpuBindError, listed_cpus, task_cpus};
pub use launcher::{LAUNCHERS, Launcher};
pub use layout::{Distribution, Layout, LayoutError, cores, layout, sockets};
pub use ranks::{Ranks, master_port};
pub use reach::{Reach, own_cpus, reach};
pub use standing::{
    BOUND_LOCAL_RANK, Numbered, Standing, WORKER, is_worker, standing, step_gpu_count, task,
    task_ranks,
};
