//! The CPUs that a step's tasks really have, where something between srun and `exec` has
//! changed them, such as a wrapper with numactl or taskset; and those of a launcher's
//! workers, where the launcher has bound them itself.

use std::time::Duration;

use gpubind_core::node::{IdSet, Node};
use gpubind_core::step::{RankInfo, RankSource, cpus_of, listed_cpus};

use crate::cli::peers::{PeerGroup, exchange, launcher, peer_group};

/// How long to wait for the step's other tasks.
const WAIT: Duration = Duration::from_secs(3);

/// What is known of them.
#[derive(Debug, PartialEq, Eq)]
pub enum TaskCpus {
    /// This process has what Slurm, or its launcher, has from the start.
    Given,
    /// Each task's, by local rank.
    Announced(Vec<IdSet>),
    /// This task's are changed, and these local ranks have not said theirs.
    NoReply(Vec<usize>),
}

/// Asks the step's other tasks on this node, if this one has other CPUs than Slurm has
/// given it. A task knows by itself only its own, and all must make the same plan.
pub fn task_cpus(
    rank_info: &RankInfo,
    own: &IdSet,
    node: &Node,
    env: &dyn Fn(&str) -> Option<String>,
) -> TaskCpus {
    let Some(tasks) = rank_info.local_size.filter(|size| *size > 1) else {
        return TaskCpus::Given;
    };
    if rank_info.source != RankSource::Slurm || !is_changed(rank_info, own, node, tasks, env) {
        return TaskCpus::Given;
    }
    ask(rank_info, own, env)
}

/// Asks the launcher's other workers on this node, if it has given this one other CPUs than
/// it has itself; else all have the same.
pub fn worker_cpus(
    rank_info: &RankInfo,
    own: &IdSet,
    env: &dyn Fn(&str) -> Option<String>,
) -> TaskCpus {
    let is_one_of_many = rank_info.local_size.is_some_and(|size| size > 1);
    let launchers = || cpus_of(i32::try_from(launcher(rank_info)).unwrap_or_default());
    let is_launched = matches!(rank_info.source, RankSource::Launcher(_)) && is_one_of_many;
    if !is_launched || *own == launchers() {
        return TaskCpus::Given;
    }
    ask(rank_info, own, env)
}

fn ask(rank_info: &RankInfo, own: &IdSet, env: &dyn Fn(&str) -> Option<String>) -> TaskCpus {
    let uid = rustix::process::getuid().as_raw();
    let Some(group) = peer_group(rank_info, uid, || launcher(rank_info), env) else {
        return TaskCpus::Given;
    };
    // Not that of `report --check`, which the command may be.
    let group = PeerGroup { name: format!("{}-exec", group.name), ..group };
    match exchange(&group, &own.to_string(), WAIT) {
        Ok(replies) => announced(&replies),
        Err(error) => {
            tracing::warn!("cannot learn the other tasks' CPUs: {error}");
            TaskCpus::Given
        }
    }
}

fn announced(replies: &[Option<String>]) -> TaskCpus {
    let sets = replies.iter().map(|reply| reply.as_ref()?.parse::<IdSet>().ok());
    let sets: Vec<Option<IdSet>> = sets.collect();
    let missing: Vec<usize> = (0..sets.len()).filter(|at| sets.get(*at) == Some(&None)).collect();
    match missing.is_empty() {
        true => TaskCpus::Announced(sets.into_iter().flatten().collect()),
        false => TaskCpus::NoReply(missing),
    }
}

/// Whether the task's CPUs are not those of its mask in SLURM_CPU_BIND_LIST, or, without
/// a mask, not all of the node.
fn is_changed(
    rank_info: &RankInfo,
    own: &IdSet,
    node: &Node,
    tasks: usize,
    env: &dyn Fn(&str) -> Option<String>,
) -> bool {
    let all: IdSet = node.numa.iter().flat_map(|numa| numa.cpus.iter()).collect();
    let listed = listed_cpus(env, tasks, &node.numa).ok();
    let listed = listed.and_then(|sets| sets.get(rank_info.local_rank).cloned());
    let listed = listed.filter(|set| !set.is_empty()).unwrap_or_else(|| all.clone());
    let possible: IdSet = listed.iter().filter(|cpu| all.contains(*cpu)).collect();
    *own != possible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_made_of_all_sets_or_of_none() {
        let reply = |text: &str| Some(text.to_owned());
        let sets = [reply("0-1"), reply("3")];
        let expected = vec!["0-1".parse().unwrap(), "3".parse().unwrap()];
        assert_eq!(announced(&sets), TaskCpus::Announced(expected));
        let some = [reply("0"), None, reply("no set"), reply("1")];
        assert_eq!(announced(&some), TaskCpus::NoReply(vec![1, 2]));
    }
}
