//! Nodes on which Slurm names devices by UUID: AutoDetect, and MIG instances.

use gpubind_core::node::MigInstance;

use crate::cluster::{Cluster, Kind, Tasks, each, ours};
use crate::trial::{Test, tests};

const WHOLE: Kind =
    Kind { detected: true, ..Kind::new("t-uuid", &["--machine", "two-cpu", "--nodes", "1"]) };
const WHOLE_CONSTRAINED: Kind = Kind {
    detected: true,
    ..Kind::new("t-uuid-cgroup", &["--machine", "two-cpu", "--nodes", "1", "--constrain-devices"])
};
/// GPU 0 in two MIG instances, GPU 1 in four, GPU 2 whole.
const MIG: Kind =
    Kind { detected: true, ..Kind::new("t-mig", &["--machine", "a100-mig-mixed", "--nodes", "1"]) };
const MIG_CONSTRAINED: Kind = Kind {
    detected: true,
    ..Kind::new(
        "t-mig-cgroup",
        &["--machine", "a100-mig-mixed", "--nodes", "1", "--constrain-devices"],
    )
};

/// The same machine, whose admin has written the instances into gres.conf. The second file
/// of an instance is some other that is there: slurmd looks that each is, and used once.
const BY_HAND: Kind = Kind::new(
    "t-mig-hand",
    &[
        "--machine",
        "a100-mig-mixed",
        "--nodes",
        "1",
        "--gres",
        "gpu:3g.20gb:2,gpu:1g.5gb:2,gpu:a100:1",
        "--gres-conf",
        "Name=gpu Type=3g.20gb MultipleFiles=/dev/nvidia0,/proc/version\n\
         Name=gpu Type=3g.20gb MultipleFiles=/dev/nvidia0,/proc/uptime\n\
         Name=gpu Type=1g.5gb MultipleFiles=/dev/nvidia1,/proc/stat\n\
         Name=gpu Type=1g.5gb MultipleFiles=/dev/nvidia1,/proc/meminfo\n\
         Name=gpu Type=a100 File=/dev/nvidia2",
    ],
);

pub const TESTS: &[Test] = tests! {
    [WHOLE, WHOLE_CONSTRAINED]: a_list_of_uuids;
    [MIG, MIG_CONSTRAINED]:
        mig_instances_go_by_uuid,
        mig_instances_of_one_gpu_are_neighbours;
    [BY_HAND]: numbers_of_instances_name_no_gpu;
};

/// One variable of each task, which must all differ, sorted.
fn distinct(tasks: &Tasks, name: &str) -> Vec<String> {
    let mut values: Vec<String> = each(tasks, name).iter().map(ToString::to_string).collect();
    values.sort_unstable();
    let count = values.len();
    values.dedup();
    assert_eq!(values.len(), count, "{name}: {values:?}");
    values
}

fn sorted(mut uuids: Vec<String>) -> Vec<String> {
    uuids.sort_unstable();
    uuids
}

fn a_list_of_uuids(cluster: &Cluster) {
    let step = ["-N1", "-n8", "--gpus-per-node=8", "--cpu-bind=map_cpu:1,1,1,1,0,0,0,0"];
    let plain = cluster.tasks(&step).0;
    let uuids = cluster.uuids();
    assert_eq!(each(&plain, "CUDA_VISIBLE_DEVICES"), vec![uuids.join(","); 8], "Slurm's list");
    // UUIDs in, and out what the request says.
    let (tasks, stderr) = cluster.tasks(&[&step[..], &["--gpu-bind=spank"]].concat());
    assert_eq!(distinct(&tasks, "CUDA_VISIBLE_DEVICES"), ["0", "1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!(each(&tasks, "GPUBIND_NUMA_NODE"), ["1", "1", "1", "1", "0", "0", "0", "0"]);
    assert_eq!(each(&tasks, "CUDA_VISIBLE_DEVICES"), each(&tasks, "GPUBIND_GPU_INDEX"));
    assert_eq!(ours(&stderr), [""; 0]);
    let (tasks, _) = cluster.tasks(&[&step[..], &["--gpu-bind=spank:ids=uuid"]].concat());
    assert_eq!(distinct(&tasks, "CUDA_VISIBLE_DEVICES"), sorted(uuids));
    assert_eq!(each(&tasks, "CUDA_VISIBLE_DEVICES"), each(&tasks, "GPUBIND_GPU_UUID"));
    // Part of the node.
    let (tasks, _) = cluster.tasks(&["-N1", "-n3", "--gpus-per-node=3", "--gpu-bind=spank"]);
    assert_eq!(distinct(&tasks, "GPUBIND_GPU_INDEX"), ["0", "1", "2"]);
}

/// UUIDs of the MIG instances of the GPUs from `first` to `last`.
fn instances(cluster: &Cluster, first: usize, last: usize) -> Vec<String> {
    let uuid = |instance: &MigInstance| instance.uuid.clone();
    cluster.machine().gpus[first..=last].iter().flat_map(|gpu| gpu.mig.iter().map(uuid)).collect()
}

fn mig_instances_go_by_uuid(cluster: &Cluster) {
    let step = ["-N1", "-n6", "--gpus-per-node=6"];
    let mig = sorted(instances(cluster, 0, 1));
    assert_eq!(mig.len(), 6);
    for request in ["--gpu-bind=spank", "--gpu-bind=spank:ids=index,single"] {
        let (tasks, stderr) = cluster.tasks(&[&step[..], &[request]].concat());
        assert_eq!(distinct(&tasks, "CUDA_VISIBLE_DEVICES"), mig, "{request}");
        assert_eq!(each(&tasks, "CUDA_VISIBLE_DEVICES"), each(&tasks, "GPUBIND_GPU_UUID"));
        assert_eq!(ours(&stderr), [""; 0]);
    }
    // A whole GPU beside them has no number that CUDA would agree with.
    let (tasks, _) = cluster.tasks(&["-N1", "-n7", "--gpus-per-node=7", "--gpu-bind=spank"]);
    let whole = cluster.uuids()[2].clone();
    let all = sorted([&mig[..], std::slice::from_ref(&whole)].concat());
    assert_eq!(distinct(&tasks, "CUDA_VISIBLE_DEVICES"), all);
}

fn mig_instances_of_one_gpu_are_neighbours(cluster: &Cluster) {
    // Two instances of GPU 0 and four of GPU 1: neighbours in rank share a GPU.
    let (tasks, _) = cluster.tasks(&["-N1", "-n6", "--gpus-per-node=6", "--gpu-bind=spank"]);
    assert_eq!(each(&tasks, "GPUBIND_GPU_INDEX"), ["0", "0", "1", "1", "1", "1"]);
    // Each of two tasks keeps three.
    let (tasks, _) = cluster.tasks(&["-N1", "-n2", "--gpus-per-node=6", "--gpu-bind=spank"]);
    let lists = each(&tasks, "CUDA_VISIBLE_DEVICES").join(",");
    let listed: Vec<String> = lists.split(',').map(str::to_owned).collect();
    assert_eq!(sorted(listed), sorted(instances(cluster, 0, 1)), "{lists}");
}

/// Slurm's numbers count lines of gres.conf, and CUDA's neither these nor instances.
fn numbers_of_instances_name_no_gpu(cluster: &Cluster) {
    for gres in ["gpu:1g.5gb:2", "gpu:3g.20gb:2", "gpu:a100:1"] {
        let gres = format!("--gres={gres}");
        let step = ["-N1", "-n2", "-O", &gres];
        let (plain, _) = cluster.tasks(&step);
        let lists = each(&plain, "CUDA_VISIBLE_DEVICES");
        let (tasks, stderr) = cluster.tasks(&[&step[..], &["--gpu-bind=spank"]].concat());
        for name in ["CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS"] {
            assert_eq!(each(&tasks, name), each(&plain, name), "{gres}: {name}");
        }
        let why = format!(
            "CUDA_VISIBLE_DEVICES={} does not say which MIG instances the step has",
            lists[0]
        );
        let said = ours(&stderr);
        assert!(said.len() == 1 && said[0].contains(&why), "{stderr}");
        let strict = [&["srun"], &step[..], &["--gpu-bind=spank:strict", "true"]].concat();
        let ran = cluster.run(&strict);
        assert!(ran.code == Some(1) && ran.stderr.contains(&why), "{}", ran.stderr);
    }
}
