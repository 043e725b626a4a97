//! Which processes of this node are peers, by what is in their environment.

use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::exchange::PeerGroup;
use gpubind_core::step::{RankInfo, RankSource, rank_info, task};
use gpubind_core::variables;

/// More ranks than that are nobody's.
const MAX_RANKS: usize = 1024;
/// No process has more ancestors, whatever /proc says.
const MAX_ANCESTORS: usize = 64;

/// The group of the calling process; `None` where nothing tells how many there are.
///
/// Under Slurm it is all ranks of the step on the node: its tasks, or what one torchrun
/// in each of them has started. Elsewhere it is the workers of one launcher, of which
/// `launcher` gives the process.
pub fn peer_group(
    rank_info: &RankInfo,
    uid: u32,
    launcher: impl FnOnce() -> u32,
    env: &dyn Fn(&str) -> Option<String>,
) -> Option<PeerGroup> {
    let task = task(env);
    let own = (rank_info.local_rank, rank_info.local_size);
    let ((position, size), is_step) = match (rank_info.source, &task) {
        (RankSource::Launcher(launcher), Some(task)) => {
            let same = task.local_rank == rank_info.local_rank
                && rank_info.local_size.is_none_or(|size| task.local_size == Some(size));
            let is_torchrun =
                launcher.local_rank == variables::LOCAL_RANK && rank_info.local_size.is_some();
            match task.local_size {
                // Slurm's own MPI support sets the launchers' variables too.
                Some(tasks) if same && !is_torchrun => ((task.local_rank, Some(tasks)), true),
                Some(tasks) if is_torchrun && tasks > 1 => {
                    let workers = rank_info.local_size?;
                    let position = task.local_rank.checked_mul(workers)?;
                    let position = position.checked_add(rank_info.local_rank)?;
                    ((position, tasks.checked_mul(workers)), true)
                }
                _ => (own, false),
            }
        }
        (RankSource::Launcher(_), None) => (own, false),
        (RankSource::Slurm | RankSource::Alone, _) => (own, true),
    };
    let size = size.filter(|size| (1..=MAX_RANKS).contains(size) && position < *size)?;
    let mut hash = DefaultHasher::new();
    [variables::JOB_ID, variables::STEP_ID, variables::NODE_NAME].map(env).hash(&mut hash);
    if !is_step {
        launcher().hash(&mut hash);
    }
    let name = format!("gpubind-{uid}-{:016x}-{size}", hash.finish());
    Some(PeerGroup { name, position, size })
}

/// The process that has started a launcher's ranks on this node: the calling process's
/// nearest ancestor that has not its numbers.
pub fn launcher(rank_info: &RankInfo) -> u32 {
    let mut process = std::os::unix::process::parent_id();
    for _ in 0..MAX_ANCESTORS {
        match is_same_rank(process, rank_info).then(|| parent(process)).flatten() {
            Some(parent) => process = parent,
            None => break,
        }
    }
    process
}

/// Whether the process was started by a step of Slurm's, whatever its environment says.
pub fn is_in_step() -> bool {
    let ancestors = std::iter::successors(Some(std::process::id()), |process| parent(*process));
    ancestors.take(MAX_ANCESTORS).any(|process| {
        let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        name.trim() == "slurmstepd"
    })
}

fn is_same_rank(process: u32, own: &RankInfo) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{process}/environ")) else { return false };
    let environment = String::from_utf8_lossy(&environment);
    let variables: HashMap<&str, &str> =
        environment.split('\0').filter_map(|variable| variable.split_once('=')).collect();
    let found = rank_info(process, &|name| variables.get(name).map(|value| (*value).to_owned()));
    (found.source, found.local_rank, found.local_size)
        == (own.source, own.local_rank, own.local_size)
}

fn parent(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    const UNDER_SLURM: [(&str, &str); 4] = [
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_STEP_TASKS_PER_NODE", "2"),
        ("SLURM_NODEID", "0"),
    ];

    fn of(variables: &[(&str, &str)], launcher: u32) -> Option<PeerGroup> {
        let env = |name: &str| {
            let found = variables.iter().rev().find(|(set, _)| *set == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        peer_group(&rank_info(1, &env), 1000, || launcher, &env)
    }

    /// The positions and sizes of ranks that are one group.
    fn positions(each: &[&[(&str, &str)]], launcher: impl Fn(usize) -> u32) -> Vec<(usize, usize)> {
        let groups = each.iter().enumerate().map(|(at, env)| of(env, launcher(at)).unwrap());
        let groups: Vec<PeerGroup> = groups.collect();
        assert!(groups.iter().all(|other| other.name == groups[0].name), "{groups:?}");
        groups.iter().map(|group| (group.position, group.size)).collect()
    }

    #[test]
    fn tasks_of_a_step_are_peers_and_those_of_other_steps_are_not() {
        let task = |rank| [&UNDER_SLURM[..], &[("SLURM_LOCALID", rank)]].concat();
        let (first, second) = (task("0"), task("1"));
        let launcher = |at| u32::try_from(at).unwrap();
        assert_eq!(positions(&[&first, &second], launcher), [(0, 2), (1, 2)]);
        for other in [("SLURM_STEP_ID", "1"), ("SLURM_JOB_ID", "8"), ("SLURMD_NODENAME", "n1")] {
            let other = [&first[..], &[other]].concat();
            assert_ne!(of(&other, 1).unwrap().name, of(&first, 1).unwrap().name);
        }
        // srun's MPI support numbers them as well.
        let pmi = [&second[..], &[("PMI_LOCAL_RANK", "1"), ("PMI_LOCAL_SIZE", "2")]].concat();
        assert_eq!(positions(&[&first, &pmi], launcher), [(0, 2), (1, 2)]);
    }

    #[test]
    fn workers_of_all_torchruns_of_a_step_are_peers() {
        let worker = |task, rank| {
            let ours = [("SLURM_LOCALID", task), ("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", "4")];
            [&UNDER_SLURM[..], &ours].concat()
        };
        let (one, other) = (worker("0", "1"), worker("1", "1"));
        let launcher = |at| u32::try_from(at).unwrap();
        assert_eq!(positions(&[&one, &other], launcher), [(1, 8), (5, 8)]);
    }

    #[test]
    fn without_slurm_the_workers_of_one_launcher_are_peers() {
        let worker =
            |rank| [("OMPI_COMM_WORLD_LOCAL_RANK", rank), ("OMPI_COMM_WORLD_LOCAL_SIZE", "2")];
        let (one, other) = (worker("0"), worker("1"));
        assert_eq!(positions(&[&one, &other], |_| 77), [(0, 2), (1, 2)]);
        assert_ne!(of(&one, 77).unwrap().name, of(&one, 78).unwrap().name, "another mpirun");
        assert_eq!(of(&[("PMIX_LOCAL_RANK", "1")], 1), None, "nothing tells how many");
        assert_eq!(of(&[], 1).map(|group| (group.position, group.size)), Some((0, 1)));
    }

    #[test]
    fn shells_between_a_launcher_and_its_rank_are_not_the_launcher() {
        // This process, which has no number, starts a shell with one.
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "echo started; read line"])
            .env("LOCAL_RANK", "1")
            .env("LOCAL_WORLD_SIZE", "4")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let own = rank_info(1, &|name| match name {
            "LOCAL_RANK" => Some("1".to_owned()),
            "LOCAL_WORLD_SIZE" => Some("4".to_owned()),
            _ => None,
        });
        // Until it has said something, it may not have its environment.
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(is_same_rank(shell.id(), &own));
        assert_eq!(parent(shell.id()), Some(std::process::id()));
        assert!(!is_same_rank(std::process::id(), &own));
        let other = RankInfo { local_rank: 2, ..own };
        assert!(!is_same_rank(shell.id(), &other), "another rank of the launcher");
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }
}
