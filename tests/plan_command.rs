//! `gpubind plan` as a program: its text, its JSON, and what it refuses.
//!
//! The texts are kept in tests/plan_output for review. A change of a text is a
//! change of a file: `GPUBIND_WRITE_PLANS=1 cargo test --test plan_command` writes
//! them anew.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Output;

use gpubind::read_any;
use gpubind::slurm::{Distribution, layout};
use gpubind_core::bind::{Rank, edits, edits_by, shape};
use gpubind_core::node::IdSet;
use gpubind_core::plan::{TaskSets, plan};
use gpubind_core::request::Request;
use gpubind_core::site::Settings;
use gpubind_core::step::{Allocation, Reach};
use serde_json::{Value, json};

mod command_support;
mod plan_support;

/// Three GPUs on two of three NUMA nodes, the last two joined by NVLink: Slurm's
/// greedy choice is as far from the CPUs as the naive one.
const TRAP: &str = r#"
name = "trap"
description = "3 GPUs, 3 NUMA nodes in a row"
source = "made up for tests"
driver = "535.104.05"
cuda = "12.2"
nvlink = [[1, 2, 2]]
numa = [
  { id = 0, cpus = "0-3", distance = [10, 20, 30] },
  { id = 1, cpus = "4-7", distance = [20, 10, 20] },
  { id = 2, cpus = "8-11", distance = [30, 20, 10] },
]
gpu = [
  { pci = "0000:01:00.0", uuid = "GPU-a", numa = [0] },
  { pci = "0000:41:00.0", uuid = "GPU-b", numa = [1] },
  { pci = "0000:81:00.0", uuid = "GPU-c", numa = [1] },
]
[gpus]
name = "NVIDIA A40"
compute = "8.6"
"#;

/// As people paste it: nothing of NUMA node 0, of UUIDs and PCI addresses.
const PASTED: &str = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n\
                      GPU0\t X \tNV4\t8-15\t1\nGPU1\tNV4\t X \t24-31\t3\n";

fn run(args: &[&str], input: &str) -> Output {
    command_support::gpubind("plan", args, input)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Standard output and standard error of a plan that must succeed.
fn both(from: &str, args: &[&str]) -> (String, String) {
    let is_text = from.contains('\n');
    let file = if is_text { "-".to_owned() } else { fixture(from) };
    let output = run(&[&["--from", &file], args].concat(), if is_text { from } else { "" });
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

/// The same, where there is nothing to warn of.
fn out(from: &str, args: &[&str]) -> String {
    let (out, errors) = both(from, args);
    assert_eq!(errors, "", "{args:?}");
    out
}

fn json_of(from: &str, args: &[&str]) -> Value {
    serde_json::from_str(&out(from, &[&["--json"], args].concat())).unwrap()
}

fn fixture(name: &str) -> String {
    format!("{}/tests/machines/{name}.toml", env!("CARGO_MANIFEST_DIR"))
}

/// One value of each task.
fn each(json: &Value, key: &str) -> Value {
    json["tasks"].as_array().unwrap().iter().map(|task| task[key].clone()).collect()
}

#[test]
fn the_texts_are_as_reviewed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plan_output");
    let write = std::env::var_os("GPUBIND_WRITE_PLANS").is_some();
    let cases: &[(&str, &str, &[&str])] = &[
        ("dgx-a100-cyclic", "dgx-a100", &[]),
        ("dgx-a100-block", "dgx-a100", &["--distribution", "block:block"]),
        ("dgx-a100-compare", "dgx-a100", &["--compare"]),
        ("dgx-a100-half", "dgx-a100", &["--devices", "4-7", "--cpu-bind", "map_ldom:7,5,4,6"]),
        ("dgx-a100-shares", "dgx-a100", &["--tasks", "2"]),
        ("dgx2-v100-16-64-tasks", "dgx2-v100-16", &["--tasks", "64", "--mode", "share"]),
        ("hgx-a100-4-reversed", "hgx-a100-4-reversed", &[]),
        ("hgx-a100-4-reversed-ordered", "hgx-a100-4-reversed", &["--mode", "ordered"]),
        ("a100-mig-mixed", "a100-mig-mixed", &[]),
        ("vm-no-affinity", "vm-no-affinity", &[]),
        ("lost-gpu-more-tasks", "lost-gpu", &["--tasks", "9", "--mode", "single,share"]),
    ];
    let mut expected: Vec<PathBuf> = Vec::new();
    for (name, machine, args) in cases {
        let text = out(machine, args);
        assert!(!text.contains('\u{1b}'), "{name}: no colours into a pipe");
        assert!(text.lines().all(|line| line.trim_end() == line), "{name}: spaces at line ends");
        let file = folder.join(format!("{name}.txt"));
        if write {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&file, &text).unwrap();
        }
        let kept = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(text, kept, "{} differs; see the head of this test", file.display());
        expected.push(file);
    }
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut kept: Vec<PathBuf> = files.collect();
    kept.sort();
    expected.sort();
    assert_eq!(kept, expected, "a file in tests/plan_output belongs to no case");
}

#[test]
fn the_json_has_the_documented_form() {
    // The same form as in `topo --json` and `report --json`.
    let device = |index: u32, uuid: &str, pci: &str| {
        json!({"index": index, "minor": index, "uuid": uuid, "pci": pci, "name": "NVIDIA A40",
               "numa": [1], "cpus": "4-7", "mig": null})
    };
    let expected = json!({
        "schema": 1,
        "devices": [device(1, "GPU-b", "0000:41:00.0"), device(2, "GPU-c", "0000:81:00.0")],
        "tasks": [
            {"local_rank": 0, "devices": [1], "visible": "1", "cpus": "8-9"},
            {"local_rank": 1, "devices": [2], "visible": "2", "cpus": "3-4"},
        ],
        // Distance 20 for one task, for the other 20 for half of its CPUs; NV2.
        "cost": {"numa": 10_000 + 5_000, "links": 5040 * 500},
        "naive": {"numa": 15_000, "links": 2_520_000},
    });
    assert_eq!(json_of(TRAP, &["--devices", "1-2", "--cpus", "8-9;3-4"]), expected);
}

#[test]
fn what_is_not_known_is_null() {
    let json = json_of(PASTED, &[]);
    let device = &json["devices"][0];
    assert_eq!((&device["uuid"], &device["pci"]), (&Value::Null, &Value::Null));
    assert_eq!(device["cpus"], "8-15");

    let bare = "\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX\t X \n";
    let (bare, warnings) = both(bare, &["--json"]);
    assert!(warnings.contains("no CPU Affinity column"), "{warnings}");
    let json: Value = serde_json::from_str(&bare).unwrap();
    assert_eq!(each(&json, "cpus"), json!([null, null]));
    assert_eq!(each(&json, "devices"), json!([[0], [1]]));
    assert_eq!(
        (&json["devices"][0]["numa"], &json["devices"][0]["cpus"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn slurms_distributions_make_the_cpus() {
    let cyclic = json_of("dgx-a100", &["--tasks", "4", "--cpus-per-task", "8"]);
    let expected = json!(["0-3,128-131", "64-67,192-195", "4-7,132-135", "68-71,196-199"]);
    assert_eq!(each(&cyclic, "cpus"), expected);
    let named = ["--tasks", "4", "--cpus-per-task", "8", "--distribution", "block:cyclic"];
    assert_eq!(json_of("dgx-a100", &named), cyclic, "it is the default");
    let block = ["--tasks", "4", "--cpus-per-task", "8", "--distribution", "block:block"];
    let expected = json!(["0-3,128-131", "4-7,132-135", "8-11,136-139", "12-15,140-143"]);
    assert_eq!(each(&json_of("dgx-a100", &block), "cpus"), expected);
}

#[test]
fn masks_are_read_as_slurm_writes_them() {
    let cpus = |bind: &str, more: &[&str]| {
        each(&json_of(TRAP, &[&["--cpu-bind", bind], more].concat()), "cpus")
    };
    assert_eq!(cpus("quiet,mask_cpu:0x00F,0xF00", &[]), json!(["0-3", "8-11"]));
    assert_eq!(cpus("map_cpu:4,9,0", &[]), json!(["4", "9", "0"]));
    assert_eq!(cpus("map_cpu:4*2,9", &[]), json!(["4", "4", "9"]));
    assert_eq!(cpus("map_ldom:2,0", &["--tasks", "3"]), json!(["8-11", "0-3", "8-11"]));
    assert_eq!(cpus("mask_ldom:0x6", &[]), json!(["4-11"]));
    let single = json_of(TRAP, &["--cpu-bind", "map_ldom:1,0", "--mode", "single"]);
    assert_eq!(each(&single, "devices"), json!([[1], [0]]));
}

#[test]
fn modes_and_ids_decide_what_a_task_sees() {
    let cpus = ["--cpus", "4-7;0-3;4-7"];
    let visible = |more: &[&str]| each(&json_of(TRAP, &[&cpus, more].concat()), "visible");
    assert_eq!(visible(&[]), json!(["1", "0", "2"]));
    assert_eq!(visible(&["--mode", "ordered"]), json!(["1,0,2", "1,0,2", "1,0,2"]));
    assert_eq!(visible(&["--mode", "first"]), json!(["1,0,2", "0,1,2", "2,1,0"]));
    assert_eq!(visible(&["--ids", "uuid"]), json!(["GPU-b", "GPU-a", "GPU-c"]));

    let two = |more: &[&str]| json_of(TRAP, &[&["--cpus", "4-7;4-7", "--devices"], more].concat());
    assert_eq!(each(&two(&["1,2"]), "visible"), json!(["1", "2"]));
    assert_eq!(each(&two(&["1,2", "--constrained"]), "visible"), json!(["0", "1"]));
    assert_eq!(each(&two(&["1,2", "--constrained"]), "devices"), json!([[1], [2]]));
    assert_eq!(two(&["GPU-c,1"]), two(&["1-2"]), "by UUID, in any order");

    let shares = json_of("dgx-a100", &["--tasks", "2"]);
    assert_eq!(each(&shares, "devices"), json!([[0, 1, 2, 3], [4, 5, 6, 7]]));
    let single = json_of("dgx-a100", &["--tasks", "2", "--mode", "single"]);
    assert_eq!(each(&single, "devices"), json!([[0], [4]]));
}

#[test]
fn mig_instances_are_named_by_uuid() {
    let all = json_of("a100-mig-mixed", &[]);
    let uuids: Vec<&str> =
        all["devices"].as_array().unwrap().iter().map(|d| d["uuid"].as_str().unwrap()).collect();
    assert_eq!(uuids.len(), 7, "2 + 4 instances and a whole GPU");
    let list = format!("{},{}", uuids[0], uuids[1]);
    let json = json_of("a100-mig-mixed", &["--devices", &list, "--cpus", "0;1"]);
    assert_eq!(each(&json, "visible"), json!([uuids[0], uuids[1]]));
    assert_eq!(each(&json, "devices"), json!([[0], [0]]));
    assert_eq!(json["cost"], json!({"numa": 0, "links": 0}), "two parts of one GPU");
}

/// By hand. Distances: task 0 is at NUMA node 1, task 1 at node 2, task 2 at node
/// 0. Hops: 1000/2 between GPUs 1 and 2, 8000 otherwise.
#[test]
fn the_comparison_has_the_numbers_of_a_pocket_calculator() {
    let json = json_of(TRAP, &["--compare", "--cpus", "4-5;8-9;0-1"]);
    let expected = json!([
        // 20 for all three; links 5040 (8000 + 500) + 2520 · 8000.
        {"name": "naive", "positions": [0, 1, 2], "cost": {"numa": 30_000, "links": 63_000_000}},
        // Task 0 takes the first local one; task 1 has none and takes GPU 0, at distance
        // 30, though task 2 needs it; links 5040 (8000 + 8000) + 2520 · 500.
        {"name": "single:1", "positions": [1, 0, 2], "cost": {"numa": 30_000, "links": 81_900_000}},
        {"name": "plan", "positions": [1, 2, 0], "cost": {"numa": 10_000, "links": 63_000_000}},
    ]);
    assert_eq!(json["compare"], expected);
    assert_eq!(json["cost"], expected[2]["cost"]);
    assert_eq!(json["naive"], expected[0]["cost"]);

    let text = out(TRAP, &["--compare", "--cpus", "4-5;8-9;0-1"]);
    let row = text.lines().find(|line| line.starts_with("1 ")).unwrap();
    let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells, ["1", "8-9", "1 (20)", "0 (30)", "2 (20)"]);
}

#[test]
fn the_sentence_tells_what_naive_would_do() {
    let cases: &[(&str, &[&str], &str)] = &[
        (
            "dgx-a100",
            &[],
            "naive would put 4 of 8 ranks on the far socket; the plan puts none there.",
        ),
        (
            "hgx-a100-4-reversed",
            &[],
            "naive would give 4 of 4 ranks a GPU that is not local to their CPUs; the plan none.",
        ),
        ("gh200-4", &[], "the plan is the naive one: rank i on the i-th GPU."),
        (
            "vm-no-affinity",
            &[],
            "which CPUs are near a GPU is not known here, so only links count; \
             the plan is the naive one: rank i on the i-th GPU.",
        ),
        (
            "hgx-h100",
            &["--devices", "4-7", "--tasks", "8", "--mode", "share"],
            "naive would be as near, but neighbouring ranks' links would cost more; the plan saves 23 %.",
        ),
        (
            "dgx-a100",
            &["--devices", "4-7"],
            "naive's GPUs would be farther from the ranks' CPUs: mean distance 22; the plan's 21.5.",
        ),
    ];
    for (machine, args, sentence) in cases {
        let text = out(machine, args);
        assert!(text.lines().any(|line| line == *sentence), "{machine} {args:?}: {text}");
    }
}

#[test]
fn a_shared_step_is_told_what_the_job_would_be_told() {
    let (text, warning) = both("two-cpu", &["--tasks", "9"]);
    assert_eq!(
        warning,
        "gpubind: 9 tasks share 8 GPUs on this node; add `share` if that is wanted, else ask for \
         more GPUs or start fewer tasks per node\n"
    );
    assert!(
        text.contains("\nCPUs: all 2 of the node for each task, because there are more tasks\n")
    );
    assert_eq!(both("two-cpu", &["--tasks", "9", "--mode", "share"]).1, "");
}

#[test]
fn pasted_text_may_leave_cpus_out() {
    let text = out(PASTED, &["--cpus", "0-7;24-31"]);
    let source = "CPUs: as --cpus lists them; the description does not tell where CPUs 0-7 are: \
                  they count as far";
    assert_eq!(text.lines().nth(1), Some(source));
    let text = out(PASTED, &[]);
    let source = text.lines().nth(1).unwrap();
    assert!(source.ends_with("; the description tells only the CPUs 8-15,24-31"), "{source}");
}

/// Four GPUs of two sockets, whose rows end with this text.
fn pasted(header: &str, first: &str, second: &str) -> String {
    format!(
        "\tGPU0\tGPU1\tGPU2\tGPU3{header}\nGPU0\t X \tPIX\tSYS\tSYS{first}\n\
         GPU1\tPIX\t X \tSYS\tSYS{first}\nGPU2\tSYS\tSYS\t X \tPIX{second}\n\
         GPU3\tSYS\tSYS\tPIX\t X {second}\n"
    )
}

#[test]
fn text_without_usable_numa_nodes_is_planned_by_the_gpus_own_cpu_lists() {
    let header = "\tCPU Affinity\tNUMA Affinity";
    for paste in [
        pasted("\tCPU Affinity", "\t8-15", "\t0-7"),
        pasted(header, "\t8-15\tN/A", "\t0-7\tN/A"),
        pasted(header, "\t8-15\t0-1", "\t0-7\t0-1"),
        pasted(header, "\t8-15\t2-3", "\t0-7\t0-1"),
    ] {
        for how in [&[][..], &["-m", "cyclic"], &["-m", "block:cyclic"]] {
            let (out, _) = both(&paste, how);
            let source = out.lines().nth(1).unwrap();
            assert!(source.starts_with("CPUs: 4 for each task, from 2 sockets with "), "{source}");
            assert!(source.contains("; the GPUs' own CPU lists stand for sockets"), "{source}");
            // Every other rank is on the socket of GPUs 2 and 3, which has the first CPUs.
            let (json, _) = both(&paste, &[how, &["--json"]].concat());
            let json: Value = serde_json::from_str(&json).unwrap();
            assert_eq!(each(&json, "cpus"), json!(["0-3", "8-11", "4-7", "12-15"]), "{paste}");
            assert_eq!(each(&json, "visible"), json!(["2", "0", "3", "1"]), "{paste}");
            assert_eq!(json["cost"]["numa"], 0);
            assert!(out.contains("on the far socket; the plan puts none there"), "{out}");
        }
    }
    // All rows show the same CPUs: one place.
    let clipped = pasted("\tCPU Affinity", "\t0-7", "\t0-7");
    let out = text(&run(&["--from", "-", "-m", "block:block"], &clipped).stdout);
    assert!(out.contains("CPUs: 2 for each task, from 1 socket with "), "{out}");
}

/// A virtual node of tests/vm: what Slurm 24.11 did there with the same options.
#[test]
fn sruns_options_give_the_cpus_that_srun_gave() {
    let machine = r#"
name = "vm"
description = "two sockets, cores of two threads that are neighbours"
source = "made up for tests"
driver = "550.54.15"
cuda = "12.4"
numa = [
  { id = 0, cpus = "0-7", distance = [10, 32] },
  { id = 1, cpus = "8-15", distance = [32, 10] },
]
gpu = [{ pci = "0000:23:00.0", numa = [1] }, { pci = "0000:43:00.0", numa = [0] }]
[gpus]
name = "NVIDIA A100-SXM4-40GB"
compute = "8.0"
"#;
    for (options, cpus) in [
        ("-n4 --cpu-bind=cores", ["0-1", "8-9", "2-3", "10-11"]),
        ("-n4 --cpu-bind=threads", ["0", "8", "1", "9"]),
        ("-n4 --cpu-bind=sockets", ["0-7", "8-15", "0-7", "8-15"]),
        ("-n4 --cpu-bind=sockets -m block:block", ["0-7", "0-7", "0-7", "0-7"]),
        ("-n4 --cpu-bind=verbose,ldoms -c2", ["0-7", "8-15", "0-7", "8-15"]),
        ("-n4 --cpu-bind=rank_ldom", ["0-7", "8-15", "0-7", "8-15"]),
        ("-n4 --cpu-bind=none", ["0-15", "0-15", "0-15", "0-15"]),
        ("-n4 -c2 -m block", ["0-1", "8-9", "2-3", "10-11"]),
        ("-n4 -c2 -m plane=2", ["0-1", "2-3", "4-5", "6-7"]),
        ("-n4 -c2 -m block:fcyclic", ["0,8", "1,9", "2,10", "3,11"]),
        ("-n4 -c2 --hint=nomultithread", ["0,2", "8,10", "4,6", "12,14"]),
        ("-n4 -c2 --threads-per-core=1 -m block:block", ["0,2", "4,6", "8,10", "12,14"]),
        ("-n4 --cpu-bind=map_cpu:3,2,1,0 -m block", ["3", "2", "1", "0"]),
    ] {
        let args: Vec<&str> = options.split(' ').collect();
        let shared = ["--mode", "share", "--siblings", "2"];
        let json = json_of(machine, &[&shared[..], &args].concat());
        assert_eq!(each(&json, "cpus"), json!(cpus), "{options}");
    }
    let text = out(machine, &["--mode", "share", "-n4", "--cpu-bind=cores", "--siblings", "2"]);
    let source = "CPUs: with --cpu-bind=cores and --distribution=block:cyclic, on a whole node";
    assert_eq!(text.lines().nth(1), Some(source));
    // Nobody knows more than this of threads that are neighbours.
    let json = json_of(machine, &["--mode", "share", "-n4", "--cpu-bind=cores"]);
    assert_eq!(each(&json, "cpus"), json!(["0", "8", "1", "9"]));
}

#[test]
fn the_default_distribution_may_be_written_out_where_no_cpu_is_known() {
    let unknown = pasted("", "", "");
    for args in [&["--from", "-"][..], &["--from", "-", "-m", "cyclic"]] {
        let output = run(args, &unknown);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(text(&output.stdout).contains("CPUs: unknown on this node"), "{args:?}");
    }
    let output = run(&["--from", "-", "-m", "block:block"], &unknown);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn wrong_input_is_refused_with_one_line() {
    let kinds = "write cores, sockets, threads, ldoms, rank_ldom or none, or mask_cpu:, \
                 map_cpu:, mask_ldom: or map_ldom: and a list";
    let part = "is not an NVML index, a range like 4-7 or a UUID (GPU-…, MIG-…)";
    let uuids = "GPU-a, GPU-b, GPU-c";
    let cases: &[(&[&str], &str)] = &[
        (&["--devices", "9"], "--devices: there is no GPU 9 on this node; it has 0-2"),
        (&["--devices", "0-4294967295"], "--devices: there is no GPU 3 on this node; it has 0-2"),
        (&["--devices", "x"], &format!("--devices: `x` {part}")),
        (&["--devices", ""], &format!("--devices: `` {part}")),
        (&["--devices", "0,"], &format!("--devices: `` {part}")),
        (&["--devices", "2-1"], "--devices: the range `2-1` runs backwards"),
        (
            &["--devices", "0-2,1"],
            "--devices: `1` names a device that is named before; name each once",
        ),
        (
            &["--devices", "GPU-d"],
            &format!("--devices: no device of this node has the UUID GPU-d; it has {uuids}"),
        ),
        (&["--tasks", "0"], "--tasks 0: a step has 1 to 4096 tasks on a node"),
        (&["--tasks", "4097"], "--tasks 4097: a step has 1 to 4096 tasks on a node"),
        (
            &["--cpus", "0-3;"],
            "--cpus: the list of task 1 is empty; write CPU numbers and ranges like 0-15,128-143",
        ),
        (&["--cpus", "0-3;x"], "--cpus: task 1: `x` is not a CPU number or a range like 0-15"),
        (&["--cpus", "3-0"], "--cpus: task 0: the CPU range `3-0` runs backwards"),
        (&["--cpus", "0;8-13"], "--cpus: task 1: the node has no CPU 12-13; it has 0-11"),
        (
            &["--cpus", "0;1", "--tasks", "3"],
            "--cpus: 3 tasks need as many lists, `;` between; given: 2",
        ),
        (&["--cpu-bind", "core"], &format!("--cpu-bind: `core` tells no CPUs; {kinds}")),
        (&["--cpu-bind", "mask_cpu:"], &format!("--cpu-bind: `mask_cpu:` tells no CPUs; {kinds}")),
        (
            &["--cpu-bind", "mask_cpu:0x1,zz"],
            "--cpu-bind: entry 1 of the mask_cpu list: `zz` is not a hexadecimal CPU mask",
        ),
        (&["--cpu-bind", "mask_cpu:0x1,0x0"], "--cpu-bind: the entry of task 1 names no CPU"),
        (
            &["--cpu-bind", "mask_cpu:0x1000"],
            "--cpu-bind: task 0: the node has no CPU 12; it has 0-11",
        ),
        (
            &["--cpu-bind", "map_ldom:7"],
            "--cpu-bind: entry 0 of the map_ldom list names NUMA node 7, which the node lacks",
        ),
        (
            &["--cpu-bind", "map_cpu:1*0"],
            "--cpu-bind: `1*0` is not an entry and a number of repetitions like 0x3*4",
        ),
        (&["--cpus-per-task", "0"], "--cpus-per-task 0: a task has at least 1 CPU"),
        (
            &["--cpus-per-task", "5"],
            "--cpus-per-task: 3 tasks with 5 CPUs each are more than the node's 12 CPUs; \
             at most 4 each",
        ),
        (
            &["--mode", "single,ordered"],
            "--mode: `single` and `ordered` contradict each other; keep one of them",
        ),
    ];
    for (args, message) in cases {
        let output = run(&[&["--from", "-"], *args].concat(), TRAP);
        assert_eq!(text(&output.stderr), format!("gpubind: {message}\n"), "{args:?}");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
    }
}

#[test]
fn wrong_devices_of_mig_and_unusable_gpus_are_refused_with_the_ways_out() {
    for (machine, device, message) in [
        ("a100-mig-mixed", "1", "GPU 1 is in MIG mode; name its instances: MIG-"),
        (
            "a100-mig-mixed",
            "3",
            "GPU 3 is in MIG mode and has no instance, so nothing can run on it",
        ),
        ("lost-gpu", "3", "GPU 3 cannot be used (NVML error 15); usable: 0-2,4-7"),
    ] {
        let output = run(&["--from", &fixture(machine), "--devices", device], "");
        let errors = text(&output.stderr);
        assert!(errors.contains(message), "{errors}");
        assert_eq!(output.status.code(), Some(2), "{errors}");
    }
}

#[test]
fn what_clap_refuses_ends_with_the_same_code() {
    for args in [
        &["--tasks", "x"][..],
        &["--mode", "off"],
        &["--cpus", "0", "--cpu-bind", "map_cpu:0"],
        &["--cpus", "0", "--distribution", "block"],
        &["--cpus", "0", "--hint", "nomultithread"],
        &["--distribution", "block:block:block"],
        &["--threads-per-core", "0"],
    ] {
        let output = run(&[&["--from", "-"], args].concat(), TRAP);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
    }
}

#[test]
fn a_machine_that_cannot_be_read_is_no_wrong_argument() {
    let gone = run(&["--from", "/nowhere/node.json"], "");
    assert_eq!(gone.status.code(), Some(1));
    assert!(text(&gone.stderr).starts_with("gpubind: cannot read /nowhere/node.json: "));
    let this = run(&["--fsroot", "/nowhere", "--nvml", "/nowhere/libnvidia-ml.so.1"], "");
    assert_eq!(this.status.code(), Some(1));
    let errors = text(&this.stderr);
    assert!(errors.contains("--from FILE"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    let unknown = "\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX\t X \n";
    let output = run(&["--from", "-", "--cpus-per-task", "2"], unknown);
    assert_eq!(output.status.code(), Some(2), "but this is one");
    assert!(text(&output.stderr).ends_with("so Slurm's distribution of them is; give --cpus\n"));
}

#[test]
fn each_rank_gets_what_the_plugin_would_compute_in_it() {
    let modes = ["auto", "single", "ordered", "first", "single,share,ids=uuid"];
    for (name, node) in plan_support::machines() {
        let devices = plan_support::all_devices(&node);
        let allocation = Allocation::of(&node, &Reach::default(), devices.clone());
        for tasks in [1, 2, devices.len(), devices.len() + 1] {
            let sets = layout(&node, tasks, None, Distribution::Cyclic).unwrap().tasks;
            for mode in modes {
                let settings = Settings::from(&mode.parse::<Request>().unwrap());
                let plan =
                    plan(&node, &devices, &sets, shape(settings.mode, sets.len(), devices.len()))
                        .unwrap();
                for (local_rank, cpus) in sets.iter().enumerate() {
                    let rank = Rank {
                        node: Ok(&node),
                        allocation: &allocation,
                        tasks: &TaskSets::from(&sets),
                        cpus,
                        most_tasks: sets.len(),
                        settings: &settings,
                        local_rank,
                        ranks: None,
                        worker: None,
                        is_before_container: false,
                        users_local_rank: None,
                        threads: &|_| IdSet::default(),
                        preload: None,
                        env: &|_| None,
                    };
                    let expected = edits(&rank);
                    assert!(expected.edits.is_ok(), "{name}");
                    assert_eq!(edits_by(&rank, &plan), expected, "{name} {mode} {local_rank}");
                }
            }
        }
    }
}

/// Every fixture, several numbers of tasks: the output is consistent.
#[test]
fn every_machine_can_be_planned() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines");
    for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if file.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let name = file.file_stem().unwrap().to_str().unwrap();
        let (node, _) = read_any(&std::fs::read_to_string(&file).unwrap()).unwrap();
        for tasks in ["1", "3", "8", "40"] {
            for how in ["block:block", "cyclic"] {
                let args = ["--mode", "share", "--tasks", tasks, "--distribution", how];
                let json = json_of(name, &args);
                let count: usize = tasks.parse().unwrap();
                let known = json["devices"].as_array().unwrap().len();
                let listed = json["tasks"].as_array().unwrap();
                assert_eq!(listed.len(), count, "{name}");
                let mut load = vec![0; 64];
                for task in listed {
                    let cpus: IdSet = task["cpus"].as_str().unwrap().parse().unwrap();
                    assert!(
                        cpus.iter().all(|cpu| node.numa_of_cpu(cpu).is_some()),
                        "{name}: {cpus}"
                    );
                    let own = task["devices"].as_array().unwrap();
                    assert_eq!(own.len(), (known / count).max(1), "{name}");
                    let visible: Vec<&str> = task["visible"].as_str().unwrap().split(',').collect();
                    assert_eq!(visible.len(), own.len(), "{name}");
                    own.iter().for_each(|at| load[at.as_u64().unwrap() as usize] += 1);
                }
                assert_eq!(load.iter().sum::<usize>(), count * (known / count).max(1), "{name}");
            }
        }
    }
}

#[test]
fn cpus_are_shown_as_cpus_local_leaves_them() {
    let node = |extra: &[&str]| {
        let args = [&["--cpus", "0-11;0-11;0-11"], extra].concat();
        each(&json_of(TRAP, &args), "cpus")
    };
    assert_eq!(node(&["--mode", "single"]), json!(["0-11", "0-11", "0-11"]));
    // GPU 0 is at CPUs 0-3, the others at 4-7; siblings follow each other.
    assert_eq!(node(&["--mode", "single,cpus=local"]), json!(["0-3", "4-5", "6-7"]));
    let two = ["--mode", "cpus=local", "--siblings", "2"];
    assert_eq!(node(&two), json!(["0-3", "4-5", "6-7"]));
    // A core of four threads has no half.
    let four = ["--mode", "cpus=local", "--siblings", "4"];
    assert_eq!(node(&four), json!(["0-3", "4-7", "4-7"]));
    let output = run(&["--from=-", "--cpus", "8-9;0-11", "--mode", "single,cpus=local"], TRAP);
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert!(shown.contains("; of these, what cpus=local leaves to each\n"), "{shown}");
    assert!(said.contains("none of the CPUs of local ranks 0 is local"), "{said}");
}

#[test]
fn at_60_and_80_columns_no_line_is_longer_and_no_rank_is_lost() {
    let names =
        std::fs::read_dir(format!("{}/tests/machines", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let paths = names.map(|entry| entry.unwrap().path());
    let mut count = 0;
    for path in paths.filter(|path| path.extension().is_some_and(|end| end == "toml")) {
        for (width, more) in [
            ("60", &[][..]),
            ("80", &[]),
            ("60", &["--tasks=16", "--mode=ordered"]),
            ("80", &["--tasks=16", "--mode=ordered"]),
            ("60", &["--ids=uuid", "--tasks=1"]),
            ("60", &["--compare"]),
            ("80", &["--compare"]),
        ] {
            let args = [&["--from", path.to_str().unwrap()], more].concat();
            let env = [("COLUMNS", width)];
            let output = command_support::gpubind_with("plan", &args, "", &env);
            let folded = text(&output.stdout);
            let width: usize = width.parse().unwrap();
            let long = folded.lines().find(|line| line.chars().count() > width);
            assert_eq!(long, None, "{args:?}\n{folded}");
            // Each block has each rank.
            let whole = text(&run(&args, "").stdout);
            let blocks = |text: &str| -> Vec<Vec<String>> {
                let blocks = text.split("\n\n").filter(|block| block.starts_with("RANK "));
                let word = |line: &str| line.split(' ').next().unwrap().to_owned();
                let words = |block: &str| -> Vec<String> {
                    block.lines().map(word).filter(|word| !word.is_empty()).collect()
                };
                blocks.map(words).collect()
            };
            let ranks = blocks(&whole).concat();
            let is_whole = |block: &Vec<String>| *block == ranks;
            assert!(blocks(&folded).iter().all(is_whole), "{args:?}\n{folded}");
            let words = |text: &str| {
                let mut words: Vec<String> =
                    text.replace(",\n", ",").split_whitespace().map(ToOwned::to_owned).collect();
                words.sort();
                words.dedup();
                words
            };
            let lost: Vec<String> =
                words(&whole).into_iter().filter(|word| !words(&folded).contains(word)).collect();
            assert!(lost.iter().all(|word| word.contains(',')), "{args:?}: {lost:?}\n{folded}");
            count += 1;
        }
    }
    assert!(count > 100);
}

#[test]
fn a_terminal_s_width_counts() {
    // script(1) gives a command a terminal, whose width stty sets.
    let program = env!("CARGO_BIN_EXE_gpubind");
    let on = |columns: usize| {
        let shell =
            format!("stty cols {columns}; {program} plan --from {} --tasks 8", fixture("dgx-a100"));
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &shell, "/dev/null"]).env_remove("COLUMNS").env("NO_COLOR", "1");
        script.stdin(std::process::Stdio::null()).output()
    };
    let Ok(narrow) = on(60) else {
        eprintln!("skipped: no script(1)");
        return;
    };
    let blocks = |output: &Output| text(&output.stdout).matches("RANK  ").count();
    assert_eq!((blocks(&narrow), blocks(&on(100).unwrap())), (2, 1), "{}", text(&narrow.stdout));
}

/// The texts of a picture with the middle or start of each.
fn texts(drawing: &str) -> Vec<(String, String)> {
    let text = |part: &str| {
        let (attributes, rest) = part.split_once('>').unwrap();
        let x = attributes.split(" x=\"").nth(1).unwrap().split('"').next().unwrap();
        (rest.split("</text>").next().unwrap().trim().to_owned(), x.to_owned())
    };
    drawing.split("<text ").skip(1).map(text).collect()
}

#[test]
fn the_picture_has_each_rank_below_its_gpu() {
    for (name, node) in plan_support::machines() {
        let (drawing, _) = both(&name, &["--mode", "single", "--svg", "-"]);
        let texts = texts(&drawing);
        let at = |wanted: &str| {
            let mut found = texts.iter().filter(|(text, _)| text == wanted);
            let (_, x) = found.next().unwrap_or_else(|| panic!("{name} lacks {wanted}"));
            assert_eq!(found.next(), None, "{name} has {wanted} twice");
            x.clone()
        };
        let (json, _) = both(&name, &["--mode", "single", "--json"]);
        let json: Value = serde_json::from_str(&json).unwrap();
        if node.gpus.iter().any(|gpu| !gpu.mig.is_empty()) {
            // Several ranks are on one GPU.
            continue;
        }
        let devices = each(&json, "devices");
        for (rank, own) in devices.as_array().unwrap().iter().enumerate() {
            assert_eq!(at(&format!("rank {rank}")), at(&format!("GPU{}", own[0])), "{name}");
        }
    }
}

#[test]
fn the_picture_tells_ranks_that_are_not_local() {
    let picture = |args: &[&str]| {
        let drawing = both("two-cpu", &[args, &["--svg", "-"]].concat()).0;
        let title = drawing.split("</title>").next().unwrap().to_owned();
        let texts = texts(&drawing).into_iter().map(|(text, _)| text);
        [title].into_iter().chain(texts).collect::<Vec<_>>()
    };
    let has = |texts: &[String], wanted: &str| texts.iter().any(|text| text == wanted);
    let local = picture(&["--cpus", "0;1"]);
    assert!(has(&local, "its ranks") && !has(&local, "ranks that are not all local"), "{local:?}");
    assert!(local[0].ends_with("2 of 2 ranks local"), "{}", local[0]);
    // Five ranks want the four GPUs of CPU 0.
    let far = picture(&["--cpus", "0;0;0;0;0"]);
    assert!(has(&far, "ranks that are not all local"), "{far:?}");
    assert!(far[0].ends_with("4 of 5 ranks local"), "{}", far[0]);
    // More ranks than GPUs, and a task with two GPUs, which is at both.
    let crowd = picture(&["--cpus", "0;0;1;1", "--devices", "0,4", "--mode", "auto,share"]);
    assert_eq!(crowd.iter().filter(|text| *text == "2 of 2 local").count(), 2, "{crowd:?}");
    assert!(has(&crowd, "0-1") && has(&crowd, "2-3"), "{crowd:?}");
    let shares = picture(&["--cpus", "0;1", "--devices", "0,1,4,5"]);
    assert_eq!(shares.iter().filter(|text| *text == "rank 1").count(), 2, "{shares:?}");
}
