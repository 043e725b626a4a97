//! Which devices a step owns, with and without a device cgroup.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::cluster::{CONSTRAINED, Cluster, OPEN, each};
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [OPEN, CONSTRAINED]:
        upper_half_of_the_node,
        a_gap_in_the_middle,
        part_of_the_jobs_gpus;
    [CONSTRAINED]: gpus_per_task_hides_no_peer;
};

/// Runs `work` while other jobs hold GPUs of the first node: one job for each
/// number of GPUs. Jobs listed in `freed` end before `work` begins.
fn while_held(cluster: &Cluster, held: &[u32], freed: &[usize], work: impl FnOnce()) {
    let node = cluster.node(0);
    let mut jobs = Vec::new();
    for gpus in held {
        let gpus = format!("--gpus-per-node={gpus}");
        let ran = cluster.run(&[
            "sbatch",
            "--parsable",
            "-o",
            "/dev/null",
            "-w",
            &node,
            &gpus,
            "--wrap",
            "sleep 120",
        ]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let job = ran.stdout.trim().to_owned();
        wait_for(cluster, &job, "RUNNING");
        jobs.push(job);
    }
    for position in freed {
        cluster.run(&["scancel", &jobs[*position]]);
        wait_for(cluster, &jobs[*position], "");
    }
    work();
    for job in &jobs {
        cluster.run(&["scancel", job]);
        wait_for(cluster, job, "");
    }
}

/// Waits until a job is in a state; none: until it has left the queue.
fn wait_for(cluster: &Cluster, job: &str, state: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let queue = cluster.run(&["squeue", "-h", "-j", job, "-t", "all", "-o", "%T"]);
        let now = queue.stdout.trim();
        let gone = !matches!(now, "PENDING" | "RUNNING" | "COMPLETING");
        if now == state || (state.is_empty() && gone) {
            return;
        }
        assert!(Instant::now() < deadline, "job {job} is {now:?}, not {state:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Checks a step on the first node: its tasks get just these GPUs, and reach
/// them all.
fn gets(cluster: &Cluster, gpus: &[usize]) {
    let node = cluster.node(0);
    let count = gpus.len().to_string();
    let per_node = format!("--gpus-per-node={count}");
    let options = ["-w", &node, "-N1", "-n", &count, &per_node, "--gpu-bind=spank"];
    let (tasks, stderr) = cluster.tasks(&options);
    let mut found: Vec<usize> = each(&tasks, "GPUBIND_GPU_INDEX")
        .iter()
        .map(|index| index.parse().unwrap_or_else(|_| panic!("no GPU: {stderr}")))
        .collect();
    found.sort_unstable();
    assert_eq!(found, gpus, "the devices of the step");
    let uuids = cluster.uuids();
    for env in tasks.values() {
        let index: usize = env["GPUBIND_GPU_INDEX"].parse().unwrap();
        assert_eq!(env["GPUBIND_GPU_UUID"], uuids[index]);
        // What CUDA will count: all of the node's GPUs, or only the reachable.
        let ordinal = match cluster.kind {
            CONSTRAINED => gpus.iter().position(|gpu| *gpu == index).unwrap(),
            _ => index,
        };
        assert_eq!(env["CUDA_VISIBLE_DEVICES"], ordinal.to_string());
    }
    let reachable = reachable(cluster, &[&options[..]].concat());
    let expected = match cluster.kind {
        CONSTRAINED => gpus.to_vec(),
        _ => (0..8).collect(),
    };
    assert!(reachable.iter().all(|task| *task == expected), "{reachable:?}");
}

/// The minor numbers of the GPUs that each task may open.
fn reachable(cluster: &Cluster, options: &[&str]) -> Vec<Vec<usize>> {
    let dev = cluster.folder().join("root/dev");
    let script = format!(
        "r=; for g in 0 1 2 3 4 5 6 7; do [ -w {}/nvidia$g ] && r=$r$g; done; echo $r",
        dev.display()
    );
    let words = [&["srun"], options, &["sh", "-c", &script]].concat();
    let ran = cluster.run(&words);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let digits = |line: &str| line.bytes().map(|digit| usize::from(digit - b'0')).collect();
    ran.stdout.lines().map(digits).collect()
}

fn upper_half_of_the_node(cluster: &Cluster) {
    while_held(cluster, &[4], &[], || gets(cluster, &[4, 5, 6, 7]));
}

fn a_gap_in_the_middle(cluster: &Cluster) {
    // Jobs hold 0, 1 and 2-3, then the first and the last are gone.
    while_held(cluster, &[1, 1, 2], &[0, 2], || gets(cluster, &[0, 2, 3]));
}

fn part_of_the_jobs_gpus(cluster: &Cluster) {
    // Two steps of one job side by side, each with half of its GPUs.
    let script = "for step in 1 2; do
        srun --exact --overcommit --label -n2 --gpus-per-node=2 --gpu-bind=spank \
            sh -c 'env; sleep 1' >$SLURM_SUBMIT_DIR/step$step &
    done; wait";
    let folder = cluster.folder();
    let mut sbatch = cluster.command(&[
        "sbatch",
        "--wait",
        "-o",
        "/dev/null",
        "-N1",
        "--gpus-per-node=4",
        "--wrap",
        script,
    ]);
    let done = sbatch.current_dir(&folder).stderr(Stdio::piped()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut all = Vec::new();
    for step in ["step1", "step2"] {
        let text = std::fs::read_to_string(folder.join(step)).unwrap();
        let tasks = crate::cluster::tasks_of(&text);
        assert_eq!(tasks.len(), 2, "{text}");
        all.extend(each(&tasks, "GPUBIND_GPU_INDEX").iter().map(|gpu| (*gpu).to_owned()));
    }
    all.sort_unstable();
    assert_eq!(all, ["0", "1", "2", "3"]);
}

fn gpus_per_task_hides_no_peer(cluster: &Cluster) {
    let step = ["-N1", "-n4", "--gpus-per-task=1"];
    let plain = reachable(cluster, &step);
    assert!(plain.iter().all(|task| task.len() == 1), "Slurm alone hides peers: {plain:?}");
    let asked = [&step[..], &["--gpu-bind=spank"]].concat();
    let bound = reachable(cluster, &asked);
    assert!(bound.iter().all(|task| task.len() == 4), "{bound:?}");
    let (tasks, _) = cluster.tasks(&asked);
    let mut visible = each(&tasks, "CUDA_VISIBLE_DEVICES");
    visible.sort_unstable();
    assert_eq!(visible, ["0", "1", "2", "3"]);
}
