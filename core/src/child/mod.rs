//! Running the `gpubind` program as a child with a deadline.
//!
//! NVML is never loaded into slurmd or slurmstepd: a driver that hangs or
//! crashes takes this child with it and nothing else. The caller may have many
//! threads, so there are no threads, no signal handlers and no waiting for any
//! child but this one.

mod collect;
mod error;

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process_group};

use crate::trusted::{ROOT, trusted_program};
use crate::variables;
use collect::{End, Status, collect, pid, reap};
pub use collect::{MAX_OUTPUT, Output};
pub use error::ProbeError;

/// The calling process's own program, by a path that stays right when its file is
/// replaced. It is not asked who may write it: the caller runs it already.
pub const SELF: &str = "/proc/self/exe";

/// The only environment that a child gets.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What of the caller's own environment a program of root's gets: where Slurm's
/// configuration is. slurmd sets it for itself and for slurmstepd; it is never a
/// user's there.
const HANDED_ON: [&str; 2] = [variables::SLURM_CONF, variables::NODE_NAME];
/// The longest message of a child that is handed on, in characters.
const MESSAGE: usize = 500;

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
    let folders = [variables::LD_LIBRARY_PATH].into_iter().filter(|_| own);
    let names = HANDED_ON.into_iter().chain(folders);
    let env: Vec<_> = names.filter_map(|name| Some((name, env::var_os(name)?))).collect();
    run_any(&program, args, &env, deadline).map(|output| output.stdout)
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
    let begin = Instant::now();
    let mut command = command(program, args);
    command.env_clear().env(variables::PATH, PATH);
    command.envs(env.iter().map(|(name, value)| (name, value))).current_dir("/");
    finish(command, begin, deadline, &|| true)
}

/// Runs this very program with other arguments, in this process's own environment and
/// folder, for as long as `is_wanted` says so.
///
/// # Errors
/// As [`run_any`]; [`ProbeError::Unwanted`] where it was not wanted any more.
pub fn run_self(
    args: &[OsString],
    deadline: Duration,
    is_wanted: &dyn Fn() -> bool,
) -> Result<Output, ProbeError> {
    let begin = Instant::now();
    finish(command(Path::new(SELF), args), begin, deadline, is_wanted)
}

fn command(program: &Path, args: &[OsString]) -> Command {
    let mut command = Command::new(program);
    command.arg0(name(program)).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command
}

fn finish(
    mut command: Command,
    begin: Instant,
    deadline: Duration,
    is_wanted: &dyn Fn() -> bool,
) -> Result<Output, ProbeError> {
    let name = name(Path::new(command.get_program()));
    tracing::debug!("running {name} {:?}", command.get_args().collect::<Vec<_>>());
    let mut child =
        command.spawn().map_err(|error| ProbeError::Start { program: name.clone(), error })?;
    let end = collect(&mut child, begin, deadline, is_wanted);
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
        Ok(End::Unwanted) => Err(ProbeError::Unwanted(name)),
        Err(error) => Err(ProbeError::Read { program: name, error: error.into() }),
    }
}

/// What a program is called in messages, and calls itself.
fn name(program: &Path) -> String {
    match program.as_os_str() == OsStr::new(SELF) {
        true => "gpubind".to_owned(),
        false => program.display().to_string(),
    }
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
    let line = line.unwrap_or("it wrote no message").chars();
    line.map(|c| if c.is_control() { '?' } else { c }).take(MESSAGE).collect()
}
