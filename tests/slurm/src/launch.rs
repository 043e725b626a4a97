//! What a job and its steps pay for gpubind at their start: no process more, and no more
//! time for many tasks.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use gpubind_core::node::{Device, IdSet};
use gpubind_core::plan::{Shape, plan};

use crate::cluster::{Cluster, EMPTY, Kind, OPEN, each, ours};
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [EMPTY]: slurmd_starts_no_process_for_the_plugin;
    [OPEN]: each_of_512_tasks_has_the_gpu_that_the_plan_gives_it, many_tasks_start_as_fast_as_without;
};

/// What slurmd logs of a process that it starts for plugins, at a job's start and end
/// (src/slurmd/slurmd/req.c, _run_spank_job_script).
const PROCESSES: [&str; 2] = ["spank prolog", "spank epilog"];

/// How long a job may take to leave its node.
const END: Duration = Duration::from_secs(20);

const TASKS: usize = 512;
const MANY: [&str; 5] = ["-N1", "-O", "-n512", "--gpus-per-node=8", "--cpu-bind=map_cpu:1,0"];

fn slurmd_starts_no_process_for_the_plugin(cluster: &Cluster) {
    assert_eq!(starts_processes(cluster), [false; 2], "with gpubind");
    // A plugin that has these hooks shows what there would be to see.
    let plugin = cluster.folder().join("job_hooks.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../spank-host/plugins/job_hooks.c");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&plugin).arg(source);
    assert!(cc.status().unwrap().success());
    let plugin: &str = plugin.to_str().unwrap().to_owned().leak();
    let options = ["--machine", "none", "--nodes", "1", "--plugin", plugin];
    let kind = Kind::new("t-jobhooks", options.to_vec().leak());
    let other = Cluster::start(kind, cluster.slurm());
    assert_eq!(starts_processes(&other), [true; 2], "with job_prolog and job_epilog");
}

/// Runs a job, and looks at what slurmd has logged until the job has left its node.
fn starts_processes(cluster: &Cluster) -> [bool; 2] {
    let ran = cluster.run(&["srun", "-N1", "-n1", "true"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let begin = Instant::now();
    while cluster.run(&["sinfo", "-h", "-N", "-o", "%T"]).stdout.lines().any(|line| line != "idle")
    {
        assert!(begin.elapsed() < END, "the job does not end");
        sleep(Duration::from_millis(100));
    }
    let log = cluster.log();
    assert!(log.contains("debug:"), "slurmd does not log what it starts");
    PROCESSES.map(|process| log.contains(process))
}

fn each_of_512_tasks_has_the_gpu_that_the_plan_gives_it(cluster: &Cluster) {
    let request = ["--gpu-bind=spank:single,share"];
    let (tasks, stderr) = cluster.tasks(&[&MANY[..], &request].concat());
    assert_eq!(ours(&stderr), [""; 0]);
    let node = cluster.machine();
    let devices: Vec<Device> = (0..8).map(|gpu| Device { gpu, mig: None }).collect();
    let cpu = |task: usize| 1 - task % 2;
    let sets: Vec<IdSet> = (0..TASKS).map(|task| [cpu(task)].into_iter().collect()).collect();
    let plan = plan(&node, &devices, &sets, Shape::Single).unwrap();
    let gpus = plan.shares.iter().map(|own| own[0].to_string());
    assert_eq!(each(&tasks, "CUDA_VISIBLE_DEVICES"), gpus.collect::<Vec<_>>());
    let whys = (0..TASKS).map(|task| plan.why(task).to_string());
    assert_eq!(each(&tasks, "GPUBIND_WHY"), whys.collect::<Vec<_>>());
    // Whatever the plan: each GPU has as many tasks, and all are at their CPUs.
    let mut load = [0; 8];
    for (task, numa) in each(&tasks, "GPUBIND_NUMA_NODE").into_iter().enumerate() {
        assert_eq!(numa, cpu(task).to_string(), "task {task}");
        load[plan.shares[task][0]] += 1;
    }
    assert_eq!(load, [TASKS / 8; 8]);
}

/// Loosely, since the machine may do something else meanwhile: docs/performance.md has
/// the figures. It was twenty times as long where each task made the whole plan.
fn many_tasks_start_as_fast_as_without(cluster: &Cluster) {
    let time = |request: &[&str]| {
        let begin = Instant::now();
        let ran = cluster.run(&[&["srun"], &MANY[..], request, &["true"]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        begin.elapsed()
    };
    let shortest = |request: &[&str]| (0..3).map(|_| time(request)).min().unwrap();
    let plain = shortest(&[]);
    let bound = shortest(&["--gpu-bind=spank:single,share"]);
    assert!(bound < 2 * plain, "{bound:?} with gpubind, {plain:?} without");
}
