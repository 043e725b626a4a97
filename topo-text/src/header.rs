//! The line that names the columns.

use super::cells::{self, Token, gpu_name, tokens};
use super::clean::Line;

/// The header of a matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    /// Number of its (first) line.
    pub line: usize,
    /// Names of the matrix columns: GPUs first, then network adapters.
    pub devices: Vec<String>,
    /// Numbers of the GPUs, in column order.
    pub gpus: Vec<u32>,
    /// The columns behind the matrix.
    pub affinity: Vec<Column>,
    /// Where each of those starts, in characters; empty for a wrapped header.
    pub starts: Vec<usize>,
}

/// A column behind the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    /// CPUs near the GPU.
    Cpu,
    /// NUMA nodes near the GPU.
    Numa,
    /// The NUMA node that is the GPU's own memory.
    GpuNuma,
}

/// Column names, blanks left out, longest first where one begins another.
const COLUMNS: [(&str, Column); 6] = [
    ("CPUAffinity", Column::Cpu),
    ("NUMAAffinity", Column::Numa),
    ("GPUNUMAID", Column::GpuNuma),
    ("NUMANode", Column::Numa),
    ("CPUs", Column::Cpu),
    ("NUMA", Column::Numa),
];

/// A header may be wrapped into this many lines.
const MOST_LINES: usize = 4;

impl Header {
    /// The name of a matrix column.
    pub fn name(&self, device: usize) -> &str {
        self.devices.get(device).map(String::as_str).unwrap_or("?")
    }

    /// The device that a word names as a row label, and what is glued to it.
    pub fn label<'t>(&self, word: &'t str) -> Option<(usize, &'t str)> {
        if let Some(exact) = self.devices.iter().position(|name| name == word) {
            return Some((exact, ""));
        }
        let glued = |(at, name): (usize, &String)| {
            let rest = word.strip_prefix(name.as_str())?;
            cells::links(rest).map(|_| (at, rest))
        };
        let found = self.devices.iter().enumerate().filter_map(glued);
        found.min_by_key(|(_, rest)| rest.len())
    }
}

/// Whether a `GPU7` stands somewhere in a text.
pub(super) fn names_a_gpu(text: &str) -> bool {
    first_gpu(text).is_some()
}

/// Whether a line looks like the header of a matrix of more than one device.
pub(super) fn starts_matrix(text: &str) -> bool {
    read(text, 0).is_some_and(|header| header.devices.len() + header.affinity.len() > 1)
}

/// Parts lines in which the end of a header and its first row stand together,
/// as an editor leaves them that filled all lines.
pub(super) fn split_from_row(lines: Vec<Line>) -> Vec<Line> {
    let mut parted = Vec::new();
    for line in lines {
        let words = tokens(&line.text);
        let is_row = |pair: &[Token]| match pair {
            [label, link] => {
                gpu_name(label.text).is_some_and(|(_, _, rest)| rest.is_empty())
                    && cells::links(link.text).is_some()
            }
            _ => false,
        };
        let first = words.windows(2).position(is_row).unwrap_or(0);
        let before = words.get(..first).unwrap_or_default();
        let names_columns = !before.is_empty() && before.iter().all(|word| is_column(word.text));
        let at = words.get(first).map_or(0, |label| label.at);
        match line.text.split_at_checked(at).filter(|_| names_columns) {
            Some((header, row)) => {
                parted.push(Line { text: header.to_owned(), ..line });
                parted.push(Line { text: row.to_owned(), ..line });
            }
            None => parted.push(line),
        }
    }
    parted
}

/// Whether a word may stand in a header.
fn is_column(word: &str) -> bool {
    let affinity = matches!(word, "CPU" | "Affinity" | "NUMA" | "GPU" | "ID");
    affinity || read(&format!("GPU0 {word}"), 0).is_some() || word == "GPU0"
}

/// All ways to read a header that starts in this line, each with the place of
/// the line where its rows start.
pub(super) fn candidates(lines: &[Line], start: usize) -> Vec<(Header, usize)> {
    let mut found: Vec<(Header, usize)> = Vec::new();
    let mut joined: Vec<String> = Vec::new();
    for (at, line) in lines.iter().enumerate().skip(start).take(MOST_LINES) {
        if at > start && line.text.trim().is_empty() {
            break;
        }
        joined = match joined.is_empty() {
            true => vec![line.text.clone()],
            // A wrapped line breaks between words, or in the middle of one.
            false => joined
                .iter()
                .flat_map(|text| [format!("{text} {}", line.text), text.clone() + &line.text])
                .collect(),
        };
        for text in &joined {
            let Some(mut header) = read(text, lines.get(start).map_or(0, |line| line.number))
            else {
                continue;
            };
            if at > start {
                header.starts.clear();
            }
            if !found.iter().any(|(known, _)| {
                known.devices == header.devices && known.affinity == header.affinity
            }) {
                found.push((header, at + 1));
            }
        }
    }
    found
}

/// Reads the header in one line, whatever stands before its first GPU.
fn read(text: &str, line: usize) -> Option<Header> {
    let (before, names) = text.split_at_checked(first_gpu(text)?)?;
    if tokens(before).iter().any(|word| cells::links(word.text).is_some()) {
        return None;
    }
    let mut header = Header {
        line,
        devices: Vec::new(),
        gpus: Vec::new(),
        affinity: Vec::new(),
        starts: Vec::new(),
    };
    let words = tokens(names);
    for (at, word) in words.iter().enumerate() {
        let mut rest = word.text;
        while !rest.is_empty() {
            if starts_affinity(rest) {
                let glued = word.text.chars().count() - rest.chars().count();
                let behind = words.get(at + 1..).unwrap_or_default();
                let (affinity, starts) = read_affinity(rest, word.column + glued, behind)?;
                let offset = before.chars().count();
                header.starts = starts.iter().map(|start| start + offset).collect();
                header.affinity = affinity;
                return header.is_sound().then_some(header);
            }
            rest = header.read_device(rest)?;
        }
    }
    header.is_sound().then_some(header)
}

impl Header {
    /// Reads one device name at the front of a word and what follows.
    fn read_device<'t>(&mut self, word: &'t str) -> Option<&'t str> {
        if let Some((name, number, rest)) = gpu_name(word) {
            if self.devices.len() > self.gpus.len() {
                return None; // GPU columns come before all others
            }
            self.devices.push(name.to_owned());
            self.gpus.push(number);
            return Some(rest);
        }
        let next_name = |at: &usize| {
            let rest = word.get(*at..).unwrap_or_default();
            gpu_name(rest).is_some() || starts_affinity(rest) || starts_nic(rest)
        };
        let end = (1..word.len()).find(next_name).unwrap_or(word.len());
        let (name, rest) = word.split_at_checked(end)?;
        let name_char = |c: char| c.is_ascii_alphanumeric() || "_-.:/".contains(c);
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.contains(|c: char| c.is_ascii_digit())
            && name.chars().all(name_char)
            && cells::links(name).is_none();
        is_name.then(|| self.devices.push(name.to_owned()))?;
        Some(rest)
    }

    fn is_sound(&self) -> bool {
        let mut names = self.devices.clone();
        names.sort();
        names.dedup();
        let mut columns = self.affinity.clone();
        columns.dedup();
        !self.gpus.is_empty()
            && names.len() == self.devices.len()
            && columns.len() == self.affinity.len()
    }
}

/// Where the first `GPU7` of a text starts.
fn first_gpu(text: &str) -> Option<usize> {
    let mut places = text.match_indices("GPU").map(|(at, _)| at);
    places.find(|at| text.get(*at..).is_some_and(|rest| gpu_name(rest).is_some()))
}

/// Adapter names that may stand in the middle of a word, behind another one.
fn starts_nic(text: &str) -> bool {
    let numbered = |prefix: &str| {
        let rest = text.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    numbered("mlx") || numbered("NIC")
}

fn starts_affinity(text: &str) -> bool {
    let gpu_numa = text.starts_with("GPU") && gpu_name(text).is_none();
    text.starts_with("CPU") || text.starts_with("NUMA") || gpu_numa
}

/// The affinity columns that a text names; none if it names something else.
pub(super) fn affinity_columns(text: &str) -> Option<Vec<Column>> {
    let words = tokens(text);
    let (first, behind) = words.split_first()?;
    read_affinity(first.text, first.column, behind).map(|(columns, _)| columns)
}

/// Reads the names of the affinity columns, blanks or not between their words,
/// and where each one starts.
fn read_affinity(
    first: &str,
    column: usize,
    behind: &[Token],
) -> Option<(Vec<Column>, Vec<usize>)> {
    let mut letters: Vec<(char, usize)> = first.chars().zip(column..).collect();
    for word in behind {
        letters.extend(word.text.chars().zip(word.column..));
    }
    let text: String = letters.iter().map(|(letter, _)| *letter).collect();
    // An escape code that lost both its ESC and its bracket.
    let mut rest = text.strip_suffix("0m").unwrap_or(&text);
    let mut starts = letters.iter().map(|(_, column)| *column);
    let mut found = (Vec::new(), Vec::new());
    while !rest.is_empty() {
        let is_next = |(name, _): &&(&str, Column)| rest.starts_with(name);
        let (name, column) = COLUMNS.iter().find(is_next)?;
        found.0.push(*column);
        found.1.push(starts.next()?);
        rest = rest.get(name.len()..)?;
        starts.by_ref().take(name.len() - 1).for_each(drop);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_run_together_come_apart() {
        let header = read("\t  GPU0GPU1mlx5_0mlx5_2\tmlx5_bond_0 NIC3CPU AffinityNUMA", 7).unwrap();
        assert_eq!(header.devices, ["GPU0", "GPU1", "mlx5_0", "mlx5_2", "mlx5_bond_0", "NIC3"]);
        assert_eq!(header.gpus, [0, 1]);
        assert_eq!(header.affinity, [Column::Cpu, Column::Numa]);
        assert_eq!(header.line, 7);
    }

    #[test]
    fn affinity_columns_know_where_they_start() {
        let header = read("#   GPU0  CPU Affinity  NUMA Affinity  GPU NUMA ID", 1).unwrap();
        assert_eq!(header.starts, [10, 24, 39]);
    }

    #[test]
    fn prose_and_rows_are_no_headers() {
        for text in [
            "GPU0 and GPU1 are joined by NV12",
            "GPU0: NVIDIA A100",
            "GPU0\t X \tNV4\t0-31",
            "X PIX 0-3 GPU1",
            "GPU 0",
            "GPU0 GPU0",
        ] {
            assert_eq!(read(text, 1), None, "{text}");
        }
    }

    #[test]
    fn a_wrapped_header_is_read_with_and_without_a_blank_at_the_break() {
        let lines = ["GPU0 GPU1 mlx5_1", "0 CPU Affi", "nity", "GPU0 X"];
        let lines: Vec<Line> =
            lines.iter().map(|text| Line { number: 1, text: (*text).to_owned() }).collect();
        let found = candidates(&lines, 0);
        let wanted = |(header, at): &(Header, usize)| {
            header.devices == ["GPU0", "GPU1", "mlx5_10"]
                && header.affinity == [Column::Cpu]
                && *at == 3
        };
        assert!(found.iter().any(wanted), "{found:?}");
    }
}
