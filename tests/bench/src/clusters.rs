//! The private clusters: one for each plugin, since slurmd keeps the one that it has
//! loaded at its start. All run side by side, with nothing to do but for one of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::configuration::{Configuration, Plugin};
use crate::helpers::{Helpers, root};
use crate::settings::Run;

/// The machine that all nodes are.
const MACHINE: &str = "two-cpu";
const GPUS: usize = 8;
/// Longer than NVML takes for eight GPUs in the slowest configuration.
const PROBE_TIMEOUT: &str = "probe-timeout=60";
/// How long nodes may take to be idle after a job.
const IDLE: Duration = Duration::from_secs(30);

pub struct Clusters {
    list: Vec<Cluster>,
}

/// A running cluster; stopped when dropped.
pub struct Cluster {
    name: String,
    plugin: Plugin,
    /// The line of plugstack.conf that it was started with.
    plugstack: String,
}

impl Clusters {
    /// Starts those that the configurations need.
    pub fn start(settings: &Run, configurations: &[Configuration], helpers: &Helpers) -> Clusters {
        let mut clusters = Clusters { list: Vec::new() };
        for configuration in configurations {
            let plugin = &configuration.plugin;
            if clusters.list.iter().all(|cluster| cluster.plugin != *plugin) {
                let number = clusters.list.len();
                let name = format!("{}-{number}", settings.name);
                eprintln!("starting cluster {name}: {}", plugin.title());
                clusters.list.push(Cluster::start(name, plugin, settings, helpers));
            }
        }
        clusters
    }

    pub fn of(&self, configuration: &Configuration) -> &Cluster {
        let mut clusters = self.list.iter();
        clusters.find(|cluster| cluster.plugin == configuration.plugin).unwrap()
    }

    pub fn all(&self) -> &[Cluster] {
        &self.list
    }
}

impl Plugin {
    fn title(&self) -> String {
        match self {
            Plugin::None => "no plugin".to_owned(),
            Plugin::Empty => "an empty C plugin".to_owned(),
            Plugin::Gpubind => "gpubind".to_owned(),
            Plugin::Other(file) => file.display().to_string(),
        }
    }
}

impl Cluster {
    fn start(name: String, plugin: &Plugin, settings: &Run, helpers: &Helpers) -> Cluster {
        let mut start = Command::new(root().join("scripts/cluster"));
        start.args(["start", "--no-build", "--nodes", "2", "--machine", MACHINE]);
        start.args(["--name", &name, "--slurm", &settings.slurm]);
        match plugin {
            Plugin::None => start.arg("--no-plugin"),
            Plugin::Empty => start.arg("--plugin").arg(&helpers.empty_plugin),
            Plugin::Other(file) => start.arg("--plugin").arg(fs::canonicalize(file).unwrap()),
            Plugin::Gpubind => start.args(["--plugstack", PROBE_TIMEOUT]),
        };
        let output = start.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cluster {name} does not start:\n{said}");
        let mut cluster = Cluster { name, plugin: plugin.clone(), plugstack: String::new() };
        cluster.plugstack = fs::read_to_string(cluster.plugstack_file()).unwrap();
        cluster
    }

    fn folder(&self) -> PathBuf {
        root().join("target/cluster").join(&self.name)
    }

    fn plugstack_file(&self) -> PathBuf {
        self.folder().join("etc/plugstack.conf")
    }

    /// The node's snapshot; both nodes are one machine.
    pub fn snapshot(&self) -> PathBuf {
        self.folder().join("root/run/gpubind/node.json")
    }

    /// A command in the cluster.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(root().join("scripts/cluster"));
        command.args(["exec", &self.name, "--"]).args(words).stdin(Stdio::null());
        command
    }

    /// A command's standard output; it must end well.
    pub fn output(&self, words: &[&str]) -> String {
        let output = self.command(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?} in {}:\n{said}", self.name);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until the jobs before have left the nodes.
    pub fn await_idle(&self) {
        let begin = Instant::now();
        while self.output(&["sinfo", "--noheader", "--partition=main", "--format=%T"]).trim()
            != "idle"
        {
            assert!(begin.elapsed() < IDLE, "nodes of {} do not become idle", self.name);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A copy of the fake NVML that takes so many milliseconds to get at each GPU. It is
    /// beside the first, so that it finds the same device files.
    pub fn slow_library(&self, delay: u64) -> PathBuf {
        let first = self.folder().join("root/nvml");
        let folder = self.folder().join(format!("root/nvml-{delay}"));
        let library = folder.join("libnvidia-ml.so.1");
        if !folder.exists() {
            fs::create_dir(&folder).unwrap();
            fs::copy(first.join("libnvidia-ml.so.1"), &library).unwrap();
            let machine = fs::read_to_string(first.join("machine.toml")).unwrap();
            let call = |gpu| {
                let name = "nvmlDeviceGetHandleByIndex_v2";
                format!("{{ name = \"{name}\", gpu = {gpu}, delay-ms = {delay} }}")
            };
            // A call without a fault is none.
            let calls: Vec<String> = (0..GPUS).filter(|_| delay > 0).map(call).collect();
            let faults = format!("\n[faults]\ncall = [{}]\n", calls.join(", "));
            fs::write(folder.join("machine.toml"), machine + &faults).unwrap();
        }
        library
    }

    /// Has the plugin use this NVML from the next step on; the cluster's own where `None`.
    pub fn use_library(&self, library: Option<&Path>) {
        let words = self.plugstack.split_whitespace().map(|word| match library {
            Some(library) if word.starts_with("nvml=") => format!("nvml={}", library.display()),
            _ => word.to_owned(),
        });
        let line = words.collect::<Vec<_>>().join(" ");
        let new = self.plugstack_file().with_extension("new");
        fs::write(&new, line + "\n").unwrap();
        fs::rename(&new, self.plugstack_file()).unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let stopped =
            Command::new(root().join("scripts/cluster")).args(["stop", &self.name]).output();
        if let Ok(output) = stopped
            && !output.status.success()
        {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
