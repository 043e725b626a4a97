//! `gpubind check`: is this node set up right, and what to do where it is not.
//!
//! What lives here: a file for each group of checks, each with the table of all that
//! it can say (`MESSAGES`), and printing. A check is a function from the [`Setup`] to
//! one [`Finding`]; it judges what it can see, and where it sees nothing it says so in
//! a note. What does not: reading files and machines, and comparing them, which the
//! library does ([`crate::slurm`], [`crate::config`], [`gpubind_core::node`], [`gpubind_core::plan`]).
//!
//! | file | checks |
//! |---|---|
//! | `plugin` | Slurm's release; the plugin's line, arguments, file; whether Slurm loads it; gpubind.toml; pyxis |
//! | `programs` | the gpubind program and the worker shim |
//! | `machine` | NVML, persistence mode, unusable GPUs, MIG, the snapshot |
//! | `gres` | gres.conf against the machine |
//! | `tasks` | cgroup.conf, TaskPlugin, and what Slurm's placement of tasks means |
//! | `setup`, `child` | gathering what the checks look at |
//! | `message`, `print` | what is said, and how |
//! | `brief` | one line for a node, and nodes that say the same in one |

mod args;
mod brief;
mod child;
mod gres;
mod machine;
mod message;
mod plugin;
mod print;
mod programs;
mod setup;
mod tasks;

use std::io::Write;
use std::process::ExitCode;

use super::ending::{CommandError, USAGE, complain};
use super::host::host;
pub use args::CheckArgs;
pub use message::{Level, Message};
use setup::Setup;

/// Exit code where something is broken.
const BROKEN: u8 = 2;
/// Exit code where nothing is broken, but not all is well.
const WARNINGS: u8 = 1;

fn code(worst: Level) -> u8 {
    match worst {
        Level::Ok | Level::Note => 0,
        Level::Warning => WARNINGS,
        Level::Broken => BROKEN,
    }
}

/// Every message that a check can give, for a list of them.
pub fn check_messages() -> impl Iterator<Item = &'static Message> {
    let groups =
        [plugin::MESSAGES, programs::MESSAGES, machine::MESSAGES, gres::MESSAGES, tasks::MESSAGES];
    groups.into_iter().flatten().copied()
}

/// Runs all checks and prints what they find.
///
/// # Errors
/// [`CommandError`].
pub fn run(args: &CheckArgs, out: &mut dyn Write) -> Result<ExitCode, CommandError> {
    if let Some(file) = &args.fold {
        return match brief::fold(file, out) {
            Ok(folded) => {
                folded.map(|(worst, sum)| complain(&sum, code(worst))).map_err(Into::into)
            }
            Err(error) => Ok(complain(&error, USAGE)),
        };
    }
    let setup = match Setup::gather(args) {
        Ok(setup) => setup,
        Err(error) => return Ok(complain(&error, USAGE)),
    };
    let groups = [
        plugin::checks(&setup),
        programs::checks(&setup),
        machine::checks(&setup),
        gres::checks(&setup),
        tasks::checks(&setup),
    ];
    let findings = groups.concat();
    if args.brief || args.prometheus {
        match args.brief {
            true => writeln!(out, "{}", brief::line(&findings, &host()))?,
            false => print::prometheus(&findings, out)?,
        }
        // All is said by what is printed.
        let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok);
        return Ok(ExitCode::from(code(worst)));
    }
    match args.json {
        true => print::json(&findings, out)?,
        false => print::text(&findings, out)?,
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    Ok(match (count(Level::Broken), count(Level::Warning)) {
        (0, 0) => ExitCode::SUCCESS,
        (0, warnings) => complain(&format!("nothing broken, {warnings} to look at"), WARNINGS),
        (broken, warnings) => complain(&format!("{broken} broken, {warnings} to look at"), BROKEN),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_message_is_one_of_its_kind_and_says_what_to_do_where_needed() {
        let mut seen = HashSet::new();
        for message in check_messages() {
            assert!(seen.insert((message.check, message.found)), "twice: {message:?}");
            let needs_advice = message.level >= Level::Warning;
            assert!(!needs_advice || !message.advice.is_empty(), "no advice: {message:?}");
            assert!(!message.found.ends_with('.') && !message.advice.ends_with('.'), "{message:?}");
        }
    }
}
