//! The report as one line for people.

use super::gather::{DeviceReport, Report};
use gpubind_core::bind::Locality;
use gpubind_core::node::IdSet;
use gpubind_core::variables;

/// How many cells a line has.
pub const COLUMNS: usize = 12;
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
/// Least widths of one line, so that the lines of most steps stand below each other.
const WIDTHS: [usize; COLUMNS] = [4, 12, 5, 10, 12, 12, 4, 7, 12, 20, 7, 9];
/// What tells the UUIDs of a node's GPUs apart; --json has them whole.
pub const SHORT_UUID: usize = 12;
/// Longer lists of GPUs are cut.
const LONGEST_LIST: usize = 24;

/// One line: cells are two blanks or more apart and hold single ones at most.
pub fn row(cells: [&str; COLUMNS], last: Option<&str>) -> String {
    spaced(cells, WIDTHS, last)
}

/// The same with these widths.
pub fn spaced(cells: [&str; COLUMNS], widths: [usize; COLUMNS], last: Option<&str>) -> String {
    let cells = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
    let line = cells.chain(last.map(str::to_owned)).collect::<Vec<_>>().join("  ");
    format!("{}\n", line.trim_end())
}

/// The cells of a report; of a UUID as many letters as are asked for.
pub fn columns(report: &Report, uuid_letters: usize) -> [String; COLUMNS] {
    let number = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
    let used = report.used();
    let peers = report.peers.as_ref();
    let uuid = |device: &DeviceReport| {
        let uuid = device.device.uuid.as_ref()?;
        // Instances of one GPU can begin alike.
        let letters = if device.mig.is_some() { usize::MAX } else { uuid_letters };
        Some(uuid.chars().take(letters).collect())
    };
    let numa = used.iter().filter_map(|it| it.device.numa.as_ref()).flatten();
    let numa: IdSet = numa.filter_map(|id| usize::try_from(*id).ok()).collect();
    [
        number(report.rank.map(|rank| rank.to_string())),
        report.host.clone(),
        number(report.local_rank.map(|rank| rank.to_string())),
        gpus(report, &used),
        first_and_more(&used, |device| device.device.pci.clone()),
        first_and_more(&used, uuid),
        number(Some(numa.to_string()).filter(|numa| !numa.is_empty())),
        report.cpus.to_string(),
        nearness(&used),
        report.visible.clone().map_or_else(|| "(unset)".to_owned(), |list| cut(&list)),
        number(peers.map(|peers| format!("{} of {}", peers.reachable, peers.count))),
        report.rank_from.clone(),
    ]
}

/// The GPUs that the rank uses, and how many it sees where those are more.
fn gpus(report: &Report, used: &[&DeviceReport]) -> String {
    if used.is_empty() {
        return "-".to_owned();
    }
    let name = |device: &&DeviceReport| {
        let mig = device.mig.as_ref();
        let mig = mig.map_or_else(String::new, |mig| format!(" MIG {}/{}", mig.gi, mig.ci));
        format!("{}{mig}", device.device.index)
    };
    let names = cut(&used.iter().map(name).collect::<Vec<_>>().join(","));
    match report.devices.len() {
        seen if seen > used.len() => format!("{names} (sees {seen})"),
        _ => names,
    }
}

fn cut(list: &str) -> String {
    match list.split_once(',') {
        Some((first, rest)) if list.len() > LONGEST_LIST => {
            format!("{first},… ({})", rest.split(',').count() + 1)
        }
        _ => list.to_owned(),
    }
}

fn first_and_more(
    used: &[&DeviceReport],
    value: impl Fn(&DeviceReport) -> Option<String>,
) -> String {
    let first = used.first().and_then(|first| value(first)).unwrap_or_else(|| "-".to_owned());
    match used.len() {
        0 | 1 => first,
        count => format!("{first} +{}", count - 1),
    }
}

/// One word where all of the GPUs are alike.
fn nearness(used: &[&DeviceReport]) -> String {
    let word = |device: &DeviceReport| match (device.reachable, device.locality) {
        (false, _) => "unreachable".to_owned(),
        (true, Locality::Unknown) => "-".to_owned(),
        (true, locality) => locality.to_string(),
    };
    let words: Vec<String> = used.iter().map(|device| word(device)).collect();
    match words.split_first() {
        None => "-".to_owned(),
        Some((first, rest)) if rest.iter().all(|word| word == first) => first.clone(),
        Some(_) => {
            let local = used.iter().filter(|device| device.locality == Locality::Local).count();
            format!("{local} of {} local", used.len())
        }
    }
}
