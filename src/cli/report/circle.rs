//! Which processes of this node belong together, by what is in their environment.

use gpubind_core::variables;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::meet::Circle;
use gpubind_core::step::{RankInfo, RankSource, task};

/// More ranks than that are nobody's.
const MOST: usize = 1024;

/// What tells one run of a launcher from another on the same node.
const RUNS: [&str; 10] = [
    variables::TORCHELASTIC_RUN_ID,
    variables::MASTER_ADDR,
    variables::MASTER_PORT,
    "PMIX_NAMESPACE",
    "OMPI_MCA_ess_base_jobid",
    "PALS_APID",
    "FLUX_JOB_ID",
    "PMI_JOBID",
    "PMI_PORT",
    "MPIRUN_ID",
];

/// The circle of the calling process; `None` where nobody tells how many there are.
///
/// Under Slurm it is all ranks of the step on the node: its tasks, or what one torchrun
/// in each of them has started. Elsewhere it is one launcher's workers.
pub fn circle(
    rank_info: &RankInfo,
    uid: u32,
    parent: u32,
    env: &dyn Fn(&str) -> Option<String>,
) -> Option<Circle> {
    let task = task(env);
    let flat = (rank_info.local_rank, rank_info.local_size);
    let ((place, size), key) = match (rank_info.source, &task) {
        (RankSource::Launcher(launcher), Some(task)) => {
            let same = task.local_rank == rank_info.local_rank
                && rank_info.local_size.is_none_or(|size| task.local_size == Some(size));
            let is_torchrun =
                launcher.local_rank == variables::LOCAL_RANK && rank_info.local_size.is_some();
            match task.local_size {
                // Slurm's own MPI support sets the launchers' variables too.
                Some(tasks) if same && !is_torchrun => ((task.local_rank, Some(tasks)), Key::Step),
                Some(tasks) if is_torchrun && tasks > 1 => {
                    let workers = rank_info.local_size?;
                    let place = task.local_rank.checked_mul(workers)?;
                    let place = place.checked_add(rank_info.local_rank)?;
                    ((place, tasks.checked_mul(workers)), Key::Step)
                }
                _ => (flat, Key::Run),
            }
        }
        (RankSource::Launcher(_), None) => (flat, Key::Run),
        (RankSource::Slurm | RankSource::Alone, _) => (flat, Key::Step),
    };
    let size = size.filter(|size| (1..=MOST).contains(size) && place < *size)?;
    let mut hash = DefaultHasher::new();
    let step = [variables::JOB_ID, variables::STEP_ID, variables::NODE_NAME];
    step.map(env).hash(&mut hash);
    if matches!(key, Key::Run) {
        env(variables::LOCAL_ID).hash(&mut hash);
        let runs = RUNS.map(env);
        runs.hash(&mut hash);
        if runs.iter().all(Option::is_none) {
            // Its workers are one process's children.
            parent.hash(&mut hash);
        }
    }
    let name = format!("gpubind-{uid}-{:016x}-{size}", hash.finish());
    Some(Circle { name, place, size })
}

/// Whose ranks they are.
enum Key {
    /// The whole step's.
    Step,
    /// One launcher's.
    Run,
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpubind_core::step::rank_info;

    const UNDER_SLURM: [(&str, &str); 4] = [
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_STEP_TASKS_PER_NODE", "2"),
        ("SLURM_NODEID", "0"),
    ];

    fn of(variables: &[(&str, &str)], parent: u32) -> Option<Circle> {
        let env = |name: &str| {
            let found = variables.iter().rev().find(|(set, _)| *set == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        circle(&rank_info(&env), 1000, parent, &env)
    }

    fn places(each: &[&[(&str, &str)]], parent: impl Fn(usize) -> u32) -> Vec<(usize, usize)> {
        let circles = each.iter().enumerate().map(|(at, env)| of(env, parent(at)).unwrap());
        let circles: Vec<Circle> = circles.collect();
        assert!(circles.iter().all(|other| other.name == circles[0].name), "{circles:?}");
        circles.iter().map(|circle| (circle.place, circle.size)).collect()
    }

    #[test]
    fn tasks_of_a_step_meet_and_steps_do_not() {
        let task = |rank| [&UNDER_SLURM[..], &[("SLURM_LOCALID", rank)]].concat();
        let (first, second) = (task("0"), task("1"));
        let parent = |at| u32::try_from(at).unwrap();
        assert_eq!(places(&[&first, &second], parent), [(0, 2), (1, 2)]);
        for other in [("SLURM_STEP_ID", "1"), ("SLURM_JOB_ID", "8"), ("SLURMD_NODENAME", "n1")] {
            let other = [&first[..], &[other]].concat();
            assert_ne!(of(&other, 1).unwrap().name, of(&first, 1).unwrap().name);
        }
        // srun's MPI support numbers them as well.
        let pmi = [&second[..], &[("PMI_LOCAL_RANK", "1"), ("PMI_LOCAL_SIZE", "2")]].concat();
        assert_eq!(places(&[&first, &pmi], parent), [(0, 2), (1, 2)]);
    }

    #[test]
    fn workers_of_all_torchruns_of_a_step_meet() {
        let worker = |task, rank, port| {
            let ours = [
                ("SLURM_LOCALID", task),
                ("LOCAL_RANK", rank),
                ("LOCAL_WORLD_SIZE", "4"),
                ("MASTER_PORT", port),
            ];
            [&UNDER_SLURM[..], &ours].concat()
        };
        let (one, other) = (worker("0", "1", "1111"), worker("1", "1", "2222"));
        assert_eq!(places(&[&one, &other], |_| 1), [(1, 8), (5, 8)]);
    }

    #[test]
    fn without_slurm_a_launcher_s_workers_meet() {
        let worker = |rank, run: &[(&'static str, &'static str)]| {
            let ours = [("OMPI_COMM_WORLD_LOCAL_RANK", rank), ("OMPI_COMM_WORLD_LOCAL_SIZE", "2")];
            [&ours[..], run].concat()
        };
        let (one, other) = (worker("0", &[]), worker("1", &[]));
        assert_eq!(places(&[&one, &other], |_| 77), [(0, 2), (1, 2)]);
        assert_ne!(of(&one, 77).unwrap().name, of(&one, 78).unwrap().name, "another mpirun");
        let run = [("PMIX_NAMESPACE", "x@1")];
        let (one, other) = (worker("0", &run), worker("1", &run));
        let through_shells = |at| u32::try_from(at).unwrap();
        assert_eq!(places(&[&one, &other], through_shells), [(0, 2), (1, 2)]);
        assert_eq!(of(&[("PMIX_LOCAL_RANK", "1")], 1), None, "nobody tells how many");
        assert_eq!(of(&[], 1).map(|circle| (circle.place, circle.size)), Some((0, 1)));
    }
}
