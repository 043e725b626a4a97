//! What users' own scripts and tools do around a rank: they export rank variables, move
//! CPUs, and number devices themselves.

use std::collections::BTreeSet;

use crate::cluster::{CONSTRAINED, Cluster, OPEN, Ran, Tasks, each, ours, root, tasks_of};
use crate::tools::run;
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [OPEN, CONSTRAINED]:
        rank_variables_exported_once_for_all_tasks,
        a_wrapper_that_moves_cpus_before_exec,
        a_wrapper_that_moves_cpus_after_the_plugin,
        a_tool_that_takes_local_rank_for_a_cpu,
        submitits_own_ranks;
};

fn tasks(ran: &Ran, count: usize) -> Tasks {
    let tasks = tasks_of(&ran.stdout);
    assert_eq!((ran.code, tasks.len()), (Some(0), count), "{}{}", ran.stdout, ran.stderr);
    tasks
}

fn assert_distinct(tasks: &Tasks, name: &str) {
    let values = each(tasks, name);
    let distinct: BTreeSet<&&str> = values.iter().collect();
    assert_eq!(distinct.len(), values.len(), "{name}: {values:?}");
}

fn rank_variables_exported_once_for_all_tasks(cluster: &Cluster) {
    let exported = [("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "8")];
    let step = ["srun", "--label", "-N2", "--ntasks-per-node=4", "-O", "--gpus-per-node=4"];
    let contradicts =
        |line: &&str| line.contains("warning: RANK=0") && line.contains("SLURM_PROCID=");
    for (by, options, command) in [
        ("the plugin", &["--gpu-bind=spank"][..], &["env"][..]),
        ("exec", &[], &["gpubind", "exec", "--", "env"]),
    ] {
        let ran = run(cluster, &exported, &[&step[..], options, command].concat());
        let found = tasks(&ran, 8);
        for node in [0..4, 4..8] {
            let own = node.map(|rank| (rank, found[&rank].clone())).collect();
            assert_distinct(&own, "CUDA_VISIBLE_DEVICES");
        }
        // They are the user's and stay; each node says so once.
        assert_eq!(each(&found, "RANK"), ["0"; 8], "{by}");
        let said = ours(&ran.stderr);
        assert_eq!(said.iter().filter(|line| contradicts(line)).count(), 2, "{by}: {}", ran.stderr);
        assert_eq!(said.len(), 2, "{by}: {}", ran.stderr);
    }
    // LOCAL_RANK=0 alone is what a rank with one GPU should have.
    let alone = [&step[..], &["--gpu-bind=spank", "env"]].concat();
    let ran = run(cluster, &exported[1..2], &alone);
    assert_eq!(ours(&ran.stderr), [""; 0], "{}", ran.stdout);

    let check = [&step[..], &["--gpu-bind=spank", "gpubind", "report", "--check"]].concat();
    let ran = run(cluster, &exported, &check);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    let failed = ran.stderr.lines().filter(|line| line.contains("check failed"));
    let failed: Vec<&str> = failed.collect();
    assert_eq!(failed.len(), 7, "all but task 0: {}", ran.stderr);
    assert!(failed.iter().all(|line| line.contains("RANK=0")), "{failed:?}");
    assert_eq!(run(cluster, &[], &check).code, Some(0), "without the export all is well");
}

/// Half of the ranks at each CPU, whatever Slurm has given them.
const BY_HALVES: &str = "exec taskset -c $((SLURM_LOCALID / 4)) \"$@\"";

fn a_wrapper_that_moves_cpus_before_exec(cluster: &Cluster) {
    // Slurm's own CPUs are the other way round.
    for bind in ["--cpu-bind=none", "--cpu-bind=map_cpu:1,1,1,1,0,0,0,0"] {
        let step = ["srun", "--label", "-N1", "-n8", "-O", "--gpus-per-node=8", bind];
        let wrapper = ["bash", "-c", BY_HALVES, "wrapper"];
        let found = |command: &[&str]| {
            let ran = run(cluster, &[], &[&step[..], &wrapper, command].concat());
            assert_eq!(ours(&ran.stderr), [""; 0], "{bind}");
            ran
        };
        let all = tasks(&found(&["gpubind", "exec", "--", "env"]), 8);
        assert_distinct(&all, "CUDA_VISIBLE_DEVICES");
        for (rank, env) in &all {
            let gpu: u32 = env["CUDA_VISIBLE_DEVICES"].parse().unwrap();
            assert_eq!(gpu / 4, rank / 4, "{bind}: GPUs 0-3 are at CPU 0");
        }
        let checked = found(&["gpubind", "exec", "--", "gpubind", "report", "--check", "--why"]);
        assert_eq!(checked.code, Some(0), "{}", checked.stdout);
        assert_eq!(checked.stdout.matches(" local to its CPUs").count(), 8, "{}", checked.stdout);
    }
    // One task alone cannot know the others' CPUs, and says so.
    let one = "[ $SLURM_LOCALID = 0 ] || exec true; exec taskset -c 1 \"$@\"";
    let step =
        ["srun", "--label", "-N1", "-n2", "-O", "--gpus-per-node=2", "--cpu-bind=map_cpu:0,1"];
    let wrapper = ["bash", "-c", one, "wrapper", "gpubind", "exec", "--", "env"];
    let ran = run(cluster, &[], &[&step[..], &wrapper].concat());
    tasks(&ran, 1);
    assert!(
        ran.stderr.contains("gpubind exec of local ranks 1 has not said theirs"),
        "{}",
        ran.stderr
    );
}

fn a_wrapper_that_moves_cpus_after_the_plugin(cluster: &Cluster) {
    let step = ["srun", "-N1", "-n8", "-O", "--gpus-per-node=8", "--gpu-bind=spank"];
    let cpus = ["--cpu-bind=map_cpu:1,1,1,1,0,0,0,0"];
    let report = ["gpubind", "report", "--check"];
    let moved = [&step[..], &cpus, &["bash", "-c", BY_HALVES, "wrapper"], &report].concat();
    let ran = run(cluster, &[], &moved);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert_eq!(ran.stderr.matches("was local to this rank's CPUs").count(), 8, "{}", ran.stderr);
    // By what gpubind says of the rank's GPU, as the user guide has it.
    let by_gpu = "exec taskset -c $GPUBIND_NUMA_NODE \"$@\"";
    let ran = run(
        cluster,
        &[],
        &[&step[..], &cpus, &["bash", "-c", by_gpu, "wrapper"], &report].concat(),
    );
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
}

fn a_tool_that_takes_local_rank_for_a_cpu(cluster: &Cluster) {
    let tool = "exec taskset -c $((${LOCAL_RANK:-$SLURM_LOCALID} % 2)) \"$@\"";
    let step = ["srun", "-N1", "-n2", "-O", "--gpus-per-node=2"];
    let tool = ["bash", "-c", tool, "tool", "gpubind", "report", "--check"];
    for (request, right) in [
        ("--gpu-bind=spank", false),
        ("--gpu-bind=spank:local-rank=keep", true),
        ("--gpu-bind=spank:ordered", true),
    ] {
        let ran = run(cluster, &[], &[&step[..], &[request], &tool].concat());
        let crowded = ran.stderr.contains("such as one that takes LOCAL_RANK for a CPU");
        assert_eq!(crowded, !right, "{request}: {}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.code == Some(0), right, "{request}: {}{}", ran.stdout, ran.stderr);
    }
}

/// The real submitit: its helper refuses where a rank variable is set already.
fn submitits_own_ranks(cluster: &Cluster) {
    let folder = cluster.folder().join("submitit");
    let script = root().join("tests/slurm/submitit/ranks.py");
    let packages = root().join("target/tools/submitit");
    assert!(packages.join("submitit").is_dir(), "scripts/test installs submitit there");
    for request in ["--gpu-bind=spank", "--gpubind=auto", "--cpu-bind=none"] {
        let packages = format!("PYTHONPATH={}", packages.display());
        let words = ["env", &packages, "python3", script.to_str().unwrap()];
        let ran = cluster.run(&[&words[..], &[folder.to_str().unwrap(), request]].concat());
        // Without accounting submitit knows of no failed job and waits for its result.
        if ran.code != Some(0) {
            let jobs = cluster.run(&["scontrol", "--oneliner", "show", "job"]).stdout;
            let nodes = cluster.run(&["scontrol", "--oneliner", "show", "node"]).stdout;
            let logs = "tail -n 50 \"$1\"/*.err \"$1\"/*.out";
            let logs = cluster.run(&["bash", "-c", logs, "logs", folder.to_str().unwrap()]).stdout;
            panic!("{request}: {}{}{jobs}{nodes}{logs}", ran.stdout, ran.stderr);
        }
        // Without accounting, submitit warns of sacct.
        let lines = ran.stdout.lines().filter(|line| line.starts_with("rank "));
        let lines: Vec<&str> = lines.collect();
        let expected = [0, 1, 2, 3].map(|rank| format!("rank {rank} of 4 sees device {rank}"));
        assert_eq!(lines, expected, "{request}: {}", ran.stderr);
    }
}
