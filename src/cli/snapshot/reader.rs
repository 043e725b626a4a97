//! Reading NVML in a process that may hang, crash or eat memory without harm.
//!
//! Two processes: the one that asks ([`read`]) starts this program again, as the one
//! that loads NVML ([`answer`]). The first never loads it, so it can always keep its
//! deadline, and it ends whatever the second one leaves behind.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, getpid, getppid, getrlimit, kill_process,
    set_child_subreaper, set_parent_process_death_signal, setrlimit, wait,
};

use super::gres::GresOrder;
use super::start;
use crate::cli::ending::warn;
use crate::cli::machine_args::MachineArgs;
use crate::nvml;
use gpubind_core::child::{ProbeError, run_self};
use gpubind_core::node::snapshot::{Fingerprint, Snapshot, SnapshotError};
use gpubind_core::node::{Node, Roots};

/// The most memory that reading NVML may take: a hundred times what it needs.
const MEMORY: u64 = 2 * 1024 * 1024 * 1024;
/// The longest file that it may write; it has no reason to write any.
const FILE: u64 = 64 * 1024 * 1024;
/// Exit code where library and kernel module of the driver are of different versions,
/// which `gpubind check` has other advice for.
pub(in crate::cli) const VERSION_MISMATCH: u8 = 3;

/// How much longer than its deadline the reading process lives where nobody ends it.
const GRACE: Duration = Duration::from_secs(2);
/// How long what it leaves behind may take to go.
const LEFT_BEHIND: Duration = Duration::from_millis(500);

/// Why NVML was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The deadline passed.
    #[error("NVML did not answer within {0} s{more}", more = stuck(*.1))]
    Deadline(u64, bool),
    /// NVML took its process down.
    #[error("NVML crashed: the process that read it was killed by signal {0}")]
    Crash(i32),
    /// NVML said why.
    #[error("{message}")]
    Nvml {
        /// What it said.
        message: String,
        /// The exit code that says so.
        code: u8,
    },
    /// The process could not be run.
    #[error(transparent)]
    Child(ProbeError),
    /// Its answer is not a snapshot.
    #[error("the process that reads NVML answered wrongly: {0}")]
    Answer(#[from] SnapshotError),
}

fn stuck(reaped: bool) -> &'static str {
    if reaped { "" } else { "; the process that asks it hangs in the kernel and is still there" }
}

/// The process that waits for this one's answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parent(Option<Pid>);

impl Parent {
    /// The one with this id; `None` where it is gone already.
    pub(super) fn new(id: Option<i32>) -> Option<Parent> {
        match (id.and_then(Pid::from_raw), getppid()) {
            // Nobody waits, or the one that does is in another process namespace.
            (None, _) | (_, None) => Some(Parent(None)),
            (Some(id), Some(parent)) => (id == parent).then_some(Parent(Some(id))),
        }
    }

    /// Whether it is still there: a process whose parent ends gets another one.
    pub(super) fn is_there(self) -> bool {
        self.0.is_none_or(|id| getppid() == Some(id))
    }
}

/// Has another process read NVML.
pub(super) fn read(
    machine: &MachineArgs,
    until: Instant,
    seconds: u64,
    is_wanted: &dyn Fn() -> bool,
) -> Result<Snapshot, ReadError> {
    // Whatever is left of the other process's children becomes a child of this one.
    let _ = set_child_subreaper(Some(getpid()));
    let deadline = until.saturating_duration_since(Instant::now());
    let words = ["snapshot", "--in-process", "--parent"].map(OsString::from);
    let own = getpid().as_raw_nonzero().to_string();
    let mut args = [&words[..], &[own.into(), "--deadline".into()]].concat();
    args.push(deadline.as_secs().saturating_add(1).to_string().into());
    args.extend(["--fsroot".into(), machine.fsroot.clone().into_os_string()]);
    if let Some(nvml) = &machine.nvml {
        args.extend(["--nvml".into(), nvml.clone().into_os_string()]);
    }
    let answer = run_self(&args, deadline, is_wanted);
    end_left_behind();
    let output = answer.map_err(|error| match error {
        ProbeError::Timeout { reaped, .. } => ReadError::Deadline(seconds, reaped),
        ProbeError::Signal { signal, .. } => ReadError::Crash(signal),
        ProbeError::Exit { code, message, .. } => ReadError::Nvml {
            message: message.strip_prefix("gpubind: ").unwrap_or(&message).to_owned(),
            code: u8::try_from(code).unwrap_or(1),
        },
        error => ReadError::Child(error),
    })?;
    // Diagnostics that were asked for.
    let _ = std::io::stderr().write_all(&output.stderr);
    Ok(Snapshot::parse(&output.stdout)?)
}

/// Ends the processes that NVML has put into sessions of their own.
fn end_left_behind() {
    let begin = Instant::now();
    let mut found = false;
    loop {
        // Ended ones first: their children are this process's now.
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        let children = children();
        if children.is_empty() {
            break;
        }
        found = true;
        if begin.elapsed() > LEFT_BEHIND {
            warn(&"a process that NVML has started cannot be ended");
            return;
        }
        for child in children {
            // Not yet waited for, so the number is still its own.
            let _ = kill_process(child, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(1));
    }
    if found {
        warn(&"NVML left processes behind, which were ended");
    }
}

fn children() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero();
    let list = fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?)).collect()
}

/// Reads NVML in this very process, writes the snapshot to `out` and ends.
pub(super) fn answer(
    machine: &MachineArgs,
    seconds: u64,
    parent: Parent,
    out: &mut dyn Write,
) -> ! {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // It may have ended before that was said.
    if !parent.is_there() {
        start::leave(1);
    }
    limit(Resource::Data, MEMORY);
    limit(Resource::Fsize, FILE);
    thread::spawn(move || {
        thread::sleep(Duration::from_secs(seconds).saturating_add(GRACE));
        start::leave(1);
    });
    let roots = Roots::new(machine.fsroot.clone());
    let fingerprint = Fingerprint::take(&roots);
    let code = match nvml::read(machine.nvml.as_deref(), &roots) {
        Ok(node) => {
            let order = GresOrder::read(&node, &roots);
            let fingerprint = fingerprint.with_gres(&order.files);
            // One that is changed meanwhile would not be noticed.
            let is_same = GresOrder::read(&node, &roots) == order;
            let node = Node { gres_minors: order.minors.filter(|_| is_same), ..node };
            let snapshot = Snapshot::new(node, fingerprint, SystemTime::now());
            let written = out.write_all(snapshot.to_json().as_bytes()).and_then(|()| out.flush());
            i32::from(written.is_err())
        }
        Err(error) => {
            let code = if error.is_version_mismatch() { VERSION_MISMATCH } else { 1 };
            warn(&error);
            i32::from(code)
        }
    };
    start::leave(code)
}

/// Lowers a limit, as far as it is not lower already.
fn limit(resource: Resource, most: u64) {
    let Rlimit { current, maximum } = getrlimit(resource);
    let least = |limit: Option<u64>| Some(limit.unwrap_or(most).min(most));
    let _ = setrlimit(resource, Rlimit { current: least(current), maximum: least(maximum) });
}
