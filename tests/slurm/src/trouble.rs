//! A node whose GPUs cannot be read, or not all: jobs run all the same.

use std::time::{Duration, Instant};

use crate::cluster::{BLIND, CONSTRAINED, CRASHING, Cluster, HANGING, LOST, OPEN, each, ours};
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [OPEN, CONSTRAINED]: slurmd_has_the_node_read;
    [BLIND, HANGING, CRASHING]: unreadable_gpus_are_given_in_order;
    [BLIND]: strict_fails_the_task;
    [LOST]: a_lost_gpu_hides_no_other;
};

/// What the warning says of each way in which NVML fails.
fn reason(cluster: &Cluster) -> &'static str {
    match cluster.kind {
        BLIND => "cannot load /nonexistent.so",
        // slurmd has had it read in the background, which takes its time.
        HANGING => "another process is still reading NVML after 1 s",
        _ => "was killed by signal 6",
    }
}

fn slurmd_has_the_node_read(cluster: &Cluster) {
    use std::os::unix::fs::MetadataExt;
    let file = cluster.folder().join("root/run/gpubind/node.json");
    let deadline = Instant::now() + Duration::from_secs(10);
    let meta = loop {
        match file.metadata() {
            Ok(meta) => break meta,
            Err(error) => assert!(Instant::now() < deadline, "no snapshot: {error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!((meta.uid(), meta.mode() & 0o777), (0, 0o644));
    let step = ["-w", &cluster.node(0), "-N1", "-n8", "--gpus-per-node=8"];
    let bound = [&step[..], &["--gpu-bind=spank"]].concat();
    let probed = "NVML was read for this step";
    let before = cluster.log().matches(probed).count();
    cluster.tasks(&bound);
    assert_eq!(cluster.log().matches(probed).count(), before, "the step took the snapshot");
    // A snapshot that somebody besides root can write is ignored.
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    cluster.tasks(&bound);
    let log = cluster.log();
    assert_eq!(log.matches(probed).count(), before + 1);
    assert!(log.contains("is writable by others than its owner (mode 0666)"));
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o644, "a new one is in place");
}

fn unreadable_gpus_are_given_in_order(cluster: &Cluster) {
    let begin = Instant::now();
    let (tasks, stderr) = cluster.tasks(&["-N1", "-n8", "--gpus-per-node=8", "--gpu-bind=spank"]);
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(8), "the step was held up for {took:?}");
    let visible = each(&tasks, "CUDA_VISIBLE_DEVICES");
    assert_eq!(visible, ["0", "1", "2", "3", "4", "5", "6", "7"]);
    let lines = ours(&stderr);
    assert_eq!(lines.len(), 1, "one warning for the node: {stderr}");
    for part in ["warning: cannot read this node's GPUs", "affinity is unknown", reason(cluster)] {
        assert!(lines[0].contains(part), "no {part:?} in {stderr}");
    }
    let (tasks, _) = cluster.tasks(&["-N1", "-n2", "--gpus-per-node=8", "--gpu-bind=spank"]);
    assert_eq!(each(&tasks, "CUDA_VISIBLE_DEVICES"), ["0,1,2,3", "4,5,6,7"]);
}

fn strict_fails_the_task(cluster: &Cluster) {
    let words = ["srun", "-O", "-n1", "--gpus-per-node=8", "--gpu-bind=spank:strict", "true"];
    let ran = cluster.run(&words);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let said = ours(&ran.stderr);
    assert_eq!(said.len(), 1, "one clear line: {}", ran.stderr);
    assert!(said[0].contains("gpubind: strict: cannot read this node's GPUs"), "{}", ran.stderr);
}

fn a_lost_gpu_hides_no_other(cluster: &Cluster) {
    let (tasks, stderr) = cluster.tasks(&[
        "-N1",
        "-n7",
        "--gpus-per-node=8",
        "--cpu-bind=map_cpu:0,0,0,1,1,1,1",
        "--gpu-bind=spank:single",
    ]);
    let lost = "warning: the step's GPU 2 (0000:03:00.0) cannot be used; its tasks are given the \
                other 7 GPUs";
    assert!(ours(&stderr)[0].contains(lost) && ours(&stderr).len() == 1, "{stderr}");
    let mut found = each(&tasks, "GPUBIND_GPU_INDEX");
    let sides = each(&tasks, "GPUBIND_NUMA_NODE");
    assert_eq!(sides, ["0", "0", "0", "1", "1", "1", "1"]);
    found.sort_unstable();
    assert_eq!(found, ["0", "1", "3", "4", "5", "6", "7"]);
    // Whether CUDA numbers the lost one is not known, so numbers would be a guess.
    let uuids = cluster.uuids();
    for env in tasks.values() {
        let index: usize = env["GPUBIND_GPU_INDEX"].parse().unwrap();
        assert_eq!(env["CUDA_VISIBLE_DEVICES"], uuids[index]);
    }
}
