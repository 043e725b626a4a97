//! Steps that do not ask for gpubind, and steps without GPUs.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::cluster::{Cluster, EMPTY, OPEN, PLAIN, Tasks, each, ours};
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [OPEN, PLAIN]: without_a_request_nothing_changes;
    [OPEN, EMPTY]:
        a_step_without_gpus_just_runs,
        nodes_stay_healthy;
};

/// Each task's environment in the cluster with the plugin, for the one without.
static WITH_PLUGIN: OnceLock<Tasks> = OnceLock::new();

fn without_a_request_nothing_changes(cluster: &Cluster) {
    let node = cluster.node(0);
    let (tasks, stderr) = cluster.tasks(&["-w", &node, "-N1", "-n4", "--gpus-per-node=8"]);
    assert_eq!(ours(&stderr), [""; 0]);
    let tasks: Tasks =
        tasks.into_iter().map(|(rank, env)| (rank, comparable(env, cluster))).collect();
    if cluster.kind == OPEN {
        WITH_PLUGIN.set(tasks).expect("runs once");
        return;
    }
    match WITH_PLUGIN.get() {
        Some(with_plugin) => {
            let differ: Vec<_> = difference(with_plugin, &tasks).collect();
            assert_eq!(differ, [""; 0], "with the plugin and without it");
        }
        None => panic!("needs t-open::without_a_request_nothing_changes in the same run"),
    }
}

/// The variables that only one side has, or with another value.
pub fn difference<'a>(one: &'a Tasks, other: &'a Tasks) -> impl Iterator<Item = String> + 'a {
    let lacks = |here: &'a Tasks, there: &'a Tasks, side: &'static str| {
        here.iter().flat_map(move |(rank, env)| {
            let there = there.get(rank);
            env.iter()
                .filter(move |(name, value)| there.and_then(|env| env.get(*name)) != Some(*value))
                .map(move |(name, value)| format!("{side} {rank}: {name}={value}"))
        })
    };
    lacks(one, other, "with").chain(lacks(other, one, "without"))
}

/// An environment without what differs between any two steps.
pub fn comparable(env: BTreeMap<String, String>, cluster: &Cluster) -> BTreeMap<String, String> {
    const DIFFER: [&str; 10] = [
        "_PORT",
        "JOBID",
        "JOB_ID",
        "SLUID",
        "PID",
        "SLURM_CONF",
        "HOST",
        "START_TIME",
        "END_TIME",
        "WORKING_CLUSTER",
    ];
    env.into_iter()
        .filter(|(name, _)| !DIFFER.iter().any(|part| name.contains(part)))
        // By the tests' cargo, or by the cluster's name.
        .filter(|(name, _)| !name.starts_with("CARGO") && name != "LD_LIBRARY_PATH")
        .map(|(name, value)| (name, value.replace(cluster.name(), "CLUSTER")))
        .collect()
}

fn a_step_without_gpus_just_runs(cluster: &Cluster) {
    for request in ["--gpu-bind=spank", "--gpu-bind=spank:verbose"] {
        let (tasks, stderr) = cluster.tasks(&["-N1", "-n2", request]);
        assert_eq!(each(&tasks, "CUDA_VISIBLE_DEVICES"), ["-", "-"]);
        let said = ours(&stderr);
        assert!(said[0].contains("warning: the step has no GPU on this node"), "{stderr}");
        assert_eq!(said.len(), 1, "once: {stderr}");
    }
    // Who has a personal default has not asked for this step.
    let default = [("SLURM_GPUBIND", "auto,strict")];
    let (tasks, stderr) = cluster.tasks_with(&default, &["-N1", "-n2"]);
    assert_eq!((tasks.len(), ours(&stderr).len()), (2, 0), "{stderr}");
    let ran = cluster.run(&["srun", "-N1", "-n2", "--gpu-bind=spank:strict", "env"]);
    assert_ne!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("strict: the step has no GPU on this node"), "{}", ran.stderr);
}

/// Runs last: whatever the tests before have done, no node may be drained.
fn nodes_stay_healthy(cluster: &Cluster) {
    let ran = cluster.run(&["sinfo", "-h", "-N", "-o", "%T %E"]);
    for line in ran.stdout.lines() {
        assert!(line.starts_with("idle") || line.starts_with("completing"), "{line}");
    }
    let log = cluster.log();
    assert!(!log.contains("internal error"), "a hook has panicked");
}
