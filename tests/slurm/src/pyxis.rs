//! Steps in containers of pyxis, with its line before gpubind's and behind it.
//!
//! pyxis here is plugins/pyxis.c, or a real one with a real enroot: `scripts/test --beside`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::{Cluster, PYXIS_FIRST, PYXIS_LAST, Ran, Tasks, each, ours, tasks_of};
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [PYXIS_FIRST, PYXIS_LAST]:
        each_rank_in_a_container_has_one_gpu,
        an_image_of_pytorch_finds_its_gpu_as_local_rank_0,
        a_local_rank_of_the_user_stays_in_other_images,
        variables_of_the_image_do_not_win,
        an_image_that_the_environment_names,
        workers_in_a_container_have_one_gpu_each,
        nothing_is_said_where_the_shim_is_not_in_the_image,
        a_step_without_a_container_is_bound_as_ever;
    [PYXIS_FIRST]:
        a_container_with_fewer_device_files;
    [PYXIS_LAST]:
        an_order_that_cannot_serve_an_image_is_told;
};

/// Where enroot's line for gpubind's folder is looked for, below the node's root.
const MOUNTS: &str = "root/etc/enroot/mounts.d/50-gpubind.fstab";

/// Names a real pyxis, for scripts/cluster.
const REAL: &str = "GPUBIND_TEST_BESIDE";

/// An image of a shell and env(1), as `--container-image` takes it.
struct Image {
    _folder: tempfile::TempDir,
    /// srun's options.
    options: Vec<String>,
    root: PathBuf,
    /// What is brought in, and where it is then.
    mounts: Vec<(String, String)>,
    line: PathBuf,
}

impl Image {
    /// With these lines in its environment. The worker shim is not in there.
    fn new(cluster: &Cluster, environment: &[&str]) -> Image {
        let folder = tempfile::Builder::new().prefix("gpubind-image").tempdir().unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path(), mode).unwrap();
        let root = folder.path().join("root");
        let node = cluster.folder().join("root");
        for path in ["proc", "dev", "tmp", "etc"].map(Path::new).into_iter().chain([&*node]) {
            fs::create_dir_all(root.join(path.strip_prefix("/").unwrap_or(path))).unwrap();
        }
        let lines: String = environment.iter().map(|line| format!("{line}\n")).collect();
        fs::write(root.join("etc/environment"), lines).unwrap();
        let program = cluster.program();
        let script = format!(
            "files='/bin/sh /usr/bin/env /usr/bin/sed {}'; cp --dereference --parents $files \
             $(ldd $files | grep -o '/lib[^ ]*' | sort -u) {}",
            program.display(),
            root.display(),
        );
        let copied = cluster.run(&["sh", "-c", &script]);
        assert_eq!(copied.code, Some(0), "{}", copied.stderr);
        let line = cluster.folder().join(MOUNTS);
        let _ = fs::remove_file(&line);
        let mut image = Image { _folder: folder, options: vec![], root, mounts: vec![], line };
        for tree in ["/proc", "/dev"].iter().filter(|_| !is_real()) {
            image.bring(tree, tree);
        }
        let node = node.display().to_string();
        image.bring(&node, &node);
        image.written()
    }

    fn bring(&mut self, source: &str, target: &str) {
        self.mounts.push((source.to_owned(), target.to_owned()));
    }

    /// Brought in by enroot's line in the place where gpubind's packages put it.
    fn with_shim(mut self, cluster: &Cluster) -> Image {
        let stage = cluster.stage().display().to_string();
        fs::create_dir_all(self.root.join(stage.trim_start_matches('/'))).unwrap();
        fs::create_dir_all(self.line.parent().unwrap()).unwrap();
        fs::write(&self.line, format!("{stage} {stage} none x-create=dir,bind,ro\n")).unwrap();
        self.bring(&stage, &stage);
        self.written()
    }

    /// With these of the node's device files only.
    fn with_devices(mut self, cluster: &Cluster, gpus: &[usize]) -> Image {
        let dev = cluster.folder().join("root/dev");
        let some = self.root.with_extension("dev");
        fs::create_dir_all(&some).unwrap();
        self.bring(&some.display().to_string(), &dev.display().to_string());
        for gpu in gpus {
            let file = dev.join(format!("nvidia{gpu}"));
            fs::write(some.join(file.file_name().unwrap()), "").unwrap();
            let file = file.display().to_string();
            self.bring(&file, &file);
        }
        self.written()
    }

    /// As the plugin takes it: a folder and a list beside it, or one file and an option.
    fn written(mut self) -> Image {
        if is_real() {
            let file = self.root.with_extension("sqsh");
            let mut pack = Command::new("mksquashfs");
            pack.arg(&self.root).arg(&file).args(["-noappend", "-quiet", "-no-progress"]);
            assert!(pack.output().unwrap().status.success(), "{pack:?}");
            let mounts = self.mounts.iter().map(|(source, target)| format!("{source}:{target}"));
            let mounts: Vec<String> = mounts.collect();
            self.options = vec![
                format!("--container-image={}", file.display()),
                format!("--container-mounts={}", mounts.join(",")),
            ];
        } else {
            let lines = self.mounts.iter().map(|(source, target)| format!("{source} {target}\n"));
            fs::write(self.root.with_extension("mounts"), lines.collect::<String>()).unwrap();
            self.options = vec![format!("--container-image={}", self.root.display())];
        }
        self
    }

    /// srun's words for a command in it.
    fn words<'a>(&'a self, options: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
        let image: Vec<&str> = self.options.iter().map(String::as_str).collect();
        [&["srun", "-Q", "--label"], &image[..], options, command].concat()
    }

    /// Runs a step of `options` in it; it must end well.
    fn run(&self, cluster: &Cluster, env: &[(&str, &str)], options: &[&str], script: &str) -> Ran {
        let words = self.words(options, &["/bin/sh", "-c", script]);
        let ran = cluster.run_with(env, &words);
        assert_eq!(ran.code, Some(0), "{words:?}: {}", ran.stderr);
        ran
    }

    /// Each task's environment; nothing may be said.
    fn tasks(&self, cluster: &Cluster, env: &[(&str, &str)], options: &[&str]) -> Tasks {
        let ran = self.run(cluster, env, options, "env");
        assert_eq!(ran.stderr, "", "{options:?}");
        tasks_of(&ran.stdout)
    }
}

fn is_real() -> bool {
    std::env::var_os(REAL).is_some()
}

/// Four ranks with the node's first four GPUs, and each what it needs.
const RANKS: [&str; 5] =
    ["-n4", "--overcommit", "--gpus-per-node=4", "--cpu-bind=map_cpu:0", "--gpu-bind=spank"];
/// One task with all four.
const ONE: [&str; 3] = ["-n1", "--gpus-per-node=4", "--gpu-bind=spank"];

/// The shim itself sets things right in the bad order, where it is in the image.
fn pytorch(cluster: &Cluster) -> Image {
    Image::new(cluster, &["PYTORCH_VERSION=2.6"]).with_shim(cluster)
}

fn each_rank_in_a_container_has_one_gpu(cluster: &Cluster) {
    let image = Image::new(cluster, &["IMAGE=1"]);
    let tasks = image.tasks(cluster, &[], &RANKS);
    assert_eq!(each(&tasks, "IMAGE"), ["1"; 4], "it is in the container");
    let mut gpus = each(&tasks, "CUDA_VISIBLE_DEVICES");
    gpus.sort_unstable();
    assert_eq!(gpus, ["0", "1", "2", "3"]);
    assert_eq!(each(&tasks, "LOCAL_RANK"), ["0"; 4]);
    assert_eq!(each(&tasks, "LD_PRELOAD"), ["-"; 4]);
}

fn an_image_of_pytorch_finds_its_gpu_as_local_rank_0(cluster: &Cluster) {
    let image = pytorch(cluster);
    for items in ["auto", "single", "rank-env=off"] {
        let bind = format!("--gpu-bind=spank:{items}");
        let tasks = image.tasks(cluster, &[], &[&RANKS[..4], &[&bind]].concat());
        let mut gpus = each(&tasks, "CUDA_VISIBLE_DEVICES");
        gpus.sort_unstable();
        assert_eq!(gpus, ["0", "1", "2", "3"], "{items}");
        assert_eq!(each(&tasks, "LOCAL_RANK"), ["0"; 4], "{items}");
        assert_eq!(each(&tasks, "RANK"), ["0", "1", "2", "3"], "{items}");
        assert_eq!(each(&tasks, "WORLD_SIZE"), ["4"; 4], "{items}");
        assert_eq!(each(&tasks, "GPUBIND_LOCAL_RANK"), ["0", "1", "2", "3"], "{items}");
        assert_eq!(each(&tasks, "LD_PRELOAD"), ["-"; 4], "{items}: nothing is left to do");
        assert_eq!(each(&tasks, "GPUBIND_WORKERS"), ["-"; 4], "{items}");
    }
    for items in ["ordered", "local-rank=keep"] {
        let bind = format!("--gpu-bind=spank:{items}");
        let tasks = image.tasks(cluster, &[], &[&RANKS[..4], &[&bind]].concat());
        assert_eq!(each(&tasks, "LOCAL_RANK"), ["0", "1", "2", "3"], "{items}");
    }
    // `gpubind exec` finds nothing to change, and the report is Slurm's and content.
    let program = cluster.program();
    let script = format!("{} exec -- env", program.display());
    let ran = image.run(cluster, &[], &RANKS, &script);
    assert_eq!(each(&tasks_of(&ran.stdout), "LOCAL_RANK"), ["0"; 4]);
    let script = format!(
        "{} report --check --fsroot {}",
        program.display(),
        cluster.folder().join("root").display()
    );
    let words = image.words(&RANKS, &["/bin/sh", "-c", &script]);
    let begin = std::time::Instant::now();
    let ran = cluster.run(&words);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    assert!(begin.elapsed().as_secs() < 15, "no rank is waited for in vain");
    assert_eq!(ran.stdout.matches("Slurm").count(), 4, "{}", ran.stdout);
    assert!(!ran.stderr.contains("not heard"), "{}", ran.stderr);
}

fn a_local_rank_of_the_user_stays_in_other_images(cluster: &Cluster) {
    let image = Image::new(cluster, &[]).with_shim(cluster);
    let ran = image.run(cluster, &[("LOCAL_RANK", "7")], &RANKS, "env");
    assert_eq!(each(&tasks_of(&ran.stdout), "LOCAL_RANK"), ["7"; 4]);
    let said = ours(&ran.stderr);
    assert!(said.len() == 1 && said[0].contains("LOCAL_RANK=7 contradicts"), "{}", ran.stderr);
}

fn variables_of_the_image_do_not_win(cluster: &Cluster) {
    let lines = ["CUDA_VISIBLE_DEVICES=0", "CUDA_DEVICE_ORDER=FASTEST_FIRST", "OTHER=x"];
    let image = Image::new(cluster, &lines).with_shim(cluster);
    for items in ["auto", "ordered", "ids=uuid"] {
        let bind = format!("--gpu-bind=spank:{items}");
        let tasks = image.tasks(cluster, &[], &[&RANKS[..4], &[&bind]].concat());
        let lists = each(&tasks, "CUDA_VISIBLE_DEVICES");
        assert_eq!(lists, each(&tasks, "GPUBIND_VISIBLE"), "{items}");
        assert_eq!(each(&tasks, "CUDA_DEVICE_ORDER"), ["PCI_BUS_ID"; 4]);
        assert_eq!(each(&tasks, "OTHER"), ["x"; 4]);
        let different = lists.iter().collect::<std::collections::BTreeSet<_>>().len();
        assert_eq!(different, if items == "ordered" { 1 } else { 4 }, "{lists:?}");
    }
}

fn an_image_that_the_environment_names(cluster: &Cluster) {
    let image = Image::new(cluster, &["CUDA_VISIBLE_DEVICES=0"]).with_shim(cluster);
    let variables = image.options.iter().map(|option| {
        let (name, value) = option.split_once('=').unwrap();
        match name {
            "--container-image" => ("PYXIS_CONTAINER_IMAGE", value),
            _ => ("PYXIS_CONTAINER_MOUNTS", value),
        }
    });
    let (tasks, stderr) =
        cluster.tasks_with(&variables.collect::<Vec<_>>(), &[&["-Q"], &RANKS[..]].concat());
    assert_eq!(stderr, "");
    let mut gpus = each(&tasks, "CUDA_VISIBLE_DEVICES");
    gpus.sort_unstable();
    assert_eq!(gpus, ["0", "1", "2", "3"]);
}

fn workers_in_a_container_have_one_gpu_each(cluster: &Cluster) {
    for environment in [&["PYTORCH_VERSION=2.6", "CUDA_VISIBLE_DEVICES=0"][..], &[]] {
        let image = Image::new(cluster, environment).with_shim(cluster);
        let script = "env; for k in 0 1 2 3; do LOCAL_RANK=$k LOCAL_WORLD_SIZE=4 RANK=$k \
                      TORCHELASTIC_RUN_ID=x env | sed \"s/^/W$k/\"; done";
        let ran = image.run(cluster, &[], &ONE, script);
        assert_eq!(ran.stderr, "");
        let task = tasks_of(&ran.stdout).remove(&0).unwrap();
        let planned: Vec<&str> = task["GPUBIND_VISIBLE"].split(',').collect();
        assert_eq!(planned.len(), 4);
        let workers: Vec<&str> =
            (0..4).map(|k| &*task[&format!("W{k}CUDA_VISIBLE_DEVICES")]).collect();
        assert_eq!(workers, planned);
    }
}

fn nothing_is_said_where_the_shim_is_not_in_the_image(cluster: &Cluster) {
    let image = Image::new(cluster, &[]);
    let script = "env; for k in 0 1; do LOCAL_RANK=$k env >/dev/null; done";
    let ran = image.run(cluster, &[], &ONE, script);
    assert_eq!(ran.stderr, "", "no line of ld.so's");
    let tasks = tasks_of(&ran.stdout);
    assert_eq!(each(&tasks, "LD_PRELOAD"), ["-"]);
    assert_eq!(tasks[&0]["CUDA_VISIBLE_DEVICES"].split(',').count(), 4);
    // But for who wants to know.
    let bind = [ONE[0], ONE[1], "--gpu-bind=spank:verbose"];
    let said = image.run(cluster, &[], &bind, "true").stderr;
    assert!(said.contains("cannot read the worker shim where they run"), "{said}");
    let bind = [ONE[0], ONE[1], "--gpu-bind=spank:strict"];
    let ran = cluster.run(&image.words(&bind, &["/bin/sh"]));
    assert_eq!(ran.code, Some(1));
    let said = ours(&ran.stderr);
    assert!(said.len() == 1 && said[0].contains("cannot read the worker shim"), "{said:?}");
}

fn a_step_without_a_container_is_bound_as_ever(cluster: &Cluster) {
    // srun itself may say that the job waits for the one before.
    let (tasks, stderr) = cluster.tasks(&ONE);
    assert_eq!(ours(&stderr), [""; 0]);
    let shim = cluster.stage().join("libgpubind_worker.so");
    assert_eq!(each(&tasks, "LD_PRELOAD"), [shim.to_str().unwrap()]);
    let (tasks, stderr) = cluster.tasks(&RANKS);
    assert_eq!((each(&tasks, "LD_PRELOAD"), ours(&stderr)), (vec!["-"; 4], vec![]));
}

fn a_container_with_fewer_device_files(cluster: &Cluster) {
    let image = Image::new(cluster, &[]).with_devices(cluster, &[2, 3]);
    let two = ["-n2", "--overcommit", "--gpus-per-node=4", "--gpu-bind=spank"];
    let ran = image.run(cluster, &[], &two, "env");
    let said = ours(&ran.stderr);
    let expected = "this container has 2 of the step's 4 GPUs; its tasks are given those";
    assert!(said.len() == 1 && said[0].contains(expected), "{said:?}");
    let tasks = tasks_of(&ran.stdout);
    let mut pairs: Vec<(&str, &str)> = each(&tasks, "CUDA_VISIBLE_DEVICES")
        .into_iter()
        .zip(each(&tasks, "GPUBIND_GPU_INDEX"))
        .collect();
    pairs.sort_unstable();
    assert_eq!(pairs, [("0", "2"), ("1", "3")], "the container's own numbers");
    let image = Image::new(cluster, &[]).with_devices(cluster, &[]);
    let ran = image.run(cluster, &[], &two, "env");
    let said = ours(&ran.stderr);
    assert!(said.len() == 1 && said[0].contains("no device file of the step's 4"), "{said:?}");
}

fn an_order_that_cannot_serve_an_image_is_told(cluster: &Cluster) {
    let image = Image::new(cluster, &["PYTORCH_VERSION=2.6"]);
    let said = |items: &str| {
        let bind = format!("--gpu-bind=spank:{items}");
        let options = [&RANKS[..4], &[&bind]].concat();
        cluster.run(&image.words(&options, &["/usr/bin/env"]))
    };
    let verbose = said("verbose");
    let line = "the container is entered after gpubind's turn";
    assert!(verbose.code == Some(0) && verbose.stderr.contains(line), "{verbose:?}");
    let strict = said("strict");
    assert!(strict.code == Some(1) && strict.stderr.contains(line), "{strict:?}");
    assert_eq!(said("auto").stderr, "");
    // What a program would run into is found.
    let script = format!(
        "{} report --check --fsroot {}",
        cluster.program().display(),
        cluster.folder().join("root").display()
    );
    let words = image.words(&RANKS, &["/bin/sh", "-c", &script]);
    let ran = cluster.run(&words);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stderr.contains("LOCAL_RANK=3 names none of the 1 GPU"), "{}", ran.stderr);
}
