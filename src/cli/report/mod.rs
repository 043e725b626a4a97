//! `gpubind report`: what this process has, in one line, and whether that is right.
//!
//! | file | what it does |
//! |---|---|
//! | `gather` | what the process has, as `--json` prints it |
//! | `table` | the same as a line for people |
//! | `alone` | what is wrong with it, whatever the others have |
//! | `check` | the same, and what is wrong between the ranks of the node |
//! | `peers`, `exchange` | which ranks of the node belong together, and how they compare |
//!
//! What does *not* live here: what a process should get, which is the plan's.

mod alone;
mod check;
mod exchange;
mod gather;
mod peers;
mod table;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use super::ending::{CommandError, Failure, complain, warn};
use super::machine_args::MachineArgs;
use super::output;
use check::Findings;
use gather::{NodeView, Report, gather};
use gpubind_core::step::{rank_info, reach};
use table::{NAMES, columns, row};

/// Show which GPU this process has, and whether it is local to its CPUs
///
/// Prints one line. `srun … gpubind report` gives a line for each task, and inside
/// torchrun or mpirun for each worker. With several GPUs visible, the line shows the
/// rank's own by gpubind, else the first: the one that a program uses which does not
/// choose. PEERS: how many of the
/// step's other GPUs this process can reach.
///
/// With --check, exits with 1 and a reason if ranks of the step on this node share a GPU
/// and nobody asked for `share`, if a GPU or a peer is not reachable, if
/// CUDA_VISIBLE_DEVICES or LOCAL_RANK names none, if gpubind was asked for and has not
/// bound, or if something has changed the list or moved the rank to other CPUs since.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    #[command(flatten)]
    machine: MachineArgs,
    /// Print a JSON object
    #[arg(long, conflicts_with = "header")]
    json: bool,
    /// Print the columns' names above the line
    #[arg(long)]
    header: bool,
    /// Add why the process got this GPU
    #[arg(long, conflicts_with = "json")]
    why: bool,
    /// Check it, together with the other ranks on this node
    #[arg(long)]
    check: bool,
    /// With --check: how many seconds to wait for the other ranks
    #[arg(long, value_name = "SECONDS", default_value_t = 3, requires = "check",
          value_parser = clap::value_parser!(u64).range(1..=600))]
    wait: u64,
    /// How many seconds reading the GPUs may take
    #[arg(long, value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    deadline: u64,
}

impl Failure for ReportError {}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("cannot compare with the other ranks: {0}")]
    Exchange(io::Error),
}

/// Prints the report.
///
/// # Errors
/// [`CommandError`].
pub fn run(args: &ReportArgs, out: &mut dyn Write) -> Result<ExitCode, CommandError> {
    let node = args.machine.node_within(Duration::from_secs(args.deadline));
    if let Err(error) = &node {
        warn(&format!("the node's GPUs are unknown: {error}"));
    }
    let env = |name: &str| env::var(name).ok();
    let rank_info = rank_info(&env);
    let reach = node.as_ref().map(|node| reach(node, &args.machine.roots().dev()));
    let machine = match (&node, &reach) {
        (Ok(node), Ok(reach)) => Some(NodeView { node, reach }),
        _ => None,
    };
    let report = gather(machine.as_ref(), &rank_info);
    let time = Duration::from_secs(args.wait);
    let check = args.check.then(|| check::check(&report, &rank_info, time, &env)).transpose();
    let checked = CheckedReport { report, check: check.map_err(ReportError::Exchange)? };
    print(args, &checked, out)?;
    let CheckedReport { report, check } = checked;
    Ok(match check {
        Some(findings) => judge(&findings, &report.host, report.rank, args.wait),
        None => ExitCode::SUCCESS,
    })
}

/// What is printed.
#[derive(Serialize)]
struct CheckedReport {
    #[serde(flatten)]
    report: Report,
    /// Only with `--check`.
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<Findings>,
}

fn print(args: &ReportArgs, checked: &CheckedReport, out: &mut dyn Write) -> io::Result<()> {
    if args.json {
        return output::json(checked, out);
    }
    let report = &checked.report;
    let why = args.why.then(|| report.why.as_deref().unwrap_or("not given by gpubind"));
    let header = if args.header { row(NAMES, args.why.then_some("WHY")) } else { String::new() };
    let line = row(columns(report).each_ref().map(String::as_str), why);
    out.write_all(format!("{header}{line}").as_bytes())
}

/// Says who has not answered, and what is wrong.
fn judge(findings: &Findings, host: &str, rank: Option<u32>, wait: u64) -> ExitCode {
    let who = rank.map_or_else(|| format!("on {host}"), |rank| format!("rank {rank} on {host}"));
    if !findings.no_reply.is_empty() {
        let silent: Vec<String> = findings.no_reply.iter().map(usize::to_string).collect();
        warn(&format!(
            "{who}: no answer from local ranks {} within {wait} s; cannot tell whether \
             they share this GPU",
            silent.join(",")
        ));
    }
    if findings.wrong.is_empty() {
        return ExitCode::SUCCESS;
    }
    complain(&format!("check failed: {who}: {}", findings.wrong.join("; ")), 1)
}
