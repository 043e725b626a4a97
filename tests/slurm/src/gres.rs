//! The many ways to ask for GPUs, and what a site may write into gres.conf.

use std::collections::BTreeSet;

use crate::cluster::{CONSTRAINED, Cluster, Kind, OPEN, Tasks, each, ours, tasks_of};
use crate::trial::{Test, tests};

/// Two types of GPUs and shards of them; gres.conf goes from the last GPU to the
/// first.
const TYPED: Kind = Kind::new(
    "t-typed",
    &[
        "--machine",
        "two-cpu",
        "--nodes",
        "1",
        "--constrain-devices",
        "--gres",
        "gpu:b:4,gpu:a:4,shard:16",
        "--gres-conf",
        "Name=gpu Type=b File=/dev/nvidia[7,6,5,4]\nName=gpu Type=a File=/dev/nvidia[3,2,1,0]\n\
         Name=shard Count=16",
    ],
);
/// The numbers of the device files are not in PCI order, gres.conf goes by them,
/// and there is MPS.
const REORDERED: Kind = Kind::new(
    "t-minors",
    &[
        "--machine",
        "minors-reordered",
        "--nodes",
        "1",
        "--constrain-devices",
        "--gres",
        "gpu:4,mps:400",
        "--gres-conf",
        "Name=gpu File=/dev/nvidia[0-3]\nName=mps Count=400",
    ],
);

pub const TESTS: &[Test] = tests! {
    [OPEN, CONSTRAINED]:
        each_way_to_ask_for_gpus,
        several_tasks_per_gpu_on_request;
    [TYPED]: gres_conf_backwards_and_with_types;
    [REORDERED]: minor_numbers_out_of_order;
    [TYPED, REORDERED]: shard_and_mps_steps_share_gpus;
    [OPEN, CONSTRAINED, TYPED, REORDERED]: all_nodes_and_hooks_are_well;
};

/// Runs a step whose tasks also say which device files they may open.
fn step(cluster: &Cluster, options: &[&str]) -> (Tasks, String) {
    let dev = cluster.folder().join("root/dev");
    let script = format!(
        "env; r=; for g in 0 1 2 3 4 5 6 7; do [ -w {}/nvidia$g ] && r=$r$g; done; echo REACH=$r",
        dev.display()
    );
    let srun = ["srun", "-Q", "--label"];
    let ran = cluster.run(&[&srun[..], options, &["sh", "-c", &script]].concat());
    assert_eq!(ran.code, Some(0), "{options:?}: {}", ran.stderr);
    (tasks_of(&ran.stdout), ran.stderr)
}

/// Checks that each of a step's tasks has one of these GPUs, each GPU has as many
/// tasks, and all tasks reach all of them.
fn gets(cluster: &Cluster, options: &[&str], gpus: &[usize]) {
    check(cluster, options, gpus, &step(cluster, options).0);
}

fn check(cluster: &Cluster, options: &[&str], gpus: &[usize], tasks: &Tasks) {
    let node = cluster.machine();
    let minor = |gpu: usize| *node.gpus[gpu].minor.known().unwrap() as usize;
    let constrained = cluster.kind.is_constrained();
    let mut reach: Vec<usize> = match constrained {
        true => gpus.iter().map(|gpu| minor(*gpu)).collect(),
        false => (0..node.gpus.len()).map(minor).collect(),
    };
    reach.sort_unstable();
    let reach: String = reach.iter().map(usize::to_string).collect();
    assert_eq!(each(tasks, "REACH"), vec![reach.as_str(); tasks.len()], "{options:?}");
    for gpu in gpus {
        let uuid = node.gpus[*gpu].uuid.known().unwrap();
        let here: Vec<_> =
            tasks.values().filter(|env| env.get("GPUBIND_GPU_UUID") == Some(uuid)).collect();
        assert_eq!(here.len(), tasks.len() / gpus.len(), "{options:?}: tasks on GPU {gpu}");
        // What CUDA numbers: the GPUs that the process can open, in PCI order.
        let number = match constrained {
            true => gpus.iter().filter(|other| *other < gpu).count(),
            false => *gpu,
        };
        for env in here {
            assert_eq!(env["CUDA_VISIBLE_DEVICES"], number.to_string(), "{options:?}");
            assert_eq!(env["GPUBIND_GPU_INDEX"], gpu.to_string(), "{options:?}");
        }
    }
}

fn each_way_to_ask_for_gpus(cluster: &Cluster) {
    for ask in [
        &["-n4", "--gres=gpu:4"][..],
        &["-n4", "--gpus=4"],
        &["-n4", "-G", "4"],
        &["-n4", "--gpus-per-task=1"],
        &["--gpus=4", "--ntasks-per-gpu=1"],
        &["-n4", "--gpus-per-node=4", "--ntasks-per-gpu=1"],
    ] {
        gets(cluster, &[&["-N1", "--gpu-bind=spank"], ask].concat(), &[0, 1, 2, 3]);
    }
}

fn several_tasks_per_gpu_on_request(cluster: &Cluster) {
    let options = ["-N1", "--gpus=2", "--ntasks-per-gpu=2", "--gpu-bind=spank:share"];
    let (tasks, stderr) = step(cluster, &options);
    assert_eq!(tasks.len(), 4);
    check(cluster, &options, &[0, 1], &tasks);
    assert_eq!(ours(&stderr), [""; 0]);
}

fn gres_conf_backwards_and_with_types(cluster: &Cluster) {
    for (ask, gpus) in [
        (&["-n8", "--gpus-per-node=8"][..], &[0, 1, 2, 3, 4, 5, 6, 7][..]),
        (&["-n3", "--gpus-per-node=b:3"], &[5, 6, 7]),
        (&["-n2", "--gres=gpu:a:2"], &[2, 3]),
        (&["-n4", "--gpus=a:4"], &[0, 1, 2, 3]),
        (&["-n2", "--gres=gpu:a:1,gpu:b:1"], &[3, 7]),
        (&["-n2", "--gpus-per-socket=2", "--sockets-per-node=1"], &[6, 7]),
    ] {
        gets(cluster, &[&["-N1", "--gpu-bind=spank"], ask].concat(), gpus);
    }
    // Nearness is about PCI addresses, whatever order gres.conf has.
    let options = ["-n2", "--gpus-per-node=8", "--cpu-bind=map_cpu:1,0", "--gpubind=single"];
    assert_eq!(each(&step(cluster, &options).0, "GPUBIND_NUMA_NODE"), ["1", "0"]);
}

fn minor_numbers_out_of_order(cluster: &Cluster) {
    gets(cluster, &["-n4", "--gpus-per-node=4", "--gpu-bind=spank"], &[0, 1, 2, 3]);
    // gres.conf's first is /dev/nvidia0, the third GPU in PCI order.
    gets(cluster, &["-n1", "--gpus-per-node=1", "--gpu-bind=spank"], &[2]);
    gets(cluster, &["-n3", "--gpus-per-node=3", "--gpu-bind=spank"], &[0, 2, 3]);
    let visible = |mode: &str| {
        let mode = format!("--gpu-bind=spank:{mode}");
        let (tasks, _) = step(cluster, &["-n1", "--gpus-per-node=3", &mode]);
        (tasks[&0]["GPUBIND_GPU_INDEX"].clone(), tasks[&0]["CUDA_VISIBLE_DEVICES"].clone())
    };
    let (own, list) = visible("ids=uuid");
    let uuids: Vec<String> =
        cluster.machine().gpus.iter().map(|gpu| gpu.uuid.known().unwrap().clone()).collect();
    let named: Vec<&str> =
        own.split(',').map(|gpu| uuids[gpu.parse::<usize>().unwrap()].as_str()).collect();
    assert_eq!(list, named.join(","));
    let numbers: BTreeSet<String> = visible("auto").1.split(',').map(str::to_owned).collect();
    assert_eq!(numbers, BTreeSet::from(["0", "1", "2"].map(str::to_owned)));
}

fn shard_and_mps_steps_share_gpus(cluster: &Cluster) {
    let (one, two, gpu) = match cluster.kind {
        TYPED => ("--gres=shard:1", "--gres=shard:2", 7),
        _ => ("--gres=mps:50", "--gres=mps:100", 2),
    };
    gets(cluster, &["-N1", "-n1", one, "--gpu-bind=spank"], &[gpu]);
    // Several tasks on parts of one GPU: it is theirs to share.
    let several = ["-N1", "-n3", two, "--gpu-bind=spank"];
    let (tasks, stderr) = step(cluster, &several);
    check(cluster, &several, &[gpu], &tasks);
    assert_eq!(ours(&stderr), [""; 0]);
    assert_eq!(each(&tasks, "GPUBIND_SHARE"), ["on"; 3], "so that report --check agrees");
    let script = format!("srun -n2 --overcommit --label {two} env; srun -n2 --overcommit -l env");
    let ran = cluster.batch(&["-N1", two, "--gpubind=auto"], &script);
    let tasks = tasks_of(&ran.stdout);
    assert_eq!(each(&tasks, "GPUBIND_GPU_INDEX"), vec![gpu.to_string(); 2], "{}", ran.stdout);
    let percentage = |tasks: &Tasks| each(tasks, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").join(" ");
    let (bound, _) = step(cluster, &["-N1", "-n1", one, "--gpu-bind=spank"]);
    let (plain, _) = step(cluster, &["-N1", "-n1", one]);
    assert_eq!(percentage(&bound), percentage(&plain));
}

/// Runs last on each cluster.
fn all_nodes_and_hooks_are_well(cluster: &Cluster) {
    for line in cluster.run(&["sinfo", "-h", "-N", "-o", "%T %E"]).stdout.lines() {
        assert!(line.starts_with("idle") || line.starts_with("completing"), "{line}");
    }
    let log = cluster.log();
    for trouble in ["internal error", "panicked", "cannot change", "cannot set"] {
        assert!(!log.contains(trouble), "{trouble} in the log");
    }
}
