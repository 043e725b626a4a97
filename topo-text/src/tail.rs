//! One row's affinity cells: CPUs, NUMA nodes, the GPU's own NUMA node.

use super::cells::{Token, is_none};
use super::header::{Column, Header};
use gpubind_core::node::IdSet;

/// Linux knows at most this many NUMA nodes (`CONFIG_NODES_SHIFT` 10), so a
/// larger number is two cells without anything between them.
const MAX_NUMA: usize = 1023;

/// What a row's affinity cells say; `None` where a cell is empty or missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Affinity {
    /// CPUs near the GPU.
    pub cpus: Option<IdSet>,
    /// The CPU list as printed.
    pub cpu_list: String,
    /// NUMA nodes near the GPU.
    pub numa: Option<Vec<u32>>,
    /// The NUMA node that is the GPU's own memory.
    pub gpu_numa: Option<u32>,
    /// How many columns from the left have a cell with something in it.
    pub width: usize,
}

/// A row's affinity cells, or why they cannot be read.
pub(super) type Tail = Result<Affinity, String>;

/// Reads the words behind a row's links. `glued` is a cell that nothing parts
/// from the last link; `start` is where the row's text starts in its line, if
/// columns can be recognised by their place.
pub(super) fn read(
    header: &Header,
    glued: Option<&str>,
    words: &[Token],
    start: Option<usize>,
) -> Tail {
    let columns = header.affinity.as_slice();
    let glued_words: Vec<Token> = glued
        .map(|text| Token { text, column: 0, at: 0, tabs: 1 })
        .into_iter()
        .chain(words.iter().copied())
        .collect();
    if columns.is_empty() {
        return match glued_words.first() {
            None => Ok(Affinity::default()),
            Some(word) => Err(format!("no column name above `{}`", word.text)),
        };
    }
    if let Some(glued) = glued.filter(|_| glued_words.len() < columns.len()) {
        return Err(format!("nothing parts `{glued}` from the cells around it"));
    }
    if let Some(cells) = by_tabs(columns.len(), &glued_words) {
        return read_cells(columns, &cells);
    }
    let words = joined(&glued_words);
    let texts: Vec<&str> = words.iter().map(|(text, _)| text.as_str()).collect();
    if let Some(cells) = by_count(columns, &texts) {
        return read_cells(columns, &cells);
    }
    let places = start.and_then(|start| by_place(header, &words, start));
    match places.filter(|_| glued.is_none()) {
        Some(cells) => read_cells(columns, &cells),
        None => Err(format!(
            "`{}` does not show which of its {} columns are empty",
            texts.join(" "),
            columns.len()
        )),
    }
}

/// Cells by the tabs before them. nvidia-smi puts two tabs before the last one.
fn by_tabs<'t>(columns: usize, words: &[Token<'t>]) -> Option<Vec<&'t str>> {
    let mut cells = vec![""; columns];
    let mut place = 0;
    for word in words {
        if word.tabs == 0 {
            return None;
        }
        place += word.tabs;
        let at = match (place, columns) {
            (1..=2, _) => place - 1,
            // A third cell although the header lost its third name.
            (_, 2) if is_none(word.text) => continue,
            _ => 2,
        };
        let cell = cells.get_mut(at)?;
        if !cell.is_empty() {
            return None;
        }
        *cell = word.text;
    }
    Some(cells)
}

/// Words with the parts of broken lists put together: `0-17,36-` and `53`.
fn joined(words: &[Token]) -> Vec<(String, usize)> {
    let mut joined: Vec<(String, usize)> = Vec::new();
    for word in words {
        let starts_open = word.text.len() > 1 && word.text.starts_with(['-', ',']);
        match joined.last_mut() {
            Some((text, _)) if text.len() > 1 && (text.ends_with(['-', ',']) || starts_open) => {
                text.push_str(word.text);
            }
            _ => joined.push((word.text.to_owned(), word.column)),
        }
    }
    joined
}

/// Cells by their number, where that leaves no choice.
fn by_count<'t>(columns: &[Column], words: &[&'t str]) -> Option<Vec<&'t str>> {
    if words.is_empty() || words.len() == columns.len() {
        let mut cells = words.to_vec();
        cells.resize(columns.len(), "");
        return Some(cells);
    }
    let (last, before) = words.split_last()?;
    if !is_none(last) {
        return None;
    }
    // `N/A` stands in the GPU NUMA ID column only.
    if columns == [Column::Cpu, Column::Numa] && before.len() == 2 {
        return Some(before.to_vec());
    }
    (columns.last() == Some(&Column::GpuNuma) && before.is_empty()).then(|| vec![""; columns.len()])
}

/// Cells by the place of their column's name.
fn by_place<'w>(
    header: &Header,
    words: &'w [(String, usize)],
    start: usize,
) -> Option<Vec<&'w str>> {
    let mut cells = vec![""; header.affinity.len()];
    for (text, column) in words {
        let at = header.starts.iter().position(|name| *name == start + column)?;
        *cells.get_mut(at)? = text;
    }
    (header.starts.len() == header.affinity.len()).then_some(cells)
}

fn read_cells(columns: &[Column], cells: &[&str]) -> Tail {
    let mut affinity = Affinity::default();
    for (at, (column, cell)) in columns.iter().zip(cells).enumerate() {
        if !cell.is_empty() {
            affinity.width = at + 1;
        }
        if is_none(cell) {
            continue;
        }
        let list: IdSet = cell.parse().map_err(|error| format!("{error}"))?;
        let node = |id: usize| u32::try_from(id).ok().filter(|_| id <= MAX_NUMA);
        let nodes: Option<Vec<u32>> = list.iter().map(node).collect();
        let too_high = || format!("`{cell}` is beyond the highest NUMA node ({MAX_NUMA})");
        match column {
            Column::Cpu => {
                affinity.cpu_list = (*cell).to_owned();
                affinity.cpus = Some(list);
            }
            Column::Numa => affinity.numa = Some(nodes.ok_or_else(too_high)?),
            Column::GpuNuma => match nodes.ok_or_else(too_high)?.as_slice() {
                [node] => affinity.gpu_numa = Some(*node),
                _ => return Err(format!("`{cell}` is no single GPU NUMA ID")),
            },
        }
    }
    Ok(affinity)
}

/// What all readings of a wrapped row agree on; readings that fail do not count.
pub(super) fn choose(readings: Vec<Tail>) -> Tail {
    let first_problem = readings.iter().find_map(|tail| tail.clone().err());
    let mut read: Vec<Affinity> = readings.into_iter().flatten().collect();
    read.dedup();
    match read.as_slice() {
        [affinity] => Ok(affinity.clone()),
        [] => Err(first_problem.unwrap_or_default()),
        _ => Err("the wrapped line may be read in several ways".to_owned()),
    }
}
