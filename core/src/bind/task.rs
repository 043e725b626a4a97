//! What becomes of one of Slurm's tasks: the decision that the plugin carries out.
//!
//! The order is: is the task known, what is asked for, what the site says, whether
//! there is a device, the plan, `strict`, and what is said once per node.

use std::ffi::{OsStr, OsString};

use crate::node::{IdSet, Node};
use crate::plan::{SharedPlan, TaskSets};
use crate::request::Settings;
use crate::request::{Change, Mode, StepRequest, VariableError};
use crate::site::Site;
use crate::step::{Allocation, GpuLists, Ranks, Reach};

use super::edits::{Edits, SkipReason, edits_sharing};
use super::inherited::{inherited, preload_without_shim};
use super::rank::{Rank, Shim};
use super::warning::Warning;

/// A task, with all that decides about its environment.
pub struct Task<'a> {
    /// Its number on this node; `None` where Slurm does not tell it.
    pub local_rank: Option<usize>,
    /// What its step asks for.
    pub request: Result<StepRequest, VariableError>,
    /// Whether this is a batch script or an interactive shell.
    pub is_script: bool,
    /// What the site sets.
    pub site: &'a Site,
    /// Why the site file is ignored, where it is.
    pub site_error: Option<&'a str>,
    /// The step's lists; `None` where the step has no GPU on this node.
    pub lists: Option<&'a GpuLists>,
    /// The machine, or why it is not known.
    pub node: Result<&'a Node, &'a str>,
    /// Whether NVML has been asked for this step; else a known machine is the saved snapshot.
    pub is_read_now: bool,
    /// What the task can reach of a known machine.
    pub reach: &'a dyn Fn(&Node) -> Reach,
    /// Whether Slurm itself may have given the task some of the step's devices only.
    pub slurm_binds: bool,
    /// The CPU sets of the step's tasks on this node.
    pub cpus: &'a dyn Fn(Option<&Node>) -> TaskSets<'a>,
    /// The greatest number of the step's tasks on any node.
    pub most_tasks: usize,
    /// Where the step's tasks share their plan.
    pub shared_plan: Option<&'a SharedPlan>,
    /// Its own CPUs.
    pub own_cpus: &'a dyn Fn() -> IdSet,
    /// The threads of a CPU's core, for `cpus=local`: see [`Rank::threads`].
    pub threads: &'a dyn Fn(usize) -> IdSet,
    /// Where it stands among all tasks, where known.
    pub ranks: Option<Ranks>,
    /// What it may load, where it can read that file.
    pub worker: &'a dyn Fn() -> Option<Shim<'a>>,
    /// Whether a container plugin moves it into its container only after gpubind's turn.
    pub is_before_container: bool,
    /// LOCAL_RANK as it was before the step's tasks were forked: the user's.
    pub users_local_rank: Option<&'a str>,
    /// LD_PRELOAD so far.
    pub preload: Option<&'a OsStr>,
    /// Its environment so far.
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

/// What is to be done to a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Changes to the environment, in order.
    pub changes: Vec<Change>,
    /// LD_PRELOAD, where it changes; empty for one that is to be unset.
    pub preload: Option<OsString>,
    /// The CPUs on which it is to run, where that changes.
    pub cpus: Option<IdSet>,
    /// Lines for the user, once per node.
    pub once: Vec<String>,
    /// A line for the user from this task, whichever it is.
    pub own: Option<String>,
    /// What `verbose` says of the task: what it got.
    pub got: Option<String>,
    /// What `verbose` says of all tasks of the node, by the first.
    pub summary: Option<String>,
    /// Why the task must not run, under `strict`.
    pub failure: Option<String>,
    /// The step's devices and what did not fit, for the log.
    pub allocation: Option<Allocation>,
}

impl Decision {
    fn skip(task: &Task) -> Decision {
        let preload = task.preload.and_then(preload_without_shim);
        Decision { changes: inherited(task.env), preload, ..Decision::default() }
    }

    fn and_say(mut self, line: String) -> Decision {
        self.once.push(line);
        self
    }

    /// Only the first task of a node speaks for all.
    fn said_by(mut self, local_rank: Option<usize>) -> Decision {
        if local_rank.is_some_and(|rank| rank > 0) {
            self.once.clear();
            self.failure = self.failure.map(|_| String::new());
        }
        self
    }
}

/// Decides about one task. Pure: the closures only defer what need not be asked for
/// tasks that are left alone.
pub fn decide(task: &Task) -> Decision {
    of_request(task).said_by(task.local_rank)
}

fn of_request(task: &Task) -> Decision {
    let StepRequest { binding, is_explicit } = match &task.request {
        Ok(request) => request,
        Err(error) => {
            return Decision::skip(task).and_say(format!("{error}; the step runs without gpubind"));
        }
    };
    let mut decision = match Settings::for_binding(binding, task.site) {
        Ok(settings) => of_site(task, &script_settings(task, settings), *is_explicit),
        Err(why) if task.site.request.verbose == Some(true) => {
            Decision::skip(task).and_say(format!("the environment stays as Slurm made it: {why}"))
        }
        Err(_) => Decision::skip(task),
    };
    if let Some(error) = task.site_error.filter(|_| binding.may_be_bound()) {
        decision.once.insert(0, format!("warning: {error}"));
    }
    decision
}

/// A script is a step of one task that starts others: it keeps its devices for them,
/// and RANK is not for all that runs below it.
fn script_settings(task: &Task, settings: Settings) -> Settings {
    let mode = match settings.mode {
        Mode::Single if task.is_script => Mode::Auto,
        mode => mode,
    };
    let mut said = settings.said.clone();
    said.rank_env = said.rank_env.or(task.is_script.then_some(false));
    Settings { mode, said, ..settings }
}

fn of_site(task: &Task, settings: &Settings, is_explicit: bool) -> Decision {
    let problem = |problem: &str| {
        let skip = Decision::skip(task);
        match (settings.asked && is_explicit, settings.strict) {
            (true, true) => Decision { failure: Some(problem.to_owned()), ..skip },
            (true, false) => skip.and_say(format!("warning: {problem}")),
            (false, _) if settings.verbose => skip.and_say(problem.to_owned()),
            (false, _) => skip,
        }
    };
    if settings.mode == Mode::Off {
        let skip = Decision::skip(task);
        return match settings.verbose {
            true => {
                let why = SkipReason::Off;
                skip.and_say(format!("the environment stays as Slurm made it: {why}"))
            }
            false => skip,
        };
    }
    let Some(lists) = task.lists else {
        return problem("the step has no GPU on this node; nothing to bind");
    };
    if lists.visible.is_none() {
        return problem("Slurm sets no CUDA_VISIBLE_DEVICES in this step; nothing to bind");
    }
    let Some(local_rank) = task.local_rank else {
        return problem("Slurm does not tell this task's number; the environment stays as it is");
    };
    of_devices(task, settings, lists, local_rank)
}

fn of_devices(task: &Task, settings: &Settings, lists: &GpuLists, local_rank: usize) -> Decision {
    let allocation = match task.node {
        Ok(node) => Allocation::find(node, &(task.reach)(node), lists, task.slurm_binds),
        Err(_) => Allocation::unknown(lists),
    };
    let allocation = allocation.without(&task.site.exclude, task.node.ok());
    let rank = Rank {
        node: task.node,
        allocation: &allocation,
        tasks: &(task.cpus)(task.node.ok()),
        most_tasks: task.most_tasks,
        cpus: &(task.own_cpus)(),
        threads: task.threads,
        settings,
        local_rank,
        ranks: task.ranks.as_ref(),
        worker: (task.worker)(),
        is_before_container: task.is_before_container,
        users_local_rank: task.users_local_rank,
        preload: task.preload,
        env: task.env,
    };
    let outcome = edits_sharing(&rank, task.shared_plan);
    let skip = Decision {
        changes: outcome.undo,
        preload: outcome.undo_preload,
        allocation: Some(allocation),
        ..Decision::default()
    };
    let notes = outcome.edits.as_ref().map_or(&[][..], |edits| &edits.notes);
    let mut grave = outcome.warnings.iter().chain(notes.iter().filter(|it| it.is_grave()));
    if let Some(warning) = grave.next().filter(|_| settings.strict) {
        return Decision { failure: Some(warning.to_string()), ..skip };
    }
    let mut decision = outcome
        .warnings
        .iter()
        .fold(skip, |decision, warning| decision.and_say(format!("warning: {warning}")));
    if settings.verbose {
        decision.once.extend(notes.iter().map(Warning::to_string));
    }
    match outcome.edits {
        Ok(edits) => apply(&mut decision, edits, task),
        Err(why) if settings.verbose => {
            decision.once.push(format!("the environment stays as Slurm made it: {why}"));
        }
        Err(_) => {}
    }
    decision
}

fn apply(decision: &mut Decision, edits: Edits, task: &Task) {
    let Edits { set, preload, cpus, report, own_warning, summary, .. } = edits;
    decision.cpus = cpus;
    decision.own = own_warning.map(|warning| format!("warning: {warning}"));
    // What is set again need not be taken away first.
    decision.changes.retain(|(name, _)| !set.iter().any(|(again, _)| again == name));
    decision.changes.extend(set.into_iter().map(|(name, value)| (name.to_owned(), Some(value))));
    decision.preload = preload.or(decision.preload.take());
    decision.summary = summary.map(|summary| format!("{summary}; GPUs {}", source(task)));
    decision.got = report.map(|report| report.to_string());
}

/// Where what is known of the GPUs comes from.
fn source(task: &Task) -> &'static str {
    match task.node {
        Ok(_) if task.is_read_now => "as NVML has told for this step",
        Ok(_) => "as the saved snapshot tells",
        Err(_) => "as Slurm's list names them",
    }
}
