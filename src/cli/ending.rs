//! How a command ends: its exit code, or an error, which means 1. One that ends with
//! another code says why itself ([`complain`], [`refuse`]).

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::nvml::NvmlError;

/// Exit code for arguments that contradict themselves or the machine, as clap has it.
pub(super) const USAGE: u8 = 2;

/// Why a command could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    #[error(transparent)]
    Nvml(#[from] NvmlError),
    #[error("{0}")]
    Failed(Box<dyn Error>),
}

/// A command's own error.
pub(super) trait Failure: Error + 'static {}

impl<E: Failure> From<E> for CommandError {
    fn from(error: E) -> CommandError {
        CommandError::Failed(Box::new(error))
    }
}

/// Says on stderr why the exit code is this one.
pub(super) fn complain(why: &dyn Display, code: u8) -> ExitCode {
    warn(why);
    ExitCode::from(code)
}

/// Says something on stderr, if that can be written: a command is not worse off where it
/// cannot.
pub(super) fn warn(message: &dyn Display) {
    let _ = writeln!(io::stderr(), "gpubind: {}", bounded(&message.to_string()));
}

/// Says what is wrong with the arguments, or prints the help that they ask for, as clap
/// does, and gives back the exit code.
pub(super) fn refuse(error: &clap::Error) -> ExitCode {
    let plain = error.render().to_string();
    let short = bounded(&plain);
    let is_help =
        !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    let _ = match is_help || short == plain {
        true => error.print(),
        false => io::stderr().write_all(short.as_bytes()),
    };
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE))
}

/// A message that may repeat what somebody else has written: not endless, and with nothing
/// that a terminal would obey. What is wrong with a long text is said behind it.
fn bounded(message: &str) -> String {
    const LONGEST: usize = 2000;
    const BEGIN: usize = 400;
    let is_plain = |c: char| !c.is_control() || c == '\n';
    let plain = |c: char| match is_plain(c) {
        true => c.to_string(),
        false => c.escape_default().to_string(),
    };
    let count = message.chars().count();
    if count <= LONGEST {
        return message.chars().map(plain).collect();
    }
    let begin = message.chars().take(BEGIN).map(plain);
    let end = message.chars().skip(count - (LONGEST - BEGIN)).map(plain);
    begin.chain(["…".to_owned()]).chain(end).collect()
}
