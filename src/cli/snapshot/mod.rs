//! `gpubind snapshot`: read this machine from NVML and keep the description.
//!
//! The plugin runs `gpubind snapshot --save --show`; the description comes on
//! stdout also where it cannot be kept, so that a step is never worse off for a
//! full or read-only /run.

mod gres;
mod lock;
mod reader;
mod start;
mod summary;

use std::env;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Resource, Rlimit, setrlimit};

use super::ending::{CommandError, Failure, complain, warn};
use super::machine_args::MachineArgs;
use gpubind_core::child::SELF;
use gpubind_core::node::Roots;
use gpubind_core::node::snapshot::{
    FailedReading, Fingerprint, MAX_AGE, SaveError, Snapshot, SnapshotError,
};
use lock::{Lock, LockError};
pub(super) use reader::VERSION_MISMATCH;
use reader::{Parent, ReadError};
use summary::summary;

/// The longest deadline, a week: the longest probe-timeout.
const MAX_DEADLINE: u64 = 7 * 24 * 60 * 60;

/// `NVML_ERROR_NO_PERMISSION` (nvml.h).
const NO_PERMISSION: u32 = 4;

/// Read this node's GPUs from NVML, and keep the description for later steps
///
/// Without an option, reads NVML and prints one line.
#[derive(Debug, Clone, clap::Args)]
#[command(group(clap::ArgGroup::new("wanted").args(["save", "show"]).multiple(true)))]
pub struct SnapshotArgs {
    /// Keep the description in /run/gpubind/node.json, unless a valid one is there
    #[arg(long)]
    pub save: bool,

    /// Print the description as JSON; without --save and --fresh, the one that was kept
    #[arg(long)]
    pub show: bool,

    /// With --save or --show: read NVML again even if a valid description is there
    #[arg(long, requires = "wanted")]
    pub fresh: bool,

    /// With --save: do so in the background, and return at once
    #[arg(long, requires = "save", conflicts_with = "show")]
    pub background: bool,

    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300,
        value_parser = clap::value_parser!(u64).range(1..=MAX_DEADLINE))]
    pub deadline: u64,

    /// How old a kept description may be, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = MAX_AGE.as_secs())]
    pub max_age: u64,

    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,

    /// The process that waits for the answer: when it ends, so does this one
    #[arg(long, hide = true)]
    pub parent: Option<i32>,

    /// Read NVML in this very process and print the description
    #[arg(long, hide = true)]
    pub in_process: bool,
}

impl Failure for SnapshotCommandError {}

/// Why there is no description to give.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotCommandError {
    /// The kept description, which was asked for, is missing or not valid.
    #[error("{0}; `gpubind snapshot --save` takes a new one")]
    Kept(#[from] SnapshotError),
    /// It was read, but not kept as asked.
    #[error("the description was not kept: {0}")]
    Save(#[from] SaveError),
    /// It was read where a device cgroup or file modes hide GPUs.
    #[error("the description was not kept: {0} of this machine's GPUs may not be seen from here")]
    Hidden(usize),
    /// NVML was not read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Another process was at it until the deadline.
    #[error("another process is still reading NVML after {0} s")]
    Busy(u64),
}

/// Runs the command; warnings go to stderr.
///
/// # Errors
/// [`CommandError`]. With `--save --show` a description that was read but could not be
/// kept is a warning, not an error.
pub fn run(args: &SnapshotArgs, out: &mut dyn Write) -> Result<ExitCode, CommandError> {
    start::clean();
    // If the driver's library crashes, the plugin reports the signal; a core
    // file in / for each step would help nobody.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = setrlimit(Resource::Core, none);
    let Some(parent) = Parent::new(args.parent) else { return Ok(ExitCode::FAILURE) };
    if args.background {
        return Ok(in_background().map(|()| ExitCode::SUCCESS)?);
    }
    if args.in_process {
        reader::answer(&args.machine, args.deadline, parent, out)
    }
    let taking = Taking {
        machine: &args.machine,
        roots: args.machine.roots(),
        until: Instant::now() + Duration::from_secs(args.deadline),
        seconds: args.deadline,
        parent,
    };
    match take_or_show(args, &taking, out) {
        Err(CommandError::Failed(error)) => match error.downcast_ref() {
            Some(SnapshotCommandError::Read(ReadError::Nvml { code, .. })) => {
                Ok(complain(&error, *code))
            }
            _ => Err(CommandError::Failed(error)),
        },
        done => done.map(|()| ExitCode::SUCCESS),
    }
}

/// A reading of NVML: of which machine, by when, for whom.
struct Taking<'a> {
    machine: &'a MachineArgs,
    roots: Roots,
    until: Instant,
    seconds: u64,
    parent: Parent,
}

impl Taking<'_> {
    fn take(&self, lock: Option<&Lock>) -> Result<Snapshot, ReadError> {
        let is_wanted = || self.is_wanted(lock);
        reader::read(self.machine, self.until, self.seconds, &is_wanted)
    }

    /// Whether somebody waits for it, and nobody has begun another one in its place.
    fn is_wanted(&self, lock: Option<&Lock>) -> bool {
        self.parent.is_there() && lock.is_none_or(Lock::is_held)
    }

    fn lock(&self, is_fresh: bool) -> Result<Lock, LockError> {
        let time = self.until.saturating_duration_since(Instant::now());
        let is_there = || self.parent.is_there();
        Lock::take(&self.roots.run(), self.until, time, is_fresh, &is_there)
    }

    /// Keeps for later steps why there is no description.
    fn remember(&self, why: &SnapshotCommandError, before: Fingerprint) {
        // Where it cannot be kept, each step asks NVML itself.
        let _ = FailedReading::new(&why.to_string(), before, SystemTime::now()).save(&self.roots);
    }
}

fn take_or_show(
    args: &SnapshotArgs,
    taking: &Taking,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let take = || taking.take(None).map_err(SnapshotCommandError::Read);
    if args.save {
        return save(args, taking, out);
    }
    if args.show {
        let snapshot = match args.fresh {
            true => take()?,
            false => kept(args, &taking.roots).map_err(SnapshotCommandError::Kept)?,
        };
        out.write_all(snapshot.to_json().as_bytes())?;
    } else {
        writeln!(out, "{}", summary(&take()?.node))?;
    }
    Ok(())
}

/// Runs this command again in a process of its own that nobody waits for: slurmd
/// starts it, must not be held up and reaps no children that it does not know.
fn in_background() -> io::Result<()> {
    let mut arguments: Vec<_> =
        env::args_os().skip(1).filter(|argument| argument != "--background").collect();
    // This process ends at once.
    if let Some(at) = arguments.iter().position(|argument| argument == "--parent") {
        arguments.drain(at..arguments.len().min(at + 2));
    }
    Command::new(SELF)
        .arg0("gpubind")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map(drop)
}

fn save(args: &SnapshotArgs, taking: &Taking, out: &mut dyn Write) -> Result<(), CommandError> {
    let (snapshot, saved) = take_and_save(args, taking)?;
    if args.show {
        if let Some(Err(error)) = saved {
            warn(&error);
        }
        out.write_all(snapshot.to_json().as_bytes())?;
        return Ok(());
    }
    let what = match saved {
        Some(saved) => {
            saved?;
            "saved as"
        }
        None => "already described by",
    };
    let path = taking.roots.snapshot();
    writeln!(out, "{}; {what} {}", summary(&snapshot.node), path.display())?;
    Ok(())
}

/// The description, and whether it was kept; `None` where it was there.
type Saved = (Snapshot, Option<Result<(), SnapshotCommandError>>);

fn take_and_save(args: &SnapshotArgs, taking: &Taking) -> Result<Saved, SnapshotCommandError> {
    let before = Fingerprint::take(&taking.roots);
    // Held until the end: who waits then finds the file.
    let lock = match taking.lock(args.fresh) {
        Ok(lock) => Some(lock),
        Err(LockError::Busy) => {
            let why = SnapshotCommandError::Busy(taking.seconds);
            if taking.is_wanted(None) {
                taking.remember(&why, before);
            }
            return Err(why);
        }
        Err(error @ LockError::Failed(_)) => {
            warn(&error);
            None
        }
    };
    if let Some(snapshot) = kept(args, &taking.roots).ok().filter(|_| !args.fresh) {
        return Ok((snapshot, None));
    }
    match taking.take(lock.as_ref()).map_err(SnapshotCommandError::Read) {
        Ok(snapshot) => {
            let saved = keep(&snapshot, &taking.roots.snapshot());
            FailedReading::forget(&taking.roots);
            Ok((snapshot, Some(saved)))
        }
        Err(why) => {
            if taking.is_wanted(lock.as_ref()) {
                taking.remember(&why, before);
            }
            Err(why)
        }
    }
}

/// Writes the file, unless this process sees but a part of the machine.
fn keep(snapshot: &Snapshot, path: &Path) -> Result<(), SnapshotCommandError> {
    match snapshot.node.unusable.iter().filter(|unusable| unusable.code == NO_PERMISSION).count() {
        0 => Ok(snapshot.save(path)?),
        hidden => Err(SnapshotCommandError::Hidden(hidden)),
    }
}

fn kept(args: &SnapshotArgs, roots: &Roots) -> Result<Snapshot, SnapshotError> {
    let max_age = Duration::from_secs(args.max_age);
    Snapshot::load_whole(&roots.snapshot(), roots, max_age, SystemTime::now())
}
