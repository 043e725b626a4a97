//! How the reports of a whole step come together: each rank prints short lines, srun carries
//! them, and `report --merge` reads them.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use super::CheckedReport;
use super::step::numbered;
use crate::cli::ending::warn;
use crate::cli::input::{self, Input, InputError};
use gpubind_core::words::count;

/// What stands before a part of a report.
const MARK: &str = "gpubind-report";
/// A part's most bytes. slurmstepd passes output on in messages of 1,024 bytes
/// (MAX_MSG_LEN in src/slurmd/slurmstepd/io.c), and cuts longer lines, so that srun mixes
/// those of several tasks.
const PART: usize = 800;

/// Why lines are not merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    #[error(transparent)]
    Open(#[from] InputError),
    #[error("{path} has no report; write: srun … gpubind report --lines | gpubind report --merge")]
    Nothing { path: String },
}

/// Prints a report in lines that srun does not mix with those of others:
/// `gpubind-report HOST PROCESS PART/PARTS TEXT`.
pub fn write(report: &CheckedReport, out: &mut dyn Write) -> io::Result<()> {
    let json = serde_json::to_string(report)?;
    let (host, process) = (&report.report.host, std::process::id());
    let parts = parts(&json);
    let mut lines = String::new();
    for (at, part) in parts.iter().enumerate() {
        lines += &format!("{MARK} {host} {process} {}/{} {part}\n", at + 1, parts.len());
    }
    out.write_all(lines.as_bytes())
}

fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for letter in text.chars() {
        match parts.last_mut() {
            Some(part) if part.len() + letter.len_utf8() <= PART => part.push(letter),
            _ => parts.push(letter.to_string()),
        }
    }
    parts
}

/// Reads all reports of a file (- for standard input), printed with `--lines` or `--json`.
/// Other lines, such as a program's own, are skipped, and so is what `srun --label` puts
/// before each.
///
/// # Errors
/// [`MergeError`] if the file cannot be read or has none.
pub fn read(path: &Path) -> Result<Vec<CheckedReport>, MergeError> {
    let Input { name, text } = input::read(path)?;
    let (reports, broken) = reports(&text);
    if broken > 0 {
        let broken = count(broken, "report");
        warn(&format!("{name}: {broken} cannot be read; have them printed with --lines"));
    }
    if reports.is_empty() {
        return Err(MergeError::Nothing { path: name });
    }
    if let Some(missing) = missing(&reports) {
        warn(&format!("{name}: no report of {missing}"));
    }
    Ok(reports)
}

/// The parts of one report that are there, by their numbers, and how many there are.
#[derive(Default)]
struct Parts<'a> {
    known: BTreeMap<usize, &'a str>,
    all: usize,
}

/// The reports, and how many are broken.
fn reports(text: &str) -> (Vec<CheckedReport>, usize) {
    let mut reports = Vec::new();
    let mut broken = 0;
    let mut by_process: BTreeMap<(&str, &str), Parts> = BTreeMap::new();
    for line in text.lines() {
        if let Some((process, at, all, text)) = part(line) {
            let parts = by_process.entry(process).or_default();
            parts.known.insert(at, text);
            parts.all = all;
        } else if let Some(json) = line.find('{').and_then(|at| line.get(at..)) {
            match serde_json::from_str(json) {
                Ok(report) => reports.push(report),
                Err(_) => broken += usize::from(json.contains("\"rank_from\"")),
            }
        }
    }
    for Parts { known, all } in by_process.into_values() {
        let json: String = known.values().copied().collect();
        match serde_json::from_str(&json).ok().filter(|_| known.len() == all) {
            Some(report) => reports.push(report),
            None => broken += 1,
        }
    }
    (reports, broken)
}

type Part<'a> = ((&'a str, &'a str), usize, usize, &'a str);

fn part(line: &str) -> Option<Part<'_>> {
    let (_, line) = line.split_once(MARK)?;
    let mut words = line.strip_prefix(' ')?.splitn(4, ' ');
    let process = (words.next()?, words.next()?);
    let (at, all) = words.next()?.split_once('/')?;
    Some((process, at.parse().ok()?, all.parse().ok()?, words.next()?))
}

/// The step's ranks that are not there.
fn missing(reports: &[CheckedReport]) -> Option<String> {
    let size = reports.iter().filter_map(|report| report.report.size).max()?;
    let mut is_there = vec![false; size as usize];
    for rank in reports.iter().filter_map(|report| report.report.rank) {
        if let Some(there) = is_there.get_mut(rank as usize) {
            *there = true;
        }
    }
    let missing = is_there.iter().enumerate().filter(|(_, there)| !**there);
    let missing: Vec<usize> = missing.map(|(rank, _)| rank).collect();
    (!missing.is_empty()).then(|| numbered(missing))
}
