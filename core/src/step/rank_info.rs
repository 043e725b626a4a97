//! Where a process stands among those that share its devices, as its own
//! environment tells: a launcher's worker, a task of Slurm's, or alone.

use crate::variables;
use std::fmt;

use super::{Ranks, master_port, names};
use gpubind_shim_core::record::is_derived;
use gpubind_shim_core::{LAUNCHERS, Launcher};

/// More tasks than any node has CPUs for; larger numbers are nonsense.
pub const MAX_TASKS: usize = 4096;

/// Who has numbered a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankSource {
    /// A launcher such as torchrun or mpirun.
    Launcher(&'static Launcher),
    /// Slurm: the process is a task of a step, or below one without a launcher between.
    Slurm,
    /// Nobody.
    Alone,
}

impl fmt::Display for RankSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            RankSource::Launcher(launcher) => launcher.name,
            RankSource::Slurm => "Slurm",
            RankSource::Alone => "alone",
        })
    }
}

/// A process's numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankInfo {
    /// Its number among the processes on this node, from 0.
    pub local_rank: usize,
    /// How many there are on this node, where that is told.
    pub local_size: Option<usize>,
    /// Its number among all processes, where that is told.
    pub rank: Option<u32>,
    /// Where these were read.
    pub source: RankSource,
}

impl RankInfo {
    /// Whether anybody has numbered the process.
    pub fn is_numbered(&self) -> bool {
        self.source != RankSource::Alone
    }
}

pub(super) type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Tells a process, and all below it, that it is a launcher's worker and has its
/// device: nothing is left to do there, and its number is in [`variables::BOUND_LOCAL_RANK`]
/// whatever LOCAL_RANK says. `gpubind exec` and the worker shim set it.
pub const WORKER: (&str, &str) = (variables::WORKERS, "done");

/// Whether the process is, or is below, a worker that gpubind has bound.
pub fn is_worker(env: Env) -> bool {
    env(WORKER.0).as_deref() == Some(WORKER.1)
}

/// Reads where a process stands: by the first launcher's variable that is set, else
/// by Slurm's, else it is alone. A process that slurmstepd has started itself is nobody's
/// worker, whatever its job has exported.
pub fn rank_info(process: u32, env: Env) -> RankInfo {
    let is_task = number(env, variables::TASK_PID) == Some(process) && task(env).is_some();
    let launchers = if is_task { &[][..] } else { &LAUNCHERS[..] };
    let launched = launchers.iter().find_map(|launcher| launched(launcher, env));
    let launched = launched.filter(|found| !is_slurms(found, env));
    launched.or_else(|| task(env)).unwrap_or(RankInfo {
        local_rank: 0,
        local_size: Some(1),
        rank: None,
        source: RankSource::Alone,
    })
}

/// Where the process stands by Slurm's own variables; `None` outside a step's tasks.
///
/// A batch script has SLURM_LOCALID too, but only srun sets
/// SLURM_STEP_TASKS_PER_NODE (src/common/env.c, env_array_for_step).
pub fn task(env: Env) -> Option<RankInfo> {
    let local_rank = number(env, variables::LOCAL_ID)?;
    let counts = env(variables::STEP_TASKS_PER_NODE)?;
    let node = number(env, variables::NODE_ID).unwrap_or(0);
    Some(RankInfo {
        local_rank,
        // A list that does not fit is none.
        local_size: tasks_on(&counts, node).filter(|size| is_size(*size, local_rank)),
        rank: number(env, variables::PROC_ID),
        source: RankSource::Slurm,
    })
}

/// How many devices the step has on this node, as Slurm tells its tasks.
///
/// Where Slurm has bound a task, that task's SLURM_STEP_GPUS holds its own devices only;
/// SLURM_GPUS_ON_NODE still counts the step's, in all releases from 22.05 on.
pub fn step_gpu_count(env: Env) -> Option<usize> {
    let on_node = number(env, variables::GPUS_ON_NODE);
    let listed = env(variables::STEP_GPUS).map(|list| names(&list).count());
    on_node.max(listed).filter(|count| *count > 0)
}

/// What a program that reads RANK and the like should find in a task of Slurm's, by
/// the task's own variables; `None` outside a step's tasks. `local_tasks` is the number of
/// the step's tasks on this node, where the caller knows it better than the variables,
/// which in a component of a heterogeneous step count through all components.
pub fn task_ranks(env: Env, local_tasks: Option<u32>) -> Option<Ranks> {
    let task = task(env)?;
    let job = number(env, variables::JOB_ID).unwrap_or(0);
    let step = number(env, variables::STEP_ID).unwrap_or(0);
    Some(Ranks {
        rank: task.rank?,
        world_size: number(env, variables::STEP_NUM_TASKS)?,
        local_world_size: local_tasks.or_else(|| u32::try_from(task.local_size?).ok())?,
        node_rank: number(env, variables::NODE_ID)?,
        master_addr: master_addr(env),
        master_port: master_port(job, step),
    })
}

/// The host of rank 0: the step's first, but for `--distribution=arbitrary`, where the
/// list of hosts is by task and Slurm does not hand it on.
fn master_addr(env: Env) -> Option<String> {
    let is_arbitrary = env(variables::DISTRIBUTION).is_some_and(|it| it.starts_with("arbitrary"));
    let hosts = env(variables::STEP_NODE_LIST).or_else(|| env(variables::NODE_LIST))?;
    if is_arbitrary { None } else { Ranks::first_host(&hosts) }
}

/// The greatest number of tasks of the step on any node, from a list such as `4(x2),3`.
pub fn most_tasks(env: Env) -> Option<usize> {
    let counts = env(variables::STEP_TASKS_PER_NODE)?;
    let tasks = |entry: &str| entry.split('(').next().and_then(|tasks| tasks.trim().parse().ok());
    let most: Option<Vec<usize>> = counts.split(',').map(tasks).collect();
    most?.into_iter().max().map(|most| most.min(MAX_TASKS))
}

fn launched(launcher: &'static Launcher, env: Env) -> Option<RankInfo> {
    let local_rank = number(env, launcher.local_rank)?;
    let bound = number(env, variables::BOUND_LOCAL_RANK).filter(|_| is_worker(env));
    let local_rank = bound.unwrap_or(local_rank);
    if launcher.local_rank == variables::LOCAL_RANK && is_gpubinds(env)
        || is_derived(launcher, &env)
    {
        return None;
    }
    let local_size = launcher.local_size.and_then(|name| number(env, name));
    Some(RankInfo {
        local_rank,
        local_size: local_size.filter(|size| is_size(*size, local_rank)),
        rank: launcher.rank.and_then(|name| number(env, name)),
        source: RankSource::Launcher(launcher),
    })
}

/// Whether LOCAL_RANK is what gpubind has exported to a task, and not what a
/// launcher below that task has written over it: then the other numbers differ too,
/// or all of them mean the same.
fn is_gpubinds(env: Env) -> bool {
    let note = env(variables::RANK_VARIABLES_SET).unwrap_or_default();
    let noted =
        |name: &str| note.split(',').find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='));
    let is_same = |name: &str| noted(name).is_none_or(|value| env(name).as_deref() == Some(value));
    noted(variables::LOCAL_RANK).is_some()
        && [variables::LOCAL_RANK, variables::RANK, variables::WORLD_SIZE]
            .iter()
            .all(|name| is_same(name))
}

/// Whether all that looks like torchrun's numbers is Slurm's own under other names, as
/// enroot's hook for images of PyTorch writes them (50-slurm-pytorch.sh).
fn is_slurms(found: &RankInfo, env: Env) -> bool {
    let RankSource::Launcher(launcher) = found.source else { return false };
    let Some(task) = task(env).filter(|_| launcher.local_rank == variables::LOCAL_RANK) else {
        return false;
    };
    let is_launched = env(variables::TORCHELASTIC_RUN_ID).is_some() || is_worker(env);
    let world = env(variables::WORLD_SIZE);
    !is_launched
        && (found.local_rank, found.rank) == (task.local_rank, task.rank)
        && world.is_some()
        && world == env(variables::STEP_NUM_TASKS)
}

/// Whether gpubind has set the variable to this value, in this step or in an outer one.
pub fn is_noted(env: Env, name: &str, value: &str) -> bool {
    let note = env(variables::RANK_VARIABLES_SET).unwrap_or_default();
    note.split(',').filter_map(|entry| entry.split_once('=')).any(|pair| pair == (name, value))
}

pub(super) fn number<N: std::str::FromStr>(env: Env, name: &str) -> Option<N> {
    env(name)?.trim().parse().ok()
}

/// Whether a node can have so many ranks, this one among them: a number that somebody has
/// made up must not fill the memory.
fn is_size(size: usize, local_rank: usize) -> bool {
    size > local_rank && size <= MAX_TASKS
}

/// The number of tasks on a node of a step, from a list such as `4(x2),3`: 4 tasks on
/// each of the first two nodes, 3 on the third.
fn tasks_on(list: &str, node: usize) -> Option<usize> {
    let mut before = 0_usize;
    for part in list.split(',') {
        let (tasks, nodes) = match part.trim().split_once("(x") {
            Some((tasks, nodes)) => (tasks, nodes.strip_suffix(')')?.parse().ok()?),
            None => (part.trim(), 1),
        };
        before = before.checked_add(nodes)?;
        if node < before {
            return tasks.parse().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: u32 = 77;

    fn of(variables: &[(&str, &str)]) -> RankInfo {
        rank_info(PROCESS, &|name| {
            let found = variables.iter().find(|(set, _)| *set == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    /// Local rank, local size, rank, and by whom.
    fn told(variables: &[(&str, &str)]) -> (usize, Option<usize>, Option<u32>, String) {
        let rank_info = of(variables);
        (rank_info.local_rank, rank_info.local_size, rank_info.rank, rank_info.source.to_string())
    }

    const TASK: [(&str, &str); 5] = [
        ("SLURM_LOCALID", "1"),
        ("SLURM_PROCID", "9"),
        ("SLURM_NODEID", "2"),
        ("SLURM_STEP_TASKS_PER_NODE", "4(x2),3,2(x4)"),
        ("SLURM_STEP_NUM_TASKS", "19"),
    ];

    #[test]
    fn a_launcher_counts_before_slurm_and_nobody_is_alone() {
        assert_eq!(told(&[]), (0, Some(1), None, "alone".into()));
        assert_eq!(told(&TASK), (1, Some(3), Some(9), "Slurm".into()));
        for launcher in &LAUNCHERS {
            let mut variables = vec![(launcher.local_rank, "3")];
            variables.extend(launcher.local_size.map(|name| (name, "4")));
            variables.extend(launcher.rank.map(|name| (name, "7")));
            let size = launcher.local_size.map(|_| 4);
            let expected = (3, size, launcher.rank.map(|_| 7), launcher.name.to_owned());
            assert_eq!(told(&[&variables[..], &TASK].concat()), expected);
        }
        let both = [("OMPI_COMM_WORLD_LOCAL_RANK", "1"), ("LOCAL_RANK", "2")];
        assert_eq!(told(&both), (2, None, None, "torchrun".into()));
    }

    #[test]
    fn the_process_that_slurm_has_started_is_no_launcher_s() {
        let exported = [("LOCAL_RANK", "0"), ("RANK", "0"), ("WORLD_SIZE", "4")];
        let with_pid = |pid| told(&[&exported[..], &TASK, &[("SLURM_TASK_PID", pid)]].concat());
        assert_eq!(with_pid("77"), (1, Some(3), Some(9), "Slurm".into()));
        assert_eq!(with_pid("76").3, "torchrun");
        let no_task = [&exported[..], &[("SLURM_TASK_PID", "77")]].concat();
        assert_eq!(told(&no_task).3, "torchrun", "in a batch script");
    }

    #[test]
    fn what_is_no_number_or_contradicts_itself_is_not_believed() {
        assert_eq!(of(&[("LOCAL_RANK", ""), ("PMI_LOCAL_RANK", "1")]).local_rank, 1);
        assert_eq!(of(&[("LOCAL_RANK", "-1")]).source, RankSource::Alone);
        let odd = [("LOCAL_RANK", "4"), ("LOCAL_WORLD_SIZE", "4")];
        assert_eq!(of(&odd).local_size, None);
    }

    #[test]
    fn a_bound_worker_has_the_number_by_which_it_was_bound() {
        let worker = [("LOCAL_RANK", "0"), ("RANK", "6"), (variables::BOUND_LOCAL_RANK, "2")];
        assert_eq!(of(&worker).local_rank, 0, "its task's number");
        assert_eq!(of(&[&worker[..], &[WORKER]].concat()).local_rank, 2);
    }

    #[test]
    fn a_batch_script_is_alone() {
        let batch = [("SLURM_LOCALID", "0"), ("SLURM_PROCID", "0"), ("SLURM_TASKS_PER_NODE", "8")];
        assert_eq!(of(&batch).source, RankSource::Alone);
    }

    #[test]
    fn what_gpubind_has_exported_is_no_launchers() {
        let task = |rank, world, local| {
            let ours = [
                ("RANK", rank),
                ("WORLD_SIZE", world),
                ("LOCAL_RANK", local),
                (variables::RANK_VARIABLES_SET, "RANK=9,WORLD_SIZE=19,LOCAL_RANK=0"),
            ];
            told(&[&ours[..], &TASK].concat())
        };
        assert_eq!(task("9", "19", "0"), (1, Some(3), Some(9), "Slurm".into()));
        let below = (5, None, Some(5), "torchrun".into());
        assert_eq!(task("5", "8", "5"), below, "one torchrun below each task");
    }

    #[test]
    fn slurm_s_numbers_under_other_names_are_no_launcher_s() {
        let task = |more: &[(&'static str, &'static str)]| {
            let ours = [
                ("RANK", "9"),
                ("WORLD_SIZE", "19"),
                ("LOCAL_RANK", "1"),
                ("LOCAL_WORLD_SIZE", "3"),
            ];
            told(&[more, &ours[..], &TASK].concat())
        };
        assert_eq!(task(&[]), (1, Some(3), Some(9), "Slurm".into()));
        // One torchrun in each task, and a worker of the first.
        let torchrun = (1, Some(3), Some(9), "torchrun".into());
        assert_eq!(task(&[("TORCHELASTIC_RUN_ID", "none")]), torchrun);
        assert_eq!(task(&[("WORLD_SIZE", "57")]), torchrun);
        assert_eq!(task(&[("RANK", "10")]).3, "torchrun");
    }

    #[test]
    fn the_step_s_devices_are_counted_where_slurm_has_bound_the_task_too() {
        for (on_node, listed, count) in [
            (Some("8"), Some("0,1"), Some(8)),
            (Some("8"), None, Some(8)),
            (None, Some("4,5,6"), Some(3)),
            (None, Some(""), None),
            (None, None, None),
        ] {
            let env = |name: &str| match name {
                "SLURM_GPUS_ON_NODE" => on_node.map(str::to_owned),
                "SLURM_STEP_GPUS" => listed.map(str::to_owned),
                _ => None,
            };
            assert_eq!(step_gpu_count(&env), count);
        }
    }

    #[test]
    fn the_compact_list_is_read_by_node() {
        let counts: Vec<_> = (0..8).map(|node| tasks_on("4(x2),3,2(x4)", node)).collect();
        let expected = [4, 4, 3, 2, 2, 2, 2].map(Some);
        assert_eq!(counts[..7], expected);
        assert_eq!(counts[7], None);
        for wrong in ["", "x", "4(x2", "4(xx)", "(x2)", "4(x99999999999999999999)"] {
            assert_eq!(tasks_on(wrong, 0), None, "{wrong}");
        }
    }

    #[test]
    fn a_task_without_the_plugin_finds_its_ranks() {
        let variables = [&TASK[..], &[("SLURM_STEP_NODELIST", "n[3-9]")]].concat();
        let ranks = task_ranks(
            &|name| {
                let found = variables.iter().find(|(set, _)| *set == name);
                found.map(|(_, value)| (*value).to_owned())
            },
            None,
        );
        let expected = Ranks {
            rank: 9,
            world_size: 19,
            local_world_size: 3,
            node_rank: 2,
            master_addr: Some("n3".into()),
            master_port: master_port(0, 0),
        };
        assert_eq!(ranks, Some(expected));
        assert_eq!(task_ranks(&|_| None, None), None);
    }
}
