//! From a step's plan to one rank's environment.

use std::borrow::Cow;

use crate::node::{IdSet, Node};
use crate::plan::{Plan, PlanError, Shape, Why, plan};
use crate::request::{Change, LocalRank, Mode};
use crate::site::Settings;
use crate::step::{Allocation, Entry, Ranks};
use crate::variables;

use super::arming::{Shim, arm};
use super::leftovers::{GPUBIND_VARS, RANK_VARIABLES, leftovers};
use super::report::{Locality, RankReport, describe, numa_list};
use super::visible::{join, ordinals, visible};
use super::warning::Warning;

/// Variables of other makers' GPUs; Slurm sets all of them where gres.conf says
/// nothing else (src/plugins/gres/common/gres_common.c).
const OTHER_MAKERS: [&str; 3] =
    [variables::GPU_DEVICE_ORDINAL, variables::ROCR_VISIBLE_DEVICES, variables::ZE_AFFINITY_MASK];

/// What Slurm sets in a step with gres/shard or gres/mps (gres_shard.c, gres_mps.c):
/// who asks for parts of GPUs wants to share them.
const PARTS: [&str; 2] = [variables::SHARDS_ON_NODE, variables::MPS_PERCENTAGE];

/// One rank, with all that decides about its environment.
pub struct Rank<'a> {
    /// The machine, or why it is not known.
    pub node: Result<&'a Node, &'a str>,
    /// The step's devices on this node.
    pub allocation: &'a Allocation,
    /// CPU set of each task of the step on this node, by local rank; empty where unknown.
    pub tasks: &'a [IdSet],
    /// The rank's own CPUs as the kernel tells them, for the report.
    pub cpus: &'a IdSet,
    /// What was asked for.
    pub settings: &'a Settings,
    /// The task's number on this node.
    pub local_rank: usize,
    /// Where it stands among all tasks, where known.
    pub ranks: Option<&'a Ranks>,
    /// What a task that keeps several devices may load; `None` where the task cannot
    /// read that file.
    pub worker: Option<Shim<'a>>,
    /// The environment so far.
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

/// Changes to a rank's environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edits {
    /// Variables to set.
    pub set: Vec<(&'static str, String)>,
    /// What the rank got.
    pub report: RankReport,
}

/// Why a task's environment stays as Slurm made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SkipReason {
    /// The request says `off`.
    #[error("off was asked for")]
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
    #[error("the step has no GPU on this node")]
    NoDevice,
}

/// What comes out for a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The changes, or why there are none.
    pub edits: Result<Edits, SkipReason>,
    /// What to do first: it takes away what an outer step's gpubind has left.
    pub undo: Vec<Change>,
    /// What the user should know. All tasks of a node find the same warnings.
    pub warnings: Vec<Warning>,
}

/// Makes the changes to one rank's environment. Every task of a step computes
/// the same plan by itself; nothing is asked of the system.
pub fn edits(rank: &Rank) -> Outcome {
    by_plan(rank, |warnings| plan_of(rank, warnings).map(Cow::Owned))
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
    let undo = leftovers(rank.env);
    let aside = |why, warnings| Outcome { edits: Err(why), undo: undo.clone(), warnings };
    if rank.settings.mode == Mode::Off {
        return aside(SkipReason::Off, Vec::new());
    }
    if let Some((reachable, step)) = rank.allocation.narrowed {
        // Only who asked for another binding need know that Slurm's is in its way.
        let warning = rank.settings.asked.then_some(Warning::Narrowed { reachable, step });
        return aside(SkipReason::BoundBySlurm, warning.into_iter().collect());
    }
    let entries = &rank.allocation.entries;
    let mut warnings = Vec::new();
    if let Err(reason) = rank.node {
        warnings.push(Warning::NodeUnknown { reason: reason.to_owned() });
    }
    let excluded = rank.allocation.excluded;
    if entries.is_empty() && excluded > 0 {
        return aside(SkipReason::NoDevice, vec![Warning::Excluded { devices: excluded }]);
    }
    let Some(plan) = plan(&mut warnings) else {
        return aside(SkipReason::NoDevice, vec![Warning::NoDevice]);
    };
    if rank.tasks.len() > entries.len() && !is_sharing_wanted(rank) {
        let (tasks, devices) = (rank.tasks.len(), entries.len());
        warnings.push(Warning::Shared { tasks, devices });
    }
    let entries_at = |positions: &[usize]| -> Vec<&Entry> {
        positions.iter().filter_map(|at| entries.get(*at)).collect()
    };
    let own_positions = plan.shares.get(rank.local_rank).map_or(&[][..], Vec::as_slice);
    let own = entries_at(own_positions);
    let seen = match rank.settings.mode {
        Mode::Ordered => entries_at(&in_plan_order(&plan, entries.len())),
        Mode::First => entries_at(&own_first(own_positions, &plan, entries.len())),
        Mode::Auto | Mode::Single | Mode::Off => own.clone(),
    };
    let Some(text) = visible(&seen, rank.settings.ids).filter(|_| !own.is_empty()) else {
        return aside(SkipReason::NoDevice, vec![Warning::NoDevice]);
    };
    if rank.settings.ids == crate::request::Ids::Uuid
        && seen.iter().any(|entry| entry.uuid.is_none())
    {
        warnings.push(Warning::UuidUnknown);
    }

    let mut set = vec![
        (variables::CUDA_VISIBLE_DEVICES, text.clone()),
        (variables::CUDA_DEVICE_ORDER, "PCI_BUS_ID".to_owned()),
    ];
    if let Some(numbers) = ordinals(&seen) {
        let there = OTHER_MAKERS.into_iter().filter(|name| (rank.env)(name).is_some());
        set.extend(there.map(|name| (name, numbers.clone())));
    }
    let why = plan.why(rank.local_rank);
    set.extend(facts(rank, &own, &why, &text));
    set.extend(rank_variables(rank, own.len(), seen.len()));
    if rank.settings.mode == Mode::Auto && own.len() > 1 {
        set.extend(arm(rank, &text));
    }
    let report = report(rank, &own, text, why);
    Outcome { edits: Ok(Edits { set, report }), undo, warnings }
}

/// Whether several tasks on a device are wanted: by request, or by asking for parts.
fn is_sharing_wanted(rank: &Rank) -> bool {
    rank.settings.share || PARTS.iter().any(|name| (rank.env)(name).is_some())
}

/// How the plan of a mode shares devices.
pub fn shape(mode: Mode) -> Shape {
    match mode {
        Mode::Auto => Shape::Auto,
        Mode::Single | Mode::Ordered | Mode::First | Mode::Off => Shape::Single,
    }
}

/// The step's plan; without a known node, the allocation's own order.
fn plan_of(rank: &Rank, warnings: &mut Vec<Warning>) -> Option<Plan> {
    let shape = shape(rank.settings.mode);
    let devices = rank.allocation.devices();
    let known = match rank.node {
        Ok(node) if devices.len() == rank.allocation.entries.len() => {
            plan(node, &devices, rank.tasks, shape)
        }
        _ => Plan::in_order(rank.tasks.len(), rank.allocation.entries.len(), shape),
    };
    match known {
        Ok(plan) => Some(plan),
        Err(PlanError::NoTasks | PlanError::NoDevices) => None,
        Err(error) => {
            warnings.push(Warning::NodeUnknown { reason: error.to_string() });
            Plan::in_order(rank.tasks.len(), rank.allocation.entries.len(), shape).ok()
        }
    }
}

/// The ranks' own devices by local rank, each once, then the step's others.
fn in_plan_order(plan: &Plan, devices: usize) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::with_capacity(devices);
    for device in plan.shares.iter().flatten().copied().chain(0..devices) {
        if !order.contains(&device) {
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
fn facts(rank: &Rank, own: &[&Entry], why: &Why, visible: &str) -> Vec<(&'static str, String)> {
    let node = rank.node.ok();
    let gpu = |entry: &Entry| node.and_then(|node| node.gpu(entry.device?));
    let numa = |entry: &Entry| {
        let ids = gpu(entry)?.numa.known()?;
        // Not by commas: those part the devices.
        (!ids.is_empty()).then(|| numa_list(ids).replace(',', "+"))
    };
    let values = [
        join(own, |entry| entry.uuid.clone()),
        join(own, |entry| gpu(entry)?.pci.known().map(|pci| pci.to_string())),
        join(own, |entry| gpu(entry).map(|gpu| gpu.index.to_string())),
        join(own, numa),
        Some(rank.local_rank.to_string()),
        Some(why.to_string()),
        Some(visible.to_owned()),
        is_sharing_wanted(rank).then(|| "on".to_owned()),
    ];
    GPUBIND_VARS.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?))).collect()
}

/// RANK, WORLD_SIZE and the like, each only where the user has not set it.
fn rank_variables(rank: &Rank, own: usize, seen: usize) -> Vec<(&'static str, String)> {
    // A task that keeps several devices is no rank; its children may be.
    let Some(ranks) = rank.ranks.filter(|_| rank.settings.rank_env && own == 1) else {
        return Vec::new();
    };
    let virtual_rank = seen == 1 && rank.settings.local_rank == LocalRank::Virtual;
    let local_rank = if virtual_rank { 0 } else { rank.local_rank };
    let ours = (rank.env)(variables::RANK_VARIABLES_SET).unwrap_or_default();
    let free = |name: &str| (rank.env)(name).is_none() || ours.split(',').any(|our| our == name);
    let values = [
        Some(ranks.rank.to_string()),
        Some(ranks.world_size.to_string()),
        Some(local_rank.to_string()),
        Some(ranks.local_world_size.to_string()),
        Some(ranks.node_rank.to_string()),
        ranks.master_addr.clone(),
        Some(ranks.master_port.to_string()),
    ];
    let values = RANK_VARIABLES.into_iter().zip(values);
    let mut set: Vec<(&'static str, String)> = values
        .filter_map(|(name, value)| Some((name, value?)))
        .filter(|(name, _)| free(name))
        .collect();
    if !set.is_empty() {
        let names: Vec<&str> = set.iter().map(|(name, _)| *name).collect();
        set.push((variables::RANK_VARIABLES_SET, names.join(",")));
    }
    set
}

fn report(rank: &Rank, own: &[&Entry], visible: String, why: Why) -> RankReport {
    let own = own
        .iter()
        .map(|entry| match (rank.node, entry.device) {
            (Ok(node), Some(device)) => {
                let locality = node.gpu(device).map(|gpu| Locality::of(rank.cpus, gpu));
                (describe(node, device), locality.unwrap_or(Locality::Unknown))
            }
            _ => {
                let number = entry.ordinal.map(|ordinal| format!("GPU {ordinal} of Slurm's list"));
                let name = number.or_else(|| entry.uuid.clone()).unwrap_or_default();
                (name, Locality::Unknown)
            }
        })
        .collect();
    RankReport { local_rank: rank.local_rank, cpus: rank.cpus.clone(), own, visible, why }
}
