//! One row's links.

use super::body::{Body, Row};
use super::cells::{self, Token, tokens};
use super::error::{TopoTextError, Warning};
use super::header::Header;
use super::tail::{self, Affinity, Tail};
use crate::node::Link;

/// A wrapped row has at most this many breaks; more are read as plain blanks.
const MOST_BREAKS: usize = 6;

/// A row that has been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReadRow {
    /// Position in [`Header::devices`].
    pub device: usize,
    /// Line of its label.
    pub line: usize,
    /// One link for each device.
    pub links: Vec<Link>,
    /// Its CPU and NUMA cells.
    pub affinity: Affinity,
}

/// Reads all rows. Rows of network adapters that are no complete rows are left
/// out with a warning: the GPUs' rows hold the same links.
pub(super) fn read_all(
    header: &Header,
    body: &Body,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<ReadRow>, TopoTextError> {
    let mut rows: Vec<ReadRow> = Vec::new();
    for raw in &body.rows {
        let is_gpu = raw.device < header.gpus.len();
        let row = match read_row(header, raw, body.reflowed, warnings) {
            Ok(row) => row,
            Err(error) if is_gpu => return Err(error),
            Err(error) => {
                warnings.push(Warning::NicRowLeftOut {
                    line: raw.line,
                    row: header.name(raw.device).to_owned(),
                    reason: error.to_string(),
                });
                continue;
            }
        };
        match rows.iter().find(|known| known.device == row.device) {
            None => rows.push(row),
            Some(known) if known.links == row.links && known.affinity == row.affinity => {}
            Some(known) => {
                return Err(TopoTextError::TwoRows {
                    line: row.line,
                    row: header.name(row.device).to_owned(),
                    first: known.line,
                });
            }
        }
    }
    if body.at_end {
        tail::distrust_cut_row(header, &mut rows, warnings);
    }
    Ok(rows)
}

fn read_row(
    header: &Header,
    raw: &Row,
    reflowed: bool,
    warnings: &mut Vec<Warning>,
) -> Result<ReadRow, TopoTextError> {
    let mut read: Vec<(Vec<Link>, Tail)> = Vec::new();
    let mut first_error = None;
    for text in joins(&raw.pieces, reflowed) {
        match read_cells(header, raw, &text) {
            Ok(cells) if read.contains(&cells) => {}
            Ok(cells) => read.push(cells),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    let row = header.name(raw.device).to_owned();
    let Some((links, _)) = read.first().cloned() else {
        let line = raw.line;
        return Err(first_error.unwrap_or(TopoTextError::Wrapped { line, row }));
    };
    if read.iter().any(|(other, _)| *other != links) {
        return Err(TopoTextError::Wrapped { line: raw.line, row });
    }
    let affinity = tail::choose(read.into_iter().map(|(_, tail)| tail).collect());
    let affinity = affinity.unwrap_or_else(|reason| {
        warnings.push(Warning::AffinityLeftOut { line: raw.line, row: row.clone(), reason });
        Affinity::default()
    });
    for (column, _) in links.iter().enumerate().filter(|(_, link)| **link == Link::Unknown) {
        warnings.push(Warning::UnknownLink {
            line: raw.line,
            row: row.clone(),
            column: header.name(column).to_owned(),
        });
    }
    Ok(ReadRow { device: raw.device, line: raw.line, links, affinity })
}

/// All texts that a row's pieces may have been before its line was broken:
/// between two words, or in the middle of one.
fn joins(pieces: &[String], reflowed: bool) -> Vec<String> {
    let (first, rest) = match pieces.split_first() {
        Some((first, rest)) => (first.clone(), rest),
        None => return vec![String::new()],
    };
    let mut texts = vec![first];
    for piece in rest {
        let glue = !reflowed && rest.len() <= MOST_BREAKS;
        texts = texts
            .into_iter()
            .flat_map(|text| {
                let blank =
                    text.ends_with(char::is_whitespace) || piece.starts_with(char::is_whitespace);
                let glued = (glue && !blank).then(|| text.clone() + piece);
                [Some(text + " " + piece), glued].into_iter().flatten()
            })
            .collect();
    }
    texts
}

fn read_cells(header: &Header, raw: &Row, text: &str) -> Result<(Vec<Link>, Tail), TopoTextError> {
    let row = || header.name(raw.device).to_owned();
    let (line, wanted) = (raw.line, header.devices.len());
    let words = tokens(text);
    let mut links: Vec<Link> = Vec::new();
    let mut used = 0;
    let mut glued = None;
    while links.len() < wanted {
        let column = header.name(links.len()).to_owned();
        let Some(word) = words.get(used) else {
            let found = links.len();
            return Err(TopoTextError::ShortRow { line, row: row(), found, wanted, column });
        };
        let missing = used > 0 && word.tabs > 1;
        let Some(found) = cells::links(word.text).filter(|_| !missing) else {
            return Err(cell_error(raw, row(), column, word, missing, links.len(), wanted));
        };
        let too_many = links.len() + found.links.len() > wanted;
        let too_early = links.len() + found.links.len() < wanted && !found.rest.is_empty();
        if found.is_ambiguous() || too_many || too_early {
            let cell = word.text.to_owned();
            return Err(match too_many && found.rest.is_empty() {
                true => TopoTextError::LongRow { line, row: row(), cell, wanted },
                false => TopoTextError::Glued { line, row: row(), cell },
            });
        }
        links.extend(found.links);
        glued = Some(found.rest).filter(|rest| !rest.is_empty());
        used += 1;
    }
    let behind = words.get(used..).unwrap_or_default();
    let is_extra = |word: &&Token| word.text != "?" && cells::links(word.text).is_some();
    if let Some(extra) = behind.iter().find(is_extra) {
        let cell = extra.text.to_owned();
        return Err(TopoTextError::LongRow { line, row: row(), cell, wanted });
    }
    check_diagonal(header, raw, &links)?;
    let aligned = raw.pieces.len() == 1 && !text.contains('\t');
    let tail = tail::read(header, glued, behind, aligned.then_some(raw.start));
    Ok((links, tail))
}

fn cell_error(
    raw: &Row,
    row: String,
    column: String,
    word: &Token,
    missing: bool,
    found: usize,
    wanted: usize,
) -> TopoTextError {
    let (line, cell) = (raw.line, word.text.to_owned());
    // NV with an impossible number is NV# and the next cell.
    let number = cell.strip_prefix("NV").unwrap_or_default();
    match number.starts_with(|c: char| c.is_ascii_digit()) {
        true if !missing => TopoTextError::Glued { line, row, cell },
        _ if missing || cells::is_affinity(&cell) => {
            TopoTextError::ShortRow { line, row, found, wanted, column }
        }
        _ => TopoTextError::Cell { line, row, column, cell },
    }
}

fn check_diagonal(header: &Header, raw: &Row, links: &[Link]) -> Result<(), TopoTextError> {
    let wrong = links
        .iter()
        .enumerate()
        .find(|(column, link)| (*column == raw.device) != (**link == Link::Same));
    match wrong {
        None => Ok(()),
        Some((column, link)) => Err(TopoTextError::Diagonal {
            line: raw.line,
            row: header.name(raw.device).to_owned(),
            column: header.name(column).to_owned(),
            cell: *link,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_line_is_joined_both_ways() {
        let pieces = ["NV1".to_owned(), "8 X".to_owned(), "\t0-3".to_owned()];
        assert_eq!(joins(&pieces, false), ["NV1 8 X \t0-3", "NV18 X \t0-3"]);
        assert_eq!(joins(&pieces, true), ["NV1 8 X \t0-3"]);
    }
}
