//! From pasted text to plain lines: escape codes, quotes and comment marks go.

/// One line, without what terminals, mail programs and source files add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// Number in the pasted text, from 1.
    pub number: usize,
    /// Its text; tabs are kept, they mark cells.
    pub text: String,
}

/// Splits a text into plain lines.
pub(super) fn lines(text: &str) -> Vec<Line> {
    let escaped = ["\\t", "\\n\"", "\\n'"].iter().any(|escape| text.contains(escape));
    let mut lines = Vec::new();
    for (at, raw) in text.lines().enumerate() {
        let raw = if escaped { unescape(raw) } else { raw.to_owned() };
        for part in raw.split(['\n', '\r']) {
            let plain = plain_spaces(&without_escape_codes(part));
            lines.push(Line { number: at + 1, text: without_marks(&without_quotes(&plain)) });
        }
    }
    lines
}

/// Resolves the escapes of string constants: `\t`, `\n`, `\x1b` and their kin.
fn unescape(text: &str) -> String {
    const ESCAPES: [(&str, &str); 8] = [
        ("\\t", "\t"),
        ("\\n", "\n"),
        ("\\r", ""),
        ("\\\"", "\""),
        ("\\x1b", "\u{1b}"),
        ("\\u001b", "\u{1b}"),
        ("\\033", "\u{1b}"),
        ("\\e[", "\u{1b}["),
    ];
    ESCAPES.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Removes terminal escape codes, also those that lost their ESC byte (`[4m`)
/// or show it as `^[` or `␛`.
fn without_escape_codes(text: &str) -> String {
    let text = text.replace("^[", "\u{1b}").replace('\u{241b}', "\u{1b}");
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(first) = rest.chars().next() {
        let after = rest.get(first.len_utf8()..).unwrap_or_default();
        rest = match first {
            '\u{1b}' => after_escape(after),
            '\u{9b}' => after_code(after, |end| end.is_ascii_alphabetic()).unwrap_or(after),
            '[' => match after_code(after, |end| matches!(end, 'm' | 'K')) {
                Some(behind) => behind,
                None => {
                    plain.push(first);
                    after
                }
            },
            _ => {
                plain.push(first);
                after
            }
        };
    }
    plain
}

/// What follows an escape sequence, given the text behind its ESC byte.
fn after_escape(text: &str) -> &str {
    if let Some(code) = text.strip_prefix('[') {
        return after_code(code, |end| end.is_ascii_alphabetic()).unwrap_or(code);
    }
    if let Some(title) = text.strip_prefix(']') {
        let end = title.find('\u{7}').map_or(title.len(), |bell| bell + 1);
        return title.get(end..).unwrap_or_default();
    }
    if let Some(charset) = text.strip_prefix(['(', ')']) {
        let mut chars = charset.chars();
        chars.next();
        return chars.as_str();
    }
    text
}

/// What follows the parameters and the final letter of a control sequence.
fn after_code(text: &str, is_end: impl Fn(char) -> bool) -> Option<&str> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, ';' | '?')))?;
    let mut rest = text.get(end..)?.chars();
    rest.next().filter(|&last| is_end(last))?;
    Some(rest.as_str())
}

/// One kind of space, no invisible characters, and one kind of bar and cross.
fn plain_spaces(text: &str) -> String {
    text.replace("&nbsp;", " ")
        .chars()
        .filter(|c| !matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}'))
        .filter(|c| *c == '\t' || !c.is_control())
        .map(|c| match c {
            '\t' => '\t',
            '│' | '┃' | '║' | '┆' => '|',
            '×' | '✕' | '✖' => 'X',
            '–' | '‑' | '‐' => '-',
            c if c.is_whitespace() => ' ',
            c => c,
        })
        .collect()
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`' | '“' | '”' | '‘' | '’' | '«' | '»')
}

/// Quotes become spaces; `","` between two cells becomes a tab.
fn without_quotes(text: &str) -> String {
    if !text.contains(is_quote) {
        return text.trim_end_matches('\\').to_owned();
    }
    let mut text = text.replace("\",\"", "\t").replace("','", "\t");
    // What a list or a string concatenation puts behind the closing quote.
    if let Some(last) = text.rfind(is_quote) {
        let behind = text.get(last..).unwrap_or_default();
        let leftover = |c: char| is_quote(c) || c.is_whitespace() || ",;+\\)]".contains(c);
        if behind.chars().all(leftover) {
            text.truncate(last);
        }
    }
    text.replace(is_quote, " ")
}

/// Takes comment marks and mail quoting off the front of a line.
fn without_marks(text: &str) -> String {
    let single_bar = text.matches('|').count() == 1;
    let mut rest = text;
    loop {
        let trimmed = rest.trim_start();
        let stripped = ["//", "--", "#", ">", "*", ";", "%", "!", "REM "]
            .iter()
            .find_map(|mark| trimmed.strip_prefix(mark))
            .or_else(|| trimmed.strip_prefix('|').filter(|_| single_bar));
        match stripped {
            Some(behind) => rest = behind,
            None => return rest.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> String {
        let lines = lines(text);
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines[0].text.clone()
    }

    #[test]
    fn escape_codes_go_whole_or_broken() {
        assert_eq!(one("\t\u{1b}[4mGPU0\tGPU1\u{1b}[0m"), "\tGPU0\tGPU1");
        assert_eq!(one("\t[4mGPU0\tGPU1[0m"), "\tGPU0\tGPU1");
        assert_eq!(one("\t^[[1;4mGPU0\u{1b}(B\u{1b}[m"), "\tGPU0");
        assert_eq!(one("a [x] b"), "a [x] b");
    }

    #[test]
    fn marks_and_quotes_go() {
        assert_eq!(one("# \tGPU0"), " \tGPU0");
        assert_eq!(one(">>> GPU0  X"), " GPU0  X");
        assert_eq!(one("  // * GPU0"), " GPU0");
        assert_eq!(one("\"GPU0\",\" X \",\"0-3\","), " GPU0\t X \t0-3");
        assert_eq!(one("| GPU0 X"), " GPU0 X");
        assert_eq!(one("| GPU0 | X |"), "| GPU0 | X |");
    }

    #[test]
    fn string_constants_become_lines_with_their_line_number() {
        let lines = lines("intro\n\"\\tGPU0\\nGPU0\\t X \\n\" +\n");
        let numbers: Vec<usize> = lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers, [1, 2, 2, 2]);
        assert_eq!(lines[1].text, " \tGPU0");
        assert_eq!(lines[2].text, "GPU0\t X ");
    }
}
