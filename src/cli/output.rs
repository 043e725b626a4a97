//! Tables, text and JSON as the commands print them.

use std::env;
use std::io::{self, IsTerminal, Write};

use comfy_table::{Cell, Row, Table, presets};
use serde::Serialize;

use gpubind_core::variables;

/// Blanks between two columns.
const GAP: usize = 2;

/// How text for people is put out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    /// Whether it has colours.
    pub colour: bool,
    /// How many characters a line may have.
    pub width: usize,
}

impl Form {
    /// The form for standard output: colours only where a person looks, and has not declined
    /// (no-color.org); as wide as COLUMNS says, else as the terminal, else without limit.
    pub fn here() -> Form {
        let declined = env::var_os(variables::NO_COLOR).is_some_and(|value| !value.is_empty());
        let is_terminal = io::stdout().is_terminal();
        let said = env::var(variables::COLUMNS).ok().and_then(|text| text.trim().parse().ok());
        let terminal = || rustix::termios::tcgetwinsize(io::stdout()).ok().map(|it| it.ws_col);
        let width = said.or_else(|| terminal().map(usize::from)).filter(|width| *width > 0);
        Form { colour: is_terminal && !declined, width: width.unwrap_or(usize::MAX) }
    }

    /// Whether a table fits as it is.
    pub fn fits(self, table: &Table) -> bool {
        let widths = widths(table);
        widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1) <= self.width
    }

    /// A table's lines, without borders and without spaces at their ends.
    pub fn table(self, table: Table) -> String {
        self.grouped_table(table, &[])
    }

    /// A table's lines. One that is too wide becomes several, each with the first column and as
    /// many others as fit; what is then still too wide is broken behind commas. Columns from one of
    /// `starts` to the next stay together where they can.
    pub fn grouped_table(self, table: Table, starts: &[usize]) -> String {
        if self.fits(&table) {
            return lines(table, self.colour);
        }
        let widths = widths(&table);
        let first = widths.first().copied().unwrap_or_default();
        let room = self.width.saturating_sub(first);
        let mut blocks = Vec::new();
        let mut begin = 1;
        while begin < widths.len() {
            let mut used = 0;
            let fitting = widths.iter().skip(begin).take_while(|width| {
                used += GAP + **width;
                used <= room
            });
            let mut end = begin + fitting.count().max(1);
            let of_last = starts.iter().rev().find(|start| **start <= end);
            if let Some(start) = of_last.filter(|start| **start > begin && end < widths.len()) {
                end = *start;
            }
            let columns: Vec<usize> = (begin..end).collect();
            let block = part(&table, &columns, room.saturating_sub(GAP));
            blocks.push(lines(block, self.colour));
            begin = end;
        }
        blocks.join("\n")
    }

    /// A line of text, broken between words where it is too wide; `indent` stands before the
    /// further lines.
    pub fn text(self, text: &str, indent: &str) -> String {
        let mut lines: Vec<String> = Vec::new();
        for word in text.split(' ') {
            match lines.last_mut() {
                Some(line) if count(line) + 1 + count(word) <= self.width => {
                    line.push(' ');
                    line.push_str(word);
                }
                Some(_) => lines.push(format!("{indent}{word}")),
                None => lines.push(word.to_owned()),
            }
        }
        lines.join("\n")
    }
}

fn count(text: &str) -> usize {
    text.chars().count()
}

fn widths(table: &Table) -> Vec<usize> {
    table.column_max_content_widths().into_iter().map(usize::from).collect()
}

/// The first column and these others, as a table of its own.
fn part(table: &Table, columns: &[usize], room: usize) -> Table {
    let cells = |row: &Row| -> Vec<Cell> {
        let all: Vec<&Cell> = row.cell_iter().collect();
        let chosen = std::iter::once(&0).chain(columns).filter_map(|at| all.get(*at));
        chosen.map(|cell| broken(cell, room)).collect()
    };
    let mut part = Table::new();
    part.set_header(table.header().map(cells).unwrap_or_default());
    let tells = |cells: &Vec<Cell>| cells.iter().skip(1).any(|cell| !cell.content().is_empty());
    part.add_rows(table.row_iter().map(cells).filter(tells));
    part
}

/// The cell, in several lines where it is wider than this.
fn broken(cell: &Cell, room: usize) -> Cell {
    let content = cell.content();
    if count(&content) <= room || !content.contains(',') {
        return cell.clone();
    }
    let mut lines: Vec<String> = Vec::new();
    for entry in content.split_inclusive(',') {
        match lines.last_mut() {
            Some(line) if count(line) + count(entry) <= room => line.push_str(entry),
            _ => lines.push(entry.to_owned()),
        }
    }
    Cell::new(lines.join("\n"))
}

/// A table's lines, without borders and without spaces at their ends.
pub(super) fn lines(mut table: Table, colour: bool) -> String {
    table.load_preset(presets::NOTHING);
    match colour {
        true => table.enforce_styling(),
        false => table.force_no_tty(),
    };
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Prints a value as one line of JSON, in one write, so that the lines of many tasks do
/// not mix.
pub(super) fn json(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(format!("{}\n", serde_json::to_string(value)?).as_bytes())
}

/// Prints a value as JSON for people and programs.
pub(super) fn pretty_json(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new();
        table.set_header(["", "GPU0", "GPU1", "CPU Affinity"]);
        table.add_row(["GPU0", "X", "NV4", "0,2,4,6,8,10"]);
        table.add_row(["GPU1", "NV4", "X", "1"]);
        table
    }

    #[test]
    fn a_table_that_is_too_wide_becomes_several_with_the_first_column_in_each() {
        let narrow = |width| Form { colour: false, width }.table(table());
        assert!(narrow(30).starts_with("      GPU0  GPU1  CPU Affinity\nGPU0  X     NV4   0,2,"));
        assert_eq!(narrow(usize::MAX), narrow(30));
        assert_eq!(
            narrow(29),
            "      GPU0  GPU1\nGPU0  X     NV4\nGPU1  NV4   X\n\n      CPU Affinity\n\
             GPU0  0,2,4,6,8,10\nGPU1  1\n"
        );
        let grouped = Form { colour: false, width: 29 }.grouped_table(table(), &[2]);
        assert!(
            grouped.starts_with("      GPU0\nGPU0  X\nGPU1  NV4\n\n      GPU1  CPU"),
            "{grouped}"
        );
        assert_eq!(
            narrow(15),
            "      GPU0\nGPU0  X\nGPU1  NV4\n\n      GPU1\nGPU0  NV4\nGPU1  X\n\n      CPU Affinity\n\
             GPU0  0,2,4,6,\n      8,10\nGPU1  1\n"
        );
    }

    #[test]
    fn text_is_broken_between_words_and_what_is_too_long_stays_whole() {
        let text = |width| Form { colour: false, width }.text("one two three", "  ");
        assert_eq!(text(7), "one two\n  three");
        assert_eq!(text(2), "one\n  two\n  three");
        assert_eq!(text(usize::MAX), "one two three");
    }
}
