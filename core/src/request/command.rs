//! Slurm's commands that take gpubind's options.

use std::ffi::OsStr;

/// A Slurm command with options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// srun.
    Srun,
    /// sbatch.
    Sbatch,
    /// salloc.
    Salloc,
}

impl Command {
    /// The command that `argv[0]` names.
    pub fn from_argv0(argv0: &OsStr) -> Option<Command> {
        match std::path::Path::new(argv0).file_name()?.to_str()? {
            "srun" => Some(Command::Srun),
            "sbatch" => Some(Command::Sbatch),
            "salloc" => Some(Command::Salloc),
            _ => None,
        }
    }
}
