//! `gpubind exec` and `gpubind report` in steps, with the plugin and without.

use std::collections::BTreeSet;

use gpubind_core::node::IdSet;
use serde_json::Value;

use crate::cluster::{CONSTRAINED, Cluster, OPEN, PLAIN, Ran, Tasks, each, ours, tasks_of};
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [PLAIN, OPEN, CONSTRAINED]: exec_binds_tasks_like_the_plugin;
    [OPEN, CONSTRAINED]: exec_leaves_bound_tasks_alone;
    [PLAIN, OPEN, CONSTRAINED]: exec_gives_each_worker_one_gpu;
    [OPEN, CONSTRAINED]: report_prints_the_table_of_a_job;
    [OPEN, CONSTRAINED, PLAIN]: report_check_passes_good_steps;
    [OPEN, CONSTRAINED]: report_check_finds_what_is_wrong, report_shows_a_rank_s_own_gpu_among_all;
    [PLAIN]: report_check_finds_a_node_without_the_plugin;
};

const ONE_NODE: [&str; 2] = ["srun", "-N1"];
/// Ranks 0, 1, 4 and 5 on the second NUMA node's CPU.
const CROSSED: &str = "--cpu-bind=map_cpu:1,1,0,0,1,1,0,0";

/// Runs a command that looks at the cluster's machine; `gpubind` as a word of it is the
/// program's name.
pub fn run(cluster: &Cluster, env: &[(&str, &str)], words: &[&str]) -> Ran {
    let root = cluster.folder().join("root");
    let library = root.join("nvml/libnvidia-ml.so.1");
    let machine =
        [("GPUBIND_FSROOT", root.to_str().unwrap()), ("GPUBIND_NVML", library.to_str().unwrap())];
    let program = cluster.program();
    let program = program.to_str().unwrap();
    let words: Vec<&str> =
        words.iter().map(|word| if *word == "gpubind" { program } else { word }).collect();
    cluster.run_with(&[&machine[..], env].concat(), &words)
}

/// Each task's environment in a step that ends well without a word from gpubind.
fn tasks(cluster: &Cluster, options: &[&str], command: &[&str]) -> Tasks {
    let node = cluster.node(0);
    let words = [&ONE_NODE[..], &["-w", &node, "--label"], options, command].concat();
    let ran = run(cluster, &[], &words);
    assert_eq!((ran.code, &ours(&ran.stderr)[..]), (Some(0), &[""; 0][..]), "{}", ran.stderr);
    tasks_of(&ran.stdout)
}

const EXEC: [&str; 4] = ["gpubind", "exec", "--", "env"];

fn exec_binds_tasks_like_the_plugin(cluster: &Cluster) {
    for (count, bind, mode) in [
        ("8", CROSSED, "auto"),
        ("2", "--cpu-bind=map_cpu:1,0", "auto"),
        ("3", "--cpu-bind=map_cpu:1,0,1", "single"),
        ("4", "--cpu-bind=map_cpu:1,0,0,1", "ordered"),
        ("5", "--cpu-bind=mask_cpu:0x3", "first"),
        ("16", CROSSED, "share"),
    ] {
        let step = ["-n", count, "--gpus-per-node=8", bind];
        let item = format!("--mode={mode}");
        let ours = ["gpubind", "exec", &item, "--", "env"];
        let by_exec = tasks(cluster, &step, &ours);
        assert_eq!(by_exec.len().to_string(), count);
        if cluster.kind == PLAIN {
            // There is no plugin to compare with, but what was planned before the step.
            let words = ["gpubind", "plan", "--json", "--tasks", count, bind, &item];
            let planned: Value = serde_json::from_str(&run(cluster, &[], &words).stdout).unwrap();
            let planned = planned["tasks"].as_array().unwrap().iter();
            let planned: Vec<&str> =
                planned.map(|task| task["visible"].as_str().unwrap()).collect();
            assert_eq!(each(&by_exec, "CUDA_VISIBLE_DEVICES"), planned, "{count} {mode}");
            continue;
        }
        let request = format!("--gpu-bind=spank:{mode}");
        let by_plugin = tasks(cluster, &[&step[..], &[&request]].concat(), &["env"]);
        let mut names: Vec<&str> = Vec::new();
        for env in by_plugin.values().chain(by_exec.values()) {
            names.extend(env.keys().map(String::as_str).filter(|name| compares(name)));
        }
        names.sort_unstable();
        names.dedup();
        assert!(names.contains(&"GPUBIND_GPU_UUID"), "{names:?}");
        for name in names {
            assert_eq!(each(&by_exec, name), each(&by_plugin, name), "{name}: {count} {mode}");
        }
    }
}

/// What gpubind sets, but for what it keeps for itself and what differs between steps.
fn compares(name: &str) -> bool {
    let ranks =
        ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR"];
    let set = ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"];
    // The note of what was set holds MASTER_PORT, which differs.
    let own = ["GPUBIND_FSROOT", "GPUBIND_NVML", "GPUBIND_WORKERS", "GPUBIND_RANK_ENV"];
    let ours = name.starts_with("GPUBIND_") && !own.contains(&name);
    ranks.contains(&name) || set.contains(&name) || ours
}

fn exec_leaves_bound_tasks_alone(cluster: &Cluster) {
    for request in [
        &["--gpus-per-node=8", "--gpu-bind=spank:single"][..],
        &["--gpus-per-node=8", "--gpu-bind=spank"],
        &["--gpus-per-node=8", "--gpu-bind=spank:ordered"],
        &["--gpus-per-node=8", "--gpu-bind=single:1"],
        &["--gpus-per-node=8", "--gpu-bind=mask_gpu:0x3,0xc,0x30,0xc0"],
        &["--gpus-per-task=1"],
        &["--gpus-per-task=2"],
    ] {
        let step = [&["-n4", CROSSED], request].concat();
        let before = tasks(cluster, &step, &["env"]);
        let after = tasks(cluster, &step, &EXEC);
        for name in ["CUDA_VISIBLE_DEVICES", "GPUBIND_GPU_UUID", "GPUBIND_VISIBLE", "LOCAL_RANK"] {
            assert_eq!(each(&after, name), each(&before, name), "{request:?}");
        }
    }
}

/// What one task's script starts in the background, as torchrun would.
fn launch(count: usize, command: &str) -> String {
    format!(
        "for i in $(seq 0 {last}); do \
         LOCAL_RANK=$i LOCAL_WORLD_SIZE={count} RANK=$i WORLD_SIZE={count} TORCHELASTIC_RUN_ID=x \
         {command} & pids=\"$pids $!\"; done; r=0; for p in $pids; do wait $p || r=1; done; exit $r",
        last = count - 1
    )
}

/// Prints what a worker sees, without a quote of the outer shell's.
const SHOW: &str = "sh -c \"echo \\$CUDA_VISIBLE_DEVICES:\\$LOCAL_RANK\"";

fn exec_gives_each_worker_one_gpu(cluster: &Cluster) {
    let program = cluster.program();
    let print = "sh -c 'echo $GPUBIND_LOCAL_RANK:$CUDA_VISIBLE_DEVICES:$LOCAL_RANK'";
    let script = launch(8, &format!("{} exec -- {print}", program.display()));
    let step = ["-n1", "--gpus-per-node=8", "--cpu-bind=none"];
    let requests: &[&[&str]] =
        if cluster.kind == PLAIN { &[&[]] } else { &[&[], &["--gpu-bind=spank"]] };
    for request in requests {
        let words = [&ONE_NODE[..], &step, request, &["sh", "-c", &script]].concat();
        let ran = run(cluster, &[], &words);
        assert_eq!((ran.code, &ours(&ran.stderr)[..]), (Some(0), &[""; 0][..]), "{}", ran.stderr);
        let mut lines: Vec<Vec<&str>> =
            ran.stdout.lines().map(|line| line.split(':').collect()).collect();
        lines.sort();
        let numbers: Vec<&str> = lines.iter().map(|line| line[0]).collect();
        assert_eq!(numbers, ["0", "1", "2", "3", "4", "5", "6", "7"], "{request:?}");
        assert!(lines.iter().all(|line| line[2] == "0"), "{lines:?}");
        let list: Vec<&str> = lines.iter().map(|line| line[1]).collect();
        if !request.is_empty() {
            // The task's own list is in plan order, and each worker takes its entry.
            let words = [&step[..], request].concat();
            let task = tasks(cluster, &words, &["env"]);
            assert_eq!(each(&task, "CUDA_VISIBLE_DEVICES"), [list.join(",")]);
        }
        let mut each: Vec<&str> = list;
        each.sort_unstable();
        assert_eq!(each, ["0", "1", "2", "3", "4", "5", "6", "7"], "{request:?}");
    }
    // Without exec in each worker: the task's shim does the same.
    let around = format!("exec {} exec -- sh -c '{}'", program.display(), launch(8, SHOW));
    let ran = run(cluster, &[], &[&ONE_NODE[..], &step, &["sh", "-c", &around]].concat());
    let said: BTreeSet<&str> = ran.stdout.lines().collect();
    assert_eq!((ran.code, said.len()), (Some(0), 8), "{}{}", ran.stdout, ran.stderr);
    assert!(said.iter().all(|line| line.ends_with(":0")), "{}", ran.stdout);
    // In a batch script without srun, whose SLURM_LOCALID is no task's.
    let root = cluster.folder().join("root");
    let script = format!("export GPUBIND_FSROOT={}\n{script}", root.display());
    let ran = cluster.batch(&["-N1", "--gpus-per-node=8"], &script);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let lines: BTreeSet<&str> =
        ran.stdout.lines().filter_map(|line| line.split(':').nth(1)).collect();
    assert_eq!(lines.len(), 8, "{}", ran.stdout);
}

fn report_prints_the_table_of_a_job(cluster: &Cluster) {
    let step = ["srun", "-N2", "--ntasks-per-node=8", "--gpus-per-node=8"];
    let words = [&step[..], &["--gpu-bind=spank", "gpubind", "report"]].concat();
    let ran = run(cluster, &[], &words);
    assert_eq!((ran.code, &ours(&ran.stderr)[..]), (Some(0), &[""; 0][..]));
    let mut rows: Vec<Vec<&str>> = ran
        .stdout
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    rows.sort_by_key(|row: &Vec<&str>| row[0].parse::<u32>().unwrap());
    assert_eq!(rows.len(), 16, "{}", ran.stdout);
    for (rank, row) in rows.iter().enumerate() {
        let (node, local) = (cluster.node(rank / 8), (rank % 8).to_string());
        assert_eq!((row[0], row[1], row[2]), (&*rank.to_string(), &*node, &*local));
        assert_eq!(row[row.len() - 2..], ["7 of 7", "Slurm"], "{row:?}");
    }
    // The same as one table.
    let words = [&step[..], &["--gpu-bind=spank", "gpubind", "report", "--lines"]].concat();
    let lines = cluster.folder().join("lines");
    std::fs::write(&lines, run(cluster, &[], &words).stdout).unwrap();
    let merged = run(cluster, &[], &["gpubind", "report", "--merge", lines.to_str().unwrap()]);
    let table: Vec<&str> = merged.stdout.lines().collect();
    assert_eq!(table.len(), 19, "{}", merged.stdout);
    let ranks: Vec<&str> =
        table[1..17].iter().map(|line| line.split(' ').next().unwrap()).collect();
    let expected: Vec<String> = (0..16).map(|rank| rank.to_string()).collect();
    assert_eq!(ranks, expected);
    assert!(table[18].starts_with("16 ranks on 2 nodes use 8 GPUs on each; "), "{}", table[18]);
    // On one node the step's first rank prints it.
    let step = ["-n8", "--gpus-per-node=8", "--gpu-bind=spank", "gpubind", "report", "--table"];
    let ran = run(cluster, &[], &[&ONE_NODE[..], &step, &["--wait=20"]].concat());
    assert_eq!(ran.stdout.lines().count(), 11, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("\n8 ranks on 1 node use 8 GPUs; "), "{}", ran.stdout);
    // Slurm's own binding closes the device cgroup around each task, where there is one.
    let words = [&ONE_NODE[..], &["-n4", "--gpus-per-task=1", "gpubind", "report", "--json"]];
    let ran = run(cluster, &[], &words.concat());
    for line in ran.stdout.lines() {
        let peers = serde_json::from_str::<Value>(line).unwrap()["peers"].clone();
        let reachable = if cluster.kind == CONSTRAINED { 0 } else { 3 };
        assert_eq!(peers, serde_json::json!({"count": 3, "reachable": reachable}), "{line}");
    }
    assert_eq!(ran.stdout.lines().count(), 4);
    // Where a task sees all of the step's GPUs, one of them is its own.
    for mode in ["ordered", "first", "single"] {
        let request = format!("--gpu-bind=spank:{mode}");
        let options = ["-n2", "--gpus-per-node=4", &request, "gpubind", "report", "--json"];
        let ran = run(cluster, &[], &[&ONE_NODE[..], &options].concat());
        for line in ran.stdout.lines() {
            let peers = serde_json::from_str::<Value>(line).unwrap()["peers"].clone();
            assert_eq!(peers, serde_json::json!({"count": 3, "reachable": 3}), "{mode}: {line}");
        }
        assert_eq!(ran.stdout.lines().count(), 2, "{}", ran.stderr);
    }
}

const CHECK: [&str; 4] = ["gpubind", "report", "--check", "--wait=20"];

/// What a step says whose ranks check themselves.
fn check(cluster: &Cluster, options: &[&str], command: &[&str]) -> Ran {
    run(cluster, &[], &[&ONE_NODE[..], options, command].concat())
}

fn passes(cluster: &Cluster, options: &[&str], command: &[&str]) {
    let ran = check(cluster, options, command);
    let said = ours(&ran.stderr);
    assert_eq!((ran.code, &said[..]), (Some(0), &[""; 0][..]), "{options:?}: {}", ran.stderr);
}

fn report_check_passes_good_steps(cluster: &Cluster) {
    let by_exec = [&["gpubind", "exec", "--"][..], &CHECK].concat();
    let step = ["-n8", "--gpus-per-node=8"];
    passes(cluster, &step, &by_exec);
    passes(cluster, &["-n2", "--gpus-per-node=8"], &by_exec);
    let program = cluster.program();
    let each = format!("{0} exec -- {0} report --check --wait=20", program.display());
    passes(cluster, &["-n1", "--gpus-per-node=8"], &["sh", "-c", &launch(8, &each)]);
    if cluster.kind == PLAIN {
        return;
    }
    for mode in ["auto", "single", "ordered", "first", "ids=uuid"] {
        let request = format!("--gpu-bind=spank:{mode}");
        passes(cluster, &[&step[..], &[&request]].concat(), &CHECK);
    }
    passes(cluster, &["-n2", "--gpus-per-node=8", "--gpu-bind=spank"], &CHECK);
    passes(cluster, &["-n16", "--gpus-per-node=8", "--gpu-bind=spank:share"], &CHECK);
    // Slurm's own binding: its device cgroup, where there is one, hides the peers.
    let own = ["-n4", "--gpus-per-task=1"];
    match cluster.kind == CONSTRAINED {
        false => passes(cluster, &own, &CHECK),
        true => fails(cluster, &own, &CHECK, 4, "can reach 0 of the step's 3 other GPUs, because"),
    }
    // Two nodes on one machine do not meet.
    let two = ["srun", "-N2", "--ntasks-per-node=4", "--gpus-per-node=4", "--gpu-bind=spank"];
    let ran = run(cluster, &[], &[&two[..], &CHECK].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.stdout.lines().count(), 8);
}

/// It is said of so many ranks, by one for all.
fn fails(cluster: &Cluster, options: &[&str], command: &[&str], ranks: usize, part: &str) {
    let ran = check(cluster, options, command);
    assert_eq!(ran.code, Some(1), "{options:?}: {}", ran.stderr);
    let said = ours(&ran.stderr);
    let failed = said.iter().filter(|line| line.contains("check failed") && line.contains(part));
    let of: usize = failed.map(|line| ranks_of(line)).sum();
    assert_eq!(of, ranks, "{options:?} {part}: {}", ran.stderr);
}

/// How many ranks `check failed: ranks 0-2,5 on HOST: …` is about.
fn ranks_of(line: &str) -> usize {
    let Some((_, behind)) = line.split_once("check failed: rank") else { return 1 };
    let list = behind.trim_start_matches(['s', ' ']).split(' ').next().unwrap();
    list.parse::<IdSet>().unwrap().count()
}

fn report_check_finds_what_is_wrong(cluster: &Cluster) {
    let fails = |options: &[&str], ranks, part| fails(cluster, options, &CHECK, ranks, part);
    let step = ["-n4", "--gpus-per-node=4"];
    fails(&step, 4, "GPUs 0-3 are shared by ranks 0-3, ");
    let shared = ["-n8", "--gpus-per-node=4", "--gpu-bind=spank"];
    fails(&shared, 8, "and nobody asked for `share`");
    let prolog = cluster.folder().join("prolog.sh");
    let script = "#!/bin/sh\n[ $SLURM_LOCALID != 2 ] || echo export CUDA_VISIBLE_DEVICES=7\n";
    write_script(&prolog, script);
    let prolog = format!("--task-prolog={}", prolog.display());
    let changed = [&["-n4", "--gpus-per-node=8", "--gpu-bind=spank:single"][..], &[&prolog]];
    fails(&changed.concat(), 1, "rank 2 on ");
    fails(&changed.concat(), 1, "CUDA_VISIBLE_DEVICES is \"7\", but gpubind has set ");
    let script = "#!/bin/sh\necho export CUDA_VISIBLE_DEVICES=12\n";
    write_script(&cluster.folder().join("prolog.sh"), script);
    fails(&changed.concat(), 4, "names no GPU that this process can reach");
    let eight = ["-n8", "--gpus-per-node=8", "--cpu-bind=map_cpu:0,1,0,1,0,1,0,1"];
    let eight = [&eight[..], &["--gpu-bind=spank:single"]].concat();
    passes(cluster, &eight, &CHECK);
    // A wrapper in the task: ranks 0 to 3 to CPU 0, which half of them had before.
    let (program, script) = (cluster.program(), "exec taskset -c $((SLURM_LOCALID / 4)) \"$@\"");
    let wrapped = ["sh", "-c", script, "sh", program.to_str().unwrap(), "report", "--check"];
    let wrapped = [&wrapped[..], &["--wait=20"]].concat();
    self::fails(cluster, &eight, &wrapped, 4, "but is remote to those that it has now");
    let two = ["-n2", "--gpus-per-node=2", "--cpu-bind=map_cpu:0,1", "--gpu-bind=spank:single"];
    let crowded = [&["taskset", "-c", "0"][..], &CHECK].concat();
    self::fails(cluster, &two, &crowded, 2, "2 ranks are on 1 CPU (0), though there are ");
    let list = [&["env", "CUDA_VISIBLE_DEVICES=0,1,0"][..], &CHECK].concat();
    self::fails(cluster, &two, &list, 2, "has the entry 0 twice, so CUDA shows no GPU");
    let (root, library) = (cluster.folder().join("root"), "nvml/libnvidia-ml.so.1");
    let machine = [
        format!("GPUBIND_FSROOT={}", root.display()),
        format!("GPUBIND_NVML={}", root.join(library).display()),
    ];
    let emptied = [&["env", "-i", &machine[0], &machine[1]][..], &CHECK].concat();
    self::fails(cluster, &["-n1", "--gpus-per-node=2"], &emptied, 1, "has emptied the environment");
}

fn report_check_finds_a_node_without_the_plugin(cluster: &Cluster) {
    let step = ["-n2", "--gpus-per-node=2"];
    let asked = |request: &str, ranks| {
        let set = format!("SLURM_GPUBIND={request}");
        let check = [&["env", &set][..], &CHECK].concat();
        fails(cluster, &step, &check, ranks, "gpubind was asked for (SLURM_GPUBIND=single)");
    };
    asked("single", 2);
    // Not bound, not asked for: they share, and that is all.
    fails(cluster, &step, &CHECK, 2, "GPUs 0-1 are shared by ranks 0-1, ");
    fails(cluster, &step, &CHECK, 0, "was asked for");
}

fn report_shows_a_rank_s_own_gpu_among_all(cluster: &Cluster) {
    let step = ["-n4", "--gpus-per-node=4", "--cpu-bind=map_cpu:0,1,0,1"];
    let step = [&step[..], &["--gpu-bind=spank:ordered", "gpubind", "report", "--json"]].concat();
    let ran = run(cluster, &[], &[&ONE_NODE[..], &step].concat());
    let own = |line: &str| {
        let found: Value = serde_json::from_str(line).unwrap();
        let devices = found["devices"].as_array().unwrap();
        assert_eq!(devices.len(), 4, "{line}");
        let own: Vec<&Value> = devices.iter().filter(|device| device["own"] == true).collect();
        assert_eq!(own.len(), 1, "{line}");
        own[0]["uuid"].as_str().unwrap().to_owned()
    };
    let own: BTreeSet<String> = ran.stdout.lines().map(own).collect();
    assert_eq!(own.len(), 4, "{}{}", ran.stdout, ran.stderr);
}

/// By a process of its own: what this one had open for writing, a child might still
/// be there when the script is to be run.
fn write_script(file: &std::path::Path, text: &str) {
    let write = format!("printf %s \"$1\" >'{0}' && chmod 755 '{0}'", file.display());
    let done = std::process::Command::new("sh").args(["-c", &write, "sh", text]).status();
    assert!(done.unwrap().success());
}
