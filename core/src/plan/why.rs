//! What to tell a user about a task's devices.

use std::fmt;

use super::cost::Problem;
use super::shares::Shares;

/// Why a task got its devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// All its CPUs are local to its devices.
    Local,
    /// It is not local to all its CPUs, but none is nearer.
    Nearest,
    /// There are nearer devices, and these tasks have them.
    Taken {
        /// Whether those are local to all the task's CPUs.
        local: bool,
        /// Local ranks of the tasks that have them, rising.
        tasks: Vec<usize>,
    },
    /// The machine does not tell which CPUs its device is local to. What decided
    /// instead, if that is known for no device.
    AffinityUnknown(Option<Undecided>),
    /// It is not known on which CPUs the task runs.
    CpusUnknown,
    /// The list that its devices are from was in plan order already.
    Listed,
    /// There is no such task in the plan.
    NoSuchTask,
}

/// What decides where CPUs do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undecided {
    /// Nothing else; the task has the device that it has in Slurm's own order.
    Order,
    /// The links to the devices of tasks with close numbers.
    Links,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Local => f.write_str("local to its CPUs"),
            Why::Nearest => f.write_str("not local to all its CPUs, but no other GPU is nearer"),
            Why::Taken { local, tasks } => {
                let which = if *local { "local" } else { "nearer" };
                write!(f, "nearest free: the {which} GPUs went to {}", Tasks(tasks))
            }
            Why::AffinityUnknown(None) => f.write_str("affinity unknown"),
            Why::AffinityUnknown(Some(Undecided::Order)) => {
                f.write_str("affinity unknown: kept Slurm's order")
            }
            Why::AffinityUnknown(Some(Undecided::Links)) => {
                f.write_str("affinity unknown: placed by the links to its neighbours' GPUs")
            }
            Why::CpusUnknown => f.write_str("its CPUs are unknown"),
            Why::Listed => f.write_str("next in the order that gpubind gave its task"),
            Why::NoSuchTask => f.write_str("no such task in the plan"),
        }
    }
}

/// Task numbers as a user would write them: `rank 3`, `ranks 0, 1 and 4-7`.
struct Tasks<'a>(&'a [usize]);

impl fmt::Display for Tasks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs = Vec::new();
        for run in self.0.chunk_by(|a, b| a + 1 == *b) {
            match run {
                [first, .., last] if run.len() > 2 => runs.push(format!("{first}-{last}")),
                _ => runs.extend(run.iter().map(usize::to_string)),
            }
        }
        let plural = if self.0.len() == 1 { "" } else { "s" };
        match runs.split_last() {
            Some((last, rest)) if !rest.is_empty() => {
                write!(f, "rank{plural} {} and {last}", rest.join(", "))
            }
            _ => write!(f, "rank{plural} {}", runs.concat()),
        }
    }
}

/// What explains the devices of each task of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reasons {
    /// The same for all.
    Same(Why),
    Distances(Distances),
}

/// How far some tasks are from each device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Distances {
    /// The first of these tasks, which follow each other.
    first: usize,
    /// For each of them, its row of `numa`, and whether its CPUs are known.
    tasks: Vec<(usize, bool)>,
    /// As in [`Problem`].
    numa: Vec<Vec<u64>>,
    class_of: Vec<usize>,
    known: Vec<bool>,
}

impl Distances {
    /// Of the tasks of a problem, of which the first has this number in the plan.
    pub fn of(problem: Problem, first: usize, share: usize) -> Distances {
        let Problem { row_of, placed, numa, class_of, known, .. } = problem;
        let tasks = row_of.into_iter().zip(placed).step_by(share).collect();
        Distances { first, tasks, numa, class_of, known }
    }

    /// Why a task got its devices in a plan.
    pub fn why(&self, shares: &Shares, task: usize) -> Why {
        let known = task.checked_sub(self.first).and_then(|at| self.tasks.get(at));
        let Some((&(row, is_placed), own)) = known.zip(shares.get(task)) else {
            return Why::NoSuchTask;
        };
        let devices = self.class_of.len();
        let far = |device: usize| self.numa[row][self.class_of[device]];
        // A share is explained by the device that is farthest from its task.
        let Some((slot, &device)) = own.iter().enumerate().max_by_key(|(_, device)| far(**device))
        else {
            return Why::NoSuchTask;
        };
        if !self.known.contains(&true) {
            let kept = device == (task * own.len() + slot) % devices;
            let decided = if kept { Undecided::Order } else { Undecided::Links };
            return Why::AffinityUnknown(Some(decided));
        }
        if !is_placed {
            return Why::CpusUnknown;
        }
        let cost = far(device);
        if cost == 0 {
            return Why::Local;
        }
        let is_nearer: Vec<bool> = (0..devices).map(|device| far(device) < cost).collect();
        let others = shares.iter().enumerate().filter(|(other, _)| *other != task);
        let holders = others.filter(|(_, devices)| devices.iter().any(|device| is_nearer[*device]));
        let tasks: Vec<usize> = holders.map(|(other, _)| other).collect();
        if !tasks.is_empty() {
            let local = (0..devices).any(|device| far(device) == 0);
            return Why::Taken { local, tasks };
        }
        if self.known[device] { Why::Nearest } else { Why::AffinityUnknown(None) }
    }
}
