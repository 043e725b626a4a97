//! Who gets what: the cost of giving a device to a rank, and the cheapest plan.
//!
//! [`plan`] is a pure function of the machine, the step's devices and its
//! tasks' CPU sets, and it counts in integers only: every task of a step can
//! compute the same plan by itself, and [`SharedPlan`] only spares it that.
//!
//! A plan is the smallest by, in this order: the distance of ranks to their
//! devices (`numa`), the distance of neighbouring ranks' devices (`links`), and
//! the list of devices itself. The work is split accordingly:
//!
//! | file | what it does |
//! |---|---|
//! | `cost` | turns machine, devices and CPU sets into numbers, and defines [`Cost`] |
//! | `numa_optimal` | all plans with the smallest `numa`, described by a few bounds |
//! | `exact` | the best of those, for up to 8 ranks and 8 devices |
//! | `local_search` | a good one of those, for anything larger |
//! | `exchange` | what exchanges of two ranks make of a list |
//! | `why` | what to tell a user about the outcome |
//! | `shares` | which devices each task gets |
//! | `shared_list`, `shared` | one plan for all tasks of a step, in memory that they share |
//! | `task_sets` | the CPU sets of a step's tasks, of which those that read a plan need one |
//! | `mapping_cost` | what a mapping costs that somebody else has made |
//!
//! What does *not* live here: how a device is written into an environment, and
//! which devices and CPUs a step has.

mod cost;
mod exact;
mod exchange;
#[cfg(test)]
mod exchange_tests;
mod local_search;
mod mapping_cost;
mod numa_optimal;
mod shared;
mod shared_list;
mod shares;
mod task_sets;
mod why;

use crate::node::{Device, IdSet, Node};

pub use cost::Cost;
use cost::Problem;
pub use mapping_cost::mapping_cost;
pub use shared::SharedPlan;
pub use shares::Shares;
pub use task_sets::TaskSets;
use why::{Distances, Reasons};
pub use why::{Undecided, Why};

/// The most tasks that [`plan`] accepts; no node has CPUs for more.
pub const MAX_TASKS: usize = 4096;

/// The most devices that [`plan`] accepts; a node has 16 GPUs with 7 MIG
/// instances each at most.
pub const MAX_DEVICES: usize = 1024;

/// How the tasks of a step share its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// One device for each task.
    Single,
    /// With fewer tasks than devices, an equal share of floor(devices / tasks)
    /// for each task; else one device for each.
    Auto,
    /// So many devices for each task; one where there are not enough.
    Share(usize),
}

/// Which task of a step gets which of its devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The devices of each task.
    pub shares: Shares,
    /// What this plan costs.
    pub cost: Cost,
    /// What the allocation's own order would cost: slot *i* on device *i*
    /// modulo the number of devices.
    pub naive: Cost,
    reasons: Reasons,
}

/// Why there is no plan. Each task can still be given a device by [`Plan::in_order`],
/// unless there are no tasks or no devices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A step without tasks on this node.
    #[error("the step has no tasks on this node, so there is nothing to plan")]
    NoTasks,
    /// A step without devices on this node.
    #[error("the step has no GPUs on this node, so there is nothing to plan")]
    NoDevices,
    /// A device that the node's description lacks.
    #[error("device {0} of the step is not in the node's description")]
    NotInNode(usize),
    /// A device that the allocation names twice.
    #[error("device {0} of the step is the same as an earlier one; each must be there once")]
    Repeated(usize),
    /// More than [`MAX_TASKS`] or [`MAX_DEVICES`].
    #[error(
        "{tasks} tasks on {devices} devices are more than can be planned ({MAX_TASKS} and {MAX_DEVICES})"
    )]
    TooMany {
        /// Tasks of the step on this node.
        tasks: usize,
        /// Devices of the step on this node.
        devices: usize,
    },
}

/// Plans a step: `devices` is its allocation in PCI order, `tasks` the CPU set of
/// each task by local rank, empty where it is unknown.
///
/// Up to 8 tasks on 8 devices the result is the best of all plans. Beyond, its
/// `numa` is still the smallest of all, and its `links` is never larger than that
/// of the allocation's own order, if that is as near, nor can it be made smaller by
/// exchanging the devices of two ranks or by moving a rank to a free device. The
/// files `numa_optimal` and `local_search` name the sizes, far beyond real nodes, from which
/// on a plan is only as good as the allocation's own order.
pub fn plan(
    node: &Node,
    devices: &[Device],
    tasks: &[IdSet],
    shape: Shape,
) -> Result<Plan, PlanError> {
    check(node, devices, tasks.len())?;
    let share = share(tasks.len(), devices.len(), shape);
    let problem = Problem::new(node, devices, tasks, share);
    let naive = problem.naive();
    let list = match numa_optimal::nearest(&problem) {
        Some(near) if exact::fits(&problem) => {
            exact::search(&problem, &near, local_search::quick(&problem, &near))
        }
        Some(near) => local_search::search(&problem, &near),
        None => naive.clone(),
    };
    Ok(Plan {
        cost: problem.cost(&list),
        naive: problem.cost(&naive),
        shares: Shares::new(list, share),
        reasons: Reasons::Distances(Distances::of(problem, 0, share)),
    })
}

impl Plan {
    /// The plan for a machine of which nothing is known: the allocation's own
    /// order. Its costs are 0.
    pub fn in_order(tasks: usize, devices: usize, shape: Shape) -> Result<Plan, PlanError> {
        check_counts(tasks, devices)?;
        let share = share(tasks, devices, shape);
        let slot = |slot: usize| slot % devices;
        Ok(Plan {
            shares: Shares::new((0..tasks * share).map(slot).collect(), share),
            cost: Cost::default(),
            naive: Cost::default(),
            reasons: Reasons::Same(Why::AffinityUnknown(Some(Undecided::Order))),
        })
    }

    /// The plan for devices that are in plan order already: the same, for another
    /// reason.
    pub fn as_listed(tasks: usize, devices: usize, shape: Shape) -> Result<Plan, PlanError> {
        let plan = Plan::in_order(tasks, devices, shape)?;
        Ok(Plan { reasons: Reasons::Same(Why::Listed), ..plan })
    }

    /// Why a task got its device or devices.
    pub fn why(&self, rank: usize) -> Why {
        match &self.reasons {
            Reasons::Same(why) if rank < self.shares.tasks() => why.clone(),
            Reasons::Same(_) => Why::NoSuchTask,
            Reasons::Distances(distances) => distances.why(&self.shares, rank),
        }
    }

    /// The devices that no task has, in the allocation's order. `devices` is the
    /// number of devices that was planned with.
    pub fn rest(&self, devices: usize) -> Vec<usize> {
        let mut free = vec![true; devices];
        for &device in self.shares.list() {
            if let Some(free) = free.get_mut(device) {
                *free = false;
            }
        }
        (0..devices).filter(|&device| free.get(device) == Some(&true)).collect()
    }
}

/// Devices for each task.
fn share(tasks: usize, devices: usize, shape: Shape) -> usize {
    let most = (devices / tasks.max(1)).max(1);
    match shape {
        Shape::Single => 1,
        Shape::Auto => most,
        Shape::Share(share) => share.clamp(1, most),
    }
}

fn check_counts(tasks: usize, devices: usize) -> Result<(), PlanError> {
    if tasks == 0 {
        return Err(PlanError::NoTasks);
    }
    if devices == 0 {
        return Err(PlanError::NoDevices);
    }
    Ok(())
}

fn check(node: &Node, devices: &[Device], tasks: usize) -> Result<(), PlanError> {
    check_counts(tasks, devices.len())?;
    if tasks > MAX_TASKS || devices.len() > MAX_DEVICES {
        return Err(PlanError::TooMany { tasks, devices: devices.len() });
    }
    let mut seen = std::collections::HashSet::with_capacity(devices.len());
    for (position, device) in devices.iter().enumerate() {
        let there =
            node.gpu(*device).is_some_and(|gpu| device.mig.is_none_or(|mig| mig < gpu.mig.len()));
        if !there {
            return Err(PlanError::NotInNode(position));
        }
        if !seen.insert(device) {
            return Err(PlanError::Repeated(position));
        }
    }
    Ok(())
}
