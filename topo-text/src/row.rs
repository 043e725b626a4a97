//! One row's links.

use super::body::{Body, Piece, Row};
use super::cells::{self, Token, tokens};
use super::error::{TextWarning, TopoTextError};
use super::header::Header;
use super::tail::{self, Affinity, Tail};
use gpubind_core::node::Link;

/// A wrapped row that may be read in more ways than this is refused.
const MOST_READINGS: usize = 64;

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
/// out with a warning: the GPUs' rows have the same links.
pub(super) fn read_all(
    header: &Header,
    body: &Body,
    warnings: &mut Vec<TextWarning>,
) -> Result<Vec<ReadRow>, TopoTextError> {
    let mut rows: Vec<ReadRow> = Vec::new();
    let breaks = Breaks::of(header, body);
    for raw in &body.rows {
        let is_gpu = raw.device < header.gpus.len();
        let row = match read_row(header, raw, &breaks, warnings) {
            Ok(row) => row,
            Err(error) if is_gpu => return Err(error),
            Err(error) => {
                warnings.push(TextWarning::NicRowLeftOut {
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
    Ok(rows)
}

/// What is known of the line breaks inside rows.
struct Breaks {
    /// An editor broke the lines, between words only.
    reflowed: bool,
    /// Columns of the widest line of the matrix: a terminal breaks a line in
    /// the middle of a word only there.
    width: usize,
    /// Rows are broken everywhere, so that a line of numbers below one is no chance.
    everywhere: bool,
}

impl Breaks {
    fn of(header: &Header, body: &Body) -> Breaks {
        let pieces = body.rows.iter().flat_map(|row| &row.pieces);
        let gpus = body.rows.iter().filter(|row| row.device < header.gpus.len());
        Breaks {
            reflowed: body.reflowed,
            width: pieces.map(|piece| piece.width).max().unwrap_or(0),
            everywhere: body.reflowed
                || gpus.clone().count() > 1 && gpus.clone().all(|row| row.pieces.len() > 1),
        }
    }
}

/// One way to read a row.
#[derive(PartialEq, Eq)]
struct Reading {
    links: Vec<Link>,
    tail: Tail,
    /// Whether its lines would be broken where a terminal breaks lines.
    plausible: bool,
}

fn read_row(
    header: &Header,
    raw: &Row,
    breaks: &Breaks,
    warnings: &mut Vec<TextWarning>,
) -> Result<ReadRow, TopoTextError> {
    let mut read: Vec<Reading> = Vec::new();
    let mut first_error = None;
    let mut texts = joins(&raw.pieces, breaks);
    if let Some((_, pieces)) = raw.pieces.split_last().filter(|_| raw.doubtful) {
        if !breaks.everywhere {
            texts.extend(joins(pieces, breaks));
        }
    }
    let row = header.name(raw.device).to_owned();
    if texts.len() > MOST_READINGS {
        return Err(TopoTextError::Wrapped { line: raw.line, row });
    }
    for (text, plausible) in texts {
        match read_cells(header, raw, &text) {
            Ok((links, tail)) => read.push(Reading { links, tail, plausible }),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    let Some(links) = read.first().map(|reading| reading.links.clone()) else {
        let line = raw.line;
        return Err(first_error.unwrap_or(TopoTextError::Wrapped { line, row }));
    };
    if read.iter().any(|reading| reading.links != links) {
        return Err(TopoTextError::Wrapped { line: raw.line, row });
    }
    let tails = |plausible: bool| -> Vec<Tail> {
        let tails = read.iter().filter(|reading| !plausible || reading.plausible);
        tails.map(|reading| reading.tail.clone()).collect()
    };
    let affinity = match tails(true) {
        likely if likely.iter().any(Result::is_ok) => tail::choose(likely),
        _ => tail::choose(tails(false)),
    };
    let affinity = affinity.unwrap_or_else(|reason| {
        if raw.device < header.gpus.len() {
            warnings.push(TextWarning::AffinityLeftOut {
                line: raw.line,
                row: row.clone(),
                reason,
            });
        }
        Affinity::default()
    });
    for (column, _) in links.iter().enumerate().filter(|(_, link)| **link == Link::Unknown) {
        warnings.push(TextWarning::UnknownLink {
            line: raw.line,
            row: row.clone(),
            column: header.name(column).to_owned(),
        });
    }
    Ok(ReadRow { device: raw.device, line: raw.line, links, affinity })
}

/// All texts that a row's pieces may have been before its line was broken,
/// between two words or in the middle of one, and whether that is plausible.
fn joins(pieces: &[Piece], breaks: &Breaks) -> Vec<(String, bool)> {
    let mut texts = vec![(String::new(), true)];
    let before = std::iter::once(None).chain(pieces.iter().map(Some));
    for (piece, before) in pieces.iter().zip(before) {
        let Some(before) = before else {
            texts = vec![(piece.text.clone(), true)];
            continue;
        };
        let blank = before.text.ends_with(char::is_whitespace)
            || piece.text.starts_with(char::is_whitespace);
        let full = before.width == breaks.width;
        let join = |(text, plausible): (String, bool)| {
            let glued = text.clone() + &piece.text;
            let spaced =
                (text + " " + &piece.text, plausible && (blank || breaks.reflowed || !full));
            match blank || breaks.reflowed {
                true => vec![spaced],
                false => vec![spaced, (glued, plausible && full)],
            }
        };
        texts = texts.into_iter().flat_map(join).take(MOST_READINGS + 1).collect();
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
        let piece = |text: &str, width| Piece { text: text.to_owned(), line: 1, width };
        let pieces = [piece("NV1", 40), piece("8 X", 12), piece("\t0-3", 20)];
        let mut breaks = Breaks { reflowed: false, width: 40, everywhere: false };
        let both = [("NV1 8 X \t0-3".to_owned(), false), ("NV18 X \t0-3".to_owned(), true)];
        assert_eq!(joins(&pieces, &breaks), both);
        breaks.reflowed = true;
        assert_eq!(joins(&pieces, &breaks), [("NV1 8 X \t0-3".to_owned(), true)]);
    }
}
