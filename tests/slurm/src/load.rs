//! Many steps at once, long node lists, and nodes that are short of something.

use std::collections::BTreeSet;
use std::process::Command;

use crate::cluster::{Cluster, OPEN, each, ours, tasks_of};
use crate::faults::{Expect, FAULTY, runs};
use crate::node::{Node, in_service, remove, slurmd};
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [OPEN]: of_64_steps_at_once_without_a_snapshot_all_are_bound, a_step_on_300_nodes;
    [FAULTY]: a_full_and_a_read_only_run_folder, a_node_that_is_short_of_something,
        a_user_with_small_limits, cpus_that_are_offline;
};

fn of_64_steps_at_once_without_a_snapshot_all_are_bound(cluster: &Cluster) {
    let node = Node::of(cluster);
    let script = "for n in $(seq 64); do srun --label --overlap -O -n2 --gpu-bind=spank:share \
                  sh -c 'echo 0: STEP=$SLURM_STEP_ID; env | grep -E ^CUDA_V' & done; wait";
    let name = cluster.node(0);
    let salloc = ["salloc", "-Q", "-w", &name, "-N1", "--gpus-per-node=2", "bash", "-c", script];
    remove(&node.snapshot());
    let ran = cluster.run(&salloc);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ours(&ran.stderr), [""; 0]);
    let lists = ran.stdout.lines().filter_map(|line| line.split_once(": CUDA_VISIBLE_DEVICES="));
    let mut found: Vec<(&str, &str)> = lists.collect();
    found.sort_unstable();
    let tasks = [[("0", "0"); 64], [("1", "1"); 64]].concat();
    assert_eq!(found, tasks, "{}", ran.stderr);
    let steps: BTreeSet<&str> =
        ran.stdout.lines().filter_map(|line| line.split_once("STEP=")).map(|it| it.1).collect();
    assert_eq!(steps.len(), 64);
    assert!(node.snapshot().exists(), "one of them has had NVML read");
    in_service(cluster, "after 64 steps");
}

/// By the stand-in host: no machine here has room for so many slurmds.
fn a_step_on_300_nodes(cluster: &Cluster) {
    let node = Node::of(cluster);
    runs_somewhere(cluster);
    let nodes: Vec<String> = (1..=300).map(|number| format!("gpu-{number:04}.rack")).collect();
    for list in ["gpu-[0001-0300].rack".to_owned(), nodes.join(",")] {
        let mut host = Command::new(cluster.stage().join("spank-host"));
        host.args(["--json", "--tasks", "8", "--total-tasks", "2400", "--nodes", "300"]);
        host.args(["--node-id", "299", "--first-rank", "2392", "--job-id", "77"]);
        let set = [
            "SLURM_GPUBIND=single".to_owned(),
            "SLURM_STEP_GPUS=0,1,2,3,4,5,6,7".to_owned(),
            "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7".to_owned(),
            format!("SLURM_STEP_NODELIST={list}"),
            format!("SLURM_NODELIST={list}"),
            format!("SLURM_JOB_NODELIST={list}"),
            "SLURM_STEP_TASKS_PER_NODE=8(x300)".to_owned(),
            "SLURM_TASKS_PER_NODE=8(x300)".to_owned(),
            "SLURM_NNODES=300".to_owned(),
            "SLURM_NTASKS=2400".to_owned(),
        ];
        host.args(set.iter().flat_map(|pair| ["--set", pair.as_str()]));
        let program = cluster.program();
        for word in [
            format!("fsroot={}", node.folder.join("root").display()),
            format!("program={}", program.display()),
            format!("config={}", node.site_file().display()),
            format!("nvml={}", node.library().display()),
        ] {
            host.args(["--arg", &word]);
        }
        let output = host.arg(cluster.stage().join("spank_gpubind.so")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let text = String::from_utf8_lossy(&output.stdout);
        let tasks: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(tasks.len(), 8, "{text}{said}");
        for (task, json) in tasks.iter().enumerate() {
            let env = &json["env"];
            assert_eq!(env["MASTER_ADDR"], "gpu-0001.rack", "{env}");
            assert_eq!(env["WORLD_SIZE"], "2400");
            assert_eq!(env["RANK"], (2392 + task).to_string());
            assert_eq!(env["NODE_RANK"], "299");
        }
    }
}

/// So that the node has a snapshot.
fn runs_somewhere(cluster: &Cluster) {
    let name = cluster.node(0);
    cluster.tasks(&["-w", &name, "-N1", "-n1", "--gpus-per-node=1", "--gpu-bind=spank"]);
}

/// Runs a command where slurmd is, with its mounts and its root.
fn on_node(cluster: &Cluster, words: &[&str]) {
    let process = slurmd(cluster).to_string();
    let done =
        Command::new("nsenter").args(["-t", &process, "-m", "-r"]).args(words).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn a_full_and_a_read_only_run_folder(cluster: &Cluster) {
    let node = Node::of(cluster);
    runs(cluster, "at first", Expect::Bound);
    let run = node.run_folder().display().to_string();
    for (options, what) in [("mode=755,size=4k", "full"), ("mode=755,ro", "read-only")] {
        on_node(cluster, &["mount", "-t", "tmpfs", "-o", options, "tmpfs", &run]);
        if what == "full" {
            let fill = format!("head -c 100000 /dev/zero >{run}/fill 2>/dev/null; true");
            on_node(cluster, &["sh", "-c", &fill]);
        }
        let before = cluster.log().matches("NVML was read for this step").count();
        runs(cluster, what, Expect::Bound);
        runs(cluster, what, Expect::Bound);
        let read = cluster.log().matches("NVML was read for this step").count() - before;
        on_node(cluster, &["umount", &run]);
        assert_eq!(read, 2, "{what}: nothing could be saved");
        in_service(cluster, what);
    }
    runs(cluster, "at the end", Expect::Bound);
}

/// slurmd, and so each slurmstepd, may have few descriptors, little memory, small files.
fn a_node_that_is_short_of_something(cluster: &Cluster) {
    let node = Node::of(cluster);
    let process = slurmd(cluster).to_string();
    // Soft limits, which slurmstepd has from slurmd.
    let set = |limit: &str| {
        let done = Command::new("prlimit").args(["--pid", &process, limit]).status();
        assert!(done.unwrap().success(), "{limit}");
    };
    for (limit, usual) in [
        ("--nofile=96:", "--nofile=4096:"),
        ("--as=1500000000:", "--as=unlimited:"),
        ("--fsize=200000000:", "--fsize=unlimited:"),
        ("--stack=1048576:", "--stack=8388608:"),
    ] {
        set(limit);
        remove(&node.snapshot());
        // By NVML, and by the snapshot.
        runs(cluster, limit, Expect::Bound);
        runs(cluster, limit, Expect::Bound);
        set(usual);
        in_service(cluster, limit);
    }
}

fn a_user_with_small_limits(cluster: &Cluster) {
    let step = "srun --label -N1 -n8 --gpus-per-node=8 --gpu-bind=spank";
    for (limit, what) in [
        ("ulimit -n 24", "--propagate=NOFILE"),
        ("ulimit -v 600000", "--propagate=AS"),
        ("ulimit -u 40", "--propagate=NPROC"),
        ("ulimit -f 100000", "--propagate=FSIZE"),
        ("ulimit -s 256", "--propagate=STACK"),
    ] {
        let script = format!("{limit}; {step} {what} env");
        let ran = cluster.run(&["bash", "-c", &script]);
        assert_eq!((ran.code, ours(&ran.stderr).len()), (Some(0), 0), "{limit}: {}", ran.stderr);
        let tasks = tasks_of(&ran.stdout);
        let known = each(&tasks, "GPUBIND_GPU_UUID").into_iter().collect::<BTreeSet<_>>();
        assert!(known.len() == 8 && !known.contains("-"), "{limit}: {known:?}");
        in_service(cluster, limit);
    }
}

/// NVML goes on naming CPUs that the kernel has none of: the second NUMA node is empty.
fn cpus_that_are_offline(cluster: &Cluster) {
    let node = Node::of(cluster);
    let list = node.folder.join("root/sys/devices/system/node/node1/cpulist");
    let before = std::fs::read(&list).unwrap();
    std::fs::write(&list, "\n").unwrap();
    remove(&node.snapshot());
    runs(cluster, "CPU 1 is offline", Expect::Bound);
    std::fs::write(&list, before).unwrap();
    remove(&node.snapshot());
    runs(cluster, "CPU 1 is online", Expect::Bound);
}
