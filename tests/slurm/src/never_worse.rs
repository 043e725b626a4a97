//! A step with gpubind is never worse than the same step without it.

use std::collections::BTreeSet;

use crate::cluster::{CONSTRAINED, Cluster, Kind, OPEN, each, ours};
use crate::trial::{Test, tests};

/// gres.conf has a ninth device file, of which NVML lists no GPU.
const NINTH: Kind = Kind::new(
    "t-ninth",
    &[
        "--machine",
        "two-cpu",
        "--nodes",
        "1",
        "--gres",
        "gpu:9",
        "--gres-conf",
        "Name=gpu File=/dev/nvidia[0-7]\nName=gpu File=/dev/nvidiactl",
    ],
);

pub const TESTS: &[Test] = tests! {
    [OPEN, CONSTRAINED]:
        no_variable_of_a_plain_step_is_missing,
        a_port_from_the_steps_gpus,
        a_submitter_that_sets_rank_variables_itself,
        a_script_that_takes_its_ranks_from_slurms_and_starts_torchrun,
        what_a_user_exports_in_a_bound_task_stays_the_users;
    [NINTH]: a_gpu_that_nvml_does_not_list_is_no_reason_to_take_another_jobs;
};

/// Lists that Slurm takes away under `none`.
const LISTS: [&str; 5] = [
    "CUDA_VISIBLE_DEVICES",
    "SLURM_STEP_GPUS",
    "GPU_DEVICE_ORDINAL",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
];

fn no_variable_of_a_plain_step_is_missing(cluster: &Cluster) {
    let step = ["-N1", "-n2", "-O", "--gpus-per-node=4"];
    let (plain, _) = cluster.tasks(&step);
    for request in [
        "--gpu-bind=spank",
        "--gpu-bind=spank:single",
        "--gpu-bind=spank:ordered",
        "--gpu-bind=spank:first,ids=uuid",
        "--gpu-bind=spank:off",
        "--gpu-bind=none,spank:off",
        "--gpubind=rank-env=off,workers=off",
    ] {
        let (bound, stderr) = cluster.tasks(&[&step[..], &[request]].concat());
        for (task, before) in &plain {
            let after = &bound[task];
            let missing: Vec<&String> =
                before.keys().filter(|name| !after.contains_key(*name)).collect();
            assert!(missing.is_empty(), "{request} takes {missing:?} away: {stderr}");
            assert_eq!(after["SLURM_STEP_GPUS"], before["SLURM_STEP_GPUS"], "{request}");
            if request.ends_with("off") && !request.contains("workers") {
                for name in LISTS {
                    assert_eq!(after.get(name), before.get(name), "{request}: {name}");
                }
            }
            // No rank reaches for a device that is not its step's.
            let devices = |env: &std::collections::BTreeMap<String, String>, name: &str| {
                let list = env[name].split(',').map(str::to_owned);
                list.collect::<BTreeSet<String>>()
            };
            if !request.contains("uuid") {
                let (own, all) = (
                    devices(after, "CUDA_VISIBLE_DEVICES"),
                    devices(before, "CUDA_VISIBLE_DEVICES"),
                );
                assert!(own.is_subset(&all), "{request}: {own:?} of {all:?}");
            }
        }
    }
}

/// A start-up helper that makes a port of the step's smallest GPU number.
fn a_port_from_the_steps_gpus(cluster: &Cluster) {
    let port = "echo 0: PORT=$((12345 + ${SLURM_STEP_GPUS%%,*}))";
    for request in ["--gpu-bind=spank", "--gpu-bind=spank:off", "--mem=0"] {
        let step = ["srun", "-N1", "-n2", "-O", "--gpus-per-node=4", request, "bash", "-uc", port];
        let ran = cluster.run(&step);
        assert_eq!(ran.code, Some(0), "{request}: {}", ran.stderr);
        assert_eq!(ran.stdout.lines().collect::<Vec<_>>(), ["0: PORT=12345"; 2], "{request}");
    }
}

/// submitit's helper exports rank variables, and refuses where one is there already.
fn a_submitter_that_sets_rank_variables_itself(cluster: &Cluster) {
    let helper = "for name in MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK; do \
                  [ -z \"${!name+x}\" ] || { echo \"already set: $name\" >&2; exit 1; }; done";
    let step =
        ["srun", "-N1", "-n2", "-O", "--gpus-per-node=2", "--gpu-bind=spank", "bash", "-c", helper];
    let ran = cluster.run_with(&[("SUBMITIT_EXECUTOR", "slurm")], &step);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert_ne!(cluster.run(&step).code, Some(0), "without its mark the variables are there");
}

fn a_script_that_takes_its_ranks_from_slurms_and_starts_torchrun(cluster: &Cluster) {
    // The launcher itself must not be taken for its first worker.
    let worker = "echo $LOCAL_RANK: GPU=$CUDA_VISIBLE_DEVICES";
    let launcher = format!(
        "echo 9: GPU=$CUDA_VISIBLE_DEVICES; for k in 0 1 2 3; do \
         GPUBIND_LOCAL_RANK= LOCAL_RANK=$k RANK=$k LOCAL_WORLD_SIZE=4 TORCHELASTIC_RUN_ID=none \
         sh -c '{worker}'; done"
    );
    let script =
        "export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID; bash -c \"$LAUNCHER\"; exit $?";
    let step =
        ["srun", "-N1", "-n1", "--gpus-per-node=4", "--gpu-bind=spank", "bash", "-c", script];
    let ran = cluster.run_with(&[("LAUNCHER", &launcher)], &step);
    let lists: Vec<&str> =
        ran.stdout.lines().filter_map(|line| line.split("GPU=").nth(1)).collect();
    assert_eq!(lists.len(), 5, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(lists[0].split(',').count(), 4, "the launcher keeps all: {}", ran.stdout);
    assert_eq!(lists[1..].join(","), lists[0], "{}", ran.stdout);
}

fn what_a_user_exports_in_a_bound_task_stays_the_users(cluster: &Cluster) {
    let inner = |script: &str, inner: &str| {
        let script = format!("{script}; srun --overlap -O --label -n1 {inner} env");
        let step = ["-N1", "-n1", "--gpus-per-node=1", "--gpu-bind=spank"];
        let ran = cluster.run(&[&["srun"], &step[..], &["bash", "-c", &script]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        crate::cluster::tasks_of(&ran.stdout)
    };
    for request in ["", "--gpu-bind=spank", "--gpubind=off"] {
        let tasks = inner("export MASTER_ADDR=10.9.8.7 RANK=42", request);
        assert_eq!(each(&tasks, "MASTER_ADDR"), ["10.9.8.7"], "{request}");
        assert_eq!(each(&tasks, "RANK"), ["42"], "{request}");
    }
    // And what gpubind has set for the outer step is not handed on.
    for request in ["--gpubind=off", "--gpu-bind=none"] {
        let tasks = inner("true", request);
        for name in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "GPUBIND_GPU_UUID"] {
            assert_eq!(each(&tasks, name), ["-"], "{name} with {request}");
        }
    }
}

fn a_gpu_that_nvml_does_not_list_is_no_reason_to_take_another_jobs(cluster: &Cluster) {
    let mut other = cluster.command(&["srun", "-n1", "--gres=gpu:8", "sleep", "60"]);
    let mut other = other.spawn().unwrap();
    for _ in 0..100 {
        if cluster.run(&["squeue", "-h", "-t", "R"]).stdout.lines().count() == 1 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let step = ["-n1", "--gres=gpu:1"];
    let (plain, _) = cluster.tasks(&step);
    assert_eq!(each(&plain, "CUDA_VISIBLE_DEVICES"), ["8"]);
    let (tasks, stderr) = cluster.tasks(&[&step[..], &["--gpu-bind=spank"]].concat());
    assert_eq!(each(&tasks, "CUDA_VISIBLE_DEVICES"), ["8"], "{stderr}");
    let said = ours(&stderr);
    assert!(said.len() == 1 && said[0].contains("warning: "), "{stderr}");
    assert!(said[0].contains("none of the 8 GPUs that NVML lists"), "{stderr}");
    let strict = ["srun", "-n1", "--gres=gpu:1", "--gpu-bind=spank:strict", "true"];
    let ran = cluster.run(&strict);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let jobs = ["scancel", "-u", "root"];
    assert_eq!(cluster.run(&jobs).code, Some(0));
    other.wait().unwrap();
}
