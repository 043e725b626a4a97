//! Why a child gave no answer.

use std::io;

use super::collect::MAX_OUTPUT;
use crate::trusted::TrustError;

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
    /// The caller no longer wanted an answer; it was killed.
    #[error("{0} was stopped: nobody waits for its answer, or another one has begun to read")]
    Unwanted(String),
    /// It wrote more than [`MAX_OUTPUT`], and was killed.
    #[error("{0} wrote more than {MAX_OUTPUT} bytes")]
    TooMuchOutput(String),
}

impl ProbeError {
    /// What the gpubind program says for itself, without words about its exit code.
    pub fn program_message(&self) -> Option<&str> {
        match self {
            ProbeError::Exit { message, .. } => message.strip_prefix("gpubind: "),
            _ => None,
        }
    }
}

fn left(reaped: bool) -> &'static str {
    if reaped { "" } else { ", but it hangs in the kernel and is still there" }
}
