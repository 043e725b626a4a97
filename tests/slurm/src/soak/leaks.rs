//! What is left on the node after steps: processes, files, descriptors, memory of slurmd.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::node::slurmd;

/// How long the last step's processes may take to end.
const END: Duration = Duration::from_secs(10);

/// Folders of a cluster whose files are Slurm's own and come and go.
const SLURMS: [&str; 4] = ["log", "run", "spool/ctld", "etc"];

/// The node while no step runs.
#[derive(Debug)]
pub struct Idle {
    pub processes: BTreeSet<String>,
    pub files: BTreeSet<PathBuf>,
    pub cgroups: BTreeSet<PathBuf>,
    /// Of slurmd.
    pub descriptors: usize,
    pub children: usize,
}

/// Resident memory of slurmd that is its own, in KiB.
pub fn memory(cluster: &Cluster) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", slurmd(cluster))).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).expect("RssAnon")
}

/// Waits until the node's steps have ended, and looks.
pub fn idle(cluster: &Cluster, what: &str) -> Idle {
    crate::node::in_service(cluster, what);
    let begin = Instant::now();
    loop {
        let found = look(cluster);
        if found.is_clean() || begin.elapsed() > END {
            return found;
        }
        sleep(Duration::from_millis(100));
    }
}

impl Idle {
    fn is_clean(&self) -> bool {
        self.processes.is_empty() && self.cgroups.is_empty() && self.children == 0
    }

    /// What is here and was not before, in words.
    pub fn more_than(&self, before: &Idle) -> [(&'static str, Vec<String>); 3] {
        let new = |now: &BTreeSet<PathBuf>, before: &BTreeSet<PathBuf>| -> Vec<String> {
            now.difference(before).map(|path| path.display().to_string()).collect()
        };
        let mut files = new(&self.files, &before.files);
        files.extend(new(&self.cgroups, &before.cgroups));
        let mut processes: Vec<String> = self.processes.iter().cloned().collect();
        if self.children > before.children {
            processes.push(format!("{} children of slurmd", self.children));
        }
        let more = self.descriptors.saturating_sub(before.descriptors);
        let descriptors = (0..more).map(|_| "of slurmd".to_owned()).collect();
        [("processes", processes), ("files", files), ("descriptors", descriptors)]
    }
}

fn look(cluster: &Cluster) -> Idle {
    let slurmd = slurmd(cluster);
    let folder = cluster.folder();
    let mut files = BTreeSet::new();
    collect(&folder, &folder, &mut files);
    let mut cgroups = BTreeSet::new();
    for group in node_cgroups(&cluster.node(0)) {
        collect_jobs(&group, &mut cgroups);
    }
    let descriptors = fs::read_dir(format!("/proc/{slurmd}/fd")).unwrap().count();
    let children = fs::read_to_string(format!("/proc/{slurmd}/task/{slurmd}/children"));
    Idle {
        processes: processes(&folder),
        files,
        cgroups,
        descriptors,
        children: children.unwrap_or_default().split_whitespace().count(),
    }
}

/// Files of the nodes, not of Slurm's controller.
fn collect(folder: &Path, top: &Path, files: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.strip_prefix(top).unwrap_or(&path).to_owned();
        if SLURMS.iter().any(|known| name == Path::new(known)) {
            continue;
        }
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        // slurmd's record of credentials has a new name each time.
        if !is_folder && !name.to_string_lossy().contains("cred_state") {
            files.insert(name);
        }
        if is_folder {
            collect(&path, top, files);
        }
    }
}

/// The folders that slurmd has for a node: of each controller of version 1, or of version 2.
fn node_cgroups(node: &str) -> Vec<PathBuf> {
    let controllers = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    let first = controllers.map(|entry| entry.path().join(format!("slurm_{node}")));
    let second = format!("/sys/fs/cgroup/system.slice/{node}_slurmstepd.scope");
    first.chain([PathBuf::from(second)]).filter(|path| path.is_dir()).collect()
}

fn collect_jobs(folder: &Path, jobs: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if !path.is_dir() {
            continue;
        }
        if entry.file_name().to_string_lossy().starts_with("job_") {
            jobs.insert(path);
        } else {
            collect_jobs(&path, jobs);
        }
    }
}

/// Processes of the cluster's steps: those that name its folder, and slurmstepds that log
/// into it; not its daemons, nor what the tests run.
fn processes(folder: &Path) -> BTreeSet<String> {
    let daemons: Vec<String> = fs::read_dir(folder.join("run"))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "pid"))
        .filter_map(|entry| fs::read_to_string(entry.path()).ok())
        .filter_map(|text| text.split(' ').next().map(str::to_owned))
        .collect();
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.parse::<u32>().is_err() || daemons.contains(&name) {
            continue;
        }
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let is_ours = command.contains(&folder.display().to_string());
        let is_stepd = command.starts_with("slurmstepd") && logs_into(&entry.path(), folder);
        if is_ours || is_stepd {
            found.insert(format!("{name} {command}"));
        }
    }
    found
}

fn logs_into(process: &Path, folder: &Path) -> bool {
    let log = folder.join("log");
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    files.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|file| file.starts_with(&log))
}
