//! A step as one table: a line for each rank, and one block for all nodes that look alike
//! where there are many ranks.

use std::collections::HashMap;

use super::CheckedReport;
use super::step::Step;
use super::table::{COLUMNS, NAMES, SHORT_UUID, columns, spaced};
use crate::slurm::folded;
use gpubind_core::words::count;

/// Up to so many ranks there is a line for each.
const MOST_LINES: usize = 32;

type Row = [String; COLUMNS];

/// Nodes whose ranks have the same, but for the names of GPUs and the ranks' numbers.
struct Block {
    hosts: Vec<String>,
    /// For each of a node's lines, the ranks of all the nodes.
    ranks: Vec<Vec<String>>,
    /// The first node's.
    rows: Vec<Row>,
}

/// The table, with its header and a line that sums it up.
pub fn text(step: &Step) -> String {
    let letters = uuid_letters(&step.ranks);
    let is_folded = step.ranks.len() > MOST_LINES;
    let blocks = match is_folded {
        true => blocks(&step.ranks, letters),
        false => Vec::new(),
    };
    let rows: Vec<Vec<Row>> = match is_folded {
        true => blocks.iter().map(Block::lines).collect(),
        false => vec![step.ranks.iter().map(|rank| columns(&rank.report, letters)).collect()],
    };
    let header = NAMES.map(str::to_owned);
    let mut widths = [0; COLUMNS];
    for row in rows.iter().flatten().chain([&header]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &Row| spaced(row.each_ref().map(String::as_str), widths, None);
    let mut text = line(&header);
    for (at, rows) in rows.iter().enumerate() {
        if let Some(block) = blocks.get(at) {
            text += &format!("{}\n", block.heading());
        }
        text.extend(rows.iter().map(line));
    }
    format!("{text}\n{}\n", step.summary)
}

/// As many letters of a UUID as tell all of the step's GPUs apart.
fn uuid_letters(ranks: &[CheckedReport]) -> usize {
    let devices = ranks.iter().flat_map(|rank| &rank.report.devices);
    let whole = devices.filter(|device| device.mig.is_none());
    let mut uuids: Vec<&str> = whole.filter_map(|it| it.device.uuid.as_deref()).collect();
    uuids.sort_unstable();
    uuids.dedup();
    let common = |pair: &[&str]| match pair {
        [a, b] => a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count(),
        _ => 0,
    };
    let longest = uuids.windows(2).map(common).max().unwrap_or_default();
    SHORT_UUID.max(longest + 1)
}

fn blocks(ranks: &[CheckedReport], letters: usize) -> Vec<Block> {
    let mut nodes: Vec<(&str, Vec<Row>)> = Vec::new();
    let mut at: HashMap<&str, usize> = HashMap::new();
    for rank in ranks {
        let host = rank.report.host.as_str();
        let position = *at.entry(host).or_insert_with(|| {
            nodes.push((host, Vec::new()));
            nodes.len() - 1
        });
        if let Some((_, rows)) = nodes.get_mut(position) {
            rows.push(columns(&rank.report, letters));
        }
    }
    let mut blocks: Vec<Block> = Vec::new();
    let mut known: HashMap<Vec<Row>, usize> = HashMap::new();
    for (host, rows) in nodes {
        let position = *known.entry(rows.iter().map(alike).collect()).or_insert_with(|| {
            blocks.push(Block {
                hosts: Vec::new(),
                ranks: vec![Vec::new(); rows.len()],
                rows: rows.clone(),
            });
            blocks.len() - 1
        });
        if let Some(block) = blocks.get_mut(position) {
            block.hosts.push(host.to_owned());
            for (all, [rank, ..]) in block.ranks.iter_mut().zip(rows) {
                all.push(rank);
            }
        }
    }
    blocks
}

/// What nodes have in common that look alike.
fn alike(row: &Row) -> Row {
    let mut row = row.clone();
    let [rank, node, _, _, _, uuid, ..] = &mut row;
    for differs in [rank, node, uuid] {
        differs.clear();
    }
    row
}

impl Block {
    fn heading(&self) -> String {
        let each = if self.hosts.len() == 1 { "" } else { " each" };
        format!("{}: {}{each}", folded(&self.hosts), count(self.rows.len(), "rank"))
    }

    fn lines(&self) -> Vec<Row> {
        let line = |(row, ranks): (&Row, &Vec<String>)| {
            let mut row = row.clone();
            let [rank, node, _, _, _, uuid, ..] = &mut row;
            *rank = progression(ranks);
            if self.hosts.len() > 1 {
                "*".clone_into(node);
                "*".clone_into(uuid);
            }
            row
        };
        self.rows.iter().zip(&self.ranks).map(line).collect()
    }
}

/// Ranks as Slurm writes the tasks of an array: `0-992:8`; a star where they follow no such
/// rule.
fn progression(ranks: &[String]) -> String {
    let numbers: Option<Vec<u64>> = ranks.iter().map(|rank| rank.parse().ok()).collect();
    match numbers.as_deref() {
        Some([one]) => one.to_string(),
        Some([first, second, .., last]) | Some([first, second @ last]) => {
            let step = second.wrapping_sub(*first);
            let numbers = numbers.iter().flatten();
            let is_even =
                numbers.clone().zip(numbers.skip(1)).all(|(a, b)| b.wrapping_sub(*a) == step);
            match is_even && step > 0 {
                true => format!("{first}-{last}:{step}"),
                false => "*".to_owned(),
            }
        }
        _ => "*".to_owned(),
    }
}
