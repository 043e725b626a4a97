//! Each form of CPU binding: what Slurm says, what the kernel says, and the plan.

use gpubind_core::node::IdSet;
use gpubind_core::step::task_cpus;

use crate::cluster::{CONSTRAINED, Cluster, OPEN, Tasks, each, tasks_of};
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [OPEN, CONSTRAINED]:
        each_form_of_cpu_binding,
        cpus_that_slurm_does_not_list;
};

/// Runs tasks that say where they may run, with all eight GPUs in the plan's order.
fn bound(cluster: &Cluster, options: &[&str]) -> Tasks {
    let script = "env; sed -n 's/^Cpus_allowed_list:[[:space:]]*/ALLOWED=/p' /proc/self/status";
    let srun = ["srun", "--label", "-N1", "--gpus-per-node=8", "--gpu-bind=spank:ordered"];
    let ran = cluster.run(&[&srun[..], options, &["sh", "-c", script]].concat());
    assert_eq!(ran.code, Some(0), "{options:?}: {}", ran.stderr);
    tasks_of(&ran.stdout)
}

/// Checks what is true for every step: all tasks have made the same plan, and where
/// a task has one CPU, its GPU is at that CPU.
fn check(tasks: &Tasks, options: &[&str]) {
    let lists = each(tasks, "CUDA_VISIBLE_DEVICES");
    assert!(lists.iter().all(|list| *list == lists[0]), "{options:?}: {lists:?}");
    let own = each(tasks, "GPUBIND_GPU_INDEX").join(",");
    assert!(lists[0].starts_with(&own), "{options:?}: {own} of {lists:?}");
    for (rank, env) in tasks {
        if env["ALLOWED"].len() == 1 {
            assert_eq!(env["GPUBIND_NUMA_NODE"], env["ALLOWED"], "{options:?}: rank {rank}");
        }
    }
}

fn each_form_of_cpu_binding(cluster: &Cluster) {
    for options in [
        &["-n2", "--cpu-bind=map_cpu:1,0"][..],
        &["-On5", "--cpu-bind=map_cpu:1,0"],
        &["-On4", "--cpu-bind=map_cpu:1*2,0*2"],
        &["-On4", "--cpu-bind=verbose,map_cpu:1,0,0,1"],
        &["-n2", "--cpu-bind=mask_cpu:2,1"],
        &["-On4", "--cpu-bind=mask_cpu:0x1,0x3,0x2"],
        &["-On4", "--cpu-bind=mask_cpu:0x3"],
        &["-n2", "--cpu-bind=cores"],
        &["-On4", "--cpu-bind=cores"],
        &["-n2", "-c1", "--cpu-bind=cores"],
        &["-n1", "-c2", "--cpu-bind=cores"],
        &["-n2", "--cpu-bind=threads"],
        &["-n2", "--cpu-bind=sockets"],
        &["-n2", "--cpu-bind=none"],
        &["-n2"],
    ] {
        let tasks = bound(cluster, options);
        check(&tasks, options);
        let of = |name: &str| tasks[&0].get(name).cloned().unwrap_or_default();
        let list = of("SLURM_CPU_BIND_LIST");
        let listed = task_cpus(&of("SLURM_CPU_BIND_TYPE"), &list, tasks.len(), &[]).unwrap();
        let kernel = each(&tasks, "ALLOWED");
        let kernel: Vec<IdSet> = kernel.iter().map(|list| list.parse().unwrap()).collect();
        if list.is_empty() {
            assert!(listed.iter().all(IdSet::is_empty), "{options:?}: {listed:?}");
        } else {
            assert_eq!(listed, kernel, "{options:?}: {list}");
        }
    }
}

fn cpus_that_slurm_does_not_list(cluster: &Cluster) {
    // 24.11 and later accept `rank` and bind nothing.
    let version = cluster.run(&["srun", "--version"]).stdout;
    let number = version.trim().rsplit(' ').next().unwrap();
    let release: Vec<u32> = number.split('.').map_while(|part| part.parse().ok()).collect();
    assert!(release.len() >= 2, "{version}");
    if release[..2] >= [24, 11][..] {
        return;
    }
    let options = ["-n2", "--cpu-bind=rank"];
    let tasks = bound(cluster, &options);
    assert_eq!(each(&tasks, "SLURM_CPU_BIND_LIST"), ["", ""]);
    assert_eq!(each(&tasks, "ALLOWED"), ["0", "1"]);
    check(&tasks, &options);
}
