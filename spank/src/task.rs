//! In each task, just before it becomes the user's program: its environment.
//!
//! Only here are device cgroup and CPU affinity final, and only here does
//! anything that the user wrote get read, as the user.

use gpubind_core::variables;
use std::fs::File;
use std::path::Path;
use std::process;

use gpubind_core::bind::{Edits, Rank, Shim, edits, leftovers};
use gpubind_core::node::{IdSet, Node, Roots};
use gpubind_core::request::{Change, ComponentPosition, propagate, step_binding};
use gpubind_core::site::Settings;
use gpubind_core::step::{Affinity, Allocation, Ranks, master_port, own_cpus, reach};
use slurm_spank::SpankHandle;

use crate::say;
use crate::step::Step;

/// Binds one task. Under `strict`, what keeps it from being bound ends it.
pub fn bind(spank: &SpankHandle, step: &Step) {
    let env = |name: &str| spank.getenv_lossy(name).ok().flatten();
    let local_rank = number(spank.task_id().unwrap_or(0));
    let first = local_rank == 0;
    let ranks = ranks(spank, &env);
    let binding = match step_binding(step.request.as_deref(), place(spank, &ranks), &env) {
        Ok(binding) => binding,
        Err(error) => {
            // srun has checked it; only a task's own tampering leads here.
            if first {
                say::user(&format!("SLURM_GPUBIND: {error}; the step runs without gpubind"));
            }
            return;
        }
    };
    if env(variables::COMPONENT_REQUESTS).is_some() {
        if step.request.is_some() {
            // A step inside this one is inside this component.
            change(spank, &propagate(binding.to_propagate().as_ref(), &env));
        }
        change(spank, &[(variables::COMPONENT_REQUESTS.to_owned(), None)]);
    }
    let site = &step.site;
    if let Some(error) = step.broken.as_ref().filter(|_| first && binding.may_be_bound()) {
        say::user(&format!("warning: {error}"));
    }
    let settings = match Settings::for_binding(&binding, site) {
        Ok(settings) => settings,
        Err(why) => {
            change(spank, &leftovers(&env));
            if site.request.verbose == Some(true) && first {
                say::user(&format!("the environment stays as Slurm made it: {why}"));
            }
            return;
        }
    };
    let Some(node) = &step.node else {
        change(spank, &leftovers(&env));
        if settings.verbose && first {
            say::user("the step has no GPU on this node; nothing to bind");
        }
        return;
    };
    let node = node.as_ref().map_err(String::as_str);
    let allocation = match node {
        Ok(node) => {
            let dev = Roots::new(site.fsroot.clone()).dev();
            Allocation::find(node, &reach(node, &dev), &step.lists)
        }
        Err(_) => Allocation::unknown(&step.lists),
    };
    let allocation = allocation.without(&site.exclude, node.ok());
    allocation.notes.iter().for_each(|note| say::debug(note));
    let recorded = step.affinity.as_ref().and_then(Affinity::of_all_tasks);
    let rank = Rank {
        node,
        allocation: &allocation,
        tasks: &recorded.unwrap_or_else(|| listed_cpus(spank, &env, node.ok())),
        cpus: &own_cpus(),
        settings: &settings,
        local_rank,
        ranks: Some(&ranks),
        worker: shim(&site.worker),
        env: &env,
    };
    let outcome = edits(&rank);
    if let Some(warning) = outcome.warnings.first().filter(|_| settings.strict) {
        say::error(&format!("strict: {warning}"));
        // Slurm ignores what a hook of an optional plugin returns, so the task
        // is ended as Slurm ends it for a required one (task.c, exec_task).
        // SAFETY: ends this forked child; nothing of Rust's is left half done.
        unsafe { libc::_exit(1) };
    }
    if first {
        outcome.warnings.iter().for_each(|warning| say::user(&format!("warning: {warning}")));
    }
    change(spank, &outcome.undo);
    match outcome.edits {
        Ok(edits) => apply(spank, &edits, settings.verbose, &env),
        Err(why) if settings.verbose && first => {
            say::user(&format!("the environment stays as Slurm made it: {why}"));
        }
        Err(_) => {}
    }
}

fn change(spank: &SpankHandle, changes: &[Change]) {
    for (name, value) in changes {
        let done = match value {
            Some(value) => spank.setenv(name, value, true),
            None => spank.unsetenv(name),
        };
        if let Err(error) = done {
            say::error(&format!("cannot change {name}: {error}"));
        }
    }
}

fn apply(spank: &SpankHandle, edits: &Edits, verbose: bool, env: &dyn Fn(&str) -> Option<String>) {
    for (name, value) in &edits.set {
        if let Err(error) = spank.setenv(name, value, true) {
            say::error(&format!("cannot set {name}: {error}"));
        }
    }
    if verbose {
        let rank = spank.task_global_id().unwrap_or(0);
        let host = env(variables::NODE_NAME).unwrap_or_default();
        say::user(&format!("rank {rank} on {host}, {}", edits.report));
    }
}

/// The worker shim, if this task can read it where it is: a container plugin has
/// moved it into another root by now (pyxis does in task_init_privileged).
fn shim(file: &Path) -> Option<Shim<'_>> {
    // Looked at first: to open a pipe, as a container may have one there, would wait.
    let is_file = file.metadata().is_ok_and(|it| it.is_file());
    let file = file.to_str().filter(|_| is_file && File::open(file).is_ok())?;
    Some(Shim { file, process: process::id() })
}

/// The CPU set of each of the step's tasks on this node, as far as Slurm tells.
fn listed_cpus(
    spank: &SpankHandle,
    env: &dyn Fn(&str) -> Option<String>,
    node: Option<&Node>,
) -> Vec<IdSet> {
    let tasks = number(spank.job_local_task_count().unwrap_or(1));
    let numa = node.map_or(&[][..], |node| node.numa.as_slice());
    gpubind_core::step::listed_cpus(env, tasks, numa).unwrap_or_else(|error| {
        say::debug(&format!("SLURM_CPU_BIND_LIST: {error}; CPU sets are unknown"));
        vec![IdSet::default(); tasks]
    })
}

/// Where the task stands among all tasks that its srun has started. Slurm counts
/// tasks and nodes of a component from 0; its variables count on through all
/// components and hold one job id, the first component's (env.c, setup_env).
fn ranks(spank: &SpankHandle, env: &dyn Fn(&str) -> Option<String>) -> Ranks {
    let hosts = env(variables::STEP_NODE_LIST).or_else(|| env(variables::NODE_LIST));
    let from_env = |name: &str| env(name).and_then(|text| text.parse().ok());
    let job = from_env(variables::JOB_ID).or_else(|| spank.job_id().ok()).unwrap_or(0);
    Ranks {
        rank: from_env(variables::PROC_ID).or_else(|| spank.task_global_id().ok()).unwrap_or(0),
        // SLURM_NTASKS may be the job's: srun --preserve-env keeps that.
        world_size: from_env(variables::STEP_NUM_TASKS)
            .or_else(|| spank.job_total_task_count().ok())
            .unwrap_or(1),
        local_world_size: spank.job_local_task_count().unwrap_or(1),
        node_rank: from_env(variables::NODE_ID).or_else(|| spank.job_nodeid().ok()).unwrap_or(0),
        master_addr: hosts.as_deref().and_then(Ranks::first_host),
        master_port: master_port(job, spank.job_stepid().unwrap_or(0)),
    }
}

fn place(spank: &SpankHandle, ranks: &Ranks) -> ComponentPosition {
    ComponentPosition {
        before: ranks.rank.saturating_sub(spank.task_global_id().unwrap_or(ranks.rank)),
        tasks: spank.job_total_task_count().unwrap_or(1),
        total: ranks.world_size,
    }
}

fn number<N: TryInto<usize>>(number: N) -> usize {
    number.try_into().unwrap_or(0)
}
