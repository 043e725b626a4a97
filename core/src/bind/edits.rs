//! From a step's plan to one rank's environment.

use std::borrow::Cow;
use std::ffi::OsString;

use crate::node::IdSet;
use crate::plan::{Plan, PlanError, Shape, SharedPlan, Why, plan};
use crate::request::{Change, Cpus, Ids, Mode};
use crate::step::{Allocation, Entry};
use crate::variables;

use super::arming::{Arming, arm};
use super::device_lists::OTHER_MAKERS;
use super::inherited::{GPUBIND_VARS, inherited, preload_without_shim};
use super::local_cpus::LocalCpus;
use super::locality::numa_list;
use super::rank::Rank;
use super::rank_variables::{contradicted, is_free, local_rank_to_come, note, rank_variables};
use super::report::{OwnDevice, RankReport, summary};
use super::visible::{join, ordinals, visible};
use super::warning::Warning;

/// What Slurm sets in a step with gres/shard or gres/mps (gres_shard.c, gres_mps.c), and
/// where `--ntasks-per-gpu` was asked for: that is a wish to share GPUs.
const SHARING: [&str; 3] =
    [variables::SHARDS_ON_NODE, variables::MPS_PERCENTAGE, variables::NTASKS_PER_GPU];

/// Changes to a rank's environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edits {
    /// Variables to set.
    pub set: Vec<(&'static str, String)>,
    /// LD_PRELOAD, where it gains the worker shim.
    pub preload: Option<OsString>,
    /// The CPUs on which it is to run, where that changes.
    pub cpus: Option<IdSet>,
    /// What concerns some programs only: [`Warning::NoShim`] those that are launchers,
    /// [`Warning::SeveralInstances`] those that are none. `verbose` says it.
    pub notes: Vec<Warning>,
    /// What is to be said by this rank, whichever it is.
    pub own_warning: Option<Warning>,
    /// CUDA_VISIBLE_DEVICES, which is among the variables to set.
    pub visible: String,
    /// What the rank got, where `verbose` is to say it.
    pub report: Option<RankReport>,
    /// What all ranks of the node got, where `verbose` is to say it and this is the first.
    pub summary: Option<String>,
}

/// Why a task's environment stays as Slurm made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SkipReason {
    /// The request says `off`.
    #[error("the request says off")]
    Off,
    /// Slurm has bound the task.
    #[error("Slurm has bound this task itself")]
    BoundBySlurm,
    /// It was called by a process that gpubind has bound.
    #[error("gpubind has bound this process already")]
    AlreadyBound,
    /// There is nothing to choose from.
    #[error("CUDA_VISIBLE_DEVICES names one device already")]
    OneDevice,
    /// The user, or Slurm, wants no device to be seen.
    #[error("CUDA_VISIBLE_DEVICES hides all devices")]
    Hidden,
    /// There is no device to give.
    #[error("the step has no GPU on this node that can be given")]
    NoDevice,
    /// Slurm's list does not say which devices the step has.
    #[error("Slurm's list does not say which devices the step has")]
    Uncountable,
}

/// What comes out for a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The changes, or why there are none.
    pub edits: Result<Edits, SkipReason>,
    /// What to do first: it takes away what an outer step's gpubind has left.
    pub undo: Vec<Change>,
    /// LD_PRELOAD without an outer step's shim, where it has one; empty for one that is
    /// to be unset.
    pub undo_preload: Option<OsString>,
    /// What the user should know. All tasks of a node find the same warnings.
    pub warnings: Vec<Warning>,
}

impl Outcome {
    /// Nothing is changed, and there is nothing to say.
    pub fn skipped(why: SkipReason) -> Outcome {
        Outcome { edits: Err(why), undo: Vec::new(), undo_preload: None, warnings: Vec::new() }
    }
}

/// Makes the changes to one rank's environment. Every task of a step computes
/// the same plan by itself; nothing is asked of the system.
pub fn edits(rank: &Rank) -> Outcome {
    edits_sharing(rank, None)
}

/// The same as [`edits`], for a task that shares its plan with the others of its step.
pub(super) fn edits_sharing(rank: &Rank, shared: Option<&SharedPlan>) -> Outcome {
    by_plan(rank, |warnings| plan_of(rank, shared, warnings).map(Cow::Owned))
}

/// The same as [`edits`], for a caller that goes through all ranks of a step and
/// has computed their plan once: of this node, allocation and tasks, with the
/// [`shape`] of this mode.
pub fn edits_by(rank: &Rank, plan: &Plan) -> Outcome {
    by_plan(rank, |_| Some(Cow::Borrowed(plan)))
}

fn by_plan<'p>(
    rank: &Rank,
    plan: impl FnOnce(&mut Vec<Warning>) -> Option<Cow<'p, Plan>>,
) -> Outcome {
    let mut warnings = Vec::new();
    let edits = match what_prevents(rank) {
        Some((why, warning)) => {
            warnings.extend(warning);
            Err(why)
        }
        None => {
            warnings.extend(what_is_lacking(rank));
            match plan(&mut warnings).and_then(|plan| of_plan(rank, &plan, &mut warnings)) {
                Some(edits) => Ok(edits),
                None => {
                    warnings = vec![Warning::NoDevice];
                    Err(SkipReason::NoDevice)
                }
            }
        }
    };
    let undo_preload = rank.preload.and_then(preload_without_shim);
    Outcome { edits, undo: inherited(rank.env), undo_preload, warnings }
}

/// Why the rank is not bound whatever the plan, and what to warn of.
fn what_prevents(rank: &Rank) -> Option<(SkipReason, Option<Warning>)> {
    let allocation = rank.allocation;
    if rank.settings.mode == Mode::Off {
        return Some((SkipReason::Off, None));
    }
    if let Some((reachable, step)) = allocation.narrowed {
        // Only who asked for another binding need know that Slurm's is in its way.
        let warning = rank.settings.asked.then_some(Warning::Narrowed { reachable, step });
        return Some((SkipReason::BoundBySlurm, warning));
    }
    if let Some(reason) = &allocation.uncountable {
        let warning = Warning::Uncountable { reason: reason.clone() };
        return Some((SkipReason::Uncountable, Some(warning)));
    }
    if !allocation.entries.is_empty() {
        return None;
    }
    let warning = match (allocation.excluded, allocation.not_in_container) {
        (0, 0) => Warning::NoDevice,
        (0, devices) => Warning::NoDeviceFile { devices },
        (devices, _) => Warning::Excluded { devices },
    };
    Some((SkipReason::NoDevice, Some(warning)))
}

/// What keeps the rank from being bound as it should be.
fn what_is_lacking(rank: &Rank) -> Vec<Warning> {
    let Allocation { entries, lost, not_in_container, list_only, .. } = rank.allocation;
    let mut warnings = Vec::new();
    match (rank.node, list_only) {
        (Err(reason), _) => warnings.push(Warning::NodeUnknown { reason: reason.to_owned() }),
        (Ok(_), Some(reason)) => warnings.push(Warning::ListOnly { reason: reason.clone() }),
        (Ok(_), None) if !lost.is_empty() => {
            warnings.push(Warning::Lost { names: lost.clone(), left: entries.len() });
        }
        (Ok(_), None) => {}
    }
    if *not_in_container > 0 {
        let (there, absent) = (entries.len(), *not_in_container);
        warnings.push(Warning::FewerInContainer { there, absent });
    }
    if rank.tasks.count() > entries.len() && !is_sharing_wanted(rank) {
        warnings.push(Warning::Shared { tasks: rank.tasks.count(), devices: entries.len() });
    }
    warnings
}

fn of_plan(rank: &Rank, plan: &Plan, warnings: &mut Vec<Warning>) -> Option<Edits> {
    let entries = &rank.allocation.entries;
    let entries_at = |positions: &[usize]| -> Vec<&Entry> {
        positions.iter().filter_map(|at| entries.get(*at)).collect()
    };
    let own_positions = plan.shares.get(rank.local_rank).unwrap_or_default();
    let own = entries_at(own_positions);
    let seen = match rank.settings.mode {
        Mode::Ordered => entries_at(&in_plan_order(plan, entries.len())),
        Mode::First => entries_at(&own_first(own_positions, plan, entries.len())),
        Mode::Auto | Mode::Single | Mode::Off => own.clone(),
    };
    let text = visible(&seen, rank.settings.ids).filter(|_| !own.is_empty())?;
    if rank.settings.ids == Ids::Uuid && seen.iter().any(|entry| entry.uuid.is_none()) {
        warnings.push(Warning::UuidUnknown);
    }
    let mut notes = Vec::new();
    if has_several_instances(&seen) {
        notes.push(Warning::SeveralInstances { instances: seen.len() });
    }
    let mut set = vec![(variables::CUDA_VISIBLE_DEVICES, text.clone())];
    let order = (variables::CUDA_DEVICE_ORDER, "PCI_BUS_ID".to_owned());
    if let Some(numbers) = ordinals(&seen) {
        let there = OTHER_MAKERS.into_iter().filter(|name| (rank.env)(name).is_some());
        set.extend(there.map(|name| (name, numbers.clone())));
    }
    let why = plan.why(rank.local_rank);
    set.extend(own_values(rank, &own, &why, &text));
    let ranks = rank_variables(rank, own.len(), seen.len());
    let local = (rank.settings.cpus == Cpus::Local).then(|| LocalCpus::of(rank, plan));
    let workers = local.as_ref().map_or("", |local| &local.workers);
    let arming = arm(rank, &text, workers, own.len(), &ranks, is_sharing_wanted(rank));
    let omp = local.as_ref().and_then(|local| threads_variable(rank, local));
    let is_order_new = is_free(order.0, rank.env);
    let later = local_rank_to_come(rank, seen.len());
    let noted = ranks.iter().chain(Some(&order).filter(|_| is_order_new)).chain(&omp);
    set.extend(note(&noted.cloned().chain(later).collect::<Vec<_>>()));
    set.push(order);
    set.extend(ranks);
    set.extend(omp);
    let mut preload = None;
    match arming {
        Arming::Armed { record, preload: value } => {
            set.push((variables::WORKERS, record));
            preload = Some(value);
        }
        Arming::NoShim { is_unserved, is_overwritten } => {
            notes.extend(is_unserved.then_some(Warning::NoShim));
            notes.extend(is_overwritten.then_some(Warning::Overwritten));
        }
        Arming::Unneeded => {}
    }
    let mut cpus = None;
    if let Some(local) = &local {
        set.extend(local.own.as_ref().map(|own| (variables::CPUS, own.to_string())));
        cpus = local.own.clone().filter(|own| own != rank.cpus);
        if !local.remote.is_empty() {
            let warning = Warning::NoLocalCpus { ranks: local.remote.clone() };
            // Who has not asked need not hear of it.
            let to = if rank.settings.asked { warnings } else { &mut notes };
            to.push(warning);
        }
    }
    let own_cpus = cpus.as_ref().unwrap_or(rank.cpus);
    let verbose = rank.settings.verbose;
    let report = verbose.then(|| report(rank, own_cpus, &own, text.clone(), why));
    let summary = (verbose && rank.local_rank == 0).then(|| {
        let cpus = local.as_ref().map_or_else(|| rank.tasks.all(), |local| &local.tasks);
        summary(rank, cpus, plan)
    });
    let own_warning = contradicted(rank, own.len());
    Some(Edits { set, preload, cpus, notes, own_warning, visible: text, report, summary })
}

/// OMP_NUM_THREADS where `omp` asks for it, and neither the user nor a script has set it.
fn threads_variable(rank: &Rank, local: &LocalCpus) -> Option<(&'static str, String)> {
    let name = variables::OMP_NUM_THREADS;
    let cores = local.cores.filter(|_| rank.settings.omp && is_free(name, rank.env))?;
    Some((name, cores.to_string()))
}

/// CUDA uses one MIG instance in a process, whatever the list says (MIG user guide,
/// "CUDA Device Enumeration").
fn has_several_instances(own: &[&Entry]) -> bool {
    own.len() > 1 && own.iter().any(|entry| entry.device.is_some_and(|device| device.mig.is_some()))
}

/// Whether several tasks on a device are wanted: by the request, or by how the GPUs were
/// asked for.
fn is_sharing_wanted(rank: &Rank) -> bool {
    rank.settings.share || SHARING.iter().any(|name| (rank.env)(name).is_some())
}

/// How the plan of a mode shares `devices` between tasks, of which there are at most
/// `most_tasks` on any node of the step.
pub fn shape(mode: Mode, most_tasks: usize, devices: usize) -> Shape {
    match mode {
        Mode::Auto => Shape::Share(devices / most_tasks.max(1)),
        Mode::Single | Mode::Ordered | Mode::First | Mode::Off => Shape::Single,
    }
}

/// The step's plan; without a known node, the allocation's own order.
pub(super) fn plan_of(
    rank: &Rank,
    shared: Option<&SharedPlan>,
    warnings: &mut Vec<Warning>,
) -> Option<Plan> {
    let count = rank.allocation.entries.len();
    let shape = shape(rank.settings.mode, rank.most_tasks, count);
    let devices = rank.allocation.devices();
    let known = match rank.node {
        Ok(node) if devices.len() == count => match shared {
            Some(shared) => shared.plan(node, &devices, rank.tasks, shape, rank.local_rank),
            None => plan(node, &devices, rank.tasks.all(), shape),
        },
        _ => Plan::in_order(rank.tasks.count(), count, shape),
    };
    match known {
        Ok(plan) => Some(plan),
        Err(PlanError::NoTasks | PlanError::NoDevices) => None,
        Err(error) => {
            warnings.push(Warning::NodeUnknown { reason: error.to_string() });
            Plan::in_order(rank.tasks.count(), count, shape).ok()
        }
    }
}

/// The ranks' own devices by local rank, each once, then the step's others.
fn in_plan_order(plan: &Plan, devices: usize) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::with_capacity(devices);
    let mut taken = vec![false; devices];
    for device in plan.shares.list().iter().copied().chain(0..devices) {
        if let Some(taken) = taken.get_mut(device).filter(|taken| !**taken) {
            *taken = true;
            order.push(device);
        }
    }
    order
}

/// The rank's own device, then the others in plan order.
fn own_first(own: &[usize], plan: &Plan, devices: usize) -> Vec<usize> {
    let others = in_plan_order(plan, devices).into_iter().filter(|at| !own.contains(at));
    own.iter().copied().chain(others).collect()
}

/// What logs and scripts may want to know of the rank's own devices.
fn own_values(
    rank: &Rank,
    own: &[&Entry],
    why: &Why,
    visible: &str,
) -> Vec<(&'static str, String)> {
    let node = rank.node.ok();
    let gpu = |entry: &Entry| node.and_then(|node| node.gpu(entry.device?));
    let numa = |entry: &Entry| {
        let ids = gpu(entry)?.numa.known()?;
        // Not by commas: those separate the devices.
        (!ids.is_empty()).then(|| numa_list(ids).replace(',', "+"))
    };
    let values = [
        join(own, |entry| entry.uuid.clone()),
        join(own, |entry| gpu(entry)?.pci.known().map(|pci| pci.to_string())),
        join(own, |entry| gpu(entry).map(|gpu| gpu.index.to_string())),
        ordinals(own),
        join(own, numa),
        Some(rank.local_rank.to_string()),
        Some(why.to_string()),
        Some(visible.to_owned()),
        is_sharing_wanted(rank).then(|| "on".to_owned()),
    ];
    GPUBIND_VARS.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?))).collect()
}

fn report(rank: &Rank, cpus: &IdSet, own: &[&Entry], visible: String, why: Why) -> RankReport {
    let own = own.iter().map(|entry| {
        let known = rank.node.ok().zip(entry.device);
        known.and_then(|(node, device)| OwnDevice::of(node, device, cpus)).unwrap_or_else(|| {
            let number = entry.ordinal.map(|ordinal| format!("GPU {ordinal} of Slurm's list"));
            OwnDevice::listed(number.or_else(|| entry.uuid.clone()).unwrap_or_default())
        })
    });
    let own = own.collect();
    let is_narrowed = cpus != rank.cpus;
    RankReport { local_rank: rank.local_rank, cpus: cpus.clone(), is_narrowed, own, visible, why }
}
