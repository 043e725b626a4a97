//! A private Slurm cluster, started by scripts/cluster, and what its steps say.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use gpubind_core::node::Node;
use gpubind_machine::Machine;

/// The Slurm that this machine has installed.
pub const HOST: &str = "host";

/// The value of this variable comes before the clusters' names: two checkouts can
/// then run these tests side by side. Slurm's cgroups are named after nodes.
const PREFIX_VARIABLE: &str = "GPUBIND_TEST_PREFIX";

/// scripts/cluster adds packages to a system of our own only, not to this machine.
const PACKAGES_OPTION: &str = "--with";

/// What kind of cluster a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// What tests call it; a cluster's own name may say more, see [`Cluster::name`].
    pub name: &'static str,
    /// What to give to `scripts/cluster start` besides the name.
    pub options: &'static [&'static str],
    /// What is wrong with the machine here: lines for the fixture's `[faults]`.
    pub faults: Option<&'static str>,
    /// Whether Slurm finds the devices by its AutoDetect (emulated, see
    /// scripts/cluster --help): it then names them by UUID.
    pub detected: bool,
}

impl Kind {
    /// A kind with nothing wrong and a plain gres.conf.
    pub const fn new(name: &'static str, options: &'static [&'static str]) -> Kind {
        Kind { name, options, faults: None, detected: false }
    }

    /// The name of the machine's fixture.
    fn machine(&self) -> &'static str {
        let given = self.options.windows(2).find(|words| words[0] == "--machine");
        given.map_or("two-cpu", |words| words[1])
    }

    /// Whether a step can open its own devices only.
    pub fn is_constrained(&self) -> bool {
        self.options.contains(&"--constrain-devices")
    }

    /// Whether there can be such a cluster with this Slurm.
    pub fn can_run_on(&self, slurm: &str) -> bool {
        match slurm {
            HOST => !self.options.contains(&PACKAGES_OPTION),
            _ => *self != CONTAINERS,
        }
    }
}

/// Eight GPUs on two NUMA nodes of one CPU each, GPUs 0-3 at CPU 0.
pub const OPEN: Kind = Kind::new("t-open", &["--machine", "two-cpu"]);
/// The same, with a device cgroup around each step.
pub const CONSTRAINED: Kind =
    Kind::new("t-cgroup", &["--machine", "two-cpu", "--constrain-devices"]);
/// The same without the plugin.
pub const PLAIN: Kind =
    Kind::new("t-plain", &["--machine", "two-cpu", "--nodes", "1", "--no-plugin"]);
/// GPUs that NVML cannot describe: there is no such library. Nor is there a worker shim.
pub const BLIND: Kind = Kind::new(
    "t-blind",
    &[
        "--machine",
        "two-cpu",
        "--nodes",
        "1",
        "--plugstack",
        "nvml=/nonexistent.so worker=/nonexistent",
    ],
);
/// NVML never answers.
pub const HANGING: Kind = Kind {
    faults: Some(r#"call = [{ name = "nvmlDeviceGetName", gpu = 3, hang = true }]"#),
    ..Kind::new("t-hang", &["--nodes", "1", "--plugstack", "probe-timeout=1"])
};
/// NVML takes its process down.
pub const CRASHING: Kind = Kind {
    faults: Some(r#"call = [{ name = "nvmlDeviceGetName", gpu = 3, crash = true }]"#),
    ..Kind::new("t-crash", &["--nodes", "1"])
};
/// GPU 2 has fallen off the bus.
pub const LOST: Kind =
    Kind { faults: Some("lost = [2]"), ..Kind::new("t-lost", &["--nodes", "1"]) };
/// Devices are constrained, and programs find PyTorch and Open MPI.
pub const TORCH: Kind = Kind::new(
    "t-torch",
    &["--machine", "two-cpu", "--constrain-devices", PACKAGES_OPTION, "python3-torch,openmpi-bin"],
);
/// pyxis's line stands before gpubind's, as it should.
pub const PYXIS_FIRST: Kind = Kind::new(
    "t-pyxis",
    &["--machine", "two-cpu", "--nodes", "1", "--constrain-devices", "--pyxis", "first"],
);
/// It stands behind gpubind's.
pub const PYXIS_LAST: Kind = Kind::new(
    "t-late",
    &["--machine", "two-cpu", "--nodes", "1", "--constrain-devices", "--pyxis", "last"],
);
/// Programs of containers run in its steps; scripts/test installs them on this machine.
pub const CONTAINERS: Kind =
    Kind::new("t-box", &["--machine", "two-cpu", "--nodes", "1", "--constrain-devices"]);
/// Slurm's own containers, by runc. Devices are not constrained: under a cgroup of version
/// 1 runc cannot allow itself what it wants to.
pub const OCI: Kind =
    Kind::new("t-oci", &["--machine", "two-cpu", "--nodes", "1", PACKAGES_OPTION, "runc"]);
/// No GPUs at all.
pub const EMPTY: Kind = Kind::new("t-empty", &["--machine", "none", "--nodes", "1"]);

/// A running cluster; stopped when dropped.
pub struct Cluster {
    pub kind: Kind,
    name: String,
    root: PathBuf,
    system: PathBuf,
    release: (u32, u32),
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Ran {
    pub stdout: String,
    pub stderr: String,
    pub code: Option<i32>,
}

/// The environment of each task of a step, by global rank.
pub type Tasks = BTreeMap<u32, BTreeMap<String, String>>;

impl Cluster {
    /// Starts a cluster with what is in target/stage. `slurm` is what
    /// `scripts/cluster start --slurm` takes.
    pub fn start(kind: Kind, slurm: &str) -> Cluster {
        let prefix = std::env::var(PREFIX_VARIABLE).unwrap_or_default();
        let name = match slurm {
            HOST => format!("{prefix}{}", kind.name),
            other => format!("{prefix}{}-{other}", kind.name),
        };
        let root = root();
        let system = match slurm {
            HOST => PathBuf::from("/"),
            other => root.join("target/slurm-roots").join(other),
        };
        let mut cluster = Cluster { kind, name, root, system, release: (0, 0) };
        let mut start = Command::new(cluster.root.join("scripts/cluster"));
        start.args(["start", "--no-build", "--slurm", slurm, "--name", &cluster.name]);
        start.args(kind.options);
        if let Some(faults) = kind.faults {
            let machine = cluster.root.join("target").join(format!("{}.toml", cluster.name));
            let text = std::fs::read_to_string(cluster.fixture()).unwrap();
            std::fs::write(&machine, format!("{text}\n[faults]\n{faults}\n")).unwrap();
            start.arg("--machine").arg(machine);
        }
        if kind.detected {
            let devices = fake_gpus(&cluster.machine());
            start.args(["--gres", &format!("gpu:{}", devices.len())]);
            start.args(["--gres-conf", "AutoDetect=nvml", "--fake-gpus", &devices.join("\n")]);
        }
        let started = start.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&started.stderr);
        assert!(started.status.success(), "cluster {} did not start:\n{said}", cluster.name);
        cluster.release = release(&cluster.run(&["srun", "--version"]).stdout);
        cluster
    }

    /// The cluster's name; its nodes are NAME-0, NAME-1.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of a node, counted from 0.
    pub fn node(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }

    /// Whether Slurm is of this release or a later one. For what Slurm itself
    /// does differently, never for what gpubind does.
    pub fn slurm_is_at_least(&self, year: u32, month: u32) -> bool {
        self.release >= (year, month)
    }

    /// Slurm's release, year and month.
    pub fn release(&self) -> (u32, u32) {
        self.release
    }

    /// What `scripts/cluster start --slurm` takes for it.
    pub fn slurm(&self) -> &str {
        let name = self.system.file_name().and_then(|name| name.to_str());
        name.unwrap_or(HOST)
    }

    /// A command to run in the cluster.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.root.join("scripts/cluster"));
        // A step that never starts or ends fails its test, and only that.
        command.args(["exec", &self.name, "--", "timeout", "--kill-after=5", "120"]);
        command.args(words).stdin(Stdio::null());
        // Messages are compared: no translations.
        command.env("LC_ALL", "C");
        // The tests' own, which steps would inherit among gpubind's.
        command.env_remove(PREFIX_VARIABLE);
        command
    }

    /// Ends slurmd by this signal and starts it again; running steps go on.
    pub fn restart_slurmd(&self, signal: &str) {
        let mut restart = Command::new(self.root.join("scripts/cluster"));
        let done = restart.args(["restart", &self.name, signal]).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "slurmd does not start again: {said}");
    }

    /// Runs a command, whatever it ends with.
    pub fn run(&self, words: &[&str]) -> Ran {
        self.run_with(&[], words)
    }

    /// Runs a command with more environment.
    pub fn run_with(&self, env: &[(&str, &str)], words: &[&str]) -> Ran {
        // By env(1): scripts/cluster takes Slurm's own variables away.
        let set: Vec<String> = env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        Ran::from(self.command(&[&["env"], &set[..], words].concat()).output().unwrap())
    }

    /// Runs a step that prints each task's environment; it must end well.
    /// `options` are srun's.
    pub fn tasks(&self, options: &[&str]) -> (Tasks, String) {
        self.tasks_with(&[], options)
    }

    /// As [`Cluster::tasks`], with more environment for srun.
    pub fn tasks_with(&self, env: &[(&str, &str)], options: &[&str]) -> (Tasks, String) {
        let words = [&["srun", "--label"], options, &["/usr/bin/env"]].concat();
        let ran = self.run_with(env, &words);
        assert_eq!(ran.code, Some(0), "{words:?} failed:\n{}", ran.stderr);
        (tasks_of(&ran.stdout), ran.stderr)
    }

    /// Runs a batch script to its end and gives back what it printed.
    pub fn batch(&self, options: &[&str], script: &str) -> Ran {
        self.batch_with(&[], options, script)
    }

    /// The same, with more environment for sbatch.
    pub fn batch_with(&self, env: &[(&str, &str)], options: &[&str], script: &str) -> Ran {
        let folder = self.folder();
        let file = folder.join(format!("batch-{}.sh", std::process::id()));
        let out = file.with_extension("out");
        std::fs::write(&file, format!("#!/bin/bash\n{script}\n")).unwrap();
        let (file, out) = (file.to_str().unwrap(), out.to_str().unwrap());
        let words = [&["sbatch", "--wait", "--output", out], options, &[file]].concat();
        let ran = self.run_with(env, &words);
        let stdout = std::fs::read_to_string(out).unwrap_or_default();
        std::fs::remove_file(file).unwrap();
        let _ = std::fs::remove_file(out);
        Ran { stdout, ..ran }
    }

    /// The cluster's folder.
    pub fn folder(&self) -> PathBuf {
        self.root.join("target/cluster").join(&self.name)
    }

    /// UUIDs of the node's GPUs in PCI order, from the machine's fixture.
    pub fn uuids(&self) -> Vec<String> {
        self.machine().gpus.iter().map(|gpu| gpu.uuid.known().unwrap().clone()).collect()
    }

    /// What the clusters' nodes have, but for faults.
    pub fn machine(&self) -> Node {
        Machine::parse(&std::fs::read_to_string(self.fixture()).unwrap()).unwrap().to_node()
    }

    /// The fixture of the clusters' nodes, without faults.
    pub fn fixture(&self) -> PathBuf {
        self.root.join(format!("tests/machines/{}.toml", self.kind.machine()))
    }

    /// A file of the system that Slurm runs in, by its path in there.
    pub fn system_file(&self, path: &str) -> PathBuf {
        self.system.join(path.trim_start_matches('/'))
    }

    /// The folder with the program and the libraries that the clusters use.
    pub fn stage(&self) -> PathBuf {
        self.root.join("target/stage")
    }

    /// The `gpubind` program that the clusters use.
    pub fn program(&self) -> PathBuf {
        self.stage().join("gpubind")
    }

    /// What slurmd and slurmstepd of the first node have logged so far.
    pub fn log(&self) -> String {
        let file = self.folder().join(format!("log/{}.log", self.node(0)));
        std::fs::read_to_string(file).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let mut stop = Command::new(self.root.join("scripts/cluster"));
        let stopped = stop.args(["stop", &self.name]).output().unwrap();
        if !stopped.status.success() {
            eprintln!("{}", String::from_utf8_lossy(&stopped.stderr));
        }
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            code: output.status.code(),
        }
    }
}

/// A machine's devices, as lines of Slurm's fake_gpus.conf: type, CPUs of the node,
/// the device's own CPUs, links, files, UUID, flags (gres_gpu.c,
/// _add_fake_gpus_from_file). 26.05 names devices by UUID if configured so, earlier
/// releases always, and do not know that flag.
fn fake_gpus(node: &Node) -> Vec<String> {
    let cpus = node.numa.iter().map(|numa| numa.cpus.count()).sum::<usize>().max(16);
    let last = cpus - 1;
    let mut lines = Vec::new();
    for gpu in &node.gpus {
        let minor = gpu.minor.known().unwrap();
        let mut add = |files: &str, uuid: &str| {
            let flags = "nvidia_gpu_env,env_uuid";
            lines.push(format!("a100|{cpus}|0-{last}|(null)|{files}|{uuid}|{flags}"));
        };
        for (number, instance) in gpu.mig.iter().enumerate() {
            // A name per instance: Slurm wants no device file twice.
            let files = format!("/dev/nvidia{minor},/dev/nvidia-caps/nvidia-cap{minor}{number}");
            add(&files, &instance.uuid);
        }
        if gpu.mig_mode.known() != Some(&true) {
            add(&format!("/dev/nvidia{minor}"), gpu.uuid.known().unwrap());
        }
    }
    lines
}
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Reads `slurm-wlm 24.11.5` as year and month.
fn release(version: &str) -> (u32, u32) {
    let mut numbers = version.trim().rsplit(' ').next().unwrap_or_default().split('.');
    let mut next = || numbers.next().and_then(|number| number.parse().ok());
    match (next(), next()) {
        (Some(year), Some(month)) => (year, month),
        _ => panic!("not a Slurm version: {version:?}"),
    }
}

/// Reads what `srun --label … env` prints: lines such as `3: NAME=value`.
pub fn tasks_of(stdout: &str) -> Tasks {
    let mut tasks = Tasks::new();
    for line in stdout.lines() {
        let Some((rank, variable)) = line.split_once(": ") else { continue };
        let (Ok(rank), Some((name, value))) = (rank.trim().parse(), variable.split_once('='))
        else {
            continue;
        };
        tasks.entry(rank).or_default().insert(name.to_owned(), value.to_owned());
    }
    tasks
}

/// One variable of each task, in rank order; `-` where it is unset.
pub fn each<'a>(tasks: &'a Tasks, name: &str) -> Vec<&'a str> {
    tasks.values().map(|env| env.get(name).map_or("-", String::as_str)).collect()
}

/// The lines of stderr that come from gpubind.
pub fn ours(stderr: &str) -> Vec<&str> {
    stderr.lines().filter(|line| line.contains("gpubind")).collect()
}
