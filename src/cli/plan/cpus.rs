//! The tasks' CPU sets, from whichever option tells them.

use super::args::PlanArgs;
use super::cpus_error::CpusError;
use super::error::Wrong;
use super::srun_options::{Bind, DistributionArg, HintArg, bind};
use crate::slurm::{
    BindUnit, Distribution, StepOptions, TaskLayout, layout, socket_cpus, step_cpus,
};
use gpubind_core::node::{IdSet, Node};
use gpubind_core::plan::MAX_TASKS;
use gpubind_core::step::task_cpus;
use gpubind_core::words::count;

/// The tasks' CPU sets, and where they come from.
pub(super) struct TaskCpus {
    /// CPU set of each task; empty where unknown.
    pub sets: Vec<IdSet>,
    /// A line about them.
    pub source: String,
}

/// Reads the options; `devices` is the number of the step's devices.
///
/// # Errors
/// [`Wrong`].
pub(super) fn read(args: &PlanArgs, node: &Node, devices: usize) -> Result<TaskCpus, Wrong> {
    if let Some(wrong) = args.tasks.filter(|tasks| !(1..=MAX_TASKS).contains(tasks)) {
        return Err(Wrong::Tasks(wrong));
    }
    if let Some(lists) = &args.cpus {
        let sets = from_lists(lists, args.tasks)?;
        let note = check(node, &sets, "--cpus")?;
        return Ok(TaskCpus { sets, source: format!("CPUs: as --cpus lists them{note}") });
    }
    let tasks = args.tasks.unwrap_or(devices);
    if args.cpus_per_task == Some(0) {
        return Err(CpusError::None.into());
    }
    if let Some(bind) = args.cpu_bind.as_deref().and_then(bind) {
        return Ok(bound(args, node, tasks, bind)?);
    }
    if let Some(bind) = &args.cpu_bind {
        let sets = from_bind(bind, args.tasks, node)?;
        let note = check(node, &sets, "--cpu-bind")?;
        return Ok(TaskCpus { sets, source: format!("CPUs: as --cpu-bind lists them{note}") });
    }
    if let Some(bind) = by_itself(args, node, tasks) {
        return Ok(bound(args, node, tasks, bind)?);
    }
    dealt(args, node, tasks)
}

/// What Slurm itself binds to with options that [`layout`] does not have: single threads
/// where it may use some of each core only (as seen in 24.11), else what suits the counts,
/// and with `--cpus-per-task` the step has just the cores that it needs.
fn by_itself(args: &PlanArgs, node: &Node, tasks: usize) -> Option<Bind> {
    let is_full = |how: &DistributionArg| how.sockets == Distribution::FullCyclic;
    let one_thread = args.hint == Some(HintArg::Nomultithread) || args.threads_per_core.is_some();
    if one_thread {
        return Some(Bind::Unit(BindUnit::Threads));
    }
    args.distribution.as_ref().filter(|how| is_full(how))?;
    // With --cpus-per-task all CPUs of the step's cores are wanted.
    let unit = match args.cpus_per_task {
        Some(_) => Some(BindUnit::Threads),
        None => options(args, tasks, BindUnit::Threads).automatic(node),
    };
    Some(unit.map_or(Bind::None, Bind::Unit))
}

fn options(args: &PlanArgs, tasks: usize, unit: BindUnit) -> StepOptions {
    let of_hint = (args.hint == Some(HintArg::Nomultithread)).then_some(1);
    StepOptions {
        tasks,
        cpus_per_task: args.cpus_per_task.unwrap_or(1),
        distribution: args.distribution.as_ref().map(|how| how.sockets).unwrap_or_default(),
        unit,
        threads_per_core: args.threads_per_core.map(usize::from).or(of_hint),
        siblings: args.siblings.map(usize::from),
    }
}

/// As Slurm binds the tasks of a whole node's step.
fn bound(args: &PlanArgs, node: &Node, tasks: usize, bind: Bind) -> Result<TaskCpus, CpusError> {
    let all = known(node);
    if all.is_empty() {
        return Err(CpusError::Unknown);
    }
    let numa: Vec<&IdSet> =
        node.numa.iter().map(|numa| &numa.cpus).filter(|cpus| !cpus.is_empty()).collect();
    let (sets, what) = match bind {
        Bind::Unit(unit) => {
            let what = match unit {
                BindUnit::Threads => "threads",
                BindUnit::Cores => "cores",
                BindUnit::Sockets => "sockets",
                BindUnit::Ldoms => "ldoms",
            };
            (step_cpus(node, &options(args, tasks, unit)), what)
        }
        Bind::RankLdom if !numa.is_empty() => {
            (numa.into_iter().cloned().cycle().take(tasks).collect(), "rank_ldom")
        }
        Bind::RankLdom | Bind::None => (vec![all; tasks], "none"),
    };
    let how = args.distribution.as_ref().map_or("block:cyclic", |how| &how.text);
    let source = format!("CPUs: with --cpu-bind={what} and --distribution={how}, on a whole node");
    Ok(TaskCpus { sets, source })
}

fn from_lists(lists: &str, tasks: Option<usize>) -> Result<Vec<IdSet>, CpusError> {
    let read = |(task, list): (usize, &str)| match list.parse::<IdSet>() {
        Ok(cpus) if cpus.is_empty() => Err(CpusError::Empty(task)),
        Ok(cpus) => Ok(cpus),
        Err(source) => Err(CpusError::List { task, source }),
    };
    let sets: Vec<IdSet> = lists.split(';').enumerate().map(read).collect::<Result<_, _>>()?;
    match tasks {
        Some(tasks) if tasks != sets.len() => Err(CpusError::Count { lists: sets.len(), tasks }),
        _ => Ok(sets),
    }
}

fn from_bind(bind: &str, tasks: Option<usize>, node: &Node) -> Result<Vec<IdSet>, CpusError> {
    let no_list = || CpusError::Kind(bind.to_owned());
    let (kind, list) = bind.split_once(':').ok_or_else(no_list)?;
    let word = kind.rsplit(',').next().unwrap_or(kind);
    if !matches!(word, "mask_cpu" | "map_cpu" | "mask_ldom" | "map_ldom") {
        return Err(no_list());
    }
    let mut entries: Vec<&str> = Vec::new();
    for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        // srun expands what a user may write so (slurm_resource_info.c, _expand_mult).
        let (entry, times) = match entry.split_once('*') {
            Some((one, times)) => {
                let times = times.parse().ok().filter(|times| (1..=MAX_TASKS).contains(times));
                (one, times.ok_or_else(|| CpusError::Repeat(entry.to_owned()))?)
            }
            None => (entry, 1),
        };
        entries.extend(std::iter::repeat_n(entry, times));
    }
    if entries.is_empty() {
        return Err(no_list());
    }
    let tasks = tasks.unwrap_or(entries.len());
    let sets = task_cpus(word, &entries.join(","), tasks, &node.numa)?;
    match sets.iter().position(IdSet::is_empty) {
        Some(task) => Err(CpusError::NoCpu(task)),
        None => Ok(sets),
    }
}

/// Refuses CPUs that the node lacks. Pasted text tells only CPUs near a GPU, so
/// there others are noted, not refused.
fn check(node: &Node, sets: &[IdSet], option: &'static str) -> Result<String, CpusError> {
    let valid = known(node);
    if valid.is_empty() {
        return Ok(String::new());
    }
    let lacking =
        |cpus: &IdSet| -> IdSet { cpus.iter().filter(|cpu| !valid.contains(*cpu)).collect() };
    let is_pasted = node.gpus.iter().any(|gpu| gpu.pci.known().is_none());
    if is_pasted {
        let lacks: IdSet =
            sets.iter().flat_map(|cpus| lacking(cpus).iter().collect::<Vec<_>>()).collect();
        return Ok(match lacks.is_empty() {
            true => String::new(),
            false => {
                format!("; the description does not tell where CPUs {lacks} are: they count as far")
            }
        });
    }
    for (task, cpus) in sets.iter().enumerate() {
        let lacks = lacking(cpus);
        if !lacks.is_empty() {
            return Err(CpusError::Lacks { option, task, lacks, valid });
        }
    }
    Ok(String::new())
}

/// The CPUs of a node, as far as it tells them.
fn known(node: &Node) -> IdSet {
    socket_cpus(node).iter().flat_map(IdSet::iter).collect()
}

/// As Slurm would deal a whole node's CPUs.
fn dealt(args: &PlanArgs, node: &Node, tasks: usize) -> Result<TaskCpus, Wrong> {
    if args.cpus_per_task == Some(0) {
        return Err(CpusError::None.into());
    }
    // The default may be written out.
    let how = args.distribution.as_ref();
    let is_default = how.is_none_or(|how| how.sockets == Distribution::Cyclic);
    let asked = !is_default || args.cpus_per_task.is_some();
    let all = known(node);
    if all.is_empty() && asked {
        return Err(CpusError::Unknown.into());
    }
    let (distribution, name) = match how {
        None => (Distribution::default(), "block:cyclic, Slurm's default"),
        Some(how) => (how.sockets, how.text.as_str()),
    };
    let TaskLayout { tasks: sets, sockets, cpus_per_task } =
        layout(node, tasks, args.cpus_per_task, distribution)?;
    let mut source = match cpus_per_task {
        Some(each) => {
            let sockets = count(sockets, "socket");
            format!("CPUs: {each} for each task, from {sockets} with --distribution={name}")
        }
        None if all.is_empty() => "CPUs: unknown on this node; --cpus gives them".to_owned(),
        None => format!(
            "CPUs: all {} of the node for each task, because there are more tasks",
            all.count()
        ),
    };
    if !all.is_empty() && node.numa.iter().all(|numa| numa.cpus.is_empty()) {
        source += "; the GPUs' own CPU lists stand for sockets, since NUMA nodes are not known";
    }
    let end = all.iter().last().map_or(0, |last| last + 1);
    if end != all.count() {
        source += &format!("; the description tells only the CPUs {all}");
    }
    Ok(TaskCpus { sets, source })
}
