//! Which pieces of which lines belong to which row.
//!
//! Usually a line is a row. A terminal may have wrapped it, or an editor
//! reflowed the table so that labels stand in the middle of lines.

use super::cells::{self, Token, gpu_name, is_cell, tokens};
use super::clean::Line;
use super::error::{TextWarning, TopoTextError};
use super::header::{self, Header};

/// One row as it stands in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// Position in [`Header::devices`].
    pub device: usize,
    /// Line of its label.
    pub line: usize,
    /// What follows the label, one piece for each line it stands on.
    pub pieces: Vec<Piece>,
    /// Whether the last piece may be no part of the row: a line of nothing but
    /// numbers below a row that could end before it.
    pub doubtful: bool,
    /// Where the first piece starts in its line, in characters.
    pub start: usize,
}

/// What one line has of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub text: String,
    pub line: usize,
    /// How many columns the whole line takes on a terminal.
    pub width: usize,
}

/// The rows of a matrix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Body {
    /// The rows, in the order of the text.
    pub rows: Vec<Row>,
    /// Whether lines were broken between words only, by an editor.
    pub reflowed: bool,
    /// Place of the first line behind the rows.
    pub end: usize,
    /// Whether the text ends with the last row.
    pub at_end: bool,
    /// What was skipped.
    pub warnings: Vec<TextWarning>,
}

/// Collects the rows below a header; `first` is the place of their first line.
pub(super) fn collect(
    lines: &[Line],
    header: &Header,
    first: usize,
) -> Result<Body, TopoTextError> {
    let mut collector = Collector { header, body: Body::default(), open: false, marked: false };
    let mut last = first;
    for (at, line) in lines.iter().enumerate().skip(first) {
        let text = line.text.trim();
        let ends = text.starts_with("Legend") || text.starts_with("NIC Legend");
        if ends || (!text.is_empty() && header::starts_matrix(&line.text)) {
            break;
        }
        if collector.line(line)? {
            last = at + 1;
        } else if collector.body.rows.is_empty() && !text.is_empty() {
            break; // rows start right below their header
        }
    }
    let mut body = collector.body;
    if body.rows.is_empty() {
        let row = header.name(0).to_owned();
        return Err(TopoTextError::NoRows { line: header.line, row });
    }
    body.end = last;
    let behind = lines.get(last..).unwrap_or_default();
    body.at_end = behind.iter().all(|line| line.text.trim().is_empty());
    Ok(body)
}

struct Collector<'h> {
    header: &'h Header,
    body: Body,
    /// Whether the next line may continue the last row.
    open: bool,
    /// Whether something of no meaning stands before the labels (a line
    /// number, a file name).
    marked: bool,
}

impl Collector<'_> {
    /// Takes one line; whether it belongs to the matrix.
    fn line(&mut self, line: &Line) -> Result<bool, TopoTextError> {
        let words = tokens(&line.text);
        let labels = self.labels(&words);
        let Some((first, _)) = labels.first() else {
            return self.line_without_label(line, &words);
        };
        let leading = words.get(..*first).unwrap_or_default();
        self.leading(line, leading)?;
        self.body.reflowed |= labels.len() > 1;
        for (nth, (at, device)) in labels.iter().enumerate() {
            let Some(label) = words.get(*at) else { continue };
            let start = label.at + self.header.name(*device).len();
            let next = labels.get(nth + 1).and_then(|(next, _)| words.get(*next));
            let end = next.map_or(line.text.len(), |next| next.at);
            self.body.rows.push(Row {
                device: *device,
                line: line.number,
                pieces: vec![piece(line, line.text.get(start..end).unwrap_or_default())],
                doubtful: false,
                start: line.text.get(..start).unwrap_or_default().chars().count(),
            });
        }
        self.open = true;
        Ok(true)
    }

    /// The labels of a line: names that a link follows, and a name at the end
    /// of a line whose row goes on in the next one.
    fn labels(&self, words: &[Token]) -> Vec<(usize, usize)> {
        let mut labels = Vec::new();
        for (at, word) in words.iter().enumerate() {
            let Some((device, glued)) = self.header.label(word.text) else { continue };
            let before = words.get(..at).unwrap_or_default();
            let behind = words.get(at + 1..).unwrap_or_default();
            let is_label = match behind.first() {
                _ if !glued.is_empty() => true,
                Some(next) if cells::links(next.text).is_some() => true,
                Some(_) => at == 0 && mostly_cells(behind),
                None => self.open && ends_in_label(self.header, before),
            };
            if is_label {
                labels.push((at, device));
            }
        }
        labels
    }

    /// What stands before the first label: the end of the row before, or a
    /// mark of no meaning.
    fn leading(&mut self, line: &Line, leading: &[Token]) -> Result<(), TopoTextError> {
        if leading.is_empty() {
            return Ok(());
        }
        let link = leading.iter().find(|word| cells::links(word.text).is_some());
        let all_cells = leading.iter().all(|word| is_cell(word.text));
        if self.open && all_cells && (link.is_some() || !self.marked) {
            let end = leading.last().map_or(0, |last| last.at + last.text.len());
            self.body.reflowed = true;
            self.append(line, line.text.get(..end).unwrap_or_default().trim());
            return Ok(());
        }
        self.marked |= self.body.rows.is_empty();
        match link {
            // A prompt or a name may happen to be a link word: `X GPU0 …`.
            Some(link) if leading.len() > 1 || self.open => {
                Err(TopoTextError::Stray { line: line.number, cell: link.text.to_owned() })
            }
            _ => Ok(()),
        }
    }

    fn line_without_label(&mut self, line: &Line, words: &[Token]) -> Result<bool, TopoTextError> {
        if words.is_empty() {
            return Ok(false);
        }
        if self.open && self.continues(line, words) {
            let link = words.iter().find(|word| cells::links(word.text).is_some());
            let links = self.links_so_far();
            let complete = links >= self.header.devices.len();
            if let Some(link) = link.filter(|_| complete) {
                return Err(TopoTextError::Stray { line: line.number, cell: link.text.to_owned() });
            }
            let text = if self.body.reflowed { line.text.trim() } else { &line.text };
            let broken = self.ends_open() || line.text.trim().starts_with(['-', ',']);
            self.append(line, text);
            if let Some(row) = self.body.rows.last_mut() {
                row.doubtful = complete && !broken;
            }
            // A second line of numbers would be too much.
            self.open &= !complete || broken;
            return Ok(true);
        }
        self.open = false;
        let pairs = words.iter().zip(words.iter().skip(1)).enumerate();
        let is_pair = |(_, (a, b)): &(usize, (&Token, &Token))| {
            cells::links(a.text).is_some() && cells::links(b.text).is_some()
        };
        let Some((at, (cell, _))) = pairs.into_iter().find(is_pair) else {
            let lone = words.split_first().and_then(|(label, rest)| Some((label, rest.first()?)));
            let is_gpu = |(label, cell): &(&Token, &Token)| {
                gpu_name(label.text).is_some_and(|(_, _, rest)| rest.is_empty())
                    && cells::links(cell.text).is_some()
            };
            return match lone.filter(is_gpu) {
                Some((label, _)) => Err(self.no_column(line, label)),
                None => Ok(false),
            };
        };
        let Some(label) = at.checked_sub(1).and_then(|before| words.get(before)) else {
            let (line, cell) = (line.number, cell.text.to_owned());
            return Err(TopoTextError::Stray { line, cell });
        };
        if gpu_name(label.text).is_some() {
            return Err(self.no_column(line, label));
        }
        self.body.warnings.push(TextWarning::NicRowLeftOut {
            line: line.number,
            row: label.text.to_owned(),
            reason: "the first line names no such column".to_owned(),
        });
        Ok(true)
    }

    fn no_column(&self, line: &Line, label: &Token) -> TopoTextError {
        TopoTextError::NoColumn { line: line.number, row: label.text.to_owned() }
    }

    /// Whether a line without a label may be the rest of the last row.
    fn continues(&self, line: &Line, words: &[Token]) -> bool {
        let Some((first, rest)) = words.split_first() else { return false };
        let Some(last) = self.body.rows.last().and_then(|row| row.pieces.last()) else {
            return false;
        };
        let end = tokens(&last.text).last().map_or("", |word| word.text);
        let is_first = is_cell(first.text) || is_cell(&format!("{end}{}", first.text));
        let fits = is_first && rest.iter().all(|word| is_cell(word.text));
        // Numbers alone must stand right below, links may be further down.
        let numbers_only = words.iter().all(|word| cells::links(word.text).is_none());
        let complete = self.links_so_far() >= self.header.devices.len();
        fits && (!(numbers_only && complete) || line.number == last.line + 1)
    }

    /// Whether the last row ends in the middle of a list.
    fn ends_open(&self) -> bool {
        let last = self.body.rows.last().and_then(|row| row.pieces.last());
        last.is_some_and(|piece| piece.text.trim_end().ends_with(['-', ',']))
    }

    /// Links that the last row has already.
    fn links_so_far(&self) -> usize {
        let Some(row) = self.body.rows.last() else { return 0 };
        let texts: Vec<&str> = row.pieces.iter().map(|piece| piece.text.as_str()).collect();
        let links = |word: &Token| cells::links(word.text).map_or(0, |found| found.links.len());
        tokens(&texts.join(" ")).iter().map(links).sum()
    }

    fn append(&mut self, line: &Line, text: &str) {
        if let Some(row) = self.body.rows.last_mut() {
            row.pieces.push(piece(line, text));
        }
    }
}

fn piece(line: &Line, text: &str) -> Piece {
    let width = |width: usize, c: char| if c == '\t' { width / 8 * 8 + 8 } else { width + 1 };
    let (text, number) = (text.to_owned(), line.number);
    Piece { text, line: number, width: line.text.chars().fold(0, width) }
}

/// Whether words are those of a row, though its first cell may be none.
fn mostly_cells(words: &[Token]) -> bool {
    let cells = words.iter().filter(|word| is_cell(word.text)).count();
    cells * 2 > words.len() && words.iter().any(|word| cells::links(word.text).is_some())
}

/// Whether a name behind these words, at the end of a line, is the label of a
/// row that goes on in the next line.
fn ends_in_label(header: &Header, before: &[Token]) -> bool {
    let fits = |word: &Token| is_cell(word.text) || header.label(word.text).is_some();
    before.iter().all(fits) && before.iter().any(|word| is_cell(word.text))
}
