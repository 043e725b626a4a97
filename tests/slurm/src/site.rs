//! What a site sets: gpubind.toml and plugstack.conf under real steps.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::cluster::{Cluster, Kind, PLAIN, Tasks, each, ours, tasks_of};
use crate::quiet::{comparable, difference};
use crate::trial::{Test, tests};

/// Every step is bound unless it asks for something else; not so in one partition.
const ALWAYS: Kind =
    Kind::new("t-always", &["--machine", "two-cpu", "--nodes", "1", "--site-config", ALWAYS_FILE]);
/// The same, with a device cgroup around each step.
const ALWAYS_CONSTRAINED: Kind = Kind::new(
    "t-always-cgroup",
    &["--machine", "two-cpu", "--nodes", "1", "--constrain-devices", "--site-config", ALWAYS_FILE],
);
const ALWAYS_FILE: &str = "default = \"always\"\nmode = \"auto\"\n\
     [partition.other]\ndefault = \"on-request\"\nmode = \"ordered\"\nids = \"uuid\"\n";
/// Every step is bound, in the mode that is built in for steps that nobody asked for.
const ALWAYS_BUILT_IN: Kind = Kind::new(
    "t-always-mode",
    &["--machine", "two-cpu", "--nodes", "1", "--site-config", "default = \"always\"\n"],
);
/// Each layer has a say, and one GPU is for nobody.
const LAYERS: Kind = Kind::new(
    "t-layers",
    &[
        "--machine",
        "two-cpu",
        "--nodes",
        "1",
        "--plugstack",
        "mode=first rank-env=on",
        "--site-config",
        "mode = \"ordered\"\nids = \"uuid\"\nrank-env = \"off\"\nexclude = [\"0000:03:00.0\"]\n\
         [partition.other]\nmode = \"single\"\nids = \"index\"\n",
    ],
);
/// A mistake in the file's third line.
const BROKEN: Kind = Kind::new(
    "t-broken",
    &[
        "--machine",
        "two-cpu",
        "--nodes",
        "1",
        "--site-config",
        "default = \"always\"\n\nmdoe = \"first\"\n",
    ],
);

pub const TESTS: &[Test] = tests! {
    [ALWAYS, ALWAYS_CONSTRAINED]: the_site_binds_steps_that_nobody_asked_for;
    [ALWAYS, ALWAYS_CONSTRAINED, PLAIN]: slurms_own_binding_is_left_as_it_is;
    [ALWAYS, ALWAYS_CONSTRAINED]: off_wins_over_the_sites_default;
    [ALWAYS]:
        special_steps_and_steps_without_gpus_are_left_alone,
        a_batch_job_hands_nothing_down_but_its_requests,
        a_partition_has_its_own_policy;
    [ALWAYS_BUILT_IN]: a_step_that_nobody_asked_for_keeps_its_devices_in_a_better_order;
    [LAYERS]:
        each_layer_wins_over_the_one_below,
        an_excluded_gpu_is_given_to_no_rank;
    [BROKEN]: a_broken_site_file_stops_no_job;
};

const EIGHT: [&str; 3] = ["-N1", "-n8", "--gpus-per-node=8"];

fn sorted<'a>(tasks: &'a Tasks, name: &str) -> Vec<&'a str> {
    let mut values = each(tasks, name);
    values.sort_unstable();
    values
}

fn the_site_binds_steps_that_nobody_asked_for(cluster: &Cluster) {
    let (tasks, stderr) = cluster.tasks(&EIGHT);
    let numbers = ["0", "1", "2", "3", "4", "5", "6", "7"];
    assert_eq!(sorted(&tasks, "CUDA_VISIBLE_DEVICES"), numbers);
    assert_eq!(sorted(&tasks, "GPUBIND_GPU_INDEX"), numbers);
    assert_eq!(ours(&stderr), [""; 0]);
    // Nobody asked for ranks, and nothing of gpubind's is handed on.
    for name in ["RANK", "LOCAL_RANK", "SLURM_GPUBIND_JOB", "SLURM_GPUBIND_STEP"] {
        assert_eq!(each(&tasks, name), ["-"; 8], "{name}");
    }
    let (tasks, _) = cluster.tasks(&[&EIGHT[..], &["--gpu-bind=spank"]].concat());
    assert_eq!(sorted(&tasks, "RANK"), numbers, "who asks gets ranks");
    let (tasks, _) = cluster.tasks(&["-N1", "-n2", "--gpus-per-node=8"]);
    assert_eq!(
        each(&tasks, "CUDA_VISIBLE_DEVICES"),
        ["0,2,3,1", "4,6,7,5"],
        "shares in plan order"
    );
}

/// Steps for which Slurm has another order: by their options.
const SLURMS: [&str; 9] = [
    "-n4 --gpus-per-node=4 --gpu-bind=closest",
    "-n4 --gpus-per-node=4 --gpu-bind=none",
    "-n2 --gpus-per-node=4 --gpu-bind=map_gpu:1,0",
    "-n2 --gpus-per-node=4 --gpu-bind=single:1",
    "-n2 --gpus-per-task=1",
    "-n4 --ntasks-per-gpu=2",
    // Up to 25.05 Slurm does not bind where there is one task, and says nothing of it.
    "-n1 --gpus-per-node=4 --gpu-bind=closest",
    "-n1 --gpus-per-node=4 --gpu-bind=none",
    "-n1 --gpus-per-task=4",
];

/// Those steps' environments where the site binds, for the cluster without the plugin.
static WHERE_THE_SITE_BINDS: Mutex<BTreeMap<&str, Tasks>> = Mutex::new(BTreeMap::new());

fn slurms_own_binding_is_left_as_it_is(cluster: &Cluster) {
    let mut seen = WHERE_THE_SITE_BINDS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for options in SLURMS {
        let words: Vec<&str> = ["-N1"].into_iter().chain(options.split(' ')).collect();
        let run = |partition: &str| {
            let (tasks, stderr) = cluster.tasks(&[&["-p", partition], &words[..]].concat());
            assert_eq!(ours(&stderr), [""; 0], "{options}");
            let tasks = tasks.into_iter().map(|(rank, env)| (rank, comparable(env, cluster)));
            tasks.collect::<Tasks>()
        };
        let tasks = run("main");
        if cluster.kind == PLAIN {
            let with = seen.get(options).expect("needs the same test of t-always in the same run");
            assert_eq!(difference(with, &tasks).collect::<Vec<_>>(), [""; 0], "{options}");
            continue;
        }
        // In the other partition gpubind does not act.
        let other = run("other");
        let names_partition = |line: &String| line.contains("PARTITION");
        let differ: Vec<String> =
            difference(&tasks, &other).filter(|line| !names_partition(line)).collect();
        assert_eq!(differ, [""; 0], "{options}");
        if cluster.kind == ALWAYS {
            seen.insert(options, tasks);
        }
    }
}

fn off_wins_over_the_sites_default(cluster: &Cluster) {
    let step = ["-N1", "-n2", "--gpus-per-node=4"];
    let plain = cluster.tasks(&[&["-p", "other"], &step[..]].concat()).0;
    let as_plain = |tasks: &Tasks, how: &str| {
        for name in ["CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "GPUBIND_GPU_UUID"] {
            assert_eq!(each(tasks, name), each(&plain, name), "{name} with {how}");
        }
    };
    for option in ["--gpubind=off", "--gpu-bind=none,spank:off", "--gpu-bind=spank:off"] {
        as_plain(&cluster.tasks(&[&step[..], &[option]].concat()).0, option);
    }
    as_plain(&cluster.tasks_with(&[("SLURM_GPUBIND", "off")], &step).0, "SLURM_GPUBIND");
    for outer in [&["--gpubind=off"][..], &["--gpu-bind=spank:off"]] {
        let options = [&["-N1", "--gpus-per-node=4"], outer].concat();
        let ran = cluster.batch(&options, "srun --label --overcommit -n2 env");
        as_plain(&tasks_of(&ran.stdout), &format!("sbatch {outer:?}: {}", ran.stderr));
    }
    let script = "#SBATCH --gpubind=off\nsrun --label --overcommit -n2 env";
    let ran = cluster.batch(&["-N1", "--gpus-per-node=4"], script);
    as_plain(&tasks_of(&ran.stdout), "#SBATCH --gpubind=off");
}

fn special_steps_and_steps_without_gpus_are_left_alone(cluster: &Cluster) {
    let script = "echo $CUDA_VISIBLE_DEVICES-$GPUBIND_GPU_UUID-$CUDA_DEVICE_ORDER";
    let ran = cluster.batch(&["-N1", "--gpus-per-node=4"], script);
    assert_eq!(ran.stdout.trim(), "0,1,2,3--", "{}", ran.stderr);
    for options in [&[][..], &["--gpu-bind=closest"]] {
        let (tasks, stderr) = cluster.tasks(&[&["-N1", "-n2"], options].concat());
        for name in ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "SLURM_GPUBIND_STEP"] {
            assert_eq!(each(&tasks, name), ["-", "-"], "{name} with {options:?}");
        }
        assert_eq!(ours(&stderr), [""; 0]);
    }
}

fn a_batch_job_hands_nothing_down_but_its_requests(cluster: &Cluster) {
    let own = |options: &[&str], inner: &str| {
        let options = [&["-N1", "--gpus-per-node=4"], options].concat();
        let ran = cluster.batch(&options, &format!("srun --label --overcommit -n4 {inner} env"));
        let tasks = tasks_of(&ran.stdout);
        assert_eq!(tasks.len(), 4, "{}", ran.stderr);
        each(&tasks, "GPUBIND_GPU_INDEX").into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(own(&[], "").iter().all(|index| index.len() == 1), "the site's default");
    assert_eq!(own(&["--gpu-bind=closest"], ""), ["-"; 4]);
    assert_eq!(own(&[], "--gpu-bind=closest"), ["-"; 4]);
    assert!(own(&["--gpu-bind=closest"], "--gpu-bind=spank").iter().all(|index| index != "-"));
}

fn a_partition_has_its_own_policy(cluster: &Cluster) {
    let other = [&["-p", "other"], &EIGHT[..]].concat();
    let (tasks, _) = cluster.tasks(&other);
    assert_eq!(each(&tasks, "GPUBIND_GPU_UUID"), ["-"; 8]);
    let (tasks, _) = cluster.tasks(&[&other[..], &["--gpu-bind=spank"]].concat());
    for env in tasks.values() {
        let list: Vec<&str> = env["CUDA_VISIBLE_DEVICES"].split(',').collect();
        let rank: usize = env["SLURM_LOCALID"].parse().unwrap();
        assert_eq!(list.len(), 8);
        assert_eq!(list[rank], env["GPUBIND_GPU_UUID"]);
    }
}

fn each_layer_wins_over_the_one_below(cluster: &Cluster) {
    let uuids = cluster.uuids();
    // CUDA_VISIBLE_DEVICES of the second of two tasks, and its RANK.
    let second = |env: &[(&str, &str)], options: &[&str]| {
        let step = ["-N1", "-n2", "--gpus-per-node=2"];
        let (tasks, stderr) = cluster.tasks_with(env, &[&step[..], options].concat());
        assert_eq!(ours(&stderr), [""; 0], "{options:?}");
        let of = |name| each(&tasks, name)[1].to_owned();
        (of("CUDA_VISIBLE_DEVICES"), of("RANK"))
    };
    let lists = |numbers: &[usize]| {
        numbers.iter().map(|number| uuids[*number].as_str()).collect::<Vec<_>>().join(",")
    };
    let rank = || "1".to_owned();
    // gpubind.toml has the ids, plugstack.conf the mode and the ranks.
    assert_eq!(second(&[], &["--gpu-bind=spank"]), (lists(&[1, 0]), rank()));
    // The partition's table is above the file, and below plugstack.conf.
    let other = ["-p", "other", "--gpu-bind=spank"];
    assert_eq!(second(&[], &other), ("1,0".to_owned(), rank()));
    let personal = [("SLURM_GPUBIND", "single")];
    assert_eq!(second(&personal, &[]), (lists(&[1]), rank()));
    let line = ["--gpubind=ordered,ids=index,rank-env=off"];
    assert_eq!(second(&personal, &line), ("0,1".to_owned(), "-".to_owned()));
    // And nothing without a request.
    assert_eq!(second(&[], &[]), ("0,1".to_owned(), "-".to_owned()));
}

fn an_excluded_gpu_is_given_to_no_rank(cluster: &Cluster) {
    let step = ["-N1", "-n7", "--gpus-per-node=8", "--gpu-bind=spank:single"];
    let (tasks, stderr) = cluster.tasks(&step);
    assert_eq!(sorted(&tasks, "GPUBIND_GPU_INDEX"), ["0", "1", "3", "4", "5", "6", "7"]);
    assert_eq!(ours(&stderr), [""; 0]);
    let excluded = cluster.uuids().swap_remove(2);
    let (tasks, _) = cluster.tasks(&["-N1", "-n2", "--gpus-per-node=8", "--gpu-bind=spank"]);
    for env in tasks.values() {
        assert!(!env["CUDA_VISIBLE_DEVICES"].contains(&excluded), "first shows all others");
        assert_eq!(env["CUDA_VISIBLE_DEVICES"].split(',').count(), 7);
    }
}

fn a_step_that_nobody_asked_for_keeps_its_devices_in_a_better_order(cluster: &Cluster) {
    let step = ["-n4", "--gpus-per-node=8", "--cpu-bind=map_cpu:1,0,1,0"];
    let (tasks, stderr) = cluster.tasks(&step);
    assert_eq!(ours(&stderr), [""; 0]);
    for (task, env) in &tasks {
        // As many as without gpubind, and device SLURM_LOCALID is at the task's CPU.
        let list: Vec<u32> =
            env["CUDA_VISIBLE_DEVICES"].split(',').map(|gpu| gpu.parse().unwrap()).collect();
        let mut all = list.clone();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5, 6, 7]);
        let own = list[*task as usize];
        assert_eq!(own / 4, [1, 0, 1, 0][*task as usize], "GPUs 0-3 are at CPU 0: {list:?}");
        assert_eq!(env["GPUBIND_GPU_INDEX"], own.to_string());
        assert_eq!((env.get("RANK"), env.get("LD_PRELOAD")), (None, None));
    }
    // Who asks has one.
    let (tasks, _) = cluster.tasks(&["-n8", "-O", "--gpus-per-node=8", "--gpu-bind=spank"]);
    assert!(each(&tasks, "CUDA_VISIBLE_DEVICES").iter().all(|list| list.len() == 1));
}

fn a_broken_site_file_stops_no_job(cluster: &Cluster) {
    let said = "gpubind.toml: line 3: unknown key `mdoe`; did you mean `mode`?";
    let is_error = |line: &&str| line.contains("error: gpubind: ") && line.contains(said);
    let errors = || cluster.log().lines().filter(is_error).count();
    let before = errors();
    // As if the file were absent: nothing is bound by default.
    let (tasks, stderr) = cluster.tasks(&EIGHT);
    assert_eq!(each(&tasks, "GPUBIND_GPU_UUID"), ["-"; 8]);
    assert_eq!(each(&tasks, "CUDA_VISIBLE_DEVICES"), ["0,1,2,3,4,5,6,7"; 8]);
    let lines = ours(&stderr);
    assert_eq!(lines.len(), 1, "{stderr}");
    assert!(lines[0].contains("warning: ignoring /"), "{stderr}");
    assert!(lines[0].contains(said), "{stderr}");
    assert_eq!(errors() - before, 1, "one line in slurmd's log");
    // Who asks is served, and warned as well; who has switched warnings off is not.
    let (tasks, stderr) = cluster.tasks(&[&EIGHT[..], &["--gpu-bind=spank:strict"]].concat());
    assert!(each(&tasks, "GPUBIND_GPU_UUID").iter().all(|uuid| *uuid != "-"));
    assert_eq!(ours(&stderr).len(), 1, "{stderr}");
    for quiet in ["--gpubind=off", "--gpu-bind=closest"] {
        let (_, stderr) = cluster.tasks(&[&EIGHT[..], &[quiet]].concat());
        assert_eq!(ours(&stderr), [""; 0], "{quiet}");
    }
    // A step without GPUs does not look at the file.
    let before = errors();
    let (_, stderr) = cluster.tasks(&["-N1", "-n2"]);
    assert_eq!((ours(&stderr).len(), errors()), (0, before));
}
