//! A node whose GPUs cannot be read: jobs run all the same.

use crate::cluster::{BLIND, Cluster, Kind, each, ours};

pub const TESTS: &[(&str, &[Kind], fn(&Cluster))] = &[
    ("without_nvml_tasks_get_slurms_order", &[BLIND], without_nvml_tasks_get_slurms_order),
    ("without_nvml_strict_fails_the_task", &[BLIND], without_nvml_strict_fails_the_task),
];

fn without_nvml_tasks_get_slurms_order(cluster: &Cluster) {
    let (tasks, stderr) = cluster.tasks(&["-N1", "-n8", "--gpus-per-node=8", "--gpu-bind=spank"]);
    let visible = each(&tasks, "CUDA_VISIBLE_DEVICES");
    assert_eq!(visible, ["0", "1", "2", "3", "4", "5", "6", "7"]);
    let lines = ours(&stderr);
    assert_eq!(lines.len(), 1, "one warning for the node: {stderr}");
    for part in ["warning: cannot read this node's GPUs", "affinity is unknown", "/nonexistent.so"] {
        assert!(lines[0].contains(part), "{stderr}");
    }
    let (tasks, _) = cluster.tasks(&["-N1", "-n2", "--gpus-per-node=8", "--gpu-bind=spank"]);
    assert_eq!(each(&tasks, "CUDA_VISIBLE_DEVICES"), ["0,1,2,3", "4,5,6,7"]);
}

fn without_nvml_strict_fails_the_task(cluster: &Cluster) {
    let words = ["srun", "-O", "-n1", "--gpus-per-node=8", "--gpu-bind=spank:strict", "true"];
    let ran = cluster.run(&words);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("gpubind: strict: cannot read this node's GPUs"), "{}", ran.stderr);
}
