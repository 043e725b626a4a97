//! The machine: whether NVML can be read, what it says of the GPUs, and whether what
//! was saved of it is still valid.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::message::{Finding, Message, messages};
use super::setup::Setup;
use gpubind_core::node::snapshot::{Snapshot, SnapshotError};
use gpubind_core::node::{Gpu, Node, Probed, Roots, UnusableGpu};
use gpubind_core::trusted::TrustError;
use gpubind_core::words::count;

messages! {
    NVML = Ok, "nvml", "{gpus}, driver {driver}, read in {seconds} s";
    NVML_NONE = Note, "nvml", "not checked: no NVIDIA driver is loaded here; a node without GPUs needs none";
    NVML_NO_GPU = Warning, "nvml", "the driver works, but shows no GPU",
        "see the kernel's log (`dmesg | grep -i nvrm`), and whether this shell is in a device cgroup";
    NVML_SLOW = Warning, "nvml", "reading took {seconds} s; a step waits for it, {deadline} s at most",
        "switch persistence mode on, or raise probe-timeout= in plugstack.conf";
    NVML_FAILS = Broken, "nvml", "cannot be read: {why}",
        "fix that; until then ranks get GPUs in index order, near or not: try `gpubind snapshot`";
    NVML_MISMATCH = Broken, "nvml", "library and kernel module disagree: {why}",
        "the driver was upgraded while it was loaded: drain the node, then reload the kernel module or reboot";

    PERSISTENCE = Ok, "persistence", "on for all GPUs";
    PERSISTENCE_UNKNOWN = Note, "persistence", "not checked: the driver does not tell";
    PERSISTENCE_OFF = Warning, "persistence", "off for GPUs {gpus}",
        "`systemctl enable --now nvidia-persistenced`: without it each first use of an idle GPU takes 1 to 3 s";

    USABLE = Ok, "usable-gpus", "all of them";
    USABLE_NO_MIG = Note, "usable-gpus", "all but GPUs {gpus}, which have no MIG instance";
    USABLE_HIDDEN = Note, "usable-gpus", "GPUs {gpus} may not be opened from here",
        "run this outside of a job, where no device cgroup hides GPUs";
    USABLE_NO_FILE = Warning, "usable-gpus", "no device file for GPUs {gpus}",
        "have them made at boot (nvidia-persistenced, or `nvidia-modprobe -c=NUMBER`)";
    USABLE_NOT = Warning, "usable-gpus", "cannot be used: {gpus}",
        "drain the node and reset or replace them (`dmesg | grep -i xid`); gpubind goes on with the others";

    MIG_OFF = Ok, "mig", "off";
    MIG = Ok, "mig", "{instances} instances on GPUs {gpus}, each with its UUID";
    MIG_EMPTY = Warning, "mig", "on for GPUs {gpus}, which have no instance with a UUID",
        "make instances (`nvidia-smi mig -cgi … -C`) or switch the mode off: no program can use such a GPU";

    SNAPSHOT = Ok, "snapshot", "{file}, taken {age} ago, is valid";
    SNAPSHOT_MISSING = Warning, "snapshot", "none yet: {why}",
        "`gpubind snapshot --save` as root, or restart slurmd, which takes one; else the next step waits for NVML";
    SNAPSHOT_STALE = Warning, "snapshot", "not used: {why}",
        "`gpubind snapshot --save` as root takes a new one; else the next step does, and waits for NVML";
    SNAPSHOT_OTHER = Warning, "snapshot", "{file} is valid, but NVML shows something else by now",
        "`gpubind snapshot --save --fresh` as root takes a new one";
}

/// `NVML_ERROR_NO_PERMISSION` (nvml.h).
const NO_PERMISSION: u32 = 4;

/// The checks of this file.
pub fn checks(setup: &Setup) -> Vec<Finding> {
    let mut findings = vec![nvml(setup)];
    if let Some(node) = setup.node().filter(|node| !is_empty(node)) {
        findings.extend([persistence(node), usable(node, &setup.roots), mig(node)]);
    }
    if setup.has_gpus() {
        findings.push(snapshot(setup));
    }
    findings
}

fn is_empty(node: &Node) -> bool {
    node.gpus.is_empty() && node.unusable.is_empty()
}

fn nvml(setup: &Setup) -> Finding {
    let (node, took) = match &setup.reading {
        Ok(reading) => reading,
        Err(_) if !setup.has_gpus() => return NVML_NONE.plain(),
        Err(why) => {
            let message: &Message =
                if why.is_version_mismatch() { &NVML_MISMATCH } else { &NVML_FAILS };
            return message.with(&[("why", why)]);
        }
    };
    if is_empty(node) {
        return NVML_NO_GPU.plain();
    }
    let seconds = format!("{:.2}", took.as_secs_f64());
    let deadline = setup.site.probe_timeout;
    if *took > deadline / 2 {
        return NVML_SLOW.with(&[("seconds", &seconds), ("deadline", &deadline.as_secs())]);
    }
    let gpus = count(node.gpus.len(), "GPU");
    let driver = node.driver.as_deref().unwrap_or("unknown");
    NVML.with(&[("gpus", &gpus), ("driver", &driver), ("seconds", &seconds)])
}

/// The indices of the GPUs for which something holds, as a list.
fn indices(node: &Node, holds: impl Fn(&Gpu) -> bool) -> String {
    let indices = node.gpus.iter().filter(|gpu| holds(gpu)).map(|gpu| gpu.index.to_string());
    indices.collect::<Vec<_>>().join(", ")
}

fn persistence(node: &Node) -> Finding {
    let off = indices(node, |gpu| gpu.persistence == Probed::Known(false));
    if !off.is_empty() {
        return PERSISTENCE_OFF.with(&[("gpus", &off)]);
    }
    match node.gpus.iter().all(|gpu| gpu.persistence.known().is_some()) {
        true => PERSISTENCE.plain(),
        false => PERSISTENCE_UNKNOWN.plain(),
    }
}

fn usable(node: &Node, roots: &Roots) -> Finding {
    let (hidden, unusable): (Vec<_>, Vec<_>) =
        node.unusable.iter().partition(|gpu| gpu.code == NO_PERMISSION);
    if !unusable.is_empty() {
        let unusable = unusable.iter().map(|gpu| {
            let pci = gpu.pci.map_or_else(String::new, |pci| format!(" at {pci}"));
            format!("GPU {}{pci} (NVML code {})", gpu.index, gpu.code)
        });
        return USABLE_NOT.with(&[("gpus", &unusable.collect::<Vec<_>>().join(", "))]);
    }
    let has_no_file = |gpu: &UnusableGpu| {
        let file = gpu.minor.map(|minor| roots.dev().join(format!("nvidia{minor}")));
        file.is_some_and(|file| !file.exists())
    };
    let names = |gpus: &[&UnusableGpu]| {
        gpus.iter().map(|gpu| gpu.index.to_string()).collect::<Vec<_>>().join(", ")
    };
    match hidden.iter().copied().partition::<Vec<_>, _>(|gpu| has_no_file(gpu)) {
        (absent, _) if !absent.is_empty() => USABLE_NO_FILE.with(&[("gpus", &names(&absent))]),
        (_, hidden) if !hidden.is_empty() => USABLE_HIDDEN.with(&[("gpus", &names(&hidden))]),
        _ => match indices(node, |gpu| gpu.is_in_mig_mode() && gpu.mig.is_empty()) {
            empty if empty.is_empty() => USABLE.plain(),
            empty => USABLE_NO_MIG.with(&[("gpus", &empty)]),
        },
    }
}

fn mig(node: &Node) -> Finding {
    let empty = indices(node, |gpu| gpu.is_in_mig_mode() && gpu.mig.is_empty());
    if !empty.is_empty() {
        return MIG_EMPTY.with(&[("gpus", &empty)]);
    }
    let instances: usize = node.gpus.iter().map(|gpu| gpu.mig.len()).sum();
    match instances {
        0 => MIG_OFF.plain(),
        _ => MIG.with(&[("instances", &instances), ("gpus", &indices(node, Gpu::is_in_mig_mode))]),
    }
}

fn snapshot(setup: &Setup) -> Finding {
    let (file, now) = (setup.roots.snapshot(), SystemTime::now());
    match Snapshot::load_whole(&file, &setup.roots, setup.site.snapshot_max_age, now) {
        Ok(kept) => {
            if setup.node().is_some_and(|node| differ(node, &kept.node)) {
                return SNAPSHOT_OTHER.with(&[("file", &file.display())]);
            }
            let taken = UNIX_EPOCH + Duration::from_secs(kept.taken_at);
            let age = now.duration_since(taken).unwrap_or_default();
            SNAPSHOT.with(&[("file", &file.display()), ("age", &words(age))])
        }
        Err(why @ SnapshotError::Trust(TrustError::Missing(_))) => {
            SNAPSHOT_MISSING.with(&[("why", &why)])
        }
        Err(why) => SNAPSHOT_STALE.with(&[("why", &why)]),
    }
}

/// Whether two readings are of different machines, where the later one sees all of it.
/// A fingerprint does not show a lost GPU or a downed NVLink.
fn differ(now: &Node, kept: &Node) -> bool {
    let sees_all = !now.unusable.iter().any(|gpu| gpu.code == NO_PERMISSION);
    let hardware = |node: &Node| {
        // Slurm's order has a state of its own, and slurmd may have another gres.conf.
        let mut node = Node { gres_minors: None, ..node.clone() };
        node.gpus.iter_mut().for_each(|gpu| gpu.persistence = Probed::Unsupported);
        node
    };
    sees_all && hardware(now) != hardware(kept)
}

fn words(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}
