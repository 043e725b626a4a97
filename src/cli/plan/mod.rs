//! `gpubind plan`: what would happen, before a job is queued.
//!
//! Everything that decides is the library's: [`crate::slurm::layout`] makes the CPU
//! sets, [`gpubind_core::plan`] the plan, [`gpubind_core::bind`] each rank's environment. Here
//! arguments become those functions' inputs, and their results text:
//!
//! | file | what it does |
//! |---|---|
//! | `devices`, `cpus` | read what was typed, and refuse what the node lacks |
//! | `srun_options` | srun's options about CPUs |
//! | `scenario` | puts the inputs together and asks the library |
//! | `nearness` | how near ranks are to their devices, in words and numbers |
//! | `table`, `sentence`, `compare` | the output for people |
//! | `picture` | the machine with the ranks at their GPUs |
//! | `json` | the output for programs |

mod args;
mod compare;
mod cpus;
mod cpus_error;
mod devices;
mod error;
mod json;
mod nearness;
mod picture;
mod scenario;
mod sentence;
mod srun_options;
mod table;

use std::io::Write;
use std::process::ExitCode;

use super::ending::{CommandError, USAGE, complain, warn};
use super::output::{self, Form};
use super::topo;
pub use args::PlanArgs;
use error::PlanCommandError;
use gpubind_core::node::Node;
use scenario::{Mapping, Scenario};

/// Runs the command; warnings go to stderr.
///
/// # Errors
/// [`CommandError`].
pub fn run(args: &PlanArgs, out: &mut dyn Write) -> Result<ExitCode, CommandError> {
    let node = match &args.from {
        Some(path) => topo::from_file(path)?,
        None => args.machine.node().map_err(PlanCommandError::Nvml)?,
    };
    match plan(args, &node) {
        Ok((scenario, compared)) => show(args, &scenario, compared.as_deref(), out)?,
        Err(PlanCommandError::Wrong(wrong)) => return Ok(complain(&wrong, USAGE)),
        Err(error) => return Err(error.into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// The plan, and what it is to be compared with, if that is wanted.
fn plan<'a>(
    args: &PlanArgs,
    node: &'a Node,
) -> Result<(Scenario<'a>, Option<Vec<Mapping>>), PlanCommandError> {
    let scenario = Scenario::new(node, args)?;
    let compared = args.compare.then(|| scenario.compare()).transpose()?;
    Ok((scenario, compared))
}

fn show(
    args: &PlanArgs,
    scenario: &Scenario,
    compared: Option<&[Mapping]>,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let mut is_written = false;
    if let Some(path) = &args.svg {
        is_written = topo::write_drawing(path, &picture::draw(scenario), out)?;
    }
    if is_written || args.svg.is_some() && !args.json {
        // The picture is the output.
    } else if args.json {
        output::json(&json::PlanJson::new(scenario, compared), out)?;
    } else {
        let form = Form::here();
        let text = match compared {
            Some(compared) => compare::text(scenario, compared, form),
            None => table::text(scenario, form),
        };
        out.write_all(text.as_bytes())?;
    }
    // The same words as in the job itself.
    for warning in &scenario.warnings {
        warn(warning);
    }
    Ok(())
}
