//! `gpubind report`: what this process has, in one line.

use std::env;
use std::io::{self, Write};

use serde::Serialize;

use super::MachineArgs;
use crate::bind::Locality;
use crate::node::{CpuSet, Device, Node};
use crate::step::{Allocation, own_cpus, reach};

/// Show which GPU this process has, and whether it is local to its CPUs
///
/// Prints one line. `srun … gpubind report` gives a line for each task. With
/// several GPUs visible, the line shows the first: the one that a program uses
/// which does not choose.
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
    /// Add why the task got this GPU
    #[arg(long, conflicts_with = "json")]
    why: bool,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Output failed.
    #[error("cannot write the report: {0}")]
    Write(#[from] io::Error),
    /// The report is no JSON; cannot happen with plain data.
    #[error("cannot write the report: {0}")]
    Json(#[from] serde_json::Error),
}

/// One process, as `--json` prints it; what is not known is null.
#[derive(Debug, Serialize)]
struct Report {
    host: String,
    rank: Option<u32>,
    local_rank: Option<u32>,
    visible: Option<String>,
    devices: Vec<DeviceReport>,
    cpus: String,
    /// Why the plugin gave these devices, as it told the task.
    why: Option<String>,
}

#[derive(Debug, Serialize)]
struct DeviceReport {
    index: u32,
    pci: Option<String>,
    uuid: Option<String>,
    numa: Option<Vec<u32>>,
    /// `local`, `partly local`, `remote`, or null.
    locality: Option<String>,
}

/// Prints the report.
///
/// # Errors
/// [`ReportError`].
pub fn run(args: &ReportArgs, out: &mut dyn Write) -> Result<(), ReportError> {
    let node = args.machine.node();
    if let Err(error) = &node {
        eprintln!("gpubind: the node's GPUs are unknown: {error}");
    }
    let report = gather(node.as_ref().ok(), args);
    if args.json {
        serde_json::to_writer(&mut *out, &report)?;
        return Ok(writeln!(out)?);
    }
    let why = args.why.then(|| report.why.as_deref().unwrap_or("not given by gpubind"));
    let header = if args.header { row(NAMES, args.why.then_some("WHY")) } else { String::new() };
    // One write, so that the lines of many tasks do not mix.
    let line = row(columns(&report).each_ref().map(String::as_str), why);
    out.write_all(format!("{header}{line}").as_bytes())?;
    Ok(())
}

fn gather(node: Option<&Node>, args: &ReportArgs) -> Report {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse().ok());
    let visible = env::var("CUDA_VISIBLE_DEVICES").ok();
    let cpus = own_cpus();
    let devices = node.map_or_else(Vec::new, |node| {
        let reach = reach(node, &args.machine.roots().dev());
        let seen = Allocation::seen(node, &reach, visible.as_deref());
        seen.into_iter().filter_map(|device| describe(node, device, &cpus)).collect()
    });
    let host = env::var("SLURMD_NODENAME")
        .unwrap_or_else(|_| rustix::system::uname().nodename().to_string_lossy().into_owned());
    Report {
        host,
        rank: number("SLURM_PROCID"),
        local_rank: number("SLURM_LOCALID"),
        visible,
        devices,
        cpus: cpus.to_string(),
        why: env::var("GPUBIND_WHY").ok(),
    }
}

fn describe(node: &Node, device: Device, cpus: &CpuSet) -> Option<DeviceReport> {
    let gpu = node.gpu(device)?;
    let locality = Some(Locality::of(cpus, gpu)).filter(|known| *known != Locality::Unknown);
    Some(DeviceReport {
        index: gpu.index,
        pci: gpu.pci.known().map(|pci| pci.to_string()),
        uuid: node.uuid(device).map(str::to_owned),
        numa: gpu.numa.known().cloned(),
        locality: locality.map(|locality| locality.to_string()),
    })
}

const COLUMNS: usize = 10;
const NAMES: [&str; COLUMNS] = [
    "RANK",
    "NODE",
    "LOCAL",
    "GPU",
    "PCI",
    "UUID",
    "NUMA",
    "CPUS",
    "GPU IS",
    "CUDA_VISIBLE_DEVICES",
];
const WIDTHS: [usize; COLUMNS] = [4, 8, 5, 7, 12, 12, 4, 7, 12, 20];

fn row(cells: [&str; COLUMNS], last: Option<&str>) -> String {
    let cells = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:<width$}"));
    let line = cells.chain(last.map(str::to_owned)).collect::<Vec<_>>().join("  ");
    format!("{}\n", line.trim_end())
}

fn columns(report: &Report) -> [String; COLUMNS] {
    let number = |number: Option<u32>| number.map_or("-".to_owned(), |number| number.to_string());
    let first = report.devices.first();
    let gpu = match report.devices.len() {
        0 | 1 => number(first.map(|first| first.index)),
        count => format!("{} of {count}", number(first.map(|first| first.index))),
    };
    let of_first = |value: &dyn Fn(&DeviceReport) -> Option<String>| {
        first.and_then(value).unwrap_or_else(|| "-".to_owned())
    };
    let numa = |ids: &Vec<u32>| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    [
        number(report.rank),
        report.host.clone(),
        number(report.local_rank),
        gpu,
        of_first(&|first| first.pci.clone()),
        // The first group tells GPUs of a node apart; --json has it whole.
        of_first(&|first| Some(first.uuid.as_ref()?.chars().take(12).collect())),
        of_first(&|first| first.numa.as_ref().map(numa)),
        report.cpus.clone(),
        of_first(&|first| first.locality.clone()),
        report.visible.clone().unwrap_or_else(|| "(unset)".to_owned()),
    ]
}
