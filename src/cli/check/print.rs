//! The findings, for people and for programs.

use std::io::{self, Write};

use serde::Serialize;

use super::message::{Finding, Level};
use crate::cli::output;

/// A line for each finding.
pub fn text(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    for Finding { check, level, found, advice } in findings {
        let level = level.word();
        write!(out, "{level:<7}  {check:<width$}  {found}")?;
        match advice {
            Some(advice) => writeln!(out, " -> {advice}")?,
            None => writeln!(out)?,
        }
    }
    Ok(())
}

/// The version of the JSON form: docs/json.md.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Printed<'a> {
    schema: u32,
    /// The worst of all.
    result: Level,
    checks: &'a [Finding],
}

/// A JSON object.
pub fn json(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    let result = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok);
    output::pretty_json(&Printed { schema: SCHEMA, result, checks: findings }, out)
}

/// Metrics in Prometheus' text format (exposition_formats.md of its documentation).
pub fn prometheus(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "# HELP gpubind_check_findings What gpubind check finds on this node.")?;
    writeln!(out, "# TYPE gpubind_check_findings gauge")?;
    for level in [Level::Ok, Level::Note, Level::Warning, Level::Broken] {
        let count = findings.iter().filter(|finding| finding.level == level).count();
        writeln!(out, "gpubind_check_findings{{level=\"{}\"}} {count}", level.word())?;
    }
    let about = "Each check of this node: 0 ok, 1 note, 2 warning, 3 broken.";
    writeln!(out, "# HELP gpubind_check_level {about}")?;
    writeln!(out, "# TYPE gpubind_check_level gauge")?;
    for (at, Finding { check, .. }) in findings.iter().enumerate() {
        // A check may find several things; a metric has one value, the worst.
        let of_check = findings.iter().filter(|other| other.check == *check);
        if findings.iter().position(|other| other.check == *check) == Some(at) {
            let worst = of_check.map(|finding| finding.level as u8).max().unwrap_or(0);
            writeln!(out, "gpubind_check_level{{check=\"{check}\"}} {worst}")?;
        }
    }
    Ok(())
}
