//! The environment of each rank, from inputs as Slurm gives them.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use gpubind_core::bind::{Outcome, Rank, SkipReason, Warning, edits};
use gpubind_core::node::{IdSet, Node};
use gpubind_core::plan::TaskSets;
use gpubind_core::request::Request;
use gpubind_core::site::{DeviceName, Settings, Site};
use gpubind_core::step::{Allocation, GpuLists, Ranks, Reach};
use gpubind_machine::Machine;

/// A step on one node, before its tasks are bound.
struct Step {
    node: Result<Node, String>,
    visible: String,
    tasks: Vec<IdSet>,
    env: BTreeMap<String, String>,
    users_local_rank: Option<&'static str>,
}

impl Step {
    fn on(fixture: &str, visible: &str, tasks: &[&str]) -> Step {
        let file = format!("{}/tests/machines/{fixture}.toml", env!("CARGO_MANIFEST_DIR"));
        let machine = Machine::parse(&std::fs::read_to_string(file).unwrap()).unwrap();
        Step {
            node: Ok(machine.to_node()),
            visible: visible.to_owned(),
            tasks: tasks.iter().map(|cpus| cpus.parse().unwrap()).collect(),
            env: BTreeMap::new(),
            users_local_rank: None,
        }
    }

    fn with(mut self, name: &str, value: &str) -> Step {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    fn rank(&self, request: &str, local_rank: usize) -> Outcome {
        let lists = GpuLists { visible: Some(self.visible.clone()), step_gpus: None };
        let allocation = match &self.node {
            Ok(node) => Allocation::find(node, &Reach::default(), &lists, false),
            Err(_) => Allocation::unknown(&lists),
        };
        let settings = Settings::from(&request.parse::<Request>().unwrap());
        self.rank_of(&allocation, &settings, local_rank)
    }

    fn rank_of(&self, allocation: &Allocation, settings: &Settings, local_rank: usize) -> Outcome {
        let count = u32::try_from(self.tasks.len()).unwrap();
        let ranks = Ranks {
            rank: 10 + u32::try_from(local_rank).unwrap(),
            world_size: 10 + count,
            local_world_size: count,
            node_rank: 1,
            master_addr: Some("first".to_owned()),
            master_port: 15_001,
        };
        edits(&Rank {
            node: self.node.as_ref().map_err(String::as_str),
            allocation,
            tasks: &TaskSets::from(&self.tasks),
            cpus: &self.tasks[local_rank],
            most_tasks: self.tasks.len(),
            settings,
            local_rank,
            ranks: Some(&ranks),
            worker: None,
            is_before_container: false,
            users_local_rank: self.users_local_rank,
            threads: &|_| IdSet::default(),
            preload: None,
            env: &|name| self.env.get(name).cloned(),
        })
    }

    /// One variable of each rank; `-` where it is not set by gpubind.
    fn each(&self, request: &str, name: &str) -> Vec<String> {
        (0..self.tasks.len())
            .map(|local_rank| {
                let edits = self.rank(request, local_rank).edits.unwrap();
                let set = edits.set.iter().find(|(set, _)| *set == name);
                set.map_or("-".to_owned(), |(_, value)| value.clone())
            })
            .collect()
    }

    fn visible(&self, request: &str) -> Vec<String> {
        self.each(request, "CUDA_VISIBLE_DEVICES")
    }
}

/// Eight tasks, each with 16 of a DGX A100's 128 cores, in NUMA order.
const BLOCKS: [&str; 8] =
    ["0-15", "16-31", "32-47", "48-63", "64-79", "80-95", "96-111", "112-127"];

#[test]
fn each_mode_shows_what_it_promises() {
    let step = Step::on("dgx-a100", "0,1,2,3,4,5,6,7", &BLOCKS);
    let own = step.visible("single");
    // GPUs 2 and 3 are at NUMA node 1 (CPUs 16-31), 0 and 1 at 3, 6 and 7 at 5, 4 and 5 at 7.
    for (task, gpus) in [(1, ["2", "3"]), (3, ["0", "1"]), (5, ["6", "7"]), (7, ["4", "5"])] {
        assert!(gpus.contains(&own[task].as_str()), "task {task} has {}", own[task]);
    }
    assert_eq!(step.visible("auto"), own, "as many tasks as GPUs");
    assert_eq!(step.visible("ordered"), vec![own.join(","); 8]);
    for (task, list) in step.visible("first").iter().enumerate() {
        let others = own.iter().filter(|other| **other != own[task]);
        let expected: Vec<&str> =
            std::iter::once(&own[task]).chain(others).map(String::as_str).collect();
        assert_eq!(*list, expected.join(","));
    }
    assert_eq!(step.each("first", "GPUBIND_GPU_INDEX"), own);
}

#[test]
fn fewer_tasks_get_equal_shares_and_a_remainder_stays_unused() {
    let step = Step::on("dgx-a100", "0,1,2,3,4,5,6,7", &["16-31", "80-95", "112-127"]);
    let shares = step.visible("auto");
    for (share, local) in shares.iter().zip([["2", "3"], ["6", "7"], ["4", "5"]]) {
        let mut gpus: Vec<&str> = share.split(',').collect();
        gpus.sort_unstable();
        assert_eq!(gpus, local);
    }
    assert_eq!(step.each("auto", "RANK"), ["-"; 3], "a launcher is no rank");
    assert_eq!(step.each("single", "RANK"), ["10", "11", "12"]);
}

#[test]
fn numbers_count_what_can_be_reached_and_uuids_name_the_device() {
    let step = Step::on("dgx-a100", "4,5,6,7", &["112-127", "80-95", "80-95", "112-127"]);
    let mut index = step.visible("auto");
    index.sort_unstable();
    assert_eq!(index, ["4", "5", "6", "7"]);
    let uuids = step.visible("ids=uuid");
    assert_eq!(uuids, step.each("auto", "GPUBIND_GPU_UUID"));
    assert!(uuids.iter().all(|uuid| uuid.starts_with("GPU-")), "{uuids:?}");
}

#[test]
fn mig_instances_are_uuids_and_never_mixed_with_numbers() {
    let step = Step::on("a100-mig-mixed", "0", &["", "", ""]);
    let node = step.node.as_ref().unwrap();
    let instances: Vec<&str> =
        node.gpus.iter().flat_map(|gpu| &gpu.mig).map(|mig| mig.uuid.as_str()).collect();
    // Slurm's index of the whole GPU, the last one: it counts instances.
    let whole = instances.len();
    let visible = format!("{},{},{whole}", instances[0], instances[1]);
    let step = Step { visible, ..step };
    let single = step.visible("single");
    // CUDA's numbers count instances, so the whole GPU beside them is a UUID too.
    let own = step.each("single", "GPUBIND_GPU_UUID");
    assert_eq!(single, own);
    assert_eq!(single.iter().filter(|text| text.starts_with("MIG-")).count(), 2);
    for list in step.visible("ordered") {
        let names: Vec<&str> = list.split(',').collect();
        assert_eq!(names.len(), 3);
        assert!(names.iter().all(|name| name.starts_with("MIG-") || name.starts_with("GPU-")));
    }
}

#[test]
fn other_makers_variables_are_narrowed_where_they_are() {
    let step = Step::on("dgx-a100", "0,1,2,3,4,5,6,7", &BLOCKS)
        .with("ROCR_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
        .with("GPU_DEVICE_ORDINAL", "0,1,2,3,4,5,6,7");
    let own = step.visible("auto");
    assert_eq!(step.each("ids=uuid", "ROCR_VISIBLE_DEVICES"), own);
    assert_eq!(step.each("auto", "GPU_DEVICE_ORDINAL"), own);
    assert_eq!(step.each("auto", "ZE_AFFINITY_MASK"), ["-"; 8]);
}

#[test]
fn rank_variables_leave_the_users_own_alone() {
    let step = || Step::on("dgx-a100", "0,1,2,3,4,5,6,7", &BLOCKS);
    assert_eq!(step().each("auto", "LOCAL_RANK"), ["0"; 8]);
    let local_ranks = ["0", "1", "2", "3", "4", "5", "6", "7"];
    assert_eq!(step().each("local-rank=keep", "LOCAL_RANK"), local_ranks);
    assert_eq!(step().each("ordered", "LOCAL_RANK"), local_ranks, "not the only GPU");
    let set = step().with("WORLD_SIZE", "3");
    assert_eq!(set.each("auto", "WORLD_SIZE"), ["-"; 8]);
    assert_eq!(set.each("auto", "GPUBIND_RANK_ENV")[0].matches("WORLD_SIZE").count(), 1);
    assert!(!set.each("auto", "GPUBIND_RANK_ENV")[0].contains(",WORLD_SIZE"));
    assert_eq!(step().each("rank-env=off", "RANK"), ["-"; 8]);
    // Set by an outer step's gpubind, they are not the user's own.
    let outer = step().with("RANK", "0").with("GPUBIND_RANK_ENV", "RANK=0,PATH=/bin");
    // But for a value that the user has given it since.
    let users = step().with("RANK", "42").with("GPUBIND_RANK_ENV", "RANK=0");
    assert_eq!(users.each("auto", "RANK"), ["-"; 8]);
    assert_eq!(users.rank("off", 0).undo, [("GPUBIND_RANK_ENV".to_owned(), None)]);
    assert_eq!(outer.each("auto", "RANK")[3], "13");
    let off = outer.rank("off", 0);
    assert_eq!(off.edits, Err(SkipReason::Off));
    let undo = ["RANK", "GPUBIND_RANK_ENV"].map(|name| (name.to_owned(), None));
    assert_eq!(off.undo, undo, "and nothing that is not ours");
}

#[test]
fn a_local_rank_of_another_plugin_names_a_visible_device() {
    let pyxis = || {
        let step = Step::on("dgx-a100", "0,1,2,3,4,5,6,7", &BLOCKS);
        step.with("LOCAL_RANK", "3").with("RANK", "13")
    };
    for request in ["auto", "single", "rank-env=off"] {
        assert_eq!(pyxis().each(request, "LOCAL_RANK"), ["0"; 8], "{request}");
        let note = &pyxis().each(request, "GPUBIND_RANK_ENV")[3];
        assert!(note.split(',').any(|entry| entry == "LOCAL_RANK=0"), "{note}");
        assert_eq!(pyxis().each(request, "RANK"), ["-"; 8], "its number in the step stays");
    }
    for request in ["ordered", "first", "local-rank=keep"] {
        assert_eq!(pyxis().each(request, "LOCAL_RANK"), ["-"; 8], "{request}");
    }
    let users = Step { users_local_rank: Some("3"), ..pyxis() };
    assert_eq!(users.each("auto", "LOCAL_RANK"), ["-"; 8], "the user's stays");
    // pyxis writes over the user's as well.
    let both = Step { users_local_rank: Some("0"), ..pyxis() };
    assert_eq!(both.each("auto", "LOCAL_RANK"), ["0"; 8]);
}

#[test]
fn sharing_is_even_and_told_unless_it_was_asked_for() {
    let tasks = [&BLOCKS[..], &BLOCKS[..2]].concat();
    let step = Step::on("dgx-a100", "0,1,2,3", &tasks);
    let visible = step.visible("auto");
    for gpu in ["0", "1", "2", "3"] {
        let tasks = visible.iter().filter(|own| *own == gpu).count();
        assert!((2..=3).contains(&tasks), "{tasks} tasks on GPU {gpu}");
    }
    let warnings = |request, rank| step.rank(request, rank).warnings;
    assert_eq!(warnings("auto", 0), [Warning::Shared { tasks: 10, devices: 4 }]);
    assert_eq!(warnings("auto", 9), warnings("auto", 0), "all tasks find the same");
    assert_eq!(warnings("share", 0), []);
}

#[test]
fn an_unknown_node_gives_slurms_order_and_says_so() {
    let mut step = Step::on("dgx-a100", "4,5,6,7", &BLOCKS[..4]);
    step.node = Err("cannot read it".to_owned());
    assert_eq!(step.visible("auto"), ["4", "5", "6", "7"]);
    let warning = step.rank("auto", 0).warnings[0].to_string();
    assert!(warning.starts_with("cannot read it; affinity is unknown"), "{warning}");
    let warnings = step.rank("ids=uuid", 0).warnings;
    assert!(warnings.contains(&Warning::UuidUnknown), "{warnings:?}");
    assert_eq!(step.each("auto", "GPUBIND_GPU_UUID"), ["-"; 4]);
}

#[test]
fn a_step_whose_devices_cannot_be_named_stays_as_it_is() {
    let step = Step { node: Err("x".into()), ..Step::on("dgx-a100", "", &["0"]) };
    let outcome = step.rank("auto", 0);
    assert_eq!(outcome.edits, Err(SkipReason::NoDevice));
    assert_eq!(outcome.warnings, [Warning::NoDevice]);
}

#[test]
fn where_only_the_site_binds_slurms_narrower_binding_is_no_news() {
    let step = Step::on("dgx-a100", "0", &["0-15", "16-31"]);
    let allocation = Allocation { narrowed: Some((1, 2)), ..Allocation::default() };
    let warnings = |request: Option<Request>| {
        let settings = Settings::of(request.as_ref(), &Site::default());
        let outcome = step.rank_of(&allocation, &settings, 0);
        assert_eq!(outcome.edits, Err(SkipReason::BoundBySlurm));
        outcome.warnings
    };
    assert_eq!(warnings(None), []);
    let narrowed = Warning::Narrowed { reachable: 1, step: 2 };
    assert_eq!(warnings(Some(Request::default())), [narrowed]);
}

#[test]
fn a_step_whose_gpus_are_all_kept_back_is_told_so() {
    let step = Step::on("dgx-a100", "0,1", &["0-15", "16-31"]);
    let node = step.node.as_ref().unwrap();
    let lists = GpuLists { visible: Some("0,1".to_owned()), step_gpus: None };
    let all = node.gpus.iter().map(|gpu| DeviceName::Uuid(gpu.uuid.known().unwrap().clone()));
    let all: Vec<DeviceName> = all.collect();
    let allocation =
        Allocation::find(node, &Reach::default(), &lists, false).without(&all, Some(node));
    let settings = Settings::from(&Request::default());
    let outcome = step.rank_of(&allocation, &settings, 0);
    assert_eq!(outcome.edits, Err(SkipReason::NoDevice));
    assert_eq!(outcome.warnings, [Warning::Excluded { devices: 2 }]);
}
