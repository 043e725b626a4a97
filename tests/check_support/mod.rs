//! A node for `gpubind check`: a fake machine with a Slurm that is only files and two scripts.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::command_support::write_script;
use crate::nvml_support::Fake;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_gpubind");

/// A node of eight GPUs that is set up as it should be, to be spoilt by a test.
pub struct Host {
    pub fake: Fake,
    pub folder: tempfile::TempDir,
}

impl Host {
    pub fn new() -> Option<Host> {
        Host::of("hgx-h100", "")
    }

    /// `None`, with a word on it, where the tests do not run as root: what is checked
    /// must be root's.
    pub fn of(machine: &str, faults: &str) -> Option<Host> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root's files and programs are as they should be");
            return None;
        }
        let host = Host { fake: Fake::with(machine, faults), folder: tempfile::tempdir().unwrap() };
        for folder in ["etc", "bin", "lib"] {
            fs::create_dir(host.path(folder)).unwrap();
        }
        let node = host.fake.machine.to_node();
        let usable = node.gpus.iter().map(|gpu| *gpu.minor.known().unwrap());
        let minors: Vec<String> = usable
            .chain(node.unusable.iter().map(|gpu| gpu.minor.unwrap()))
            .map(|minor| minor.to_string())
            .collect();
        host.write(
            "etc/slurm.conf",
            &format!(
                "ClusterName=c\nTaskPlugin=task/cgroup,task/affinity\nPluginDir={}\n\
                 NodeName=n1 Gres=gpu:{}\n",
                host.path("lib").display(),
                minors.len()
            ),
        );
        fs::create_dir_all(host.fake.path().join("dev")).unwrap();
        for minor in &minors {
            fs::write(host.device(minor), "").unwrap();
        }
        let files = format!("Name=gpu File=/dev/nvidia[{}]\n", minors.join(","));
        host.write("etc/gres.conf", &files);
        host.write("etc/cgroup.conf", "ConstrainDevices=yes\n");
        host.write("etc/gpubind.toml", "mode = \"auto\"\n");
        host.write("lib/spank_gpubind.so", "a library\n");
        host.plugin_line("optional", "");
        host.slurm("24.11.5", "      --gpubind=ITEM,...   give each task its own nearest GPU");
        fs::copy(host.fake.library(), host.path("lib/worker.so")).unwrap();
        Some(host)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The device file of a GPU.
    pub fn device(&self, minor: &str) -> PathBuf {
        self.fake.path().join(format!("dev/nvidia{minor}"))
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Changes a text in a file, in which it must be.
    pub fn change(&self, name: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.path(name)).unwrap();
        assert!(text.contains(from), "{text}");
        self.write(name, &text.replace(from, to));
    }

    pub fn line(&self, word: &str, args: &str) -> String {
        format!(
            "{word} spank_gpubind.so program={PROGRAM} worker={} config={} fsroot={} nvml={} {args}\n",
            self.path("lib/worker.so").display(),
            self.path("etc/gpubind.toml").display(),
            self.fake.path().display(),
            self.fake.library().display(),
        )
    }

    pub fn plugin_line(&self, word: &str, args: &str) {
        self.write("etc/plugstack.conf", &self.line(word, args));
    }

    /// The two programs of Slurm that are asked.
    pub fn slurm(&self, version: &str, help: &str) {
        self.program("slurmd", &format!("echo slurm {version}"));
        self.program("srun", &format!("echo 'srun: gpubind: a message' >&2; echo '{help}'"));
    }

    pub fn program(&self, name: &str, body: &str) {
        write_script(&self.path("bin").join(name), body);
    }

    pub fn snapshot(&self) -> PathBuf {
        let machine = ["--fsroot".as_ref(), self.fake.path().as_os_str()];
        let library = self.fake.library();
        let done = Command::new(PROGRAM)
            .args(["snapshot", "--save"])
            .args(machine)
            .arg("--nvml")
            .arg(&library)
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        self.fake.roots().snapshot()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        let path = std::env::var("PATH").unwrap();
        command.arg("check").args(args);
        command.env("SLURM_CONF", self.path("etc/slurm.conf")).env("SLURMD_NODENAME", "n1");
        command.env("PATH", format!("{}:{path}", self.path("bin").display()));
        command
    }
}

/// A host with a snapshot, as it is after slurmd's start.
pub fn well() -> Option<Host> {
    let host = Host::new()?;
    host.snapshot();
    Some(host)
}
