//! The report as one line for people.

use super::gather::{DeviceReport, Report};
use gpubind_core::bind::Locality;
use gpubind_core::variables;

const COLUMNS: usize = 12;
/// The columns' names.
pub const NAMES: [&str; COLUMNS] = [
    variables::RANK,
    "NODE",
    "LOCAL",
    "GPU",
    "PCI",
    "UUID",
    "NUMA",
    "CPUS",
    "GPU IS",
    variables::CUDA_VISIBLE_DEVICES,
    "PEERS",
    "RANK FROM",
];
const WIDTHS: [usize; COLUMNS] = [4, 8, 5, 7, 12, 12, 4, 7, 12, 20, 7, 9];

/// One line: cells are two blanks or more apart and hold single ones at most.
pub fn row(cells: [&str; COLUMNS], last: Option<&str>) -> String {
    let cells = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:<width$}"));
    let line = cells.chain(last.map(str::to_owned)).collect::<Vec<_>>().join("  ");
    format!("{}\n", line.trim_end())
}

/// The cells of a report.
pub fn columns(report: &Report) -> [String; COLUMNS] {
    let number = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
    let first = report.own().next();
    let of_first = |value: &dyn Fn(&DeviceReport) -> Option<String>| {
        first.and_then(value).unwrap_or_else(|| "-".to_owned())
    };
    let name = of_first(&|first| {
        let mig = first.mig.as_ref();
        let mig = mig.map_or_else(String::new, |mig| format!(" MIG {}/{}", mig.gi, mig.ci));
        Some(format!("{}{mig}", first.device.index))
    });
    let gpu = match report.devices.len() {
        0 | 1 => name,
        count => format!("{name} of {count}"),
    };
    let numa = |ids: &Vec<u32>| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let peers = report.peers.as_ref();
    [
        number(report.rank.map(|rank| rank.to_string())),
        report.host.clone(),
        number(report.local_rank.map(|rank| rank.to_string())),
        gpu,
        of_first(&|first| first.device.pci.clone()),
        // The first group tells GPUs of a node apart; --json has it whole.
        of_first(&|first| Some(first.device.uuid.as_ref()?.chars().take(12).collect())),
        of_first(&|first| first.device.numa.as_ref().map(numa)),
        report.cpus.to_string(),
        of_first(&|first| match first.reachable {
            true => Some(first.locality)
                .filter(|known| *known != Locality::Unknown)
                .map(|it| it.to_string()),
            false => Some("unreachable".to_owned()),
        }),
        report.visible.clone().unwrap_or_else(|| "(unset)".to_owned()),
        number(peers.map(|peers| format!("{} of {}", peers.reachable, peers.count))),
        report.rank_from.clone(),
    ]
}
