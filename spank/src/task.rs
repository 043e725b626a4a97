//! In each task, just before it becomes the user's program: its environment.
//!
//! Only here are device cgroup and CPU affinity final, and only here does
//! anything that the user wrote get read, as the user.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::Path;
use std::process;
use std::time::Duration;

use gpubind_core::bind::{self, Decision, Shim, Task, decide};
use gpubind_core::child;
use gpubind_core::node::{IdSet, Node, Roots};
use gpubind_core::plan::TaskSets;
use gpubind_core::request::{
    Binding, Change, ComponentPosition, StepRequest, VariableError, inside_component,
    is_none_spank, script_request, step_request,
};
use gpubind_core::step::{
    Affinity, CONTAINER_OPTIONS, core_threads, is_mounted_by_enroot, listed_cpus, most_tasks,
    own_cpus, reach, set_own_cpus, task_ranks,
};
use gpubind_core::variables;

use crate::end::End;
use crate::log;
use crate::spank::Spank;
use crate::step::{Step, root};

/// Slurm's own bound (MAX_HET_JOB_COMPONENTS in slurm/slurm.h).
const MAX_HET_COMPONENTS: usize = 128;

/// How long the step's other nodes have to start it, before it is ended there: a signal for
/// a step that a node does not know yet is lost, and its tasks run on.
const START_ELSEWHERE: Duration = Duration::from_secs(2);

/// How long ending a step may take.
const END_STEP: Duration = Duration::from_secs(10);

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Binds one task. Under `strict`, what keeps it from being bound ends it.
pub fn bind(spank: &Spank, step: &Step) -> Option<End> {
    let env: Env = &|name: &str| {
        let text = spank.variable(name)?.into_string();
        Some(text.unwrap_or_else(|value| value.to_string_lossy().into_owned()))
    };
    let bind_text = env(variables::STEP_TRES_BIND).unwrap_or_default();
    let is_none = is_none_spank(&bind_text);
    if is_none {
        // First of all: whatever happens from here on, the task has what a plain one has.
        change(spank, &bind::restore(&step.plain, env));
    }
    let request = request(spank, step, env);
    spank.read_variables();
    let is_before_container = is_before_container(spank, step, env);
    let decision = decide(&Task {
        local_rank: local_rank(spank, env),
        request,
        is_script: step.is_script,
        site: &step.site,
        site_error: step.site_error.as_deref(),
        lists: step.lists.as_ref(),
        node: match &step.node {
            Some(node) => node.as_ref().map_err(String::as_str),
            None => Err("this node has not been read"),
        },
        is_read_now: step.is_read_now,
        reach: &|node| reach(node, &roots(step).dev()),
        slurm_binds: Binding::from_tres_bind(&bind_text) == Ok(Binding::Slurm),
        cpus: &|node| cpus(spank, step, env, node),
        most_tasks: most_tasks(env).unwrap_or(0).max(count(spank)),
        shared_plan: step.plan.as_ref(),
        own_cpus: &own_cpus,
        threads: &|cpu| core_threads(&roots(step), cpu),
        ranks: task_ranks(env, spank.local_task_count()),
        worker: &|| shim(step, is_before_container),
        is_before_container,
        users_local_rank: step.local_rank.as_deref(),
        preload: spank.variable(variables::LD_PRELOAD).as_deref(),
        env,
    });
    carry_out(spank, &decision, env)
}

fn carry_out(spank: &Spank, decision: &Decision, env: Env) -> Option<End> {
    if let Some(allocation) = &decision.allocation {
        tracing::debug!("the step's devices: {allocation:?}");
    }
    decision.once.iter().chain(&decision.own).for_each(|line| log::user(line));
    if let Some(failure) = &decision.failure {
        if !failure.is_empty() {
            log::error(&format!("strict: {failure}"));
            end_step_elsewhere(env);
        }
        // Slurm ignores what a hook of an optional plugin returns, so the task
        // is ended as Slurm ends it for a required one (task.c, exec_task).
        return Some(End::Task(1));
    }
    change(spank, &decision.changes);
    if let Some(preload) = &decision.preload {
        set(spank, variables::LD_PRELOAD, Some(preload).filter(|preload| !preload.is_empty()));
    }
    if let Some(cpus) = &decision.cpus
        && let Err(error) = set_own_cpus(cpus)
    {
        log::user(&format!("warning: cpus=local: cannot leave CPUs {cpus} only: {error}"));
        set(spank, variables::CPUS, None::<&OsStr>);
    }
    let host = || env(variables::NODE_NAME).unwrap_or_default();
    if let Some(summary) = &decision.summary {
        log::user(&format!("{}: {summary}", host()));
    }
    if let Some(got) = &decision.got {
        let rank = spank.global_task_id().unwrap_or(0);
        log::user(&format!("rank {rank} on {}, {got}", host()));
    }
    None
}

/// Ends the step on its other nodes: a task that ends early ends no other by itself
/// (srun(1), --kill-on-bad-exit). As the user, by Slurm's own command; where that is not
/// on the node, the other nodes go on.
fn end_step_elsewhere(env: Env) {
    let is_alone = env(variables::STEP_NUM_NODES).is_none_or(|nodes| nodes == "1");
    let (Some(job), Some(step)) = (env(variables::JOB_ID), env(variables::STEP_ID)) else { return };
    if is_alone {
        return;
    }
    let args = ["--signal=KILL".into(), format!("{job}.{step}").into()];
    let conf = env(variables::SLURM_CONF).map(OsString::from);
    let conf = conf.or_else(|| std::env::var_os(variables::SLURM_CONF));
    let path = env(variables::PATH).map(OsString::from);
    let names = [variables::SLURM_CONF, variables::PATH];
    let environment: Vec<(&str, OsString)> =
        names.into_iter().zip([conf, path]).filter_map(|(name, it)| Some((name, it?))).collect();
    std::thread::sleep(START_ELSEWHERE);
    if let Err(error) = child::run_any(Path::new("scancel"), &args, &environment, END_STEP) {
        tracing::debug!("cannot end the step on its other nodes: {error}");
    }
}

fn change(spank: &Spank, changes: &[Change]) {
    for (name, value) in changes {
        set(spank, name, value.as_ref());
    }
}

fn set(spank: &Spank, name: &str, value: Option<impl AsRef<OsStr>>) {
    let done = match value {
        Some(value) => spank.set_variable(name, value.as_ref()),
        None => spank.remove_variable(name),
    };
    if let Err(error) = done {
        log::error(&format!("cannot change {name}: {error}"));
    }
}

/// What the task's step asks for. What srun has left for it is taken away, and what a
/// step inside inherits is this component's.
fn request(spank: &Spank, step: &Step, env: Env) -> Result<StepRequest, VariableError> {
    if step.is_script {
        return script_request(step.option.as_deref(), env);
    }
    let position = position(spank, env);
    let request = step_request(position, env);
    if let Some(inside) = inside_component(position, env) {
        let text = inside.to_string();
        set(spank, variables::JOB_REQUEST, Some(text).filter(|text| !text.is_empty()));
    }
    if env(variables::STEP_REQUEST).is_some() {
        set(spank, variables::STEP_REQUEST, None::<&OsStr>);
    }
    request
}

fn local_rank(spank: &Spank, env: Env) -> Option<usize> {
    let by_variable = || env(variables::LOCAL_ID)?.parse().ok();
    spank.task_id().or_else(by_variable).and_then(|id| usize::try_from(id).ok())
}

/// The step's tasks on this node.
fn count(spank: &Spank) -> usize {
    spank.local_task_count().and_then(|count| usize::try_from(count).ok()).unwrap_or(1)
}

/// Whether the task is to enter a container that it has not entered yet.
fn is_before_container(spank: &Spank, step: &Step, env: Env) -> bool {
    let is_asked = CONTAINER_OPTIONS.iter().any(|(option, variable)| {
        spank.has_option(option) || env(variable).is_some_and(|value| !value.is_empty())
    });
    is_asked && step.root.is_some() && step.root == root()
}

fn roots(step: &Step) -> Roots {
    Roots::new(step.site.fsroot.clone())
}

/// The worker shim, if this task can read it where it is: a container plugin may have
/// moved the task into another root by now, or is yet to do so.
fn shim(step: &Step, is_before_container: bool) -> Option<Shim<'_>> {
    let file = step.site.worker.as_path();
    // Looked at first: to open a pipe, as a container may have one there, would wait.
    let is_file = file.metadata().is_ok_and(|it| it.is_file());
    let will_be = !is_before_container || is_mounted_by_enroot(&roots(step), file);
    let name = file.to_str().filter(|_| is_file && will_be && File::open(file).is_ok())?;
    Some(Shim { file: name, process: process::id() })
}

/// The CPU sets of the step's tasks on this node: as slurmstepd has recorded them, else as
/// far as Slurm lists them.
fn cpus(spank: &Spank, step: &Step, env: Env, node: Option<&Node>) -> TaskSets<'static> {
    if let Some(recorded) = step.affinity.filter(Affinity::is_complete) {
        return TaskSets::deferred(recorded.tasks(), move |task| recorded.of(task));
    }
    let numa = node.map_or(&[][..], |node| node.numa.as_slice());
    let listed = listed_cpus(env, count(spank), numa).unwrap_or_else(|error| {
        tracing::debug!("SLURM_CPU_BIND_LIST: {error}; CPU sets are unknown");
        vec![IdSet::default(); count(spank)]
    });
    listed.into()
}

/// Where the task's component stands. Slurm counts the tasks of a component from 0; its
/// variables count on through all components (env.c, setup_env).
fn position(spank: &Spank, env: Env) -> ComponentPosition {
    let from_env = |name: &str| env(name).and_then(|text| text.parse().ok());
    let global = spank.global_task_id();
    let rank: u32 = from_env(variables::PROC_ID).or(global).unwrap_or(0);
    let tasks = spank.total_task_count().unwrap_or(1);
    let before = rank.saturating_sub(global.unwrap_or(rank));
    // The components of a heterogeneous job have job ids one after the other, and all
    // find the first one's in the variable.
    let first: Option<u32> = from_env(variables::JOB_ID);
    let offset = spank.job_id().zip(first).map(|(own, first)| own.wrapping_sub(first));
    let group = match offset.and_then(|offset| usize::try_from(offset).ok()) {
        // A heterogeneous step in one job: its components have one id.
        Some(0) if before > 0 => None,
        group => group.filter(|group| *group < MAX_HET_COMPONENTS),
    };
    ComponentPosition {
        group,
        before,
        tasks,
        total: from_env(variables::STEP_NUM_TASKS).unwrap_or(tasks),
    }
}
