//! The edits for a process that no plugin has bound, from what it finds by itself:
//! `gpubind exec`.

use std::ffi::OsStr;

use crate::node::{IdSet, Node};
use crate::plan::{Plan, Shape, TaskSets};
use crate::request::{LocalRank, Mode};
use crate::site::{DeviceName, Settings};
use crate::step::{
    Access, Allocation, GpuLists, RankInfo, RankSource, Reach, WORKER, is_worker, listed_cpus,
    names, step_gpu_count, task_ranks,
};
use crate::variables;

use super::edits::{Outcome, SkipReason, edits, edits_by, plan_of};
use super::rank::{Rank, Shim};
use super::warning::Warning;

/// A process, with all that decides about its environment.
pub struct Process<'a> {
    /// The machine, or why it is not known.
    pub node: Result<&'a Node, &'a str>,
    /// What the process can reach, where the machine is known.
    pub reach: &'a Reach,
    /// Where it stands among those that share its devices.
    pub rank_info: &'a RankInfo,
    /// Its own CPUs.
    pub cpus: &'a IdSet,
    /// Those of all of Slurm's tasks, or of a launcher's workers, on this node, where they
    /// have told each other.
    pub task_cpus: Option<&'a [IdSet]>,
    /// The threads of a CPU's core, for `cpus=local`: see [`Rank::threads`].
    pub threads: &'a dyn Fn(usize) -> IdSet,
    /// What was asked for.
    pub settings: &'a Settings,
    /// Devices that the admin keeps from all.
    pub exclude: &'a [DeviceName],
    /// The worker shim, for a task that keeps several devices.
    pub worker: Option<Shim<'a>>,
    /// Whether it runs in a job step of Slurm's, whatever its environment says.
    pub is_in_step: bool,
    /// Whether it runs in a container of podman's or docker's, whose processes have neither
    /// the environment nor the cgroup of the step that has started them.
    pub is_in_container: bool,
    /// LD_PRELOAD so far.
    pub preload: Option<&'a OsStr>,
    /// Its environment so far.
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

/// Spellings of CUDA_VISIBLE_DEVICES that hide all devices on purpose: empty, CUDA's
/// documented -1, and what Slurm before 24.05 writes where there are none.
const HIDDEN: [&str; 3] = ["", "-1", "NoDevFiles"];

/// Why the process's environment stays as it is, as far as that environment itself
/// tells: then the machine need not be read.
pub fn skip_reason(
    rank_info: &RankInfo,
    settings: &Settings,
    env: &dyn Fn(&str) -> Option<String>,
) -> Option<SkipReason> {
    if settings.mode == Mode::Off {
        return Some(SkipReason::Off);
    }
    let visible = env(variables::CUDA_VISIBLE_DEVICES)?;
    let launched = matches!(rank_info.source, RankSource::Launcher(_));
    let count = names(&visible).count();
    if HIDDEN.contains(&visible.trim()) {
        return Some(SkipReason::Hidden);
    }
    if is_given(&visible, env) && (!launched || is_worker(env)) {
        return Some(SkipReason::AlreadyBound);
    }
    if count == 1 && rank_info.local_size != Some(1) {
        return Some(SkipReason::OneDevice);
    }
    // Another task has the rest, so this one's list is no step's.
    let bound = rank_info.source == RankSource::Slurm
        && step_gpu_count(env).is_some_and(|step| count < step);
    bound.then_some(SkipReason::BoundBySlurm)
}

/// Makes the changes to the process's environment. All processes of one launcher or
/// step on this node find plans that fit together, without talking:
///
/// * its devices are those that its CUDA_VISIBLE_DEVICES names, as CUDA understands
///   that, else all that it can reach;
/// * tasks of Slurm's know each other's CPUs from SLURM_CPU_BIND_LIST, or have told each
///   other; of a launcher's workers each knows but its own, so none counts;
/// * a list that gpubind has given to the task above is in plan order already: rank r
///   takes entry r, modulo its length.
pub fn edits_for_process(process: &Process) -> Outcome {
    if let Some(why) = skip_reason(process.rank_info, process.settings, process.env) {
        return Outcome::skipped(why);
    }
    let visible = (process.env)(variables::CUDA_VISIBLE_DEVICES);
    let given = visible.as_deref().is_some_and(|visible| is_given(visible, process.env));
    let launched = matches!(process.rank_info.source, RankSource::Launcher(_));
    let allocation = allocation(process, visible.as_deref(), given);
    let mut allocation = allocation.without(process.exclude, process.node.ok());
    let mut settings = process.settings.clone();
    if launched {
        allocation.narrowed = None;
        // A worker is one rank; it is tasks that keep a share for their workers.
        if settings.mode == Mode::Auto {
            settings.mode = Mode::Single;
        }
    }
    let devices = allocation.entries.len();
    let count = process.rank_info.local_size.unwrap_or(devices);
    let ranks =
        task_ranks(process.env, None).filter(|_| process.rank_info.source == RankSource::Slurm);
    let users_local_rank = users_local_rank(process);
    let tasks = TaskSets::from(cpus(process, count));
    let rank = Rank {
        node: process.node,
        allocation: &allocation,
        tasks: &tasks,
        most_tasks: count,
        cpus: process.cpus,
        threads: process.threads,
        settings: &settings,
        local_rank: match process.rank_info.local_size {
            Some(_) => process.rank_info.local_rank,
            // As many as devices are planned for, and the others follow in turn.
            None => process.rank_info.local_rank.checked_rem(devices).unwrap_or(0),
        },
        ranks: ranks.as_ref(),
        worker: process.worker.filter(|_| !launched),
        is_before_container: false,
        users_local_rank: users_local_rank.as_deref(),
        preload: process.preload,
        env: process.env,
    };
    let told = process.task_cpus.filter(|sets| launched && sets.len() == count);
    let plan = match told {
        _ if given => Plan::as_listed(count, devices, Shape::Single).ok(),
        // Not all of a launcher's workers need have asked, so that none plans by these.
        Some(_) => plan_of(&rank, None, &mut Vec::new()),
        None => None,
    };
    let told = told.map(TaskSets::from);
    let rank = Rank { tasks: told.as_ref().unwrap_or(rank.tasks), ..rank };
    let mut outcome = match plan {
        Some(plan) => edits_by(&rank, &plan),
        None => edits(&rank),
    };
    if outcome.edits.is_err() {
        outcome.undo.clear();
        outcome.undo_preload = None;
    }
    // Where the admin keeps devices back, the warning is about that.
    if outcome.edits.is_err() && allocation.excluded == 0 {
        outcome.warnings = vec![match (process.node, visible) {
            (Err(reason), _) => Warning::NothingKnown { reason: reason.to_owned() },
            (Ok(_), Some(list)) => Warning::NamesNothing { list },
            (Ok(_), None) if process.is_in_step => Warning::StepUnknown,
            (Ok(_), None) => Warning::NoGpu,
        }];
    }
    if may_be_in_step(process) && outcome.edits.is_ok() && devices > 1 {
        outcome.warnings.push(Warning::MayBeInStep { devices });
    }
    if launched {
        keep_launchers(&mut outcome, process);
    }
    renumber(&mut outcome, process.rank_info.local_rank);
    outcome
}

/// Whether a step may have started the process and nothing that could tell so has come
/// along.
fn may_be_in_step(process: &Process) -> bool {
    process.is_in_container
        && !process.is_in_step
        && process.rank_info.source == RankSource::Alone
        && (process.env)(variables::CUDA_VISIBLE_DEVICES).is_none()
}

/// LOCAL_RANK, unless it is the number of Slurm's task under another name.
fn users_local_rank(process: &Process) -> Option<String> {
    let number = (process.env)(variables::LOCAL_RANK)?;
    let is_slurms = process.rank_info.source == RankSource::Slurm
        && (process.env)(variables::LOCAL_ID).as_deref() == Some(number.as_str());
    (!is_slurms).then_some(number)
}

/// Whether gpubind has made this list, and nobody has changed it since.
fn is_given(visible: &str, env: &dyn Fn(&str) -> Option<String>) -> bool {
    env(variables::ASSIGNED_LIST).is_some_and(|given| given == visible)
}

fn allocation(process: &Process, visible: Option<&str>, given: bool) -> Allocation {
    let lists = GpuLists {
        visible: visible.map(str::to_owned),
        step_gpus: (process.env)(variables::STEP_GPUS).filter(|list| !list.is_empty()),
    };
    let Ok(node) = process.node else {
        return Allocation::unknown(&lists);
    };
    let Some(visible) = visible else {
        let all = Allocation::seen(node, process.reach, None);
        let is_constrained = process.reach.gpus.contains(&Access::Denied);
        return match lists.step_gpus.clone() {
            Some(step) => {
                let lists = GpuLists { visible: Some(step), ..lists };
                Allocation::find(node, process.reach, &lists, true)
            }
            None if process.is_in_step && !is_constrained => Allocation::default(),
            None => Allocation::of(node, process.reach, all),
        };
    };
    let seen = Allocation::seen(node, process.reach, Some(visible));
    if given {
        Allocation::listed(node, process.reach, seen)
    } else {
        Allocation::of(node, process.reach, seen)
    }
}

/// The CPU sets of all that the plan is for; empty where unknown.
fn cpus(process: &Process, count: usize) -> Vec<IdSet> {
    if count == 1 {
        return vec![process.cpus.clone()];
    }
    let numa = process.node.map_or(&[][..], |node| node.numa.as_slice());
    match process.rank_info.source {
        RankSource::Slurm => {
            let announced = process.task_cpus.filter(|sets| sets.len() == count);
            announced.map(<[_]>::to_vec).or_else(|| listed_cpus(process.env, count, numa).ok())
        }
        RankSource::Launcher(_) | RankSource::Alone => None,
    }
    .unwrap_or_else(|| vec![IdSet::default(); count])
}

/// The rank variables are the launcher's, except that LOCAL_RANK, where there is one,
/// says which of the visible devices to use.
fn keep_launchers(outcome: &mut Outcome, process: &Process) {
    outcome.undo.retain(|(name, _)| name.starts_with("GPUBIND_"));
    let Ok(edits) = &mut outcome.edits else { return };
    edits.set.push((WORKER.0, WORKER.1.to_owned()));
    let virtual_rank = process.settings.local_rank == LocalRank::Virtual
        && names(&edits.visible).count() == 1
        && (process.env)(variables::LOCAL_RANK).is_some();
    if virtual_rank {
        edits.set.push((variables::LOCAL_RANK, "0".to_owned()));
    }
}

/// Has the outcome tell the process's own number, whatever it was planned as.
fn renumber(outcome: &mut Outcome, local_rank: usize) {
    let Ok(edits) = &mut outcome.edits else { return };
    if let Some(report) = &mut edits.report {
        report.local_rank = local_rank;
    }
    for (name, value) in &mut edits.set {
        if *name == variables::BOUND_LOCAL_RANK {
            *value = local_rank.to_string();
        }
    }
}
