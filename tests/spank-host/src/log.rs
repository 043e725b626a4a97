//! Where the plugin's messages go: stderr, as Slurm's programs print them.

use std::ffi::{CStr, c_char, c_int};
use std::io::Write;

use crate::state::state;

/// What Slurm puts before a message of each level; the numbers are variadic.c's.
const PREFIXES: [&str; 7] = ["", "error: ", "", "", "debug:  ", "debug2: ", "debug3: "];

/// Prints a message if it is important enough.
#[unsafe(no_mangle)]
extern "C" fn spank_host_log(level: c_int, text: *const c_char) {
    let state = state();
    if level > state.log_level || text.is_null() {
        return;
    }
    // SAFETY: variadic.c gives a terminated string.
    let text = unsafe { CStr::from_ptr(text) }.to_bytes();
    let prefix = usize::try_from(level).ok().and_then(|level| PREFIXES.get(level));
    let mut line = Vec::new();
    if level > 0 {
        line.extend([state.program.as_bytes(), b": "].concat());
    }
    line.extend(prefix.copied().unwrap_or_default().as_bytes());
    line.extend(text);
    line.push(b'\n');
    // One write(2), so that tasks do not mix their lines.
    let _ = std::io::stderr().write_all(&line);
}
