//! The common form of Slurm's configuration files, read with tolerance.
//!
//! `Key=Value` pairs, keys in any case, blanks allowed around `=`, values that may
//! be quoted, `#` comments, a backslash that joins lines, and `include FILE`
//! (src/common/parse_config.c, `s_p_parse_file`). What cannot be read is reported and
//! passed over: Slurm is the one to refuse a file, this only looks at it.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};

/// How deep files may include each other: a file that includes itself must end.
const DEPTH: usize = 8;
/// No configuration has more files: one that includes itself twice must end soon.
pub(super) const FILES: usize = 256;
/// No configuration file is larger; a wrong path must not fill the memory.
const SIZE: u64 = 16 * 1024 * 1024;

/// One line that holds pairs; lines that a backslash joins are one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The file.
    pub file: PathBuf,
    /// The number of its first line, from 1.
    pub number: usize,
    /// Keys as written, and values without quotes.
    pub pairs: Vec<(String, String)>,
    /// Words that belong to no pair, for which Slurm refuses the file.
    pub stray: Vec<String>,
}

impl Line {
    /// The value of a key, in whatever case it is written; the last one counts.
    pub fn value(&self, key: &str) -> Option<&str> {
        let mut pairs = self.pairs.iter().rev();
        pairs.find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value.as_str())
    }

    /// Whether the line begins with this key.
    pub fn begins_with(&self, key: &str) -> bool {
        self.pairs.first().is_some_and(|(name, _)| name.eq_ignore_ascii_case(key))
    }
}

/// Why a file cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {error}", path.display())]
pub struct ReadError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub error: io::Error,
}

/// A file's lines, with those of the files that it includes in their places.
#[derive(Debug, Default)]
pub struct Lines {
    /// The lines that are not empty.
    pub lines: Vec<Line>,
    /// Included files that cannot be read.
    pub missing: Vec<ReadError>,
    /// The files that were read, in this order.
    pub files: Vec<PathBuf>,
}

impl Lines {
    /// Reads a file and what it includes.
    ///
    /// # Errors
    /// [`ReadError`] if the file itself cannot be read.
    pub fn read(path: &Path) -> Result<Lines, ReadError> {
        let mut lines = Lines::default();
        lines.take(path, DEPTH)?;
        Ok(lines)
    }

    fn take(&mut self, path: &Path, depth: usize) -> Result<(), ReadError> {
        let text = text_of(path).map_err(|error| ReadError { path: path.to_owned(), error })?;
        self.files.push(path.to_owned());
        for (number, line) in joined(&text) {
            match included(&line) {
                Some(name) if depth > 0 && self.files.len() < FILES => {
                    // Relative to the file, as Slurm has it for slurm.conf's own folder.
                    let file = path.parent().unwrap_or(Path::new("/")).join(name);
                    if let Err(error) = self.take(&file, depth - 1) {
                        self.missing.push(error);
                    }
                }
                Some(_) => {}
                None => {
                    let (pairs, stray) = pairs(&line);
                    if !pairs.is_empty() || !stray.is_empty() {
                        self.lines.push(Line { file: path.to_owned(), number, pairs, stray });
                    }
                }
            }
        }
        Ok(())
    }
}

/// A configuration file's text; comments may be in any encoding.
pub(super) fn text_of(path: &Path) -> io::Result<String> {
    // NONBLOCK: opening a FIFO must not wait for a writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::openat(CWD, path, flags, Mode::empty())?);
    let mut bytes = Vec::new();
    file.take(SIZE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > SIZE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too large"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Lines without comments, joined where a backslash says so, with the number of
/// the first one.
fn joined(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = without_comment(line);
        let trimmed = line.trim_end();
        let (part, more) = match trimmed.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (trimmed, false),
        };
        match lines.last_mut() {
            Some((_, whole)) if goes_on => {
                whole.push(' ');
                whole.push_str(part);
            }
            _ => lines.push((number, part.to_owned())),
        }
        goes_on = more;
    }
    lines
}

/// A `#` begins a comment unless a backslash is before it, which then goes.
fn without_comment(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    for c in line.chars() {
        match c {
            '#' if kept.ends_with('\\') => {
                kept.pop();
                kept.push('#');
            }
            '#' => break,
            c => kept.push(c),
        }
    }
    kept
}

fn included(line: &str) -> Option<&str> {
    let (word, name) = line.trim().split_once(char::is_whitespace)?;
    let name = name.trim().trim_matches('"');
    (word.eq_ignore_ascii_case("include") && !name.starts_with('=')).then_some(name)
}

/// The pairs of a line, and the words that belong to none.
fn pairs(line: &str) -> (Vec<(String, String)>, Vec<String>) {
    let mut pairs = Vec::new();
    let mut stray: Vec<String> = Vec::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('=') {
        // Slurm also knows `+=` and the like; to a reader it is a value all the same.
        let name = before.trim_end().trim_end_matches(['+', '-', '*', '/']);
        let mut words = name.split_whitespace();
        let name = words.next_back().unwrap_or_default();
        stray.extend(words.map(str::to_owned));
        let after = after.trim_start();
        let (value, left) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_at(after.find(char::is_whitespace).unwrap_or(after.len())),
        };
        if !name.is_empty() {
            pairs.push((name.to_owned(), value.to_owned()));
        }
        rest = left;
    }
    stray.extend(rest.split_whitespace().map(str::to_owned));
    (pairs, stray)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Vec<(String, String)> {
        let lines = joined(line);
        pairs(&lines[0].1).0
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn pairs_are_read_as_people_write_them() {
        assert_eq!(
            of("NodeName=a[1-2]  gres = gpu:a100:4   Weight=1"),
            [pair("NodeName", "a[1-2]"), pair("gres", "gpu:a100:4"), pair("Weight", "1")]
        );
        assert_eq!(of(r#"Prolog="/etc/my prolog" X=1"#)[0], pair("Prolog", "/etc/my prolog"));
        assert_eq!(of("Flags+=a word=b=c"), [pair("Flags", "a"), pair("word", "b=c")]);
        assert_eq!(of("nothing here"), []);
        assert_eq!(pairs("a b c=1 d").1, ["a", "b", "d"]);
        assert_eq!(of(r#"A="open"#), [pair("A", "open")]);
    }

    #[test]
    fn comments_end_lines_and_backslashes_join_them() {
        let text = "A=1 # B=2\nC=\\#3\nD=4 \\ # more\n  E=5 \\\nF=6\n# all of it\nG=7";
        let lines = joined(text);
        let found: Vec<_> = lines.iter().map(|(number, line)| (*number, pairs(line).0)).collect();
        assert_eq!(found[0], (1, vec![pair("A", "1")]));
        assert_eq!(found[1], (2, vec![pair("C", "#3")]));
        assert_eq!(found[2], (3, vec![pair("D", "4"), pair("E", "5"), pair("F", "6")]));
        assert_eq!(found[3], (6, vec![]));
        assert_eq!(found[4], (7, vec![pair("G", "7")]));
    }

    #[test]
    fn included_files_take_their_place_and_missing_ones_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let main = folder.path().join("slurm.conf");
        std::fs::write(&main, "A=1\ninclude more.conf\nInclude none.conf\nIncludeX=1\nB=2\n")
            .unwrap();
        std::fs::write(folder.path().join("more.conf"), "C=3\ninclude slurm.conf\n").unwrap();
        let lines = Lines::read(&main).unwrap();
        let keys: Vec<&str> = lines.lines.iter().map(|line| line.pairs[0].0.as_str()).collect();
        assert!(keys.starts_with(&["A", "C", "A", "C"]), "{keys:?}");
        assert!(keys.ends_with(&["IncludeX", "B", "IncludeX", "B"]), "{keys:?}");
        assert!(keys.len() < 100, "a file that includes itself ends");
        assert!(lines.missing[0].to_string().contains("none.conf: No such file"));
        assert_eq!(lines.lines[1].file, folder.path().join("more.conf"));
        assert_eq!(lines.lines[1].value("c"), Some("3"));
        assert!(Lines::read(&folder.path().join("none.conf")).is_err());
    }
}
