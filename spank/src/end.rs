//! Ending the process, which no hook does while it holds a lock.

use std::ffi::c_int;

/// A process that must not go on, with its exit code.
pub enum End {
    /// A command, as Slurm ends it for an option that it cannot understand: exit(3).
    Command(c_int),
    /// A task: _exit(2), since it is a forked child of slurmstepd.
    Task(c_int),
}
