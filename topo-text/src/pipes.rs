//! Markdown and box tables: cells between bars become cells between tabs.

use super::clean::Line;
use super::error::TopoTextError;
use super::header::{self, Column};

/// Rewrites the lines of a table with bars the way nvidia-smi prints it: label,
/// links, then the affinity columns, wherever the author had put those.
///
/// # Errors
/// A table line with more or fewer cells than the one that names the columns.
pub(super) fn to_tabs(lines: Vec<Line>) -> Result<Vec<Line>, TopoTextError> {
    let header = lines.iter().enumerate().find_map(|(at, line)| {
        let cells = cells(&line.text)?;
        Some((at, cells.len(), Columns::read(&cells)?))
    });
    let Some((first, wanted, columns)) = header else { return Ok(lines) };
    let mut in_table = true;
    let rewrite = |(at, line): (usize, Line)| {
        in_table &= at <= first || line.text.contains('|') || line.text.trim().is_empty();
        if at < first || !in_table || line.text.trim().is_empty() {
            return Ok(line);
        }
        match cells(&line.text).unwrap_or_default() {
            cells if is_rule(&cells) => Ok(Line { text: String::new(), ..line }),
            cells if cells.len() == wanted => Ok(Line { text: columns.arrange(&cells), ..line }),
            cells => {
                let (line, found) = (line.number, cells.len().max(1));
                Err(TopoTextError::TableLine { line, found, wanted })
            }
        }
    };
    lines.into_iter().enumerate().map(rewrite).collect()
}

/// Which cell of a table line is what.
struct Columns {
    label: Option<usize>,
    links: Vec<usize>,
    affinity: Vec<usize>,
}

impl Columns {
    /// Reads the table line that names the columns.
    fn read(cells: &[String]) -> Option<Columns> {
        let tail = |cell: &String| header::affinity_columns(cell);
        let first = cells.iter().position(|cell| header::names_a_gpu(cell))?;
        let is_link = |(at, cell): &(usize, &String)| {
            *at >= first && !cell.is_empty() && tail(cell).is_none()
        };
        let links = cells.iter().enumerate().filter(is_link);
        let links: Vec<usize> = links.map(|(at, _)| at).collect();
        let mut affinity = Vec::new();
        for wanted in [Column::Cpu, Column::Numa, Column::GpuNuma] {
            let is_wanted = |cell: &String| tail(cell).is_some_and(|found| found == [wanted]);
            affinity.extend(cells.iter().position(is_wanted));
        }
        let label = first.checked_sub(1).filter(|at| !affinity.contains(at));
        Some(Columns { label, links, affinity })
    }

    fn arrange(&self, cells: &[String]) -> String {
        let cell = |at: &usize| cells.get(*at).map(String::as_str).unwrap_or_default();
        let label = self.label.iter();
        let order = label.chain(&self.links).chain(&self.affinity);
        order.map(cell).collect::<Vec<_>>().join("\t")
    }
}

/// The cells of a line with at least two bars.
fn cells(text: &str) -> Option<Vec<String>> {
    if text.matches('|').count() < 2 {
        return None;
    }
    let line = text.trim();
    let line = match line.strip_suffix('|') {
        // A closed table: what stands before its first bar is a comment mark.
        Some(closed) => closed.split_once('|').map_or(closed, |(_, cells)| cells),
        None => line.strip_prefix('|').unwrap_or(line),
    };
    let plain = |cell: &str| cell.replace("**", "").trim().to_owned();
    Some(line.split('|').map(plain).collect())
}

/// Whether a line only parts the header from the rows.
fn is_rule(cells: &[String]) -> bool {
    let is_rule = |cell: &String| cell.chars().all(|c| "-:=+".contains(c));
    cells.iter().all(is_rule) && cells.iter().any(|cell| cell.contains(['-', '=']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_put_in_order() {
        let text =
            ["| NUMA Affinity | | GPU0 | nic_0 |", "|--|--|:-:|--|", "| 3 | GPU0 | **X** | SYS |"];
        let lines = text.iter().map(|text| Line { number: 1, text: (*text).to_owned() });
        let texts: Vec<String> =
            to_tabs(lines.collect()).unwrap().into_iter().map(|l| l.text).collect();
        assert_eq!(texts, ["\tGPU0\tnic_0\tNUMA Affinity", "", "GPU0\tX\tSYS\t3"]);
    }

    #[test]
    fn a_line_with_another_number_of_cells_is_refused() {
        let text = ["f:1:# | | GPU0 |", "f:2:# | GPU0 |", "prose | with | bars |"];
        let line = |(at, text): (usize, &&str)| Line { number: at + 1, text: (*text).to_owned() };
        let lines: Vec<Line> = text.iter().enumerate().map(line).collect();
        let wanted = TopoTextError::TableLine { line: 2, found: 1, wanted: 2 };
        assert_eq!(to_tabs(lines), Err(wanted));
    }
}
