//! `cpus=local`: what becomes of a rank's CPUs, on machines as they are.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use gpubind_core::bind::{Edits, Outcome, Rank, Shim, Warning, edits};
use gpubind_core::node::{Device, IdSet, Node};
use gpubind_core::plan::{Shape, TaskSets, plan};
use gpubind_core::request::Request;
use gpubind_core::site::{Settings, Site};
use gpubind_core::step::{Allocation, GpuLists, Reach};
use gpubind_machine::Machine;
use gpubind_shim_core::cpus::CpuMask;
use gpubind_shim_core::record::Record;

mod plan_support;

/// A step with all GPUs of a node.
struct Step {
    node: Node,
    /// CPUs of each task.
    tasks: Vec<IdSet>,
    /// CPUs n and n + this are threads of one core; 0 where that is unknown.
    stride: usize,
    env: BTreeMap<&'static str, &'static str>,
}

impl Step {
    fn on(fixture: &str, stride: usize, tasks: &[&str]) -> Step {
        let file = format!("{}/tests/machines/{fixture}.toml", env!("CARGO_MANIFEST_DIR"));
        let machine = Machine::parse(&std::fs::read_to_string(file).unwrap()).unwrap();
        let tasks = tasks.iter().map(|cpus| cpus.parse().unwrap()).collect();
        Step { node: machine.to_node(), tasks, stride, env: BTreeMap::new() }
    }

    fn outcome(&self, settings: &Settings, local_rank: usize) -> Outcome {
        let all: Vec<String> = (0..self.node.gpus.len()).map(|gpu| gpu.to_string()).collect();
        let lists = GpuLists { visible: Some(all.join(",")), step_gpus: None };
        let allocation = Allocation::find(&self.node, &Reach::default(), &lists, false);
        let threads = |cpu: usize| match self.stride {
            0 => IdSet::default(),
            stride => [cpu % stride, cpu % stride + stride].into_iter().collect(),
        };
        edits(&Rank {
            node: Ok(&self.node),
            allocation: &allocation,
            tasks: &TaskSets::from(&self.tasks),
            cpus: &self.tasks[local_rank],
            most_tasks: self.tasks.len(),
            threads: &threads,
            settings,
            local_rank,
            ranks: None,
            worker: Some(Shim { file: "/lib/libgpubind_worker.so", process: 1 }),
            is_before_container: false,
            users_local_rank: None,
            preload: None,
            env: &|name| self.env.get(name).map(|value| (*value).to_owned()),
        })
    }

    fn edits(&self, request: &str, local_rank: usize) -> Edits {
        let outcome = self.outcome(&settings(request), local_rank);
        assert_eq!(outcome.warnings, [], "{request}");
        outcome.edits.unwrap()
    }

    /// The new CPUs of each task; `-` where they stay.
    fn cpus(&self, request: &str) -> Vec<String> {
        let cpus = |rank| self.edits(request, rank).cpus.map(|cpus| cpus.to_string());
        (0..self.tasks.len()).map(|rank| cpus(rank).unwrap_or("-".to_owned())).collect()
    }
}

fn settings(request: &str) -> Settings {
    Settings::from(&request.parse::<Request>().unwrap())
}

fn value<'e>(edits: &'e Edits, name: &str) -> Option<&'e str> {
    let found = edits.set.iter().find(|(set, _)| *set == name);
    found.map(|(_, value)| value.as_str())
}

#[test]
fn unbound_tasks_get_the_cores_of_their_gpus() {
    // GPUs 2 and 3 are at NUMA node 1, 0 and 1 at 3, 6 and 7 at 5, 4 and 5 at 7.
    let step = Step::on("dgx-a100", 128, &["0-255"; 8]);
    let expected = [
        ("48-55,176-183", "0"),
        ("56-63,184-191", "1"),
        ("16-23,144-151", "2"),
        ("24-31,152-159", "3"),
        ("112-119,240-247", "4"),
        ("120-127,248-255", "5"),
        ("80-87,208-215", "6"),
        ("88-95,216-223", "7"),
    ];
    let mut found: Vec<(String, String)> = (0..8)
        .map(|rank| {
            let edits = step.edits("single,cpus=local,omp,verbose", rank);
            let cpus = edits.cpus.clone().unwrap().to_string();
            assert_eq!(value(&edits, "GPUBIND_CPUS"), Some(&*cpus));
            assert_eq!(value(&edits, "OMP_NUM_THREADS"), Some("8"));
            let line = edits.report.unwrap().to_string();
            assert!(line.contains(&format!("local to CPUs {cpus}, left by cpus=local;")), "{line}");
            let summary = edits.summary.unwrap_or("8 of 8 ranks are local".to_owned());
            assert!(summary.contains("8 of 8 ranks are local"), "{summary}");
            (cpus, edits.visible)
        })
        .collect();
    found.sort_by(|(_, a), (_, b)| a.cmp(b));
    let found: Vec<(&str, &str)> = found.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert_eq!(found, expected);
}

#[test]
fn where_tasks_may_run_anywhere_links_decide_and_cpus_follow() {
    for (name, node) in plan_support::machines() {
        let devices: Vec<Device> =
            (0..node.gpus.len()).map(|gpu| Device { gpu, mig: None }).collect();
        let all: IdSet = node.numa.iter().flat_map(|numa| numa.cpus.iter()).collect();
        let links = |cpus: IdSet| {
            let tasks = vec![cpus; devices.len()];
            plan(&node, &devices, &tasks, Shape::Single).unwrap().cost.links
        };
        // Of tasks without known CPUs only links count.
        assert_eq!(links(all), links(IdSet::default()), "{name}");
    }
    // Two tasks, eight GPUs: a pair with two NVLinks, and each task the cores of its own.
    let step = Step::on("dgx1-v100", 40, &["0-79", "0-79"]);
    let own = [0, 1].map(|rank| {
        let edits = step.edits("single,cpus=local", rank);
        (value(&edits, "CUDA_VISIBLE_DEVICES").unwrap().to_owned(), edits.cpus.unwrap().to_string())
    });
    let own = own.each_ref().map(|(gpu, cpus)| (gpu.as_str(), cpus.as_str()));
    assert_eq!(own, [("0", "0-9,40-49"), ("3", "10-19,50-59")]);
}

#[test]
fn without_the_item_nothing_is_new() {
    let step = Step::on("dgx-a100", 128, &["0-255"; 8]);
    for request in ["single", "single,omp", "cpus=keep,omp"] {
        let edits = step.edits(request, 0);
        assert_eq!(edits.cpus, None);
        assert_eq!(value(&edits, "GPUBIND_CPUS"), None);
        assert_eq!(value(&edits, "OMP_NUM_THREADS"), None);
    }
}

#[test]
fn what_slurm_has_bound_apart_and_near_stays() {
    let step = Step::on("two-cpu", 0, &["0", "1"]);
    assert_eq!(step.cpus("single,cpus=local"), ["-", "-"]);
    assert_eq!(step.cpus("cpus=local"), ["-", "-"]);
    let step = Step::on("two-cpu", 0, &["0-1", "0-1"]);
    assert_eq!(step.cpus("cpus=local"), ["0", "1"]);
    // More tasks than CPUs share those that are local.
    let step = Step::on("two-cpu", 0, &["0-1"; 8]);
    assert_eq!(step.cpus("cpus=local"), ["0", "0", "0", "0", "1", "1", "1", "1"]);
    // Sockets as masks.
    let step = Step::on("hgx-h100", 128, &["0-63,128-191"; 4]);
    let quarters = ["0-15,128-143", "16-31,144-159", "32-47,160-175", "48-63,176-191"];
    assert_eq!(step.cpus("single,cpus=local"), quarters);
}

#[test]
fn the_workers_of_a_task_get_its_cores() {
    let step = Step::on("dgx-a100", 128, &["0-255"]);
    let edits = step.edits("cpus=local,omp", 0);
    let local = "16-31,48-63,80-95,112-127,144-159,176-191,208-223,240-255";
    assert_eq!(edits.cpus.as_ref().unwrap().to_string(), local);
    assert_eq!(value(&edits, "OMP_NUM_THREADS"), Some("8"), "of each worker");
    let record = Record::read(value(&edits, "GPUBIND_WORKERS").unwrap().as_bytes()).unwrap();
    let parts = String::from_utf8(record.cpus.to_vec()).unwrap();
    let parts: Vec<&str> = parts.split('/').collect();
    let gpus: Vec<&str> = edits.visible.split(',').collect();
    let of_gpu = |gpu: &str| parts[gpus.iter().position(|own| *own == gpu).unwrap()];
    assert_eq!(parts.len(), 8);
    assert_eq!((of_gpu("0"), of_gpu("1")), ("48-55,176-183", "56-63,184-191"));
    assert_eq!((of_gpu("4"), of_gpu("5")), ("112-119,240-247", "120-127,248-255"));
    // Bound to one NUMA node's CPUs, the workers of other GPUs keep those.
    let step = Step::on("two-cpu", 0, &["0"]);
    let edits = step.edits("cpus=local", 0);
    let record = Record::read(value(&edits, "GPUBIND_WORKERS").unwrap().as_bytes()).unwrap();
    assert_eq!((record.cpus, edits.cpus.as_ref()), (&b"0/0/0/0////"[..], None));
    // Without the item the record tells none.
    let edits = step.edits("auto", 0);
    let record = Record::read(value(&edits, "GPUBIND_WORKERS").unwrap().as_bytes()).unwrap();
    assert_eq!(record.cpus, b"");
}

#[test]
fn a_rank_without_local_cpus_keeps_its_own_and_that_is_told() {
    let step = Step::on("two-cpu", 0, &["0", "0", "0", "0", "0"]);
    let warning = Warning::NoLocalCpus { ranks: "4".parse().unwrap() };
    for rank in [0, 4] {
        let outcome = step.outcome(&settings("single,cpus=local"), rank);
        assert_eq!(outcome.warnings, std::slice::from_ref(&warning));
        let edits = outcome.edits.unwrap();
        assert_eq!((edits.cpus.as_ref(), value(&edits, "GPUBIND_CPUS")), (None, Some("0")));
    }
    // Where only the site wants it, `verbose` tells.
    let site = Site { request: "single,cpus=local".parse().unwrap(), ..Site::default() };
    let outcome = step.outcome(&Settings::of(None, &site), 4);
    assert_eq!((outcome.warnings, outcome.edits.unwrap().notes), (vec![], vec![warning]));
}

#[test]
fn where_affinity_is_not_known_nothing_changes() {
    let step = Step::on("vm-no-affinity", 0, &["0-7", "0-7"]);
    let edits = step.edits("single,cpus=local,omp", 0);
    let own = step.node.gpus[0].cpus.known().is_some();
    assert!(!own && edits.cpus.is_none(), "{:?}", edits.cpus);
    assert_eq!(value(&edits, "GPUBIND_CPUS"), None);
    assert_eq!(value(&edits, "OMP_NUM_THREADS"), None);
}

#[test]
fn a_users_number_of_threads_stays() {
    let mut step = Step::on("dgx-a100", 128, &["0-255"; 8]);
    step.env.insert("OMP_NUM_THREADS", "3");
    assert_eq!(value(&step.edits("single,cpus=local,omp", 0), "OMP_NUM_THREADS"), None);
    // An outer step's gpubind has set it.
    step.env.insert("GPUBIND_RANK_ENV", "OMP_NUM_THREADS=3");
    let edits = step.edits("single,cpus=local,omp", 0);
    assert_eq!(value(&edits, "OMP_NUM_THREADS"), Some("8"));
    assert!(value(&edits, "GPUBIND_RANK_ENV").unwrap().contains("OMP_NUM_THREADS=8"));
}

#[test]
fn the_shim_reads_what_the_kernel_writes_and_nothing_else() {
    let mask = |list: &str| CpuMask::read(list.as_bytes());
    let bits = |list: &str| mask(list).unwrap().0;
    assert_eq!(bits("0-3,8")[0], 0x10f);
    assert_eq!((bits("63-64")[0], bits("63-64")[1]), (1 << 63, 1));
    assert_eq!(bits("1023")[15], 1 << 63);
    for wrong in ["", ",", "1,", "3-1", "0-1024", "1-2-3", "a", "-", "99999999999999999999"] {
        assert_eq!(mask(wrong), None, "{wrong}");
    }
    let less = |a: &str, b: &str| mask(a).unwrap().is_less_than(&mask(b).unwrap());
    assert!(less("0-1,70", "0-3,70") && !less("0-3", "0-3") && !less("0,9", "0-3"));
}
