//! One rank, with all that decides about its environment.

use std::ffi::OsStr;

use crate::node::{IdSet, Node};
use crate::plan::TaskSets;
use crate::request::Settings;
use crate::step::{Allocation, Ranks};

/// A rank as [`super::edits`] needs it.
pub struct Rank<'a> {
    /// The machine, or why it is not known.
    pub node: Result<&'a Node, &'a str>,
    /// The step's devices on this node.
    pub allocation: &'a Allocation,
    /// The CPU sets of the step's tasks on this node.
    pub tasks: &'a TaskSets<'a>,
    /// The greatest number of the step's tasks on any node.
    pub most_tasks: usize,
    /// The rank's own CPUs as the kernel tells them, for the report.
    pub cpus: &'a IdSet,
    /// The CPUs that are threads of the same core as this one, itself among them; empty
    /// where that is not known. Asked with `cpus=local` only.
    pub threads: &'a dyn Fn(usize) -> IdSet,
    /// What is in effect.
    pub settings: &'a Settings,
    /// The task's number on this node.
    pub local_rank: usize,
    /// Where it stands among all tasks, where known.
    pub ranks: Option<&'a Ranks>,
    /// What a task that keeps several devices may load; `None` where the task cannot
    /// read that file.
    pub worker: Option<Shim<'a>>,
    /// Whether a container plugin moves the task into its container only after gpubind's
    /// turn, and writes the image's variables over those of the task.
    pub is_before_container: bool,
    /// LOCAL_RANK as the user has set it. One that has come since is another plugin's.
    pub users_local_rank: Option<&'a str>,
    /// LD_PRELOAD so far.
    pub preload: Option<&'a OsStr>,
    /// The environment so far.
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

/// The worker shim, as a task can load it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shim<'a> {
    /// Its file, which the task can read where it runs.
    pub file: &'a str,
    /// The task's process id.
    pub process: u32,
}
