//! What a user can write into a step's environment, nonsense for the most part: tasks are
//! bound as ever, and have what the user wrote where it is the user's.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::cluster::{CONSTRAINED, Cluster, OPEN, Ran, each, ours, tasks_of};
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [OPEN, CONSTRAINED]:
        nonsense_in_the_environment_changes_no_binding,
        a_preload_that_is_no_text_is_kept_byte_by_byte,
        a_step_that_exports_nothing_is_bound;
};

/// What Slurm sets in a task over what it finds, and what gpubind reads or sets. Not
/// SLURM_GPUBIND, whose nonsense stops srun, nor what srun itself refuses.
const VARIABLES: [&str; 24] = [
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "GPU_DEVICE_ORDINAL",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "SLURM_STEP_GPUS",
    "SLURM_JOB_GPUS",
    "SLURM_GPUS_ON_NODE",
    "SLURM_LOCALID",
    "SLURM_PROCID",
    "SLURM_NODEID",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_STEP_NODELIST",
    "SLURM_CPU_BIND_LIST",
    "SLURM_CPU_BIND_TYPE",
    "SLURMD_TRES_BIND",
    "GPUBIND_VISIBLE",
    "GPUBIND_GPU_UUID",
    "GPUBIND_GPU_INDEX",
    "GPUBIND_LOCAL_RANK",
    "GPUBIND_WHY",
    "GPUBIND_WORKERS",
    "SLURM_GPUBIND_JOB",
    "OMPI_COMM_WORLD_LOCAL_RANK",
];

fn step(cluster: &Cluster, set: &[OsString], options: &[&str], program: &[&str]) -> Ran {
    let mut command = cluster.command(&["env"]);
    command.args(set).args(["srun", "--label", "-O", "-N1"]).args(options).args(program);
    Ran::from(command.output().unwrap())
}

fn nonsense_in_the_environment_changes_no_binding(cluster: &Cluster) {
    let long = vec![b'7'; 128 * 1024 - 64];
    let values: [&[u8]; 7] = [
        b"",
        b"\n\n0,1\n",
        b"\xff\xfe\x80",
        b"18446744073709551616",
        b"-1,GPU-,MIG-GPU-x/1/2,[0-4294967295]",
        b"0,0,0,9,,\x1b[31m",
        &long,
    ];
    let print = ["sh", "-c", "env -0 | tr '\\n\\0' ' \\n' | cut -c-200"];
    for value in values {
        // So long a value fits a few times only.
        let all = if value.len() > 1000 { &VARIABLES[..6] } else { &VARIABLES };
        let pair = |name: &&str| OsString::from_vec([name.as_bytes(), b"=", value].concat());
        let set: Vec<OsString> = all.iter().map(pair).collect();
        let shown = String::from_utf8_lossy(&value[..value.len().min(20)]).into_owned();
        let options = ["-n4", "--gpus-per-node=4", "--gpu-bind=spank"];
        let ran = step(cluster, &set, &options, &print);
        assert_eq!(ran.code, Some(0), "{shown:?}: {}", ran.stderr);
        let tasks = tasks_of(&ran.stdout);
        let mut visible = each(&tasks, "CUDA_VISIBLE_DEVICES");
        visible.sort_unstable();
        assert_eq!(visible, ["0", "1", "2", "3"], "{shown:?}: {}", ran.stderr);
        assert_eq!(each(&tasks, "GPUBIND_LOCAL_RANK"), ["0", "1", "2", "3"], "{shown:?}");
        for (uuid, gpu) in
            each(&tasks, "GPUBIND_GPU_UUID").into_iter().zip(each(&tasks, "CUDA_VISIBLE_DEVICES"))
        {
            assert_eq!(uuid, cluster.uuids()[gpu.parse::<usize>().unwrap()], "{shown:?}");
        }
        assert!(ours(&ran.stderr).iter().all(|line| line.len() < 400), "{shown:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains('\x1b'), "{shown:?}: {}", ran.stderr);
    }
}

fn a_preload_that_is_no_text_is_kept_byte_by_byte(cluster: &Cluster) {
    // Two GPUs for one task: the worker shim is preloaded.
    let preload = OsStr::from_bytes(b"LD_PRELOAD=/nonexistent/\xff\xfe.so").to_owned();
    let print = ["sh", "-c", "printf %s \"$LD_PRELOAD\" | od -An -tx1 -v"];
    for (options, is_armed) in [
        (["-n1", "--gpus-per-node=2", "--gpu-bind=spank"], true),
        (["-n2", "--gpus-per-node=2", "--gpu-bind=spank"], false),
    ] {
        // By the task's own shell: each program of Slurm's would complain, too.
        let ran = step(cluster, std::slice::from_ref(&preload), &options, &print);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let bytes = |line: &str| -> Vec<u8> {
            let digits = line.split_once(':').map_or("", |(_, digits)| digits);
            digits.split_whitespace().map(|it| u8::from_str_radix(it, 16).unwrap()).collect()
        };
        let mut first: Vec<u8> = Vec::new();
        ran.stdout
            .lines()
            .filter(|line| line.starts_with("0:"))
            .for_each(|line| first.extend(bytes(line)));
        assert!(first.ends_with(b"/nonexistent/\xff\xfe.so"), "{}", ran.stdout);
        let shim = b"libgpubind_worker.so";
        assert_eq!(first.windows(shim.len()).any(|part| part == shim), is_armed);
    }
}

fn a_step_that_exports_nothing_is_bound(cluster: &Cluster) {
    for export in ["--export=NIL", "--export=NONE"] {
        let options = ["-n4", "--gpus-per-node=4", "--gpu-bind=spank", export];
        let ran = step(cluster, &[OsString::from("NOISE=1")], &options, &["/usr/bin/env"]);
        assert_eq!((ran.code, ours(&ran.stderr).len()), (Some(0), 0), "{export}: {}", ran.stderr);
        let tasks = tasks_of(&ran.stdout);
        let mut visible = each(&tasks, "CUDA_VISIBLE_DEVICES");
        visible.sort_unstable();
        assert_eq!(visible, ["0", "1", "2", "3"], "{export}");
        assert_eq!(each(&tasks, "NOISE"), ["-"; 4], "{export}");
    }
}
