//! In srun, sbatch and salloc: what the user asked for, put where the tasks find it.

use std::env;
use std::ffi::{CStr, OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;

use gpubind_core::bind::{inherited, preload_without_shim};
use gpubind_core::child::find_program;
use gpubind_core::request::{
    Change, Command, CommandLine, Request, accept_in_variables, items_help, propagate,
    read_command_line, read_script,
};
use gpubind_core::{SlurmRelease, variables};

use crate::end::End;
use crate::spank::Context;
use crate::{argv, constructor, log, script};

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
    let Some((command, release)) = command(&words, context).zip(constructor::release()) else {
        return (Client::default(), None);
    };
    match read(command, release, &words) {
        Ok(line) if line.asks_for_help => (Client::default(), Some(help())),
        Ok(line) if line.is_informational => (Client(Some((command, line))), None),
        Ok(line) => match apply(command, &line) {
            Ok(()) => (Client(Some((command, line))), None),
            Err(message) => (Client::default(), Some(refuse(&message))),
        },
        Err(message) => (Client::default(), Some(refuse(&message))),
    }
}

/// What the command line says, and in sbatch its script.
fn read(
    command: Command,
    release: SlurmRelease,
    words: &[OsString],
) -> Result<CommandLine, String> {
    let is_program = |word: &OsStr, folder: Option<&OsStr>| match command {
        Command::Sbatch => script::find(word).is_some(),
        Command::Srun | Command::Salloc => is_program(word, folder),
    };
    let line = read_command_line(command, release, words, &is_program)
        .map_err(|error| error.to_string())?;
    if command != Command::Sbatch || line.is_informational {
        return Ok(line);
    }
    let Some((name, text)) = script::read(&line, words) else { return Ok(line) };
    match read_script(release, &text) {
        Ok(script) => Ok(line.over_script(&script)),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// Rewrites what Slurm is about to read, and sets what the tasks will find.
fn apply(command: Command, line: &CommandLine) -> Result<(), String> {
    for (position, word) in &line.replacements {
        argv::replace(*position, word);
    }
    for unclear in line.unclear.iter().filter(|unclear| unclear.slurm_refuses()) {
        log::user(&format!("warning: {unclear}"));
    }
    change(accept_in_variables(command, &variable).map_err(|error| error.to_string())?);
    change(propagate(command, line, None, &variable).map_err(|error| error.to_string())?);
    // What an outer step's gpubind has set is not in effect in what this command starts.
    change(inherited(&variable));
    let preload = env::var_os(variables::LD_PRELOAD);
    if let Some(others) = preload.as_deref().and_then(preload_without_shim) {
        set(variables::LD_PRELOAD, (!others.is_empty()).then_some(&others));
    }
    Ok(())
}

/// Takes what Slurm has parsed for the plugin's option where the command line has said
/// nothing that could be read: a script from a pipe, a value that sbatch has handed down,
/// or an option behind another plugin's.
pub fn after_options(client: &Client, value: Option<&OsStr>) -> Option<End> {
    let (command, line) = client.0.as_ref()?;
    let value = value.filter(|_| !line.is_informational)?.to_string_lossy();
    let changes = match line.with_parsed_option(&value) {
        Ok(Some(line)) if line.asks_for_help => return Some(help()),
        Ok(Some(line)) => propagate(*command, &line, None, &variable),
        Ok(None) if line.says_something() => return None,
        Ok(None) => match value.parse::<Request>() {
            Ok(request) => propagate(*command, line, Some(&request), &variable),
            Err(error) => return Some(refuse(&format!("--gpubind: {error}"))),
        },
        Err(error) => return Some(refuse(&error.to_string())),
    };
    match changes {
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

/// Lists the items, as `--help` lists the options.
fn help() -> End {
    // Who has closed stdout does not want to read it.
    let _ = io::stdout().write_all(items_help().as_bytes());
    End::Command(0)
}

/// The command that runs.
fn command(words: &[OsString], context: Context) -> Option<Command> {
    let file = env::current_exe().unwrap_or_default();
    let name = words.first().map_or(OsStr::new(""), OsString::as_os_str);
    Command::of_process(context == Context::Allocator, &[name, file.as_os_str()])
}

/// Whether a word names a program that can be run, seen from the folder that the command
/// goes to.
fn is_program(word: &OsStr, folder: Option<&OsStr>) -> bool {
    let is_path = word.as_encoded_bytes().contains(&b'/');
    match folder.filter(|_| is_path) {
        Some(folder) => find_program(Path::new(folder).join(word)).is_some(),
        None => find_program(word).is_some(),
    }
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
