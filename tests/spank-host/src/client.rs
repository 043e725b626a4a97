//! srun, sbatch and salloc: the hooks around the reading of their command line.
//!
//! A plugin looks at main's own arguments there. So this program starts itself again
//! with the client's command line, and its own settings in a variable.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Parser;

use crate::error::StepError;
use crate::options;
use crate::output;
use crate::plugin::Plugin;
use crate::settings::{Program, Settings};
use crate::state::{Context, state};

/// This program's own command line, for its second start.
const HANDED_OVER: &str = "SPANK_HOST_SETTINGS";
const SEPARATOR: u8 = 0x1f;

/// The settings, where this is the second start.
pub fn handed_over() -> Option<Settings> {
    let words = std::env::var_os(HANDED_OVER)?;
    // SAFETY: this process has one thread.
    unsafe { std::env::remove_var(HANDED_OVER) };
    let words = words.as_bytes().split(|byte| *byte == SEPARATOR);
    let words = words.map(|word| OsString::from_vec(word.to_vec()));
    Some(Settings { is_client: true, ..Settings::parse_from(words) })
}

/// Runs the hooks, in the second start.
pub fn run(settings: &Settings) -> Result<bool, StepError> {
    if !settings.is_client {
        return Err(start_again(settings));
    }
    let (context, name) = match settings.program {
        Program::Srun => (Context::Local, "srun"),
        Program::Sbatch => (Context::Allocator, "sbatch"),
        _ => (Context::Allocator, "salloc"),
    };
    state().program = name;
    let mut plugin = Plugin::load(settings, context)?;
    let mut well = plugin.run("slurm_spank_init");
    well &= options::set_all(&settings.options);
    well &= plugin.run("slurm_spank_init_post_opt");
    if context == Context::Local {
        well &= plugin.run("slurm_spank_local_user_init");
    }
    well &= plugin.run("slurm_spank_exit");
    if settings.json {
        let printed = io::stdout().write_all(output::client().as_bytes());
        printed.map_err(|error| StepError::System("write", error))?;
    }
    Ok(well)
}

/// Becomes the client; comes back with what went wrong.
fn start_again(settings: &Settings) -> StepError {
    let Some((name, args)) = settings.command.split_first() else {
        let error = io::Error::new(io::ErrorKind::InvalidInput, "give it behind --");
        return StepError::System("tell the client's command line", error);
    };
    let own = std::env::args_os().collect::<Vec<_>>().join(OsStr::from_bytes(&[SEPARATOR]));
    // By its name: under valgrind /proc/self/exe is valgrind.
    let error = std::env::current_exe().map_or_else(
        |error| error,
        |own_file| Command::new(own_file).arg0(name).args(args).env(HANDED_OVER, own).exec(),
    );
    StepError::System("start again", error)
}
