//! Talking to the user and to slurmd's log.
//!
//! In a task only slurm_error and slurm_spank_log reach the user; in srun and
//! the like every level from info up does. fd 1 and fd 2 are never written.

use slurm_spank::{LogLevel, slurm_spank_log, spank_log};

const PREFIX: &str = "gpubind: ";

/// Something went wrong; Slurm puts `error:` and its own name before it.
pub fn error(text: &str) {
    spank_log(LogLevel::Error, &format!("{PREFIX}{text}"));
}

/// A line for the user, as it is.
pub fn user(text: &str) {
    slurm_spank_log(&format!("{PREFIX}{text}"));
}

/// A line for whoever looks at slurmd's debug log.
pub fn debug(text: &str) {
    spank_log(LogLevel::Debug, &format!("{PREFIX}{text}"));
}
