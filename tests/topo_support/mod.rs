//! Random machines, and the many ways in which people paste their matrix.

#![allow(clippy::unwrap_used)]

use gpubind_core::node::{Link, Node};
use proptest::prelude::*;

/// What a text says of a machine.
#[derive(Debug, Clone)]
pub struct Table {
    /// Names of the devices, GPUs first.
    pub names: Vec<String>,
    /// How many of them are GPUs.
    pub gpus: usize,
    /// Link words, one row for each device.
    pub links: Vec<Vec<String>>,
    /// CPU list, NUMA node and GPU NUMA ID of each GPU; empty where there is none.
    pub affinity: Vec<[String; 3]>,
    /// How many of those three columns are printed.
    pub columns: usize,
}

const COLUMNS: [&str; 3] = ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"];

/// How a table is pasted.
#[derive(Debug, Clone, Copy)]
pub enum Style {
    /// As nvidia-smi prints it: tabs, two of them before the last column.
    Tabs,
    /// Tabs made blanks, to columns of eight.
    Spaces,
    /// Two blanks between cells, nothing aligned.
    Narrow,
    Markdown,
}

/// A machine of up to ten GPUs and three adapters.
pub fn table() -> impl Strategy<Value = Table> {
    let link = prop_oneof!["PIX", "PXB", "PHB", "NODE", "SYS", "NV1", "NV4", "NV12", "NV18"];
    let pairs = proptest::collection::vec(link, 13 * 13);
    (1usize..=10, 0usize..=3, pairs, 0usize..=3, 1usize..=3, 1usize..=40).prop_map(
        |(gpus, nics, pairs, columns, groups, cores)| {
            let mut names: Vec<String> = (0..gpus).map(|gpu| format!("GPU{gpu}")).collect();
            names.extend((0..nics).map(|nic| format!("mlx5_{nic}")));
            let cell = |a: usize, b: usize| match a == b {
                true => "X".to_owned(),
                false => pairs[a.min(b) * 13 + a.max(b)].clone(),
            };
            let links = (0..names.len()).map(|a| (0..names.len()).map(|b| cell(a, b)).collect());
            let affinity = |gpu: usize| {
                let numa = gpu * groups / gpus;
                let (low, high) = (numa * cores, 1000 + numa * cores);
                let cpus = match cores {
                    1 => format!("{low},{high}"),
                    _ => format!("{low}-{},{high}-{}", low + cores - 1, high + cores - 1),
                };
                [cpus, numa.to_string(), "N/A".to_owned()]
            };
            let affinity = (0..gpus).map(affinity).collect();
            Table { links: links.collect(), gpus, names, affinity, columns }
        },
    )
}
pub fn style() -> impl Strategy<Value = Style> {
    prop_oneof![Just(Style::Tabs), Just(Style::Spaces), Just(Style::Narrow), Just(Style::Markdown)]
}

impl Table {
    /// The table as text, a line for each row.
    pub fn lines(&self, style: Style) -> Vec<String> {
        let mut header = vec![String::new()];
        header.extend(self.names.clone());
        header.extend(COLUMNS[..self.columns].iter().map(|name| (*name).to_owned()));
        let mut rows = vec![header];
        for (at, name) in self.names.iter().enumerate() {
            let mut row = vec![name.clone()];
            row.extend(self.links[at].clone());
            match self.affinity.get(at) {
                Some(affinity) => row.extend(affinity[..self.columns].to_vec()),
                None => row.extend(vec![String::new(); self.columns]),
            }
            rows.push(row);
        }
        let mut lines: Vec<String> = rows.iter().map(|row| line(row, style)).collect();
        if let Style::Markdown = style {
            lines.insert(1, "|---".repeat(rows[0].len()) + "|");
        }
        if let (Style::Tabs, 3) = (style, self.columns) {
            // nvidia-smi puts a tab too many before the last cell of a row.
            for line in lines.iter_mut().skip(1) {
                if let Some(last) = line.rfind('\t') {
                    line.insert(last, '\t');
                }
            }
        }
        lines
    }

    /// Whether a node has these links, in the order of the GPUs.
    pub fn has_links_of(&self, node: &Node) -> bool {
        let row = |row: &Vec<String>| -> Vec<Link> {
            row[..self.gpus].iter().map(|cell| cell.parse().unwrap()).collect()
        };
        let links: Vec<Vec<Link>> = self.links[..self.gpus].iter().map(row).collect();
        let to_gpus = |nic: &Vec<String>| row(nic);
        let nics: Vec<Vec<Link>> = self.links[self.gpus..].iter().map(to_gpus).collect();
        links == node.links
            && nics == node.nics.iter().map(|nic| nic.links.clone()).collect::<Vec<_>>()
    }

    /// Whether a GPU of the node has the CPUs and NUMA node that the text says.
    pub fn has_affinity_of(&self, node: &Node, gpu: usize) -> bool {
        let [cpus, numa, _] = &self.affinity[gpu];
        let known = &node.gpus[gpu];
        let cpus = (self.columns > 0).then(|| cpus.parse().unwrap());
        let numa = (self.columns > 1).then(|| vec![numa.parse().unwrap()]);
        known.cpus.known() == cpus.as_ref() && known.numa.known() == numa.as_ref()
    }
}

fn line(cells: &[String], style: Style) -> String {
    match style {
        Style::Tabs => cells.join("\t").replace("\tX\t", "\t X \t"),
        Style::Narrow => cells.join("  "),
        Style::Markdown => format!("| {} |", cells.join(" | ")),
        Style::Spaces => {
            let mut line = String::new();
            for cell in cells {
                line += cell;
                line += &" ".repeat(8 - line.chars().count() % 8);
            }
            line.trim_end().to_owned()
        }
    }
}
