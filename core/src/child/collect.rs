//! Collecting a child's output until it ends, and reaping it.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// The most that a child may write to stdout.
pub const MAX_OUTPUT: usize = 4 * 1024 * 1024;

/// How often the child's end is looked for while its output stays open.
const TICK: Duration = Duration::from_millis(20);
/// The same once all output is closed: then it is about to end.
const END: Duration = Duration::from_millis(1);
/// How long a killed child may take to go. One that sleeps in the driver cannot
/// be killed; it is left behind.
const REAP: Duration = Duration::from_millis(500);
/// What is kept of stderr: enough for its last line.
const TAIL: usize = 4096;

/// What a child wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// All of its standard output.
    pub stdout: Vec<u8>,
    /// The end of its standard error.
    pub stderr: Vec<u8>,
}

/// How the collecting of a child's output came to its end.
pub(super) enum End {
    Exited(Output),
    Deadline,
    TooMuch,
    Unwanted,
}

/// Reads both pipes until the child has ended, whether or not something that it
/// left in the background still holds them open.
pub(super) fn collect(
    child: &mut Child,
    begin: Instant,
    deadline: Duration,
    is_wanted: &dyn Fn() -> bool,
) -> Result<End, Errno> {
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
        if !is_wanted() {
            return Ok(End::Unwanted);
        }
        let tick = if stdout.is_none() && stderr.is_none() { END } else { TICK };
        wait(&stdout, &stderr, rest.min(tick))?;
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
pub(super) enum Status {
    Known(ExitStatus),
    /// Someone else in this process has reaped it.
    Reaped,
}

/// Waits a bounded time for the killed child; `None` if it will not go.
pub(super) fn reap(child: &mut Child) -> Option<Status> {
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

pub(super) fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}
