//! How a command ends: its exit code, or an error, which means 1. One that ends with
//! another code says why itself ([`complain`]).

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

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
    let _ = writeln!(io::stderr(), "gpubind: {message}");
}
