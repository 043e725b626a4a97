//! The rule above all: a step with gpubind is never worse than the same step without it.
//!
//! Random machines, steps, requests and faults. What each task has without gpubind is
//! compared with what it has with it, variable by variable, and each list with the
//! devices that CUDA makes of it.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use gpubind_core::bind::{DEVICE_LISTS, Shim, Task, decide, restore};
use gpubind_core::node::{Gpu, IdSet, Node, UnusableGpu};
use gpubind_core::request::{Binding, StepRequest};
use gpubind_core::site::{BindDefault, DeviceName, Site};
use gpubind_core::step::{Access, GpuLists, Ranks, Reach};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

mod plan_support;
use plan_support::{block, cyclic, gpu, machines};

type Env = BTreeMap<String, String>;

/// The variables of a task that gpubind may change where a plain step has them.
const CHANGED: [&str; 6] = [
    "CUDA_VISIBLE_DEVICES",
    // The numbers are those of PCI order.
    "CUDA_DEVICE_ORDER",
    "GPU_DEVICE_ORDINAL",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "LD_PRELOAD",
];

/// Those that it may add.
const ADDED: [&str; 9] = [
    "CUDA_DEVICE_ORDER",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "NODE_RANK",
    "GROUP_RANK",
    "RANK",
    "WORLD_SIZE",
];

/// How well one of the machine's GPUs is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Works,
    /// NVML lists it and cannot use it.
    Unusable,
    /// It has fallen off the bus: NVML does not list it.
    Gone,
}

/// What gpubind has read of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Right,
    /// NVML answers with an error.
    Failed,
    /// NVML lists no GPU.
    Empty,
    /// NVML lists GPUs that are not there.
    Nonsense,
}

/// Which device files a task can open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Files {
    All,
    /// The step's, by the device cgroup.
    Constrained,
    /// The first of the step's, by a cgroup around each task.
    One,
    /// The step's, in a container that has no others.
    Container,
}

/// A machine of tests/machines, with all GPUs at work and in PCI order.
#[derive(Clone)]
struct Machine {
    name: String,
    node: Node,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}", self.name)
    }
}

#[derive(Debug, Clone)]
struct Step {
    machine: Machine,
    health: Vec<Health>,
    /// The GPU of each entry of gres.conf.
    gres: Vec<usize>,
    /// Whether the description knows gres.conf's order.
    is_gres_known: bool,
    reading: Reading,
    files: Files,
    /// gres indices.
    devices: Vec<usize>,
    /// Slurm's AutoDetect: lists hold UUIDs.
    by_uuid: bool,
    tasks: Vec<IdSet>,
    /// What the tasks' environment holds besides.
    others: Vec<(&'static str, &'static str)>,
    /// Whether LOCAL_RANK among them is another plugin's and not the user's.
    is_local_rank_late: bool,
    /// Whether Slurm has taken the lists away for `none`.
    is_none: bool,
    is_script: bool,
    binding: Binding,
    site: Site,
}

impl Step {
    fn gpus(&self) -> BTreeSet<usize> {
        self.devices.iter().map(|index| self.gres[*index]).collect()
    }

    fn can_open(&self, gpu: usize) -> bool {
        match self.files {
            Files::All => true,
            Files::Constrained | Files::Container => self.gpus().contains(&gpu),
            Files::One => self.gpus().first() == Some(&gpu),
        }
    }

    fn uuid(&self, gpu: usize) -> &str {
        self.machine.node.gpus[gpu].uuid.known().unwrap()
    }

    fn lists(&self) -> GpuLists {
        let numbers = |numbers: &[usize]| {
            let texts: Vec<String> = numbers.iter().map(usize::to_string).collect();
            texts.join(",")
        };
        let uuids: Vec<&str> = self.devices.iter().map(|at| self.uuid(self.gres[*at])).collect();
        let visible = match (self.by_uuid, self.files) {
            (true, _) => uuids.join(","),
            (false, Files::Constrained | Files::One) => {
                numbers(&(0..self.devices.len()).collect::<Vec<_>>())
            }
            (false, _) => numbers(&self.devices),
        };
        GpuLists { visible: Some(visible), step_gpus: Some(numbers(&self.devices)) }
    }

    /// What each task has without gpubind.
    fn plain(&self, task: usize) -> Env {
        let lists = self.lists();
        let rank = task.to_string();
        let slurms = [
            ("CUDA_VISIBLE_DEVICES", lists.visible.as_deref()),
            ("GPU_DEVICE_ORDINAL", lists.visible.as_deref()),
            ("ROCR_VISIBLE_DEVICES", lists.visible.as_deref()),
            ("SLURM_STEP_GPUS", lists.step_gpus.as_deref()),
            ("SLURM_PROCID", Some(rank.as_str())),
            ("SLURM_LOCALID", Some(rank.as_str())),
        ];
        let slurms = slurms.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let all = self.others.iter().copied().chain(slurms);
        all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn read(&self) -> Result<(Node, Reach), String> {
        let mut node = match self.reading {
            Reading::Right => self.machine.node.clone(),
            Reading::Failed => return Err("NVML does not answer".to_owned()),
            Reading::Empty => return Ok((Node::default(), Reach::default())),
            Reading::Nonsense => {
                let Gpu { cpus, numa, .. } = &self.machine.node.gpus[0];
                let unheard_of = |index| gpu(100_usize + index, cpus.clone(), numa.clone(), 0);
                let node = Node { gpus: (0..3).map(unheard_of).collect(), ..Node::default() };
                return Ok((node, Reach { gpus: vec![Access::Missing; 3], unusable: vec![] }));
            }
        };
        let access = |gpu: usize| match (self.can_open(gpu), self.files) {
            (true, _) => Access::Open,
            (false, Files::Container) => Access::Missing,
            (false, _) => Access::Denied,
        };
        let with = |health| {
            let all = self.health.iter().enumerate();
            all.filter(move |(_, it)| **it == health).map(|(gpu, _)| gpu).collect::<Vec<_>>()
        };
        let (works, unusable) = (with(Health::Works), with(Health::Unusable));
        let minor = |gpu: usize| self.machine.node.gpus[gpu].minor.known().copied();
        node.gpus = works.iter().map(|gpu| self.machine.node.gpus[*gpu].clone()).collect();
        node.links = works
            .iter()
            .map(|a| works.iter().map(|b| self.machine.node.links[*a][*b]).collect())
            .collect();
        node.nics.clear();
        node.unusable = unusable
            .iter()
            .map(|gpu| UnusableGpu {
                index: self.machine.node.gpus[*gpu].index,
                pci: Some(self.machine.node.gpus[*gpu].pci),
                minor: minor(*gpu),
                code: 15,
            })
            .collect();
        let minors = self.gres.iter().map(|gpu| minor(*gpu).unwrap()).collect();
        node.gres_minors = self.is_gres_known.then_some(minors);
        let reach = |gpus: &[usize]| gpus.iter().map(|gpu| access(*gpu)).collect();
        Ok((node, Reach { gpus: reach(&works), unusable: reach(&unusable) }))
    }

    /// The GPUs that CUDA shows a process with this list. It counts those that can be
    /// opened, in PCI order; whether also those that cannot be used, is not known.
    fn seen(&self, list: &str, counts_unusable: bool) -> Vec<usize> {
        let is_counted = |gpu: &usize| match self.health[*gpu] {
            Health::Works => self.can_open(*gpu),
            Health::Unusable => self.can_open(*gpu) && counts_unusable,
            Health::Gone => false,
        };
        let counted: Vec<usize> = (0..self.health.len()).filter(is_counted).collect();
        let named = |name: &str| match name.parse::<usize>() {
            Ok(number) => counted.get(number).copied(),
            Err(_) => counted.iter().copied().find(|gpu| self.uuid(*gpu) == name),
        };
        // An entry that names nothing hides all after it.
        list.split(',').map_while(named).collect()
    }

    fn has_unusable(&self) -> bool {
        let mut all = self.health.iter().enumerate();
        all.any(|(gpu, health)| *health == Health::Unusable && self.can_open(gpu))
    }

    /// What the task has with gpubind; `Err` where it must not run.
    fn bound(&self, task: usize) -> Result<Env, String> {
        let plain = self.plain(task);
        let mut now = plain.clone();
        if self.is_none {
            DEVICE_LISTS.iter().for_each(|name| drop(now.remove(*name)));
            let before = DEVICE_LISTS.map(|name| plain.get(name).cloned());
            let kept = now.clone();
            apply(&mut now, restore(&before, &|name| kept.get(name).cloned()));
        }
        let read = self.read();
        let reach = read.as_ref().map(|(_, reach)| reach.clone()).unwrap_or_default();
        let count = u32::try_from(self.tasks.len()).unwrap();
        let rank = u32::try_from(task).unwrap();
        let local_rank = plain.get("LOCAL_RANK").filter(|_| !self.is_local_rank_late);
        let preload = now.get("LD_PRELOAD").map(std::ffi::OsString::from);
        let decision = decide(&Task {
            local_rank: Some(task),
            request: Ok(StepRequest { binding: self.binding.clone(), is_explicit: true }),
            is_script: self.is_script,
            site: &self.site,
            site_error: None,
            lists: Some(&self.lists()),
            node: read.as_ref().map(|(node, _)| node).map_err(String::as_str),
            is_read_now: false,
            reach: &|_| reach.clone(),
            slurm_binds: false,
            cpus: &|_| self.tasks.clone().into(),
            most_tasks: self.tasks.len(),
            shared_plan: None,
            own_cpus: &|| self.tasks[task].clone(),
            ranks: Some(Ranks {
                rank,
                world_size: count,
                local_world_size: count,
                node_rank: 0,
                master_addr: Some("first".to_owned()),
                master_port: 15_001,
            }),
            worker: &|| Some(Shim { file: "/usr/lib/gpubind/worker.so", process: 4_711 }),
            is_before_container: false,
            users_local_rank: local_rank.map(String::as_str),
            threads: &|_| IdSet::default(),
            preload: preload.as_deref(),
            env: &|name| now.get(name).cloned(),
        });
        if let Some(failure) = decision.failure {
            return Err(failure);
        }
        apply(&mut now, decision.changes);
        if let Some(preload) = decision.preload {
            let text = preload.into_string().unwrap();
            apply(
                &mut now,
                vec![("LD_PRELOAD".to_owned(), Some(text).filter(|it| !it.is_empty()))],
            );
        }
        Ok(now)
    }

    fn is_excluded(&self, gpu: usize) -> bool {
        let name = DeviceName::Uuid(self.uuid(gpu).to_owned());
        self.site.exclude.contains(&name)
    }
}

fn apply(env: &mut Env, changes: Vec<(String, Option<String>)>) {
    for (name, value) in changes {
        match value {
            Some(value) => drop(env.insert(name, value)),
            None => drop(env.remove(&name)),
        }
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let whole = |node: &Node| node.gpus.iter().all(|gpu| !gpu.is_in_mig_mode());
    let named = |node: &Node| node.gpus.iter().all(|gpu| gpu.uuid.known().is_some());
    let machines: Vec<Machine> = machines()
        .into_iter()
        .filter(|(_, node)| whole(node) && named(node) && node.unusable.is_empty())
        .map(|(name, node)| Machine { name, node })
        .collect();
    assert!(machines.len() > 10);
    select(machines).prop_flat_map(|machine| {
        let gpus = machine.node.gpus.len();
        let gres = prop_oneof![
            6 => Just((0..gpus).collect::<Vec<_>>()),
            1 => Just((0..gpus).rev().collect()),
            1 => Just((1..gpus.max(2)).map(|gpu| gpu % gpus).collect()),
        ];
        (Just(machine), gres, healths(gpus)).prop_flat_map(move |(machine, gres, health)| {
            let count = gres.len();
            let what = (
                subsequence((0..count).collect::<Vec<_>>(), 1..=count),
                any::<bool>(),
                prop::bool::weighted(0.3),
                select(vec![
                    Files::All,
                    Files::All,
                    Files::Constrained,
                    Files::One,
                    Files::Container,
                ]),
                readings(),
            );
            let who = (1..=12_usize, 0..3, any::<bool>(), prop::bool::weighted(0.1));
            (Just((machine, gres, health)), what, who, others(), any::<bool>(), asked(gpus))
                .prop_map(|((machine, gres, health), what, who, others, late, (binding, site))| {
                    let (devices, is_gres_known, by_uuid, files, reading) = what;
                    let (tasks, layout, is_none, is_script) = who;
                    let tasks = match layout {
                        0 => block(&machine.node, tasks),
                        1 => cyclic(&machine.node, tasks),
                        _ => vec![IdSet::default(); tasks],
                    };
                    let exclude = site.1.iter().map(|gpu| machine.node.gpus[*gpu].uuid.known());
                    let exclude = exclude.map(|uuid| DeviceName::Uuid(uuid.unwrap().clone()));
                    let site =
                        Site { exclude: exclude.collect(), default: site.0, ..Site::default() };
                    // Without the description's help, only PCI order can be known.
                    let is_pci_order = gres.iter().enumerate().all(|(index, gpu)| index == *gpu);
                    Step {
                        is_gres_known: is_gres_known || !is_pci_order,
                        machine,
                        health,
                        gres,
                        reading,
                        files,
                        devices,
                        by_uuid,
                        tasks,
                        others,
                        is_local_rank_late: late,
                        is_none,
                        is_script,
                        binding,
                        site,
                    }
                })
        })
    })
}

fn healths(gpus: usize) -> impl Strategy<Value = Vec<Health>> {
    let one = prop_oneof![
        8 => Just(Health::Works), 1 => Just(Health::Unusable), 1 => Just(Health::Gone)
    ];
    prop_oneof![
        2 => Just(vec![Health::Works; gpus]),
        1 => prop::collection::vec(one, gpus),
    ]
}

fn readings() -> impl Strategy<Value = Reading> {
    prop_oneof![
        7 => Just(Reading::Right),
        1 => Just(Reading::Failed),
        1 => Just(Reading::Empty),
        1 => Just(Reading::Nonsense),
    ]
}

/// What users, wrappers and other plugins put into a task's environment.
fn others() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let all = vec![
        ("RANK", "3"),
        ("LOCAL_RANK", "0"),
        ("LOCAL_RANK", "7"),
        ("WORLD_SIZE", "16"),
        ("LOCAL_WORLD_SIZE", "8"),
        ("NODE_RANK", "1"),
        ("MASTER_ADDR", "10.0.0.1"),
        ("MASTER_PORT", "29500"),
        ("CUDA_DEVICE_ORDER", "FASTEST_FIRST"),
        ("LD_PRELOAD", "/opt/tool/libtool.so:libother.so"),
        ("SUBMITIT_EXECUTOR", "slurm"),
        ("SLURM_NTASKS_PER_GPU", "2"),
        ("NVIDIA_VISIBLE_DEVICES", "all"),
        ("HIP_VISIBLE_DEVICES", "0"),
        ("PYTORCH_VERSION", "2.9"),
        ("OMP_NUM_THREADS", "4"),
    ];
    subsequence(all, 0..6)
}

type Asked = (Binding, (BindDefault, Vec<usize>));

fn asked(gpus: usize) -> impl Strategy<Value = Asked> {
    let modes = select(vec!["auto", "single", "ordered", "first", "off"]);
    let items = vec![
        "ids=uuid",
        "ids=index",
        "share",
        "verbose",
        "strict",
        "rank-env=on",
        "rank-env=off",
        "local-rank=keep",
        "workers=off",
    ];
    let request = (modes, subsequence(items, 0..4))
        .prop_filter_map("items that contradict each other", |(mode, items)| {
            [&[mode], &items[..]].concat().join(",").parse().ok()
        });
    let binding = prop_oneof![
        8 => request.prop_map(Binding::Gpubind),
        1 => Just(Binding::Unspecified),
        1 => Just(Binding::Slurm),
    ];
    let exclude = prop_oneof![
        4 => Just(vec![]),
        1 => subsequence((0..gpus).collect::<Vec<_>>(), 1..=gpus.min(2)),
    ];
    (binding, (select(vec![BindDefault::OnRequest, BindDefault::Always]), exclude))
}

/// Panics with what is worse.
fn compare(step: &Step, task: usize) {
    let plain = step.plain(task);
    let bound = match step.bound(task) {
        Ok(bound) => bound,
        Err(failure) => {
            let is_strict = matches!(&step.binding,
                Binding::Gpubind(request) if request.strict == Some(true));
            assert!(is_strict, "only strict may end a task: {failure}");
            return;
        }
    };
    for (name, before) in &plain {
        let after = bound.get(name);
        assert!(after.is_some(), "{name} is gone");
        let is_others = name == "LOCAL_RANK" && step.is_local_rank_late;
        if !CHANGED.contains(&name.as_str()) && !is_others {
            assert_eq!(after, Some(before), "{name} is another");
        }
    }
    let new = bound.keys().filter(|name| !plain.contains_key(*name));
    let foreign: Vec<&String> = new
        .filter(|name| !name.starts_with("GPUBIND_") && *name != "LD_PRELOAD")
        .filter(|name| !ADDED.contains(&name.as_str()))
        .collect();
    assert!(foreign.is_empty(), "nobody expects {foreign:?}");
    let libraries = |env: &Env| -> Vec<String> {
        let list = env.get("LD_PRELOAD").map(String::as_str).unwrap_or_default();
        list.split([':', ' ']).filter(|it| !it.is_empty()).map(str::to_owned).collect()
    };
    let users: BTreeSet<String> = libraries(&plain).into_iter().collect();
    let kept = libraries(&bound).into_iter().filter(|it| users.contains(it)).collect::<Vec<_>>();
    assert_eq!(kept, libraries(&plain), "libraries to preload");
    let is_asked = match &step.binding {
        Binding::Gpubind(_) => true,
        Binding::Unspecified => step.site.default == BindDefault::Always,
        Binding::Slurm => false,
    };
    if !is_asked {
        assert_eq!(bound, plain, "nobody has asked");
    }
    compare_devices(step, &plain, &bound);
}

fn compare_devices(step: &Step, plain: &Env, bound: &Env) {
    let names = |list: &str| list.split(',').map(str::to_owned).collect::<Vec<_>>();
    for name in ["GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES"] {
        let all: BTreeSet<String> = names(&plain[name]).into_iter().collect();
        let own: BTreeSet<String> = names(&bound[name]).into_iter().collect();
        let is_own = own.is_subset(&all) || own.iter().all(|it| bound_numbers(step).contains(it));
        assert!(is_own, "{name}: {own:?} of {all:?}");
    }
    let (before, after) = (&plain["CUDA_VISIBLE_DEVICES"], &bound["CUDA_VISIBLE_DEVICES"]);
    if before == after {
        return;
    }
    let entries = names(after);
    let distinct: BTreeSet<&String> = entries.iter().collect();
    assert_eq!(
        distinct.len(),
        entries.len(),
        "{after}: CUDA shows nothing of a list with a device twice"
    );
    // Part of Slurm's own list, whatever CUDA makes of that.
    let is_part = entries.iter().all(|entry| names(before).contains(entry));
    let has_numbers = entries.iter().any(|entry| entry.parse::<usize>().is_ok());
    if has_numbers && step.has_unusable() {
        assert!(is_part, "{after}: numbers beside an unusable GPU");
        return;
    }
    let seen = step.seen(after, false);
    let could: BTreeSet<usize> =
        [false, true].iter().flat_map(|counts| step.seen(before, *counts)).collect();
    let own: BTreeSet<usize> = step.gpus().union(&could).copied().collect();
    assert!(seen.iter().all(|gpu| own.contains(gpu)), "{after} names GPUs {seen:?} of {own:?}");
    assert!(could.is_empty() || !seen.is_empty() || is_part, "{after} shows no GPU");
    let can_be_given = |gpu: &usize| {
        step.health[*gpu] == Health::Works && step.can_open(*gpu) && !step.is_excluded(*gpu)
    };
    let is_read = step.reading == Reading::Right && !could.is_empty();
    if is_read && step.gpus().iter().any(can_be_given) {
        assert!(
            seen.len() == entries.len(),
            "{after} shows {seen:?}: an entry hides those behind it"
        );
        assert!(!seen.iter().any(|gpu| step.is_excluded(*gpu)), "{after} names an excluded GPU");
    }
}

/// The numbers of the step's GPUs among those that can be opened.
fn bound_numbers(step: &Step) -> BTreeSet<String> {
    let open = (0..step.health.len())
        .filter(|gpu| step.can_open(*gpu) && step.health[*gpu] == Health::Works);
    let own = open.enumerate().filter(|(_, gpu)| step.gpus().contains(gpu));
    own.map(|(number, _)| number.to_string()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, max_shrink_iters: 500, ..ProptestConfig::default() })]

    #[test]
    fn a_step_with_gpubind_is_never_worse(step in any_step()) {
        for task in 0..step.tasks.len() {
            compare(&step, task);
        }
    }
}
