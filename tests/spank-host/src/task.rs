//! One task: forked, held until the step is set up, bound, and started or looked at
//! (src/slurmd/slurmstepd/task.c, exec_task).

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::StepError;
use crate::output;
use crate::plugin::Plugin;
use crate::settings::Settings;
use crate::state::{Task, state};

/// What a task whose program cannot be started ends with.
const NOT_STARTED: c_int = 127;
/// What Slurm ends a task with whose hook fails.
const HOOK_FAILED: c_int = 1;

/// A forked task.
pub struct Child {
    pub pid: libc::pid_t,
    gate: OwnedFd,
}

impl Child {
    /// Lets the task go on.
    pub fn release(&self) {
        // SAFETY: an open descriptor and one byte. A task that has ended needs none.
        unsafe { libc::write(self.gate.as_raw_fd(), c"g".as_ptr().cast(), 1) };
    }
}

/// Forks a task, which waits to be released.
pub fn fork(
    plugin: &mut Plugin,
    settings: &Settings,
    local: u32,
    results: &File,
) -> Result<Child, StepError> {
    let mut ends = [0; 2];
    // SAFETY: an array of two.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(StepError::System("make a pipe", io::Error::last_os_error()));
    }
    // SAFETY: two new descriptors that nobody else has.
    let (reader, gate) = unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(StepError::System("fork", io::Error::last_os_error())),
        0 => {
            let status = child(plugin, settings, local, results, &reader);
            // SAFETY: ends this process; what is to run at exit is the parent's.
            unsafe { libc::_exit(status) }
        }
        pid => Ok(Child { pid, gate }),
    }
}

fn child(
    plugin: &mut Plugin,
    settings: &Settings,
    local: u32,
    results: &File,
    gate: &OwnedFd,
) -> c_int {
    // SAFETY: a flag and a signal; so that no task outlives a step that ends early.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // SAFETY: cannot fail.
    let pid = unsafe { libc::getpid() };
    state().task = Some(Task { local, pid, status: 0 });
    let mut well = plugin.run("slurm_spank_task_init_privileged");
    become_user();
    let mut byte = 0_u8;
    // SAFETY: an open descriptor and one byte.
    if unsafe { libc::read(gate.as_raw_fd(), (&raw mut byte).cast(), 1) } != 1 {
        return HOOK_FAILED;
    }
    set_up_env(settings, local, pid);
    if settings.step.is_sampled(local) {
        well &= plugin.run("slurm_spank_task_init");
    }
    if settings.json {
        let written = output::task(results, local);
        return c_int::from(!well || written.is_err());
    }
    if !settings.command.is_empty() {
        return start();
    }
    c_int::from(!well)
}

/// The task's program; comes back where it cannot be started.
fn start() -> c_int {
    let mut state = state();
    let argv = state.argv.as_array();
    let env = state.env.as_array();
    // SAFETY: two arrays of C strings with a null at the end.
    unsafe { libc::execvpe(*argv, argv.cast(), env.cast()) };
    NOT_STARTED
}

/// The variables that Slurm sets for each task (src/common/env.c, setup_env).
fn set_up_env(settings: &Settings, local: u32, pid: libc::pid_t) {
    let mut state = state();
    let rank = state.first_rank + local;
    let (nodes, total, node) = (state.nodes, state.total_tasks, state.node_id);
    let (job, step) = (state.job_id, state.step_id);
    let mut set = |name: &str, value: String| state.env.set(name.as_bytes(), value.as_bytes());
    set("SLURM_JOB_ID", job.to_string());
    set("SLURM_STEP_ID", step.to_string());
    set("SLURM_STEP_NUM_NODES", nodes.to_string());
    set("SLURM_STEP_NUM_TASKS", total.to_string());
    set("SLURM_NODEID", node.to_string());
    set("SLURM_PROCID", rank.to_string());
    set("SLURM_LOCALID", local.to_string());
    set("SLURM_TASK_PID", pid.to_string());
    settings.step.task_set.iter().for_each(|change| state.env.apply(change));
}

fn become_user() {
    let (uid, gid) = {
        let state = state();
        (state.uid, state.gid)
    };
    // SAFETY: these change this process alone. Without the right to, it is that user.
    unsafe {
        libc::setgid(gid);
        libc::setuid(uid);
    }
}

/// Binds a task to its CPU of --cpu-map, before the parent's hook for it runs.
pub fn bind_to_cpu(settings: &Settings, local: u32, pid: libc::pid_t) {
    let map = &settings.step.cpu_map;
    let position = usize::try_from(local).unwrap_or(0) % map.len().max(1);
    let Some(cpu) = map.get(position).and_then(|cpu| usize::try_from(*cpu).ok()) else { return };
    // SAFETY: a set of CPUs is plain data, and CPU_SET stays inside it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(pid, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// A child's wait(2) status.
pub fn wait(pid: libc::pid_t) -> Result<c_int, StepError> {
    let mut status = 0;
    loop {
        // SAFETY: a child of this process, and a number of our own.
        if unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid {
            return Ok(status);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(StepError::System("wait for a child", error));
        }
    }
}
