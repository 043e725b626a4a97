//! Containers that a step's own programs start: real bubblewrap, Charliecloud, proot,
//! unshare, podman; and Slurm's own, by runc.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::cluster::{CONTAINERS, Cluster, OCI, Ran, Tasks, each, ours, tasks_of};
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [CONTAINERS]:
        a_rank_in_each_container_has_its_gpu,
        the_linker_says_nothing_below_an_armed_task,
        a_worker_that_is_a_container_has_one_gpu,
        a_launcher_is_known_by_the_start_of_its_name,
        podman_has_what_is_handed_on,
        exec_in_podman_does_not_guess;
    [OCI]:
        slurm_s_own_container_has_each_rank_s_list;
};

const RANKS: [&str; 4] = ["-n4", "--overcommit", "--gpus-per-node=4", "--gpu-bind=spank"];
const ONE: [&str; 3] = ["-n1", "--gpus-per-node=4", "--gpu-bind=spank"];

/// A root of a shell, env(1) and gpubind, without the worker shim.
fn image(cluster: &Cluster) -> tempfile::TempDir {
    let image = tempfile::Builder::new().prefix("gpubind-image").tempdir().unwrap();
    let root = image.path();
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
    for folder in ["proc", "dev", "sys", "tmp", "etc", "run", "home", "mnt", "root", "var"] {
        fs::create_dir(root.join(folder)).unwrap();
    }
    // Charliecloud brings these in.
    for file in ["passwd", "group", "hosts", "resolv.conf"] {
        fs::write(root.join("etc").join(file), "").unwrap();
    }
    let (node, program) = (cluster.folder().join("root"), cluster.program());
    fs::create_dir_all(root.join(node.strip_prefix("/").unwrap())).unwrap();
    let script = format!(
        "files='/bin/sh /usr/bin/env /usr/bin/sed {}'; cp --dereference --parents $files \
         $(ldd $files | grep -o '/lib[^ ]*' | sort -u) {}",
        program.display(),
        root.display()
    );
    let copied = cluster.run(&["sh", "-c", &script]);
    assert_eq!(copied.code, Some(0), "{}", copied.stderr);
    image
}

/// How each of them runs a command in a root.
fn launchers(root: &Path) -> [String; 4] {
    let root = root.display();
    [
        format!("bwrap --ro-bind {root} / --proc /proc --dev-bind /dev /dev"),
        format!("env USER=root ch-run {root} --"),
        format!("proot -r {root} -b /proc -w /"),
        format!("unshare --root {root}"),
    ]
}

fn root_of(image: &tempfile::TempDir) -> &str {
    image.path().to_str().unwrap()
}

fn run(cluster: &Cluster, options: &[&str], script: &str) -> Ran {
    let ran = cluster.run(&[&["srun", "-Q", "--label"], options, &["sh", "-c", script]].concat());
    assert_eq!(ran.code, Some(0), "{script}: {}", ran.stderr);
    ran
}

fn quiet(cluster: &Cluster, options: &[&str], script: &str) -> Tasks {
    let ran = run(cluster, options, script);
    assert_eq!(ran.stderr, "", "{script}");
    tasks_of(&ran.stdout)
}

fn different(lists: &[&str]) -> usize {
    assert!(!lists.contains(&"-"), "{lists:?}");
    lists.iter().collect::<BTreeSet<_>>().len()
}

fn a_rank_in_each_container_has_its_gpu(cluster: &Cluster) {
    let image = image(cluster);
    for launcher in launchers(image.path()) {
        let tasks = quiet(cluster, &RANKS, &format!("exec {launcher} env"));
        assert_eq!(different(&each(&tasks, "CUDA_VISIBLE_DEVICES")), 4, "{launcher}");
    }
}

fn the_linker_says_nothing_below_an_armed_task(cluster: &Cluster) {
    let image = image(cluster);
    for launcher in launchers(image.path()) {
        // In the task's own process, and in one below it.
        for exec in ["exec ", ""] {
            let script = format!("{exec}{launcher} sh -c 'sh -c true; env'");
            let tasks = quiet(cluster, &ONE, &script);
            assert_eq!(each(&tasks, "LD_PRELOAD"), ["-"], "{launcher}");
            let list = each(&tasks, "CUDA_VISIBLE_DEVICES")[0];
            assert_eq!(list.split(',').count(), 4, "{launcher}");
        }
    }
}

/// The lists of four workers, `$k` their number, that are each this command.
fn workers(cluster: &Cluster, command: &str) -> Vec<String> {
    let script = format!(
        "for k in 0 1 2 3; do export OMPI_COMM_WORLD_LOCAL_RANK=$k OMPI_COMM_WORLD_LOCAL_SIZE=4; \
         {command} env | sed \"s/^/W$k/\"; done"
    );
    let task = quiet(cluster, &ONE, &script).remove(&0).unwrap();
    (0..4).map(|k| task[&format!("W{k}CUDA_VISIBLE_DEVICES")].clone()).collect()
}

fn a_worker_that_is_a_container_has_one_gpu(cluster: &Cluster) {
    let image = image(cluster);
    for launcher in launchers(image.path()) {
        let lists = workers(cluster, &launcher);
        assert_eq!(lists.iter().collect::<BTreeSet<_>>().len(), 4, "{launcher}: {lists:?}");
        assert!(lists.iter().all(|list| !list.contains(',')), "{launcher}: {lists:?}");
    }
}

fn a_launcher_is_known_by_the_start_of_its_name(cluster: &Cluster) {
    let image = image(cluster);
    let folder = tempfile::tempdir().unwrap();
    // udocker's own.
    let proot = folder.path().join("proot-x86_64-4_8_0");
    fs::copy("/usr/bin/proot", &proot).unwrap();
    let script = format!("{} -r {} -b /proc -w / env", proot.display(), image.path().display());
    let tasks = quiet(cluster, &ONE, &script);
    assert_eq!(each(&tasks, "LD_PRELOAD"), ["-"]);
}

/// The limits of a step are no higher than slurmd's, and podman wants to raise them.
const PODMAN: &str = "podman --runtime runc run --rm --network=none --ulimit=nofile=1024:1024 \
                      --ulimit=nproc=1000:1000";
const ALL: &str = "-e 'SLURM*' -e 'CUDA*' -e 'GPUBIND*'";

fn podman_has_what_is_handed_on(cluster: &Cluster) {
    let image = image(cluster);
    let podman = |options: &str| {
        let script = format!("{PODMAN} {options} --rootfs {} env", image.path().display());
        tasks_of(&run(cluster, &RANKS, &script).stdout)
    };
    assert_eq!(each(&podman(""), "CUDA_VISIBLE_DEVICES"), ["-"; 4]);
    let tasks = podman(ALL);
    let lists = each(&tasks, "CUDA_VISIBLE_DEVICES");
    assert_eq!(different(&lists), 4);
    assert_eq!(lists, each(&tasks, "GPUBIND_GPU_INDEX"));
    assert_eq!(different(&each(&tasks, "GPUBIND_GPU_UUID")), 4);
}

fn exec_in_podman_does_not_guess(cluster: &Cluster) {
    let image = image(cluster);
    let node = cluster.folder().join("root");
    // A copy, for podman's own mark of a container.
    let copied = cluster.run(&["cp", "-a", "--parents", node.to_str().unwrap(), root_of(&image)]);
    assert_eq!(copied.code, Some(0), "{}", copied.stderr);
    let (node, root, program) = (node.display(), image.path().display(), cluster.program());
    let exec = |options: &str, step: &[&str]| {
        let script = format!(
            "{PODMAN} {options} --privileged --rootfs {root} sh -c 'test -e /run/.containerenv && \
             : >{node}/run/.containerenv && exec {} exec --fsroot {node} -- env'",
            program.display()
        );
        let ran = cluster.run(&[&["srun", "-Q", "--label"], step, &["sh", "-c", &script]].concat());
        (tasks_of(&ran.stdout), ran)
    };
    // All that the plugin knows: it agrees.
    let (tasks, ran) = exec(ALL, &RANKS);
    assert_eq!(ours(&ran.stderr), [""; 0]);
    let lists = each(&tasks, "CUDA_VISIBLE_DEVICES");
    assert_eq!((different(&lists), lists), (4, each(&tasks, "GPUBIND_VISIBLE")));
    // Nothing at all, and nothing of the devices.
    let (tasks, ran) = exec("", &RANKS);
    let said = ours(&ran.stderr);
    let line = "nothing says whether it is in a job step, and it takes all of the 8 GPUs";
    assert!(said.len() == 4 && said.iter().all(|said| said.contains(line)), "{said:?}");
    assert_eq!(each(&tasks, "CUDA_VISIBLE_DEVICES").len(), 4);
    let (_, ran) = exec("-e SLURM_GPUBIND=strict", &RANKS);
    assert!(ran.code != Some(0) && ran.stderr.contains(line), "{}", ran.stderr);
    let plain = [RANKS[0], RANKS[1], RANKS[2], "--gpu-bind=none"];
    let (tasks, ran) = exec("-e 'SLURM*'", &plain);
    let line = "neither CUDA_VISIBLE_DEVICES nor SLURM_STEP_GPUS says which GPUs are the step's";
    assert_eq!(ours(&ran.stderr).len(), 1, "{}", ran.stderr);
    assert!(ran.stderr.contains(line), "{}", ran.stderr);
    assert_eq!(each(&tasks, "CUDA_VISIBLE_DEVICES"), ["-"; 4]);
}

/// For `srun --container` (oci.conf(5)); runc keeps what it knows of a container in a folder.
fn oci_conf(folder: &Path) -> String {
    let runc = format!("runc --root={}", folder.display());
    let id = "%n.%u.%j.%s.%t";
    [
        format!("RunTimeQuery=\"{runc} state {id}\""),
        format!("RunTimeKill=\"{runc} kill -a {id}\""),
        format!("RunTimeDelete=\"{runc} delete --force {id}\""),
        format!("RunTimeRun=\"{runc} run {id} -b %b\""),
    ]
    .map(|line| line + "\n")
    .concat()
}

fn slurm_s_own_container_has_each_rank_s_list(cluster: &Cluster) {
    let image = image(cluster);
    let folder = tempfile::Builder::new().prefix("gpubind-bundle").tempdir().unwrap();
    let bundle = folder.path();
    fs::set_permissions(bundle, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(image.path(), bundle.join("rootfs")).unwrap();
    let conf = cluster.folder().join("etc/oci.conf");
    fs::write(&conf, oci_conf(&cluster.folder().join("spool/runc"))).unwrap();
    let script = format!(
        "cd {} && runc spec && sed -i 's/\"terminal\": true/\"terminal\": false/' config.json",
        bundle.display()
    );
    assert_eq!(cluster.run(&["sh", "-c", &script]).code, Some(0));
    let container = format!("--container={}", bundle.display());
    let run = |step: &[&str], items: &str| {
        let bind = format!("--gpu-bind=spank{items}");
        let words = [&["srun", "-Q", "--label", &container], step, &[&bind, "env"]].concat();
        let ran = cluster.run(&words);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran
    };
    let ran = run(&RANKS[..3], "");
    assert_eq!(ran.stderr, "");
    let tasks = tasks_of(&ran.stdout);
    let lists = each(&tasks, "CUDA_VISIBLE_DEVICES");
    assert_eq!((different(&lists), lists), (4, each(&tasks, "GPUBIND_VISIBLE")));
    assert_eq!(each(&tasks, "LOCAL_RANK"), ["0"; 4]);
    // One task keeps all, is not armed, and says so to who wants to know.
    let ran = run(&ONE[..2], "");
    assert_eq!(ran.stderr, "");
    let tasks = tasks_of(&ran.stdout);
    assert_eq!(each(&tasks, "CUDA_VISIBLE_DEVICES")[0].split(',').count(), 4);
    assert_eq!(each(&tasks, "LD_PRELOAD"), ["-"]);
    let said = run(&ONE[..2], ":verbose").stderr;
    assert!(said.contains("cannot read the worker shim where they run"), "{said}");
    fs::remove_file(conf).unwrap();
}
