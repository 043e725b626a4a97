//! What the process knows of its job, and hands out to the plugin.

use std::ffi::{CString, c_int};
use std::sync::{Mutex, MutexGuard};

use crate::environment::Environment;
use crate::registered::Registered;

/// Where a plugin is loaded: enum spank_context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Context {
    Local = 1,
    Remote = 2,
    Allocator = 3,
    Slurmd = 4,
    JobScript = 5,
}

/// One task of the step.
#[derive(Debug, Clone, Copy, Default)]
pub struct Task {
    pub local: u32,
    pub pid: libc::pid_t,
    pub status: c_int,
}

/// All of it.
#[derive(Debug)]
pub struct State {
    pub context: Context,
    /// The hook that runs.
    pub hook: &'static str,
    /// `slurm_api_version()`.
    pub api_version: i64,
    /// The release whole, then its three numbers.
    pub version: Vec<CString>,
    pub job_id: u32,
    pub step_id: u32,
    pub uid: u32,
    pub gid: u32,
    pub nodes: u32,
    pub node_id: u32,
    pub tasks: u32,
    pub total_tasks: u32,
    pub first_rank: u32,
    pub log_level: c_int,
    /// Where messages say they come from.
    pub program: &'static str,
    pub env: Environment,
    /// The job control environment: what srun hands to prolog and epilog.
    pub control: Environment,
    pub argv: Environment,
    /// Process ids by local task number.
    pub pids: Vec<libc::pid_t>,
    pub task: Option<Task>,
    pub options: Vec<Registered>,
}

static STATE: Mutex<State> = Mutex::new(State {
    context: Context::Slurmd,
    hook: "",
    api_version: 0,
    version: Vec::new(),
    job_id: 0,
    step_id: 0,
    uid: 0,
    gid: 0,
    nodes: 1,
    node_id: 0,
    tasks: 0,
    total_tasks: 0,
    first_rank: 0,
    log_level: 1,
    program: "",
    env: Environment::new(),
    control: Environment::new(),
    argv: Environment::new(),
    pids: Vec::new(),
    task: None,
    options: Vec::new(),
});

/// The state; to be let go before the plugin is called, which asks for it again.
pub fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
