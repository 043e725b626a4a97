//! The first node's files, of which faults change some, and what is seen of the node.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;

/// The files of the node that a fault changes.
pub struct Node {
    pub folder: PathBuf,
}

impl Node {
    pub fn of(cluster: &Cluster) -> Node {
        Node { folder: cluster.folder() }
    }

    pub fn snapshot(&self) -> PathBuf {
        self.folder.join("root/run/gpubind/node.json")
    }

    pub fn run_folder(&self) -> PathBuf {
        self.folder.join("root/run/gpubind")
    }

    pub fn library(&self) -> PathBuf {
        self.folder.join("root/nvml/libnvidia-ml.so.1")
    }

    pub fn site_file(&self) -> PathBuf {
        self.folder.join("etc/gpubind.toml")
    }

    /// A program of the node's own, in place of gpubind's.
    pub fn program(&self) -> PathBuf {
        self.folder.join("program")
    }

    pub fn write(&self, file: &str, change: impl Fn(&str) -> String) {
        let path = self.folder.join(file);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, change(&text)).unwrap();
    }

    pub fn fails(&self, faults: &str) {
        self.write("root/nvml/machine.toml", |text| format!("{text}\n[faults]\n{faults}\n"));
        // NVML is asked where there is no snapshot.
        remove(&self.snapshot());
    }

    /// Has NVML read, as slurmd does when it starts.
    pub fn takes_snapshot(&self) {
        let mut save = Command::new(self.folder.join("../../stage/gpubind"));
        save.args(["snapshot", "--save", "--fsroot"]).arg(self.folder.join("root"));
        save.arg("--nvml").arg(self.library());
        assert!(save.stdout(Stdio::null()).status().unwrap().success());
    }

    pub fn edit_snapshot(&self, change: impl Fn(&str) -> String) {
        self.write("root/run/gpubind/node.json", change);
    }

    pub fn arguments(&self, more: &str) {
        self.write("etc/plugstack.conf", |text| format!("{} {more}\n", text.trim_end()));
    }

    /// The node starts this script where it should start gpubind.
    pub fn starts(&self, script: &str) {
        let program = self.program();
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        self.arguments(&format!("program={}", program.display()));
        remove(&self.snapshot());
    }
}

pub fn remove(path: &Path) {
    let _ = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        _ => fs::remove_file(path),
    };
}

/// The node's files as they should be.
pub struct GoodFiles(Vec<(PathBuf, Vec<u8>)>);

impl GoodFiles {
    pub fn of(node: &Node) -> GoodFiles {
        let files = ["root/nvml/machine.toml", "etc/plugstack.conf", "etc/gpubind.toml"];
        let files = files.map(|file| node.folder.join(file)).into_iter().chain([node.library()]);
        GoodFiles(files.map(|file| (file.clone(), fs::read(file).unwrap())).collect())
    }

    pub fn put_back(&self) {
        for (file, bytes) in &self.0 {
            remove(file);
            fs::write(file, bytes).unwrap();
        }
    }
}

/// They are put back when this is dropped, and what the node knows is forgotten.
pub struct Good<'a> {
    node: &'a Node,
    files: GoodFiles,
}

impl Good<'_> {
    pub fn of(node: &Node) -> Good<'_> {
        Good { node, files: GoodFiles::of(node) }
    }
}

impl Drop for Good<'_> {
    fn drop(&mut self) {
        self.files.put_back();
        [self.node.run_folder(), self.node.program()].iter().for_each(|file| remove(file));
    }
}

/// slurmd's process id.
pub fn slurmd(cluster: &Cluster) -> u32 {
    let file = cluster.folder().join(format!("run/{}.pid", cluster.node(0)));
    let text = fs::read_to_string(file).unwrap();
    text.split(' ').next().and_then(|pid| pid.parse().ok()).expect("slurmd's process id")
}

/// The node takes the next step: slurmd has not drained it, and runs.
pub fn in_service(cluster: &Cluster, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let state = cluster.run(&["sinfo", "-h", "-o", "%T"]).stdout;
        assert!(!state.contains("drain") && !state.contains("down"), "{what}: {state}");
        if state.trim() == "idle" {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {state}");
        sleep(Duration::from_millis(50));
    }
}

/// A line of faults about one function of NVML.
pub fn call(name: &str, fault: &str) -> String {
    format!("call = [{{ name = \"{name}\", {fault} }}]")
}

/// The processes that read this node's NVML, and their parents.
pub fn readers(node: &Node) -> Vec<(i32, i32)> {
    let of = |process: i32| {
        let command = fs::read(format!("/proc/{process}/cmdline")).ok()?;
        let words: Vec<_> = command.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let library = node.library().display().to_string();
        let reads = words.get(1)? == "snapshot" && words.iter().any(|word| *word == library);
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        reads.then_some((process, parent.trim().parse().ok()?))
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| of(entry.file_name().to_str()?.parse().ok()?)).collect()
}
