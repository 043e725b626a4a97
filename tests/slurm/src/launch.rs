//! What gpubind is to a job's start: no process more; and as many tasks as a node can have.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use gpubind_core::node::{Device, IdSet};
use gpubind_core::plan::{Shape, plan};

use crate::cluster::{Cluster, EMPTY, Kind, OPEN, each, ours, tasks_of};
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [EMPTY]: slurmd_starts_no_process_for_the_plugin;
    [OPEN]: each_of_512_tasks_has_the_gpu_that_the_plan_gives_it;
};

/// What slurmd logs of a process that it starts for plugins, at a job's start and end
/// (src/slurmd/slurmd/req.c, _run_spank_job_script).
const PROCESSES: [&str; 2] = ["spank prolog", "spank epilog"];

/// How long a job may take to leave its node.
const END: Duration = Duration::from_secs(20);

const TASKS: usize = 512;
/// In an allocation, since Slurm 22.05 grants GPUs to no more tasks than a node has CPUs.
const MANY: [&str; 8] = [
    "salloc",
    "-N1",
    "--gpus-per-node=8",
    "srun",
    "--label",
    "-O",
    "-n512",
    "--cpu-bind=map_cpu:1,0",
];

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
    // Few lines: srun breaks one where a task writes more than it reads at once.
    let print = ["--gpu-bind=spank:single,share", "bash", "-c", "env | grep -E ^'CUDA_V|GPUBIND_'"];
    let ran = cluster.run(&[&MANY[..], &print].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ours(&ran.stderr), [""; 0]);
    let tasks = tasks_of(&ran.stdout);
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
        load[plan.shares.list()[task]] += 1;
    }
    assert_eq!(load, [TASKS / 8; 8]);
}
