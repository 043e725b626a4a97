//! `spank-host`: stands in for slurmstepd, srun or slurmd around a SPANK plugin.
//!
//! It offers the functions that Slurm's programs export to plugins, loads a plugin and
//! runs its hooks in Slurm's order, with a real fork for each task. So a hook can be
//! run thousands of times, under valgrind, and counted, without a cluster.
//!
//! The functions and their error codes are those of slurm/spank.h; the order is that of
//! src/slurmd/slurmstepd/mgr.c and task.c (slurmstepd) and src/srun/srun.c.

mod c_string;
mod client;
mod daemon;
mod environment;
mod error;
mod exports;
mod items;
mod log;
mod mark;
mod options;
mod output;
mod plugin;
mod registered;
mod settings;
mod state;
mod step;
mod task;

use std::process::ExitCode;

use clap::Parser;
use settings::{Program, Settings};

/// A hook did not return 0.
const HOOK_FAILED: u8 = 3;

fn main() -> ExitCode {
    // The command line is then a client's own, which the plugin may look at.
    let settings = client::handed_over().unwrap_or_else(Settings::parse);
    let done = match settings.program {
        Program::Slurmstepd => step::run_all(&settings),
        Program::Srun | Program::Sbatch | Program::Salloc => client::run(&settings),
        Program::Slurmd | Program::Prolog | Program::Epilog => daemon::run(&settings),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => HOOK_FAILED.into(),
        Err(error) => {
            eprintln!("spank-host: {error}");
            ExitCode::FAILURE
        }
    }
}
