//! `cpus=local`: the CPUs as the task, or a worker below it, finds them itself.
//!
//! The node has CPU 0 next to GPUs 0 to 3, CPU 1 next to the others.

use std::collections::BTreeSet;

use gpubind_core::node::IdSet;

use crate::cluster::{CONSTRAINED, Cluster, OPEN, Tasks, each, ours, tasks_of};
use crate::node::Node;
use crate::tools::run;
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [OPEN, CONSTRAINED]:
        unbound_tasks_are_parted,
        a_step_is_never_wider_than_before,
        each_worker_has_its_gpus_cpus;
    [OPEN]:
        more_tasks_than_cpus_share_the_local_ones,
        what_another_has_chosen_for_workers_stays,
        a_step_that_cannot_be_parted_is_told,
        overlapping_ranks_are_found,
        the_site_may_want_it;
};

/// Prints a process's environment with its CPUs, as `srun --label` prints a task's.
fn show(number: impl std::fmt::Display) -> String {
    format!(
        "(env; sed -n 's/^Cpus_allowed_list:[[:space:]]*/ALLOWED=/p' /proc/self/status) \
         | sed \"s/^/{number}: /\""
    )
}

/// The tasks of a step on one node, and what was said on stderr.
fn step(cluster: &Cluster, options: &[&str]) -> (Tasks, String) {
    let script = show("$SLURM_LOCALID");
    let ran = cluster.run(&[&["srun", "-O", "-N1"], options, &["sh", "-c", &script]].concat());
    assert_eq!(ran.code, Some(0), "{options:?}: {}", ran.stderr);
    let tasks = tasks_of(&ran.stdout);
    assert!(tasks.contains_key(&0), "{options:?}: {}", ran.stdout);
    (tasks, ran.stderr)
}

fn unbound_tasks_are_parted(cluster: &Cluster) {
    let two = ["-n2", "--gpus-per-node=8", "--cpu-bind=none"];
    for request in ["--gpu-bind=spank:single,cpus=local", "--gpu-bind=spank:cpus=local,omp"] {
        let (tasks, said) = step(cluster, &[&two[..], &[request]].concat());
        assert_eq!(said, "", "{request}");
        let cpus = each(&tasks, "ALLOWED");
        assert_eq!(each(&tasks, "GPUBIND_CPUS"), cpus);
        let numa: Vec<String> = each(&tasks, "GPUBIND_NUMA_NODE")
            .iter()
            .map(|list| list.split(',').collect::<BTreeSet<_>>().into_iter().collect::<String>())
            .collect();
        match request.contains("single") {
            // GPUs 0 and 1 are as near to both as any: one CPU for both.
            true => assert!(numa == cpus, "{numa:?} {cpus:?}"),
            false => assert_eq!(each(&tasks, "OMP_NUM_THREADS"), ["1", "1"]),
        }
    }
    let plain = [&two[..], &["--gpu-bind=spank:single"]].concat();
    let (tasks, _) = step(cluster, &plain);
    assert_eq!(each(&tasks, "ALLOWED"), ["0-1", "0-1"]);
    assert_eq!(each(&tasks, "GPUBIND_CPUS"), ["-", "-"]);
}

/// Whatever Slurm binds to, each task has some of that, near its GPU where there is a near
/// one, and no two have one CPU where both had more.
fn a_step_is_never_wider_than_before(cluster: &Cluster) {
    for options in [
        &["-n2", "--cpu-bind=map_cpu:1,0"][..],
        &["-n4", "--cpu-bind=mask_cpu:0x1,0x3,0x2,0x3"],
        &["-n8", "--cpu-bind=none"],
        &["-n5", "--overcommit"],
        &["-n2", "--cpu-bind=cores"],
        &["-n1", "-c2"],
        &["-n2"],
    ] {
        let with = |request: &str| {
            let all = [&["--gpus-per-node=8", "--gpu-bind=spank:single"], options].concat();
            let request = format!("--gpu-bind=spank:single,{request}");
            let (tasks, _) = step(cluster, &[&all[..], &[&request]].concat());
            let cpus: Vec<IdSet> =
                each(&tasks, "ALLOWED").iter().map(|list| list.parse().unwrap()).collect();
            let numa: Vec<IdSet> = each(&tasks, "GPUBIND_NUMA_NODE")
                .iter()
                .map(|list| list.parse().unwrap())
                .collect();
            (cpus, numa)
        };
        let (before, _) = with("cpus=keep");
        let (after, numa) = with("cpus=local");
        for ((before, after), numa) in before.iter().zip(&after).zip(&numa) {
            let wanted = before.intersection(numa);
            let expected = if wanted.is_empty() { before } else { &wanted };
            assert_eq!(after, expected, "{options:?}: {before:?} at {numa:?}");
        }
    }
}

fn more_tasks_than_cpus_share_the_local_ones(cluster: &Cluster) {
    let request = "--gpu-bind=spank:cpus=local,verbose";
    let (tasks, said) =
        step(cluster, &["-n8", "--gpus-per-node=8", "--cpu-bind=none", "--overcommit", request]);
    assert_eq!(each(&tasks, "ALLOWED"), each(&tasks, "GPUBIND_NUMA_NODE"));
    let lines: Vec<&str> = ours(&said).into_iter().filter(|line| line.contains("rank ")).collect();
    let local = lines.iter().filter(|line| line.contains(", left by cpus=local; "));
    assert_eq!(local.count(), 8, "{said}");
    assert!(said.contains("8 of 8 ranks are local to their CPUs"), "{said}");
}

/// Four workers, as torchrun numbers them, with something in front of each.
fn workers(cluster: &Cluster, request: &str, before: &str) -> Tasks {
    let worker = show("$k");
    let script = format!(
        "for k in 0 1 2 3; do export k; {before} env LOCAL_RANK=$k LOCAL_WORLD_SIZE=4 sh -c \
         '{}'; done",
        worker.replace('\'', "'\\''")
    );
    // As many GPUs of the one NUMA node as of the other.
    let words = ["srun", "-N1", "-n1", "-c2", "--gpus-per-node=8", "--cpu-bind=none", request];
    let ran = cluster.run(&[&words[..], &["sh", "-c", &script]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{request}");
    let tasks = tasks_of(&ran.stdout);
    assert_eq!(tasks.len(), 4, "{}", ran.stdout);
    tasks
}

fn each_worker_has_its_gpus_cpus(cluster: &Cluster) {
    let tasks = workers(cluster, "--gpu-bind=spank:cpus=local", "");
    assert!(each(&tasks, "CUDA_VISIBLE_DEVICES").iter().all(|list| !list.contains(',')));
    assert_eq!(each(&tasks, "ALLOWED"), each(&tasks, "GPUBIND_NUMA_NODE"));
    assert_eq!(each(&tasks, "GPUBIND_CPUS"), each(&tasks, "ALLOWED"));
    let tasks = workers(cluster, "--gpu-bind=spank", "");
    assert_eq!(each(&tasks, "ALLOWED"), ["0-1"; 4]);
    let tasks = workers(cluster, "--gpu-bind=spank:cpus=local,workers=off", "");
    assert_eq!(each(&tasks, "ALLOWED"), ["0-1"; 4], "near one of the task's GPUs or another");
}

fn what_another_has_chosen_for_workers_stays(cluster: &Cluster) {
    let tasks = workers(cluster, "--gpu-bind=spank:cpus=local", "taskset -c 1");
    assert_eq!(each(&tasks, "ALLOWED"), ["1"; 4]);
}

fn a_step_that_cannot_be_parted_is_told(cluster: &Cluster) {
    // Five tasks at CPU 0, where there are four GPUs.
    let options = ["-n5", "--gpus-per-node=8", "--cpu-bind=map_cpu:0"];
    let request = |items: &str| format!("--gpu-bind=spank:single,cpus=local{items}");
    let (tasks, said) = step(cluster, &[&options[..], &[&request("")]].concat());
    assert_eq!(each(&tasks, "ALLOWED"), ["0"; 5]);
    let said = ours(&said);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("warning: cpus=local: none of the CPUs of local ranks "), "{said:?}");
    let strict = request(",strict");
    let words = [&["srun", "-O", "-N1"], &options[..], &[&strict, "true"]].concat();
    let ran = cluster.run(&words);
    assert!(ran.code != Some(0) && ran.stderr.contains("strict: cpus=local: "), "{}", ran.stderr);
}

fn overlapping_ranks_are_found(cluster: &Cluster) {
    let check = |tasks: &str, request: &str| {
        let step = ["srun", "-O", "-N1", tasks, "--gpus-per-node=8", "--cpu-bind=none", request];
        run(cluster, &[], &[&step[..], &["gpubind", "report", "--check", "--wait=60"]].concat())
    };
    let ran = check("-n2", "--gpu-bind=spank:single,cpus=keep");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let ran = check("-n8", "--gpu-bind=spank:single,cpus=local");
    let found = "have CPUs in common, though cpus=local is in effect";
    assert!(ran.code == Some(1) && ran.stderr.contains(found), "{}", ran.stderr);
}

fn the_site_may_want_it(cluster: &Cluster) {
    let file = Node::of(cluster).site_file();
    let before = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, "cpus = \"local\"\n").unwrap();
    let options = ["-n8", "--gpus-per-node=8", "--cpu-bind=none"];
    let (tasks, _) = step(cluster, &[&options[..], &["--gpu-bind=spank"]].concat());
    let (kept, _) = step(cluster, &[&options[..], &["--gpu-bind=spank:cpus=keep"]].concat());
    std::fs::write(&file, before).unwrap();
    assert_eq!(each(&tasks, "ALLOWED"), each(&tasks, "GPUBIND_NUMA_NODE"));
    assert_eq!(each(&kept, "ALLOWED"), ["0-1"; 8]);
}
