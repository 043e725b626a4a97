//! slurmd, and the processes in which it runs plugins around a job.

use crate::error::StepError;
use crate::plugin::Plugin;
use crate::settings::{Program, Settings};
use crate::state::{Context, state};

/// Runs the hooks.
pub fn run(settings: &Settings) -> Result<bool, StepError> {
    let (context, name, hooks) = match settings.program {
        Program::Slurmd => {
            (Context::Slurmd, "slurmd", &["slurm_spank_init", "slurm_spank_slurmd_exit"])
        }
        Program::Prolog => {
            (Context::JobScript, "slurmstepd", &["slurm_spank_job_prolog", "slurm_spank_exit"])
        }
        _ => (Context::JobScript, "slurmstepd", &["slurm_spank_job_epilog", "slurm_spank_exit"]),
    };
    state().program = name;
    let mut plugin = Plugin::load(settings, context)?;
    let mut well = true;
    for hook in hooks {
        well &= plugin.run(hook);
    }
    Ok(well)
}
