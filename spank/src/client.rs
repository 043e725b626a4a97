//! In srun, sbatch and salloc: what the user asked for, put where the tasks find it.

use std::env;
use std::ffi::OsStr;
use std::process::exit;

use gpubind_core::bind::leftovers;
use gpubind_core::request::{Change, Command, Request, propagate, read_command_line, variables};
use gpubind_core::variables;

use crate::{argv, say};

/// The line that `srun --help` shows for the option.
pub const USAGE: &str = "give each task its own nearest GPU (same as --gpu-bind=spank:ITEM,...)";

/// Slurm's own exit code for a bad option (error_exit in src/srun/libsrun/opt.c).
const BAD_OPTION: i32 = 255;

/// What the command line has said, for the hook after option parsing.
#[derive(Default)]
pub struct Client {
    command: Option<Command>,
    said_on_command_line: bool,
}

/// Reads and rewrites the command line, before Slurm parses it.
pub fn init() -> Client {
    let words = argv::words();
    let Some(command) = words.first().and_then(|name| command(name)) else {
        return Client::default();
    };
    let line = read_command_line(command, &words, &is_program).unwrap_or_else(|error| {
        refuse(&format!("--gpu-bind: {error}"));
    });
    for (position, word) in &line.replacements {
        argv::replace(*position, word);
    }
    let changes = variables(command, &line, &variable).unwrap_or_else(|error| {
        refuse(&format!("{}: {error}", variables::REQUEST));
    });
    change(changes);
    if command != Command::Srun {
        // A new job is not a part of the step that it is submitted from.
        change(leftovers(&variable));
    }
    Client { command: Some(command), said_on_command_line: line.says_something() }
}

/// Takes `--gpubind` where it did not come by the command line: an `#SBATCH`
/// line. An inner srun gets its request by the environment instead.
pub fn after_options(client: &Client, value: Option<&str>) {
    let from_script = !client.said_on_command_line && client.command != Some(Command::Srun);
    if let Some(value) = value.filter(|_| from_script) {
        match value.parse::<Request>() {
            Ok(request) => change(propagate(Some(&request), &variable)),
            Err(error) => refuse(&format!("--gpubind: {error}")),
        }
    }
}

/// Ends the command, as Slurm does for an option that it cannot understand.
fn refuse(message: &str) -> ! {
    say::error(message);
    exit(BAD_OPTION)
}

/// The command that runs: by the name it was called, else by its program file.
fn command(name: &OsStr) -> Option<Command> {
    Command::from_argv0(name).or_else(|| {
        let program = env::current_exe().ok()?;
        Command::from_argv0(program.as_os_str())
    })
}

/// Whether a word names a program that can be run.
fn is_program(word: &OsStr) -> bool {
    gpubind_core::child::find_program(word).is_some()
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

fn change(changes: impl IntoIterator<Item = Change>) {
    for (name, value) in changes {
        // SAFETY: the command has only this thread so far: SPANK plugins are loaded
        // before it starts any (src/srun/libsrun/srun_job.c, init_srun).
        unsafe {
            match value {
                Some(value) => env::set_var(name, value),
                None => env::remove_var(name),
            }
        }
    }
}
