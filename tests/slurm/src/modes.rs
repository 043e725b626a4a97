//! What each task sees in each mode, and by which rule.

use std::collections::BTreeSet;

use crate::cluster::{CONSTRAINED, Cluster, OPEN, each, ours};
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [OPEN, CONSTRAINED]:
        two_nodes_of_eight_ranks,
        gpus_follow_the_cpus,
        fewer_tasks_share_the_gpus_out,
        one_task_keeps_all,
        single_gives_one_each,
        ordered_and_first_show_all,
        more_tasks_than_gpus,
        the_plan_before_is_the_plan_of_the_step,
        report_tells_what_a_task_has,
        off_changes_nothing,
        rank_variables,
        a_step_inside_a_step,
        strict_on_one_node_ends_the_step_on_all,
        auto_is_decided_once_for_the_step,
        rank_0s_host_is_the_master_or_nobody_is,
        verbose_tells_each_rank;
};

/// Half of the tasks at CPU 0, half at CPU 1.
const HALVES: &str = "--cpu-bind=map_cpu:0,0,0,0,1,1,1,1";

fn two_nodes_of_eight_ranks(cluster: &Cluster) {
    let options = ["-N2", "--ntasks-per-node=8", "--gpus-per-node=8", HALVES, "--gpu-bind=spank"];
    let (tasks, stderr) = cluster.tasks(&options);
    assert_eq!(tasks.len(), 16);
    assert_eq!(ours(&stderr), [""; 0], "nothing to warn about");
    let uuids = cluster.uuids();
    for node in 0..2 {
        let here: Vec<_> = tasks.values().skip(node * 8).take(8).collect();
        let visible: BTreeSet<&str> =
            here.iter().map(|env| env["CUDA_VISIBLE_DEVICES"].as_str()).collect();
        assert_eq!(visible.len(), 8, "node {node}: distinct GPUs");
        for (local_rank, env) in here.iter().enumerate() {
            let gpu: usize = env["CUDA_VISIBLE_DEVICES"].parse().unwrap();
            assert_eq!(gpu / 4, local_rank / 4, "rank {local_rank} of node {node} is local");
            assert_eq!(env["GPUBIND_GPU_UUID"], uuids[gpu]);
            assert_eq!(env["GPUBIND_GPU_INDEX"], gpu.to_string());
            assert_eq!(env["GPUBIND_NUMA_NODE"], (gpu / 4).to_string());
            assert_eq!(env["GPUBIND_LOCAL_RANK"], local_rank.to_string());
            assert_eq!(env["GPUBIND_WHY"], "local to its CPUs");
            assert_eq!(env["CUDA_DEVICE_ORDER"], "PCI_BUS_ID");
        }
    }
}

fn gpus_follow_the_cpus(cluster: &Cluster) {
    for (bind, sides) in
        [("--cpu-bind=map_cpu:0,1", ["0", "1"]), ("--cpu-bind=map_cpu:1,0", ["1", "0"])]
    {
        let options = ["-N1", "-n2", "--gpus-per-node=8", bind, "--gpu-bind=spank:single"];
        let (tasks, _) = cluster.tasks(&options);
        assert_eq!(each(&tasks, "GPUBIND_NUMA_NODE"), sides, "{bind}");
        assert_ne!(
            each(&tasks, "CUDA_VISIBLE_DEVICES")[0],
            each(&tasks, "CUDA_VISIBLE_DEVICES")[1],
            "{bind}"
        );
    }
}

fn fewer_tasks_share_the_gpus_out(cluster: &Cluster) {
    let options = ["-N1", "-n2", "--gpus-per-node=8", "--cpu-bind=map_cpu:1,0", "--gpu-bind=spank"];
    let (tasks, _) = cluster.tasks(&options);
    let shares: Vec<BTreeSet<u32>> = each(&tasks, "CUDA_VISIBLE_DEVICES")
        .iter()
        .map(|list| list.split(',').map(|gpu| gpu.parse().unwrap()).collect())
        .collect();
    assert_eq!(shares, [BTreeSet::from([4, 5, 6, 7]), BTreeSet::from([0, 1, 2, 3])]);
    // A task with several GPUs is a launcher rather than a rank.
    assert_eq!(each(&tasks, "RANK"), ["-", "-"]);
}

fn one_task_keeps_all(cluster: &Cluster) {
    let (tasks, _) = cluster.tasks(&["-N1", "-n1", "--gpus-per-node=8", "--gpu-bind=spank"]);
    let mut gpus: Vec<&str> = each(&tasks, "CUDA_VISIBLE_DEVICES")[0].split(',').collect();
    gpus.sort_unstable();
    assert_eq!(gpus, ["0", "1", "2", "3", "4", "5", "6", "7"]);
}

fn single_gives_one_each(cluster: &Cluster) {
    let options = ["-N1", "-n3", "--gpus-per-node=8", "--gpu-bind=spank:single"];
    let (tasks, stderr) = cluster.tasks(&options);
    let visible: BTreeSet<&str> = each(&tasks, "CUDA_VISIBLE_DEVICES").into_iter().collect();
    assert_eq!(visible.len(), 3);
    assert!(visible.iter().all(|gpu| gpu.len() == 1), "{visible:?}");
    assert_eq!(ours(&stderr), [""; 0]);
}

fn ordered_and_first_show_all(cluster: &Cluster) {
    let step = ["-N1", "-n8", "--gpus-per-node=8", HALVES];
    let (tasks, _) = cluster.tasks(&[&step[..], &["--gpu-bind=spank:ordered"]].concat());
    let lists = each(&tasks, "CUDA_VISIBLE_DEVICES");
    assert!(lists.iter().all(|list| *list == lists[0]), "{lists:?}");
    let entries: Vec<&str> = lists[0].split(',').collect();
    assert_eq!(entries, each(&tasks, "GPUBIND_GPU_INDEX"), "entry n is rank n's own");
    assert_eq!(each(&tasks, "LOCAL_RANK"), ["0", "1", "2", "3", "4", "5", "6", "7"]);

    let (tasks, _) = cluster.tasks(&[&step[..], &["--gpu-bind=spank:first"]].concat());
    for env in tasks.values() {
        let list: Vec<&str> = env["CUDA_VISIBLE_DEVICES"].split(',').collect();
        assert_eq!(list[0], env["GPUBIND_GPU_INDEX"]);
        assert_eq!(list.iter().collect::<BTreeSet<_>>().len(), 8, "{list:?}");
    }
}

fn more_tasks_than_gpus(cluster: &Cluster) {
    let step = ["-N2", "--ntasks-per-node=8", "--gpus-per-node=4"];
    let (tasks, stderr) = cluster.tasks(&[&step[..], &["--gpu-bind=spank"]].concat());
    for node in 0..2 {
        let visible = each(&tasks, "CUDA_VISIBLE_DEVICES");
        for gpu in ["0", "1", "2", "3"] {
            let here = visible[node * 8..][..8].iter().filter(|visible| **visible == gpu).count();
            assert_eq!(here, 2, "tasks on GPU {gpu} of node {node}");
        }
    }
    let warnings = ours(&stderr);
    assert_eq!(warnings.len(), 2, "one line per node: {warnings:?}");
    assert!(warnings[0].contains("8 tasks share 4 GPUs on this node; add `share`"), "{warnings:?}");

    let (_, stderr) = cluster.tasks(&[&step[..], &["--gpu-bind=spank:share"]].concat());
    assert_eq!(ours(&stderr), [""; 0]);

    let strict = [&["srun", "-O"], &step[..], &["--gpu-bind=spank:strict", "true"]].concat();
    let ran = cluster.run(&strict);
    assert_ne!(ran.code, Some(0));
    assert!(ran.stderr.contains("gpubind: strict: 8 tasks share 4 GPUs"), "{}", ran.stderr);
}

fn the_plan_before_is_the_plan_of_the_step(cluster: &Cluster) {
    for (tasks, bind, mode) in [
        ("8", "map_cpu:1,1,0,0,1,1,0,0", "auto"),
        ("8", "map_cpu:1,0", "ordered"),
        ("3", "map_cpu:1,0,1", "auto"),
        ("2", "mask_cpu:0x2,0x1", "auto"),
        ("5", "mask_cpu:0x3", "first"),
        ("16", "map_cpu:1,0,0", "share"),
    ] {
        let mut plan = std::process::Command::new(cluster.program());
        plan.args(["plan", "--json", "--tasks", tasks, "--cpu-bind", bind, "--mode", mode]);
        let plan = plan.arg("--from").arg(cluster.fixture()).output().unwrap();
        assert!(plan.status.success(), "{}", String::from_utf8_lossy(&plan.stderr));
        let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).unwrap();
        let planned: Vec<&str> = plan["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|task| task["visible"].as_str().unwrap())
            .collect();

        let (bind, mode) = (format!("--cpu-bind={bind}"), format!("--gpu-bind=spank:{mode}"));
        let (step, _) = cluster.tasks(&["-N1", "-n", tasks, "--gpus-per-node=8", &bind, &mode]);
        assert_eq!(each(&step, "CUDA_VISIBLE_DEVICES"), planned, "{tasks} tasks, {bind}, {mode}");
    }
}

fn report_tells_what_a_task_has(cluster: &Cluster) {
    let root = cluster.folder().join("root");
    let machine = [("GPUBIND_FSROOT", root.to_str().unwrap())];
    let program = cluster.program();
    let report = |options: &[&str], print: &[&str]| {
        let step = ["srun", "-O", "-N1", "-n2", "--gpus-per-node=4", "--cpu-bind=map_cpu:0,1"];
        let words = [&step[..], options, &[program.to_str().unwrap(), "report"], print].concat();
        let ran = cluster.run_with(&machine, &words);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        ran.stdout
    };
    let bound = report(&["--gpu-bind=spank:single"], &["--json"]);
    let mut bound: Vec<serde_json::Value> =
        bound.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    bound.sort_by_key(|task| task["rank"].as_u64());
    let uuids = cluster.uuids();
    for (task, cpus, locality) in [(0, "0", "local"), (1, "1", "remote")] {
        let report = &bound[task];
        assert_eq!(report["cpus"], cpus);
        assert_eq!(report["devices"].as_array().unwrap().len(), 1, "{report}");
        assert_eq!(report["devices"][0]["locality"], locality);
        let index = report["devices"][0]["index"].as_u64().unwrap();
        assert_eq!(report["visible"], index.to_string(), "GPUs 0-3 count alike in both clusters");
        assert_eq!(report["devices"][0]["uuid"], uuids[index as usize]);
    }
    assert_eq!(bound[0]["why"], "local to its CPUs");
    assert!(bound[1]["why"].as_str().unwrap().contains("no other GPU is nearer"), "{}", bound[1]);
    for line in report(&[], &["--why"]).lines() {
        assert!(line.contains(" 0 (sees 4) ") && line.ends_with("not given by gpubind"), "{line}");
    }
}

fn off_changes_nothing(cluster: &Cluster) {
    let step = ["-N1", "-n2", "--gpus-per-node=8"];
    let (plain, _) = cluster.tasks(&step);
    let (tasks, _) = cluster.tasks(&[&step[..], &["--gpu-bind=none,spank:off"]].concat());
    for name in ["CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "CUDA_DEVICE_ORDER", "RANK"] {
        assert_eq!(each(&tasks, name), each(&plain, name), "{name}");
    }
}

fn rank_variables(cluster: &Cluster) {
    let step = ["-N2", "--ntasks-per-node=4", "--gpus-per-node=4"];
    let (tasks, _) = cluster.tasks(&[&step[..], &["--gpu-bind=spank"]].concat());
    assert_eq!(each(&tasks, "RANK"), ["0", "1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!(each(&tasks, "WORLD_SIZE"), ["8"; 8]);
    assert_eq!(each(&tasks, "LOCAL_RANK"), ["0"; 8], "the one GPU is device 0");
    assert_eq!(each(&tasks, "LOCAL_WORLD_SIZE"), ["4"; 8]);
    assert_eq!(each(&tasks, "NODE_RANK"), ["0", "0", "0", "0", "1", "1", "1", "1"]);
    assert_eq!(each(&tasks, "MASTER_ADDR"), [cluster.node(0).as_str(); 8]);
    let ports: BTreeSet<&str> = each(&tasks, "MASTER_PORT").into_iter().collect();
    assert_eq!(ports.len(), 1, "{ports:?}");

    let keep = [&step[..], &["--gpu-bind=spank:local-rank=keep"]].concat();
    let users_own = [("MASTER_PORT", "4711"), ("RANK", "")];
    let (tasks, _) = cluster.tasks_with(&users_own, &keep);
    assert_eq!(each(&tasks, "LOCAL_RANK"), ["0", "1", "2", "3", "0", "1", "2", "3"]);
    assert_eq!(each(&tasks, "MASTER_PORT"), ["4711"; 8]);
    assert_eq!(each(&tasks, "RANK"), [""; 8], "set to nothing is set");

    let off = [&step[..], &["--gpu-bind=spank:rank-env=off"]].concat();
    assert_eq!(each(&cluster.tasks(&off).0, "RANK"), ["-"; 8]);
}

fn a_step_inside_a_step(cluster: &Cluster) {
    let inner = |options: &str| {
        let inner = format!("srun --overlap --overcommit --label -N2 {options} env");
        let script = format!("if [ $SLURM_PROCID = 0 ]; then {inner}; fi");
        let outer =
            ["srun", "-N2", "-n2", "--gpus-per-node=4", "--gpu-bind=spank:single", "sh", "-c"];
        let ran = cluster.run(&[&outer[..], &[script.as_str()]].concat());
        (crate::cluster::tasks_of(&ran.stdout), ran.stderr)
    };
    // The outer step's values are not taken for the user's own.
    let (tasks, stderr) = inner("-n8 --ntasks-per-node=4 --gpu-bind=spank");
    assert_eq!(each(&tasks, "RANK"), ["0", "1", "2", "3", "4", "5", "6", "7"], "{stderr}");
    // And they do not stay where there is nothing to put in their place.
    for options in ["-n2 --gpu-bind=spank", "-n2 --gpu-bind=map_gpu:0", "-n2 --gpu-bind=spank:off"]
    {
        let (tasks, stderr) = inner(options);
        for name in ["RANK", "WORLD_SIZE", "MASTER_PORT"] {
            assert_eq!(each(&tasks, name), ["-", "-"], "{name} with {options}: {stderr}");
        }
    }
    let (tasks, _) = inner("-n2 --gpu-bind=map_gpu:0");
    assert_eq!(each(&tasks, "GPUBIND_GPU_UUID"), ["-", "-"]);
}

fn strict_on_one_node_ends_the_step_on_all(cluster: &Cluster) {
    // Two tasks for one GPU on the first node, one on the other.
    let step = ["srun", "-N2", "-n3", "-O", "--gpus-per-node=1", "--gpu-bind=spank:strict"];
    let begin = std::time::Instant::now();
    let ran = cluster.run(&[&step[..], &["sleep", "100"]].concat());
    assert_ne!(ran.code, Some(0));
    assert!(ran.stderr.contains("strict: 2 tasks share 1 GPU on this node"), "{}", ran.stderr);
    assert!(begin.elapsed().as_secs() < 60, "the other node's task goes on: {}", ran.stderr);
}

fn auto_is_decided_once_for_the_step(cluster: &Cluster) {
    // Two tasks on one node, one on the other: as many as GPUs on one of them.
    let step = ["-N2", "-n3", "-O", "--gpus-per-node=2", "--gpu-bind=spank"];
    let (tasks, stderr) = cluster.tasks(&step);
    assert_eq!(each(&tasks, "CUDA_VISIBLE_DEVICES").iter().map(|it| it.len()).max(), Some(1));
    assert_eq!(each(&tasks, "RANK"), ["0", "1", "2"], "{stderr}");
    // One and two of four: all keep a share of two, and none is a rank.
    let step = ["-N2", "-n3", "-O", "--gpus-per-node=4", "--gpu-bind=spank"];
    let (tasks, _) = cluster.tasks(&step);
    for list in each(&tasks, "CUDA_VISIBLE_DEVICES") {
        assert_eq!(list.split(',').count(), 2, "{list}");
    }
    assert_eq!(each(&tasks, "RANK"), ["-"; 3]);
    // Who asks for rank variables has them whatever the mode.
    let asked = [&step[..5], &["--gpu-bind=spank:rank-env=on"]].concat();
    assert_eq!(each(&cluster.tasks(&asked).0, "RANK"), ["0", "1", "2"]);
}

fn rank_0s_host_is_the_master_or_nobody_is(cluster: &Cluster) {
    let (first, second) = (cluster.node(0), cluster.node(1));
    let hosts = format!("{second},{first}");
    // With arbitrary, the list of hosts says how many nodes.
    for options in [&["-N2", "-m", "cyclic"][..], &["-m", "arbitrary", "-w", &hosts]] {
        let step = [&["-n2", "-O", "--gpus-per-node=1", "--gpu-bind=spank"], options].concat();
        let (tasks, stderr) = cluster.tasks(&step);
        let host = tasks[&0]["SLURMD_NODENAME"].clone();
        for master in each(&tasks, "MASTER_ADDR") {
            assert!(master == host || master == "-", "{options:?}: {master}, not {host}: {stderr}");
        }
    }
}

fn verbose_tells_each_rank(cluster: &Cluster) {
    let options = [
        "-N2",
        "--ntasks-per-node=2",
        "--gpus-per-node=2",
        "--cpu-bind=map_cpu:0,1",
        "--gpu-bind=spank:verbose",
    ];
    let (tasks, stderr) = cluster.tasks(&options);
    let lines = ours(&stderr);
    assert_eq!(lines.len(), 6, "{stderr}");
    for node in 0..2 {
        let line = format!(
            "gpubind: {}: 2 ranks use 2 of 2 GPUs of the step; 1 of 2 ranks are local to their \
             CPUs; GPUs as the saved snapshot tells",
            cluster.node(node)
        );
        assert!(lines.iter().any(|said| said.ends_with(&line)), "{stderr}");
    }
    for (rank, env) in &tasks {
        let node = cluster.node((rank / 2) as usize);
        let start = format!("gpubind: rank {rank} on {node}, local rank {}: ", rank % 2);
        let line = lines.iter().find(|line| line.contains(&start)).expect("a line for each rank");
        for part in ["GPUBIND_GPU_UUID", "GPUBIND_GPU_PCI"] {
            assert!(line.contains(&env[part]), "{line} lacks {}", env[part]);
        }
        let place = if rank % 2 == 0 { "local to CPUs 0;" } else { "remote to CPUs 1;" };
        assert!(line.contains("NUMA node 0") && line.contains(place), "{line}");
        assert!(line.contains(", NVIDIA A100-SXM4-40GB, "), "{line}");
    }
    // Of several GPUs, what they have in common.
    let step = ["-N1", "-n1", "--gpus-per-node=8", "--cpu-bind=map_cpu:0"];
    let (_, stderr) = cluster.tasks(&[&step[..], &["--gpu-bind=spank:verbose"]].concat());
    let several = "local rank 0: GPUs 0-3 (4 x NVIDIA A100-SXM4-40GB, NUMA node 0), local to CPUs 0 \
                   + GPUs 4-7 (4 x NVIDIA A100-SXM4-40GB, NUMA node 1), remote to CPUs 0; ";
    assert!(stderr.contains(several), "{stderr}");
    assert!(stderr.contains("1 rank uses 8 of 8 GPUs of the step; 0 of 1 ranks are"), "{stderr}");
}
