//! Tables as the commands print them.

use comfy_table::{Table, presets};

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
