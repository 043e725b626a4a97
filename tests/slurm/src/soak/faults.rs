//! What is wrong with the node for a few steps of a soak, and what steps get meanwhile.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::random::Random;
use crate::node::{GoodFiles, Node, call, readers, remove};

/// What a fault is to a step that asks for gpubind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// None: all is known.
    Known,
    /// GPUs are given in Slurm's order.
    Unknown,
    /// This GPU is not given.
    Lost(usize),
    /// One or the other, as it happens.
    Either,
}
use Effect::{Either, Known, Lost, Unknown};

pub type Fault = (&'static str, fn(&Node), Effect);

pub const NONE: Fault = ("none", |_| (), Known);

/// Processes that read NVML are killed while a step starts.
pub const KILLED: &str = "the process that reads NVML is killed";

pub const FAULTS: [Fault; 17] = [
    ("no snapshot", |node| remove(&node.snapshot()), Known),
    ("half a snapshot", |node| node.edit_snapshot(|text| text[..text.len() / 2].into()), Known),
    ("a snapshot of nonsense", |node| node.edit_snapshot(|_| "[".repeat(100_000)), Known),
    (
        "a user's snapshot",
        |node| {
            let _ = chown(node.snapshot(), Some(1000), None);
        },
        Known,
    ),
    (
        "a snapshot that all can write",
        |node| {
            let _ = fs::set_permissions(node.snapshot(), Permissions::from_mode(0o666));
        },
        Known,
    ),
    (
        "a folder for a snapshot",
        |node| {
            remove(&node.snapshot());
            fs::create_dir(node.snapshot()).unwrap();
        },
        Known,
    ),
    ("NVML is slow", |node| node.fails(&call("nvmlInit_v2", "delay-ms = 100")), Known),
    ("NVML hangs", |node| node.fails(&call("nvmlInit_v2", "hang = true")), Unknown),
    (
        "NVML hangs on a GPU",
        |node| node.fails(&call("nvmlDeviceGetUUID", "gpu = 5, hang = true")),
        Unknown,
    ),
    ("NVML crashes", |node| node.fails(&call("nvmlDeviceGetCount_v2", "crash = true")), Unknown),
    ("NVML fails", |node| node.fails("mismatch = true"), Unknown),
    (
        "no NVML",
        |node| {
            remove(&node.library());
            remove(&node.snapshot());
        },
        Unknown,
    ),
    ("GPU 0 is lost", |node| node.fails("lost = [0]"), Lost(0)),
    ("GPU 5 is lost", |node| node.fails("lost = [5]"), Lost(5)),
    (
        "no program",
        |node| {
            node.starts("");
            remove(&node.program());
        },
        Unknown,
    ),
    ("an invalid site file", |node| fs::write(node.site_file(), "mode = [").unwrap(), Known),
    (KILLED, |node| node.fails(&call("nvmlDeviceGetCount_v2", "delay-ms = 300")), Either),
];

/// The node, and what is wrong with it at the moment.
pub struct Trouble {
    pub node: Node,
    good: GoodFiles,
    pub now: Fault,
    /// For so many steps more.
    left: usize,
}

impl Trouble {
    pub fn new(node: Node) -> Trouble {
        Trouble { good: GoodFiles::of(&node), node, now: NONE, left: 0 }
    }

    /// Before each step: something may end, something may begin.
    pub fn next(&mut self, random: &mut Random) {
        if self.left > 0 {
            self.left -= 1;
            return;
        }
        self.end();
        if random.one_in(2) {
            self.now = *random.pick(&FAULTS);
            self.left = random.below(3);
            (self.now.1)(&self.node);
        }
    }

    /// All is well again, and an admin has NVML read.
    pub fn end(&mut self) {
        if self.now.0 == NONE.0 {
            return;
        }
        self.good.put_back();
        remove(&self.node.program());
        if self.node.snapshot().is_dir() {
            remove(&self.node.snapshot());
        }
        let mut save = Command::new(self.node.folder.join("../../stage/gpubind"));
        save.args(["snapshot", "--save", "--fresh", "--fsroot"]).arg(self.node.folder.join("root"));
        let saved = save.arg("--nvml").arg(self.node.library()).output().unwrap();
        assert!(saved.status.success(), "{}", String::from_utf8_lossy(&saved.stderr));
        (self.now, self.left) = (NONE, 0);
    }
}

/// Kills the processes that read the node's NVML, until it is told to end. How many it was.
pub fn kill_readers(node: &Node, is_over: &AtomicBool) -> usize {
    let mut killed = 0;
    while !is_over.load(Ordering::Relaxed) {
        for (process, _) in readers(node) {
            let mut kill = Command::new("kill");
            let done = kill.args(["-9", &process.to_string()]).output().unwrap();
            killed += usize::from(done.status.success());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    killed
}
