//! `gpubind snapshot`: read this machine from NVML and keep the description.
//!
//! The plugin runs `gpubind snapshot --save --show`; the description comes on
//! stdout also where it cannot be kept, so that a step is never worse off for a
//! full or read-only /run.

use std::env;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};

use super::ending::{CommandError, Failure, complain};
use super::machine_args::MachineArgs;
use crate::nvml::{self, NvmlError};
use gpubind_core::node::snapshot::{
    Fingerprint, MAX_AGE, SaveError, Snapshot, SnapshotError, make_folder,
};
use gpubind_core::node::{Node, Roots};
use gpubind_core::words::count;

/// How long to wait for another `gpubind snapshot`. Without persistence mode
/// NVML takes up to 3 s for each GPU of the machine.
const LOCK_WAIT: Duration = Duration::from_secs(30);

/// Exit code where library and kernel module of the driver are of different versions,
/// which `gpubind check` has other advice for.
pub(super) const VERSION_MISMATCH: u8 = 3;

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
    #[arg(long, value_name = "SECONDS")]
    pub deadline: Option<u64>,

    /// How old a kept description may be, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = MAX_AGE.as_secs())]
    pub max_age: u64,

    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
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
}

/// Runs the command; warnings go to stderr.
///
/// # Errors
/// [`CommandError`]. With `--save --show` a description that was read but could not be
/// kept is a warning, not an error.
pub fn run(args: &SnapshotArgs, out: &mut dyn Write) -> Result<ExitCode, CommandError> {
    match take_or_show(args, out) {
        Err(CommandError::Nvml(error)) if error.is_version_mismatch() => {
            Ok(complain(&error, VERSION_MISMATCH))
        }
        done => done.map(|()| ExitCode::SUCCESS),
    }
}

fn take_or_show(args: &SnapshotArgs, out: &mut dyn Write) -> Result<(), CommandError> {
    // If the driver's library crashes, the plugin reports the signal; a core
    // file in / for each step would help nobody.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = setrlimit(Resource::Core, none);
    if args.background {
        return Ok(in_background()?);
    }
    if let Some(seconds) = args.deadline {
        // A driver may hang in any call, so nothing but the process's end helps.
        thread::spawn(move || {
            thread::sleep(Duration::from_secs(seconds));
            warn(&format!("NVML did not answer within {seconds} s"));
            process::exit(1);
        });
    }
    let roots = args.machine.roots();
    if args.save {
        return save(args, &roots, out);
    }
    if args.show {
        let snapshot = if args.fresh {
            take(args, &roots)?
        } else {
            kept(args, &roots).map_err(SnapshotCommandError::Kept)?
        };
        out.write_all(snapshot.to_json().as_bytes())?;
    } else {
        writeln!(out, "{}", summary(&take(args, &roots)?.node))?;
    }
    Ok(())
}

/// Runs this command again in a process of its own that nobody waits for: slurmd
/// starts it, must not be held up and reaps no children that it does not know.
fn in_background() -> io::Result<()> {
    let arguments = env::args_os().skip(1).filter(|argument| argument != "--background");
    Command::new(env::current_exe()?)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map(drop)
}

fn save(args: &SnapshotArgs, roots: &Roots, out: &mut dyn Write) -> Result<(), CommandError> {
    let path = roots.snapshot();
    // Held until the end: who waits then finds the file.
    let lock = match lock(&roots.run()) {
        Ok(lock) => Some(lock),
        Err(error) => {
            warn(&format!("no lock against other snapshots: {error}"));
            None
        }
    };
    let found = if args.fresh { None } else { kept(args, roots).ok() };
    let (snapshot, saved) = match found {
        Some(snapshot) => (snapshot, None),
        None => {
            let snapshot = take(args, roots)?;
            let saved = keep(&snapshot, &path);
            (snapshot, Some(saved))
        }
    };
    drop(lock);
    if args.show {
        if let Some(Err(error)) = saved {
            warn(&error.to_string());
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
    writeln!(out, "{}; {what} {}", summary(&snapshot.node), path.display())?;
    Ok(())
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

fn take(args: &SnapshotArgs, roots: &Roots) -> Result<Snapshot, NvmlError> {
    let fingerprint = Fingerprint::take(roots);
    let node = nvml::read(args.machine.nvml.as_deref(), roots)?;
    Ok(Snapshot::new(node, fingerprint, SystemTime::now()))
}

/// Takes the lock that lets one process at a time read NVML: when a step starts
/// on a fresh node, so may others. The lock ends with the process.
fn lock(folder: &Path) -> Result<File, SaveError> {
    make_folder(folder)?;
    let failed =
        |error| SaveError::Write { path: folder.join("lock").display().to_string(), error };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Not readable by others: whoever can open it can hold it.
    let mode = Mode::from_raw_mode(0o600);
    let file = rustix::fs::openat(CWD, folder.join("lock"), flags, mode)
        .map_err(|errno| failed(errno.into()))?;
    let begin = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(File::from(file)),
            Err(Errno::WOULDBLOCK | Errno::INTR) if begin.elapsed() < LOCK_WAIT => {
                thread::sleep(Duration::from_millis(20));
            }
            Err(errno) => return Err(failed(errno.into())),
        }
    }
}

/// One line: what is there, and what cannot be used.
fn summary(node: &Node) -> String {
    let mut models: Vec<(&str, usize)> = Vec::new();
    for gpu in &node.gpus {
        let name = gpu.name.known().map_or("unknown model", String::as_str);
        match models.iter_mut().find(|(model, _)| *model == name) {
            Some((_, count)) => *count += 1,
            None => models.push((name, 1)),
        }
    }
    let models: Vec<String> =
        models.iter().map(|(model, count)| format!("{count}x {model}")).collect();
    let mut line = count(node.gpus.len(), "GPU");
    if !models.is_empty() {
        line += &format!(" ({})", models.join(", "));
    }
    let instances: usize = node.gpus.iter().map(|gpu| gpu.mig.len()).sum();
    if instances > 0 {
        line += &format!(", {}", count(instances, "MIG instance"));
    }
    if let Some(driver) = &node.driver {
        line += &format!(", driver {driver}");
    }
    let with_cpus = node.numa.iter().filter(|numa| !numa.cpus.is_empty()).count();
    line += &format!(", {} with CPUs", count(with_cpus, "NUMA node"));
    for unusable in &node.unusable {
        let pci = unusable.pci.map_or_else(String::new, |pci| format!(" at {pci}"));
        line +=
            &format!("; GPU {}{pci} cannot be used (NVML code {})", unusable.index, unusable.code);
    }
    line
}

fn warn(message: &str) {
    eprintln!("gpubind: {message}");
}
