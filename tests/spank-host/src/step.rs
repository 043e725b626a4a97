//! slurmstepd: a step from its first hook to its last (src/slurmd/slurmstepd/mgr.c).

use std::ffi::c_int;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::c_string::c_string;
use crate::environment::Environment;
use crate::error::StepError;
use crate::options;
use crate::output;
use crate::plugin::Plugin;
use crate::settings::Settings;
use crate::state::{Context, Task, state};
use crate::task::{self, Child};

/// Runs all steps; false where a hook of any did not return 0.
pub fn run_all(settings: &Settings) -> Result<bool, StepError> {
    let steps = settings.step.steps;
    if settings.step.same_process {
        let mut plugin = load(settings)?;
        let mut well = true;
        for _ in 0..steps {
            prepare(settings)?;
            well &= run(&mut plugin, settings)?;
            println!("{}", held());
        }
        return Ok(well);
    }
    if steps == 1 {
        return run(&mut load(settings)?, settings);
    }
    let mut well = true;
    for _ in 0..steps {
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            -1 => return Err(StepError::System("fork", io::Error::last_os_error())),
            0 => {
                let well = load(settings).and_then(|mut plugin| run(&mut plugin, settings));
                if let Err(error) = &well {
                    eprintln!("spank-host: {error}");
                }
                // As slurmstepd ends: what the plugin has left to run at exit runs.
                std::process::exit(c_int::from(!well.unwrap_or(false)));
            }
            child => well &= task::wait(child)? == 0,
        }
    }
    Ok(well)
}

/// What the process has: allocated bytes, open descriptors, mappings.
fn held() -> String {
    // SAFETY: mallinfo2(3) only looks.
    let bytes = unsafe { libc::mallinfo2() }.uordblks;
    let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let mappings = std::fs::read_to_string("/proc/self/maps").unwrap_or_default().lines().count();
    format!("{bytes} {descriptors} {mappings}")
}

fn load(settings: &Settings) -> Result<Plugin, StepError> {
    prepare(settings)?;
    Ok(Plugin::load(settings, Context::Remote)?)
}

/// What slurmstepd knows before it loads plugins.
fn prepare(settings: &Settings) -> Result<(), StepError> {
    let step = &settings.step;
    let mut env = match &step.env {
        Some(file) => {
            Environment::read(file).map_err(|error| StepError::System("read --env", error))?
        }
        None => Environment::new(),
    };
    step.set.iter().for_each(|change| env.apply(change));
    let command = match settings.command.as_slice() {
        [] => vec![c_string("true")],
        words => words.iter().map(|word| c_string(word.as_encoded_bytes())).collect(),
    };
    let mut state = state();
    state.program = "slurmstepd";
    state.job_id = step.job_id;
    state.step_id = step.step_id;
    // SAFETY: neither can fail.
    state.uid = step.uid.unwrap_or_else(|| unsafe { libc::getuid() });
    // SAFETY: as above.
    state.gid = step.uid.unwrap_or_else(|| unsafe { libc::getgid() });
    state.nodes = step.nodes;
    state.node_id = step.node_id;
    state.tasks = step.tasks;
    state.total_tasks = step.total_tasks.unwrap_or(step.tasks);
    state.first_rank = step.first_rank;
    state.argv = Environment::from_strings(command);
    state.env = env;
    state.pids.clear();
    state.options.clear();
    Ok(())
}

fn run(plugin: &mut Plugin, settings: &Settings) -> Result<bool, StepError> {
    let mut well = plugin.run("slurm_spank_init");
    well &= options::set_all(&settings.options);
    well &= plugin.run("slurm_spank_init_post_opt");
    well &= as_user(|| plugin.run("slurm_spank_user_init"));
    let results = results()?;
    let mut children: Vec<Child> = Vec::new();
    for local in 0..settings.step.tasks {
        children.push(task::fork(plugin, settings, local, &results)?);
        let pid = children.last().map_or(0, |child| child.pid);
        state().pids.push(pid);
    }
    for (local, child) in (0..).zip(&children) {
        task::bind_to_cpu(settings, local, child.pid);
        state().task = Some(Task { local, pid: child.pid, status: 0 });
        well &= plugin.run("slurm_spank_task_post_fork");
    }
    state().task = None;
    // All are let go together, after the last hook.
    if !settings.step.in_turn {
        children.iter().for_each(Child::release);
    }
    for (local, child) in (0..).zip(&children) {
        if settings.step.in_turn {
            child.release();
        }
        let status = task::wait(child.pid)?;
        state().task = Some(Task { local, pid: child.pid, status });
        well &= plugin.run("slurm_spank_task_exit");
        output::ended(&results, local, status)
            .map_err(|error| StepError::System("write", error))?;
    }
    state().task = None;
    well &= plugin.run("slurm_spank_exit");
    if settings.json {
        let text = output::lines(results).map_err(|error| StepError::System("read", error))?;
        let printed = io::stdout().write_all(text.as_bytes());
        printed.map_err(|error| StepError::System("write", error))?;
    }
    Ok(well)
}

/// With the job's user as effective user, as slurmstepd runs user_init.
fn as_user(work: impl FnOnce() -> bool) -> bool {
    let (uid, gid) = {
        let state = state();
        (state.uid, state.gid)
    };
    // SAFETY: these change this process alone, and back.
    unsafe {
        let own = (libc::geteuid(), libc::getegid());
        libc::setegid(gid);
        libc::seteuid(uid);
        let well = work();
        libc::seteuid(own.0);
        libc::setegid(own.1);
        well
    }
}

/// A file in memory to which all tasks append what they have got.
fn results() -> Result<File, StepError> {
    // SAFETY: a C string and a flag.
    let fd = unsafe { libc::memfd_create(c"spank-host".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(StepError::System("make a file in memory", io::Error::last_os_error()));
    }
    // SAFETY: a new descriptor that nobody else has.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the descriptor is open.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_APPEND) };
    Ok(File::from(fd))
}
