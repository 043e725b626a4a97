//! Running the `gpubind` program as a child with a deadline.
//!
//! NVML is never loaded into slurmd or slurmstepd: a driver that hangs or
//! crashes takes this child with it and nothing else. The caller may have many
//! threads, so there are no threads, no signal handlers and no waiting for any
//! child but this one.

use crate::trusted::{ROOT, TrustError, trusted_program};
use crate::variables;
use std::env;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// The calling process's own program, by a path that stays right when its file is
/// replaced. It is not asked who may write it: the caller runs it already.
pub const SELF: &str = "/proc/self/exe";

/// The most that a child may write to stdout.
pub const MAX_OUTPUT: usize = 4 * 1024 * 1024;

/// The only environment that a child gets.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How often the child's end is looked for while its output stays open.
const TICK: Duration = Duration::from_millis(20);
/// How long a killed child may take to go. One that sleeps in the driver cannot
/// be killed; it is left behind.
const REAP: Duration = Duration::from_millis(500);
/// What is kept of stderr: enough for its last line.
const TAIL: usize = 4096;

/// Why a child gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The program is not one that root should run.
    #[error("will not run the program: {0}")]
    Untrusted(#[from] TrustError),
    /// It could not be started.
    #[error("cannot start {program}: {error}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        error: io::Error,
    },
    /// Its output could not be read.
    #[error("cannot read the output of {program}: {error}")]
    Read {
        /// The program.
        program: String,
        /// Why.
        error: io::Error,
    },
    /// It was not done at the deadline, and was killed.
    #[error("{program} did not finish within {seconds} s and was killed{}", left(*.reaped))]
    Timeout {
        /// The program.
        program: String,
        /// The deadline in seconds.
        seconds: f64,
        /// Whether it is gone; a process that sleeps in the driver cannot be killed.
        reaped: bool,
    },
    /// It ended with an exit code other than 0.
    #[error("{program} failed with exit code {code}: {message}")]
    Exit {
        /// The program.
        program: String,
        /// Its exit code.
        code: i32,
        /// The last line that it wrote to stderr.
        message: String,
    },
    /// It was killed by a signal.
    #[error("{program} was killed by signal {signal}")]
    Signal {
        /// The program.
        program: String,
        /// The signal's number.
        signal: i32,
    },
    /// It wrote more than [`MAX_OUTPUT`], and was killed.
    #[error("{0} wrote more than {MAX_OUTPUT} bytes")]
    TooMuchOutput(String),
}

fn left(reaped: bool) -> &'static str {
    if reaped { "" } else { ", but it hangs in the kernel and is still there" }
}

/// Runs a program of root's, or [`SELF`], and gives back what it wrote to stdout.
///
/// # Errors
/// [`ProbeError`]; no longer than the deadline and half a second later.
pub fn run(program: &Path, args: &[OsString], deadline: Duration) -> Result<Vec<u8>, ProbeError> {
    let own = program == Path::new(SELF);
    let program = match own {
        true => program.to_owned(),
        false => trusted_program(program, ROOT)?,
    };
    // In a container, the driver's libraries may be where only this tells; they would
    // be taken from there if NVML were read in this very process.
    let folders = env::var_os(variables::LD_LIBRARY_PATH).filter(|_| own);
    let env = folders.map(|folders| (variables::LD_LIBRARY_PATH, folders));
    run_any(&program, args, env.as_slice(), deadline).map(|output| output.stdout)
}

/// Runs a program, whoever owns it, and gives back what it wrote. For commands
/// that look at a node; what runs as root in a daemon is [`run`].
///
/// The child has an empty environment but for PATH and `env`, /dev/null as stdin,
/// / as its folder and a process group of its own, which is killed in any case at
/// the end, with whatever it left in the background.
///
/// # Errors
/// [`ProbeError`]; no longer than the deadline and half a second later.
pub fn run_any(
    program: &Path,
    args: &[OsString],
    env: &[(&str, OsString)],
    deadline: Duration,
) -> Result<Output, ProbeError> {
    let name = name(program);
    let begin = Instant::now();
    tracing::debug!("running {name} {args:?}");
    let mut child = Command::new(program)
        .arg0(&name)
        .args(args)
        .env_clear()
        .env(variables::PATH, PATH)
        .envs(env.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| ProbeError::Start { program: name.clone(), error })?;
    let end = collect(&mut child, begin, deadline);
    // Before reaping: until then the number cannot belong to someone else.
    if let Some(group) = pid(&child) {
        // It fails where nobody is left, which is what is wanted.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let status = reap(&mut child);
    tracing::debug!("{name} has ended after {:.3} s", begin.elapsed().as_secs_f64());
    match end {
        Ok(End::Exited(output)) => judge(name, output, status),
        Ok(End::Deadline) => Err(ProbeError::Timeout {
            program: name,
            seconds: deadline.as_secs_f64(),
            reaped: status.is_some(),
        }),
        Ok(End::TooMuch) => Err(ProbeError::TooMuchOutput(name)),
        Err(error) => Err(ProbeError::Read { program: name, error: error.into() }),
    }
}

/// What a program is called in messages, and calls itself.
fn name(program: &Path) -> String {
    if program == Path::new(SELF) { "gpubind".to_owned() } else { program.display().to_string() }
}

/// Where the search path has a program; one that is named with a `/` is its own place.
pub fn find_program(name: impl AsRef<Path>) -> Option<PathBuf> {
    let name = name.as_ref();
    let is_program = |file: &PathBuf| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if name.as_os_str().as_encoded_bytes().contains(&b'/') {
        return Some(name.to_owned()).filter(is_program);
    }
    let path = env::var_os(variables::PATH)?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(is_program)
}

/// What a child wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// All of its standard output.
    pub stdout: Vec<u8>,
    /// The end of its standard error.
    pub stderr: Vec<u8>,
}

/// How the collecting of a child's output came to its end.
enum End {
    Exited(Output),
    Deadline,
    TooMuch,
}

/// Reads both pipes until the child has ended, whether or not something that it
/// left in the background still holds them open.
fn collect(child: &mut Child, begin: Instant, deadline: Duration) -> Result<End, Errno> {
    let mut output = Output { stdout: Vec::new(), stderr: Vec::new() };
    let mut stdout = child.stdout.take();
    let mut stderr = child.stderr.take();
    for fd in stdout.iter().map(AsFd::as_fd).chain(stderr.iter().map(AsFd::as_fd)) {
        fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
    }
    loop {
        // Asked before reading: what it wrote before it ended is then still read.
        let ended = has_ended(child)?;
        drain(&mut stdout, &mut output.stdout)?;
        if output.stdout.len() > MAX_OUTPUT {
            return Ok(End::TooMuch);
        }
        drain(&mut stderr, &mut output.stderr)?;
        let surplus = output.stderr.len().saturating_sub(TAIL);
        output.stderr.drain(..surplus);
        if ended {
            return Ok(End::Exited(output));
        }
        let Some(rest) = deadline.checked_sub(begin.elapsed()).filter(|rest| !rest.is_zero())
        else {
            return Ok(End::Deadline);
        };
        wait(&stdout, &stderr, rest.min(TICK))?;
    }
}

/// Takes what is in the pipe, up to a little more than [`MAX_OUTPUT`] in one
/// go; closes it at its end.
fn drain(pipe: &mut Option<impl Read>, into: &mut Vec<u8>) -> Result<(), Errno> {
    let Some(reader) = pipe else { return Ok(()) };
    let mut buffer = [0; 16 * 1024];
    while into.len() <= MAX_OUTPUT {
        match reader.read(&mut buffer) {
            Ok(0) => {
                *pipe = None;
                break;
            }
            Ok(count) => into.extend(buffer.iter().take(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
    Ok(())
}

fn wait(
    stdout: &Option<impl AsFd>,
    stderr: &Option<impl AsFd>,
    time: Duration,
) -> Result<(), Errno> {
    let mut fds: Vec<PollFd> = Vec::new();
    fds.extend(stdout.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
    fds.extend(stderr.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
    // Always in range: `time` is at most TICK.
    let time = Timespec::try_from(time).map_err(|_| Errno::INVAL)?;
    match poll(&mut fds, Some(&time)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Whether the child has ended, without reaping it.
fn has_ended(child: &Child) -> Result<bool, Errno> {
    let Some(pid) = pid(child) else { return Ok(true) };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(pid), options) {
        Ok(status) => Ok(status.is_some()),
        // The host process ignores SIGCHLD, or another thread waits for any child.
        Err(Errno::CHILD) => Ok(true),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// How a child that is gone has ended.
enum Status {
    Known(ExitStatus),
    /// Someone else in this process has reaped it.
    Reaped,
}

/// Waits a bounded time for the killed child; `None` if it will not go.
fn reap(child: &mut Child) -> Option<Status> {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(Status::Known(status)),
            Err(_) => return Some(Status::Reaped),
            Ok(None) if begin.elapsed() >= REAP => return None,
            Ok(None) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn judge(program: String, output: Output, status: Option<Status>) -> Result<Output, ProbeError> {
    let Some(Status::Known(status)) = status else {
        // Its end is not known; the caller checks the output anyway.
        return Ok(output);
    };
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(output),
        (_, Some(signal)) => Err(ProbeError::Signal { program, signal }),
        (code, None) => {
            let code = code.unwrap_or(-1);
            Err(ProbeError::Exit { program, code, message: last_line(&output.stderr) })
        }
    }
}

fn last_line(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or("it wrote no message").to_owned()
}

fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}
