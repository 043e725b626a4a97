//! Diagnostics on stderr: what was read, and what was used instead where that failed.

use std::env;
use std::fmt;
use std::io;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::ending::warn;
use gpubind_core::variables;

/// How much to say.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct LogArgs {
    /// Say on stderr what is read, and what is used instead where that fails; -vv says more.
    /// GPUBIND_LOG=error, warn, info, debug or trace does the same
    #[arg(short = 'v', action = clap::ArgAction::Count, global = true)]
    count: u8,
}

impl LogArgs {
    /// Starts printing events; `least` is what the command wants in any case.
    pub fn start(self, least: LevelFilter) {
        let named = env::var(variables::OPTION_LOG).unwrap_or_default();
        let named = match named.trim() {
            "" => LevelFilter::OFF,
            level => level.parse().unwrap_or_else(|_| {
                warn(&format!(
                    "ignoring {}: `{level}` is none of error, warn, info, debug and trace",
                    variables::OPTION_LOG
                ));
                LevelFilter::OFF
            }),
        };
        let counted = match self.count {
            0 => LevelFilter::OFF,
            1 => LevelFilter::INFO,
            2 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        };
        let level = least.max(counted).max(named);
        if level > LevelFilter::OFF {
            // An error of writing would itself be reported on stderr, and panic.
            let lines = tracing_subscriber::fmt().log_internal_errors(false);
            let lines = lines.event_format(PlainLine).with_max_level(level);
            lines.with_writer(io::stderr).init();
        }
    }
}

/// `gpubind: info: MESSAGE`, as the other lines of the program begin.
struct PlainLine;

impl<S, N> FormatEvent<S, N> for PlainLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        write!(writer, "gpubind: {level}: ")?;
        context.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}
