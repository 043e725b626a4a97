//! The `gpubind` program: a file per command, and nothing that the library
//! could decide.

mod check;
mod config;
mod exec;
mod lines;
mod machine_args;
mod plan;
mod report;
mod snapshot;
mod topo;

use gpubind_core::variables;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

pub use check::{Level, Message, check_messages};
pub use machine_args::MachineArgs;

/// Gives every rank of a Slurm job step its own nearest GPU.
#[derive(Debug, Parser)]
#[command(name = "gpubind", version, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Topo(topo::TopoArgs),
    Plan(plan::PlanArgs),
    Exec(exec::ExecArgs),
    Snapshot(snapshot::SnapshotArgs),
    Report(report::ReportArgs),
    Config(config::ConfigArgs),
    Check(check::CheckArgs),
}

/// Exit code of a command that could not do what it was asked.
const FAILED: u8 = 1;

/// Exit code for arguments that contradict themselves or the machine, as clap has it.
const USAGE: u8 = 2;

/// The program's definition: what `--help` is made from, and man pages and shell
/// completions too.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the program with the process's own arguments. Wrong arguments end it
/// with exit code 2, as clap has it.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = io::stdout().lock();
    let done: Result<(), Box<dyn std::error::Error>> = match &cli.command {
        Command::Topo(args) => topo::run(args, &mut out).map_err(Into::into),
        Command::Plan(args) => plan::run(args, &mut out).map_err(Into::into),
        Command::Exec(args) => exec::run(args, &mut out).map_err(Into::into),
        Command::Snapshot(args) => snapshot::run(args, &mut out).map_err(Into::into),
        Command::Report(args) => report::run(args, &mut out).map_err(Into::into),
        Command::Config(args) => config::run(args, &mut out).map_err(Into::into),
        Command::Check(args) => check::run(args, &mut out).map_err(Into::into),
    };
    match done.and_then(|()| out.flush().map_err(Into::into)) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has had enough of it.
        Err(error) if is_broken_pipe(error.as_ref()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gpubind: {error}");
            ExitCode::from(exit_code(error.as_ref()))
        }
    }
}

fn exit_code(error: &(dyn std::error::Error + 'static)) -> u8 {
    if let Some(error) = error.downcast_ref::<exec::ExecError>() {
        return error.exit_code();
    }
    let is_usage = error.downcast_ref().is_some_and(plan::PlanCommandError::is_usage);
    let is_broken = error.downcast_ref().is_some_and(check::CheckError::is_broken);
    match (is_usage, is_broken) {
        (true, _) => USAGE,
        (_, true) => check::BROKEN,
        _ => FAILED,
    }
}

/// The node's name, Slurm's where it tells.
fn host() -> String {
    std::env::var(variables::NODE_NAME)
        .unwrap_or_else(|_| rustix::system::uname().nodename().to_string_lossy().into_owned())
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
