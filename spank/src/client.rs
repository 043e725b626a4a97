//! In srun, sbatch and salloc: what the user asked for, put where the tasks find it.

use std::env;
use std::ffi::{CStr, OsStr, OsString};

use gpubind_core::bind::{inherited, preload_without_shim};
use gpubind_core::request::{Change, Command, CommandLine, Request, propagate, read_command_line};
use gpubind_core::variables;

use crate::spank::Context;
use crate::symbols::End;
use crate::{argv, log};

/// The option, as Slurm registers it.
pub const OPTION: &CStr = c"gpubind";
/// What the option takes, in `srun --help`.
pub const ARGUMENT: &CStr = c"ITEM,...";
/// The line that `srun --help` shows for the option.
pub const USAGE: &CStr = c"give each task its own nearest GPU (same as --gpu-bind=spank:ITEM,...)";

/// Slurm's own exit code for a bad option (error_exit in src/srun/libsrun/opt.c).
const BAD_OPTION: i32 = 255;

/// What the command line has said, for the hook after option parsing.
#[derive(Default)]
pub struct Client(Option<(Command, CommandLine)>);

/// Reads and rewrites the command line, before Slurm parses it.
pub fn init(context: Context) -> (Client, Option<End>) {
    let words = argv::words();
    let Some(command) = words.first().and_then(|name| command(name, context)) else {
        return (Client::default(), None);
    };
    match take_command_line(command, &words) {
        Ok(line) => (Client(Some((command, line))), None),
        Err(message) => (Client::default(), Some(refuse(&message))),
    }
}

fn take_command_line(command: Command, words: &[OsString]) -> Result<CommandLine, String> {
    let line = read_command_line(command, words, &is_program).map_err(|error| error.to_string())?;
    if line.is_informational {
        return Ok(line);
    }
    for (position, word) in &line.replacements {
        argv::replace(*position, word);
    }
    change(propagate(command, &line, None, &variable).map_err(|error| error.to_string())?);
    // What an outer step's gpubind has set is not in effect in what this command starts.
    change(inherited(&variable));
    let preload = env::var_os(variables::LD_PRELOAD);
    if let Some(others) = preload.as_deref().and_then(preload_without_shim) {
        set(variables::LD_PRELOAD, (!others.is_empty()).then_some(&others));
    }
    Ok(line)
}

/// Takes what Slurm has parsed for the plugin's option where the command line has said
/// nothing that could be read: an `#SBATCH` line, a value that sbatch has handed down, or
/// an option behind another plugin's.
pub fn after_options(client: &Client, value: Option<&OsStr>) -> Option<End> {
    let (command, line) = client.0.as_ref()?;
    let value = value.filter(|_| !line.says_something() && !line.is_informational)?;
    let request = match value.to_string_lossy().parse::<Request>() {
        Ok(request) => request,
        Err(error) => return Some(refuse(&format!("--gpubind: {error}"))),
    };
    match propagate(*command, line, Some(&request), &variable) {
        Ok(changes) => change(changes),
        Err(error) => return Some(refuse(&error.to_string())),
    }
    None
}

/// Ends the command, as Slurm does for an option that it cannot understand.
fn refuse(message: &str) -> End {
    log::error(message);
    End::Command(BAD_OPTION)
}

/// The command that runs: by the name it was called, else by its program file, which
/// may have another name beside a wrapper of the site's; only srun has a context of its
/// own.
fn command(name: &OsStr, context: Context) -> Option<Command> {
    let by_file = || Command::from_argv0(env::current_exe().ok()?.as_os_str());
    let by_context = || (context == Context::Local).then_some(Command::Srun);
    Command::from_argv0(name).or_else(by_file).or_else(by_context)
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
        set(&name, value.as_deref().map(OsStr::new));
    }
}

fn set(name: &str, value: Option<impl AsRef<OsStr>>) {
    // SAFETY: the command has only this thread so far: SPANK plugins are loaded
    // before it starts any (src/srun/libsrun/srun_job.c, init_srun).
    unsafe {
        match value {
            Some(value) => env::set_var(name, value),
            None => env::remove_var(name),
        }
    }
}
