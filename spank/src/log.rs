//! Messages to the user, and diagnostics to Slurm's log.
//!
//! In a task only slurm_error and slurm_spank_log reach the user; in srun and the like
//! every level from info up does. fd 1 and fd 2 are never written. The library's
//! `tracing` events go to Slurm's log; Slurm's own level decides about them.

use std::ffi::{CString, c_char, c_int};
use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::sys;

const PREFIX: &str = "gpubind: ";

/// The longest message; what is longer is cut.
const LONGEST: usize = 4096;

/// A function of Slurm's log, with a format and its arguments.
type Log = unsafe extern "C" fn(*const c_char, ...);

/// Something went wrong; Slurm puts `error:` and its own name before it.
pub fn error(text: &str) {
    write(sys::slurm_error, text);
}

/// A line for the user, as it is.
pub fn user(text: &str) {
    write(sys::slurm_spank_log, text);
}

fn write(log: Log, text: &str) {
    let mut line: Vec<u8> = PREFIX.bytes().chain(text.bytes()).take(LONGEST).collect();
    // Nobody's terminal is to be told what to do, and a null would end the text.
    line.iter_mut().filter(|byte| byte.is_ascii_control()).for_each(|byte| *byte = b' ');
    if let Ok(line) = CString::new(line) {
        // SAFETY: a constant format with one C string for it.
        unsafe { log(c"%s".as_ptr(), line.as_ptr()) };
    }
}

/// Has the library's events go to Slurm's log, where it would keep any of them.
pub fn listen() {
    let level = level();
    if level > LevelFilter::WARN {
        // It fails where there is a subscriber already, as on a second call.
        let _ = tracing::subscriber::set_global_default(SlurmLog { level });
    }
}

/// The most detailed level that Slurm's log keeps: get_log_level (src/common/log.c, in
/// all releases from 22.05 on) answers with its own numbers, 3 for info to 6 for debug2.
fn level() -> LevelFilter {
    /// `enum log_level_t` in src/common/log.h.
    const VERBOSE: c_int = 4;
    const DEBUG: c_int = 5;
    // SAFETY: dlsym(3) with a constant, terminated name.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"get_log_level".as_ptr()) };
    if symbol.is_null() {
        return LevelFilter::WARN;
    }
    // SAFETY: `int get_log_level(void)` in every release.
    let function: extern "C" fn() -> c_int = unsafe { std::mem::transmute(symbol) };
    match function() {
        ..VERBOSE => LevelFilter::WARN,
        VERBOSE => LevelFilter::INFO,
        DEBUG => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// Forwards events to Slurm's log. There are no spans.
struct SlurmLog {
    level: LevelFilter,
}

impl Subscriber for SlurmLog {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        let log = match *event.metadata().level() {
            Level::ERROR => sys::slurm_error,
            Level::WARN => sys::slurm_info,
            Level::INFO => sys::slurm_verbose,
            Level::DEBUG => sys::slurm_debug,
            Level::TRACE => sys::slurm_debug2,
        };
        write(log, &line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// An event's message, and its fields behind it.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // A String takes whatever is written.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
