//! Tables and JSON as the commands print them.

use std::io::{self, Write};

use comfy_table::{Table, presets};
use serde::Serialize;

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
