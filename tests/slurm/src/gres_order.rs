//! Which GPU each of Slurm's indices means, where gres.conf does not list all of them.

use std::thread::sleep;
use std::time::{Duration, Instant};

use gpubind_core::node::snapshot::Snapshot;

use crate::cluster::{CONSTRAINED, Cluster, Kind, OPEN, each, ours};
use crate::trial::{Test, tests};

/// The first GPU is kept back, from Slurm and from gpubind.
const KEPT_BACK: Kind = Kind::new(
    "t-kept",
    &[
        "--machine",
        "hgx-h100",
        "--nodes",
        "1",
        "--gres",
        "gpu:7",
        "--gres-conf",
        "Name=gpu File=/dev/nvidia[1-7]",
        "--site-config",
        "exclude = [\"0000:1b:00.0\"]",
    ],
);

pub const TESTS: &[Test] = tests! {
    [OPEN, CONSTRAINED, KEPT_BACK]: the_snapshot_has_slurms_order;
    [KEPT_BACK]: a_gpu_that_is_kept_back_goes_to_nobody;
};

/// The snapshot that slurmd has had taken when it started.
fn snapshot(cluster: &Cluster) -> Snapshot {
    let file = cluster.folder().join("root/run/gpubind/node.json");
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match std::fs::read(&file) {
            Ok(bytes) => return Snapshot::parse(&bytes).unwrap(),
            Err(error) => assert!(Instant::now() < deadline, "no snapshot: {error}"),
        }
        sleep(Duration::from_millis(50));
    }
}

fn the_snapshot_has_slurms_order(cluster: &Cluster) {
    let minors = snapshot(cluster).node.gres_minors;
    let gpus = cluster.machine().gpus.len() as u32;
    let first = u32::from(cluster.kind == KEPT_BACK);
    assert_eq!(minors, Some((first..gpus).collect()), "slurmd hands its SLURM_CONF on");
}

fn a_gpu_that_is_kept_back_goes_to_nobody(cluster: &Cluster) {
    for tasks in [1, 2, 7] {
        let (ntasks, gres) = (format!("-n{tasks}"), format!("--gres=gpu:{tasks}"));
        let (found, stderr) = cluster.tasks(&["-N1", &ntasks, &gres, "--gpu-bind=spank"]);
        let mut gpus = each(&found, "GPUBIND_GPU_INDEX");
        gpus.sort_unstable();
        let expected: Vec<String> = (1..=tasks).map(|gpu| gpu.to_string()).collect();
        assert_eq!(gpus, expected);
        assert_eq!(ours(&stderr), [""; 0]);
    }
}
