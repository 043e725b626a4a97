//! The `gpubind` program: a file per command, and nothing that the library
//! could decide.

mod check;
mod config;
mod device_json;
mod ending;
mod exec;
mod host;
mod input;
mod log;
mod machine_args;
mod output;
mod peers;
mod plan;
mod report;
mod site_policy;
mod snapshot;
mod topo;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use tracing::level_filters::LevelFilter;

pub use check::{Level, Message, check_messages};
pub use machine_args::MachineArgs;

use ending::{CommandError, complain, refuse};

/// Gives every rank of a Slurm job step its own nearest GPU.
#[derive(Debug, Parser)]
#[command(name = "gpubind", version, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    log: log::LogArgs,
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    Topo(topo::TopoArgs),
    Plan(plan::PlanArgs),
    Exec(exec::ExecArgs),
    Snapshot(snapshot::SnapshotArgs),
    Report(report::ReportArgs),
    Config(config::ConfigArgs),
    Check(check::CheckArgs),
}

/// The program's definition: what `--help` is made from, and man pages and shell
/// completions too.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the program with the process's own arguments. Wrong arguments end it
/// with exit code 2, as clap has it.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    cli.log.start(match &cli.command {
        Subcommands::Exec(args) => args.least_level(),
        _ => LevelFilter::OFF,
    });
    let mut out = io::stdout().lock();
    let ended = match &cli.command {
        Subcommands::Topo(args) => topo::run(args, &mut out),
        Subcommands::Plan(args) => plan::run(args, &mut out),
        Subcommands::Exec(args) => exec::run(args, &mut out),
        Subcommands::Snapshot(args) => snapshot::run(args, &mut out),
        Subcommands::Report(args) => report::run(args, &mut out),
        Subcommands::Config(args) => config::run(args, &mut out),
        Subcommands::Check(args) => check::run(args, &mut out),
    };
    match ended.and_then(|code| Ok(out.flush().map(|()| code)?)) {
        Ok(code) => code,
        // Whoever read our output has had enough of it.
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => complain(&error, 1),
    }
}
