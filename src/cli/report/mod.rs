//! `gpubind report`: what this process has, in one line, and whether that is right.
//!
//! | file | what it does |
//! |---|---|
//! | `gather` | what the process has, as `--json` prints it |
//! | `table` | the same as a line for people |
//! | `alone` | what is wrong with it, whatever the others have |
//! | `check` | the same, and what is wrong between the ranks of the node |
//! | `together` | the reports of all of them |
//! | `merge` | the reports of a whole step, from the lines that they print |
//! | `step`, `step_table` | the ranks of a step, sorted, counted, as one table |
//!
//! What does *not* live here: what a process should get, which is the plan's.

mod alone;
mod check;
mod gather;
mod merge;
mod step;
mod step_table;
mod table;
mod together;

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ending::{CommandError, Failure, warn};
use super::machine_args::MachineArgs;
use super::output;
use check::Findings;
use gather::{NodeView, Report, gather};
use gpubind_core::step::{RankInfo, rank_info, reach};
use merge::MergeError;
use step::Step;
use table::{NAMES, SHORT_UUID, columns, row};

/// Show which GPU this process has, and whether it is local to its CPUs
///
/// Prints one line. `srun … gpubind report` gives a line for each task, and inside
/// torchrun or mpirun for each worker. With several GPUs visible, the line shows the
/// rank's own by gpubind, else the first: the one that a program uses which does not
/// choose. PEERS: how many of the
/// step's other GPUs this process can reach.
///
/// With --table, the first rank of each node prints one table of the node's ranks, with a
/// line that sums it up. `srun … gpubind report --lines | gpubind report --merge` prints one
/// for all nodes; nodes that look alike are one block there if there are many ranks.
///
/// With --check, exits with 1 and a reason if ranks of the step on this node share a GPU
/// and nobody asked for `share`, if a GPU or a peer is not reachable, if
/// CUDA_VISIBLE_DEVICES or LOCAL_RANK names none, if gpubind was asked for and has not
/// bound, or if something has changed the list or moved the rank to other CPUs since. The
/// first rank of which it is true says it for all.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    #[command(flatten)]
    machine: MachineArgs,
    /// Print a JSON object; with --table or --merge, one for all ranks
    #[arg(long, conflicts_with = "header")]
    json: bool,
    /// Print the columns' names above the line
    #[arg(long)]
    header: bool,
    /// Add why the process got this GPU
    #[arg(long, conflicts_with = "json")]
    why: bool,
    /// Print one table of all ranks on this node
    #[arg(long, conflicts_with_all = ["header", "why"])]
    table: bool,
    /// Print the report for --merge, in lines that srun does not mix
    #[arg(long, conflicts_with_all = ["json", "header", "why", "table"])]
    lines: bool,
    /// Print one table of the reports in FILE [default: standard input]
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-",
          conflicts_with_all = ["table", "lines", "header", "why"])]
    merge: Option<PathBuf>,
    /// Check it, together with the other ranks on this node
    #[arg(long)]
    check: bool,
    /// With --check or --table: how many seconds to wait for the other ranks
    #[arg(long, value_name = "SECONDS", default_value_t = 3,
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
    #[error(transparent)]
    Merge(MergeError),
}

/// Prints the report.
///
/// # Errors
/// [`CommandError`].
pub fn run(args: &ReportArgs, out: &mut dyn Write) -> Result<ExitCode, CommandError> {
    if let Some(file) = &args.merge {
        return show(args, merge::read(file).map_err(ReportError::Merge)?, out);
    }
    let env = |name: &str| env::var(name).ok();
    let rank_info = rank_info(std::process::id(), &env);
    let report = own_report(args, &rank_info);
    let time = Duration::from_secs(args.wait);
    let check = args.check.then(|| check::check(&report, &rank_info, time, &env)).transpose();
    let own = CheckedReport { report, check: check.map_err(ReportError::Exchange)? };
    let code = own.check.as_ref().map(|findings| judge(findings, &own.report.host, args.wait));
    if args.table {
        let gathered = together::gather(&own, &rank_info, time).map_err(ReportError::Exchange)?;
        if let Some(ranks) = gathered {
            // What the check says decides, not the table.
            let _ = show(args, ranks, out)?;
        }
    } else {
        print(args, &own, out)?;
    }
    Ok(code.unwrap_or(ExitCode::SUCCESS))
}

/// What this process has.
fn own_report(args: &ReportArgs, rank_info: &RankInfo) -> Report {
    let node = args.machine.node_within(Duration::from_secs(args.deadline));
    if let Err(error) = &node {
        warn(&format!("the node's GPUs are unknown: {error}"));
    }
    let reach = node.as_ref().map(|node| reach(node, &args.machine.roots().dev()));
    let machine = match (&node, &reach) {
        (Ok(node), Ok(reach)) => Some(NodeView { node, reach }),
        _ => None,
    };
    gather(machine.as_ref(), rank_info)
}

/// Prints a step's ranks as one table, or as one document; with --check and --merge, says
/// what is wrong, too.
fn show(
    args: &ReportArgs,
    ranks: Vec<CheckedReport>,
    out: &mut dyn Write,
) -> Result<ExitCode, CommandError> {
    let step = Step::new(ranks);
    match args.json {
        true => output::json(&step, out)?,
        false => out.write_all(step_table::text(&step).as_bytes())?,
    }
    let findings = if args.check && args.merge.is_some() { step.findings() } else { Vec::new() };
    for finding in &findings {
        warn(&format!("check failed: {finding}"));
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is printed.
#[derive(Clone, Serialize, Deserialize)]
struct CheckedReport {
    #[serde(flatten)]
    report: Report,
    /// Only with `--check`.
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<Findings>,
}

fn print(args: &ReportArgs, checked: &CheckedReport, out: &mut dyn Write) -> io::Result<()> {
    if args.lines {
        return merge::write(checked, out);
    }
    if args.json {
        return output::json(checked, out);
    }
    let report = &checked.report;
    let why = args.why.then(|| report.why.as_deref().unwrap_or("not given by gpubind"));
    let header = if args.header { row(NAMES, args.why.then_some("WHY")) } else { String::new() };
    let line = row(columns(report, SHORT_UUID).each_ref().map(String::as_str), why);
    out.write_all(format!("{header}{line}").as_bytes())
}

/// Says who has not answered, and what is wrong.
fn judge(findings: &Findings, host: &str, wait: u64) -> ExitCode {
    if !findings.no_reply.is_empty() && findings.is_first {
        let silent: Vec<String> = findings.no_reply.iter().map(usize::to_string).collect();
        warn(&format!(
            "{host}: no answer from local ranks {} within {wait} s; cannot tell whether they \
             share GPUs",
            silent.join(",")
        ));
    }
    for said in &findings.said {
        let who = said.ranks.as_ref().map_or_else(String::new, |ranks| format!("{ranks} "));
        warn(&format!("check failed: {who}on {host}: {}", said.sentences.join("; ")));
    }
    if findings.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
