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

#[derive(Serialize)]
struct Printed<'a> {
    /// The worst of all.
    result: Level,
    checks: &'a [Finding],
}

/// A JSON object.
pub fn json(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    let result = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok);
    output::pretty_json(&Printed { result, checks: findings }, out)
}
