//! What to tell a user about a task's devices.

use std::fmt;

use super::cost::Problem;

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

/// Explains a plan, task by task.
pub(super) fn explain(problem: &Problem, list: &[usize], share: usize) -> Vec<Why> {
    let mut holders = vec![Vec::new(); problem.devices()];
    for (rank, &device) in list.iter().enumerate() {
        holders[device].push(rank / share);
    }
    (0..list.len() / share)
        .map(|task| {
            let slots = task * share..(task + 1) * share;
            // A share is explained by the device that is farthest from its task.
            let rank = slots.clone().max_by_key(|&rank| problem.numa(rank, list[rank]));
            rank.map_or(Why::NoSuchTask, |rank| one(problem, &holders, list, rank, task))
        })
        .collect()
}

fn one(problem: &Problem, holders: &[Vec<usize>], list: &[usize], rank: usize, task: usize) -> Why {
    if !problem.known.contains(&true) {
        let kept = list[rank] == rank % problem.devices();
        let decided = if kept { Undecided::Order } else { Undecided::Links };
        return Why::AffinityUnknown(Some(decided));
    }
    if !problem.placed[rank] {
        return Why::CpusUnknown;
    }
    let cost = problem.numa(rank, list[rank]);
    if cost == 0 {
        return Why::Local;
    }
    let best = (0..problem.devices()).map(|device| problem.numa(rank, device)).min();
    let nearer = (0..problem.devices()).filter(|&device| problem.numa(rank, device) < cost);
    let mut tasks: Vec<usize> = nearer
        .flat_map(|device| &holders[device])
        .copied()
        .filter(|&other| other != task)
        .collect();
    tasks.sort_unstable();
    tasks.dedup();
    if !tasks.is_empty() {
        return Why::Taken { local: best == Some(0), tasks };
    }
    if problem.known[list[rank]] { Why::Nearest } else { Why::AffinityUnknown(None) }
}
