//! The words of the matrix, also where nothing stands between two of them.

use gpubind_core::node::Link;

/// More NVLinks than this no GPU has (nvml.h, `NVML_NVLINK_MAX_LINKS`), so a
/// larger number is two cells without anything between them.
const MAX_NVLINKS: u32 = 36;

/// A word of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub text: &'a str,
    /// Where it starts, in characters.
    pub column: usize,
    /// Where it starts, in bytes.
    pub at: usize,
    /// Tabs between it and the word before it.
    pub tabs: usize,
}

/// The words of a line.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut tabs = 0;
    let mut start = None;
    let mut push = |tabs: &mut usize, start: &mut Option<(usize, usize)>, end: usize| {
        if let Some((at, column)) = start.take() {
            if let Some(word) = text.get(at..end) {
                tokens.push(Token { text: word, column, at, tabs: *tabs });
            }
            *tabs = 0;
        }
    };
    for (column, (at, c)) in text.char_indices().enumerate() {
        if c.is_whitespace() {
            push(&mut tabs, &mut start, at);
            tabs += usize::from(c == '\t');
        } else if start.is_none() {
            start = Some((at, column));
        }
    }
    push(&mut tabs, &mut start, text.len());
    tokens
}

/// A word read as link words: `NODEPIX` is two of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Links<'a> {
    /// The link words at the front of the word.
    pub links: Vec<Link>,
    /// What follows them: the first affinity cell, where nothing parts it.
    pub rest: &'a str,
}

impl Links<'_> {
    /// Whether the border between the links and what follows is not certain:
    /// `NV120-23` may be NV12 and 0-23 or NV1 and 20-23.
    pub fn is_ambiguous(&self) -> bool {
        !self.rest.is_empty() && matches!(self.links.last(), Some(Link::NvLink(_)))
    }
}

/// Reads the link words at the front of a word; none if it is some other word.
pub(super) fn links(word: &str) -> Option<Links<'_>> {
    let mut links = Vec::new();
    let mut rest = word;
    while let Some((link, behind)) = one_link(rest) {
        links.push(link);
        rest = behind;
    }
    let glued_list = rest.starts_with(|c: char| c.is_ascii_digit() || c == '-') || rest == "N/A";
    let fits = !links.is_empty() && (rest.is_empty() || glued_list);
    fits.then_some(Links { links, rest })
}

fn one_link(text: &str) -> Option<(Link, &str)> {
    if let Some(behind) = text.strip_prefix("NV") {
        let end = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
        let count: u32 = behind.get(..end)?.parse().ok()?;
        let possible = (1..=MAX_NVLINKS).contains(&count);
        return possible.then_some((Link::NvLink(count), behind.get(end..)?));
    }
    if text == "?" {
        return Some((Link::Unknown, ""));
    }
    ["NODE", "SYS", "SOC", "PIX", "PXB", "PHB", "PSB", "X", "x"]
        .iter()
        .find_map(|word| Some((word, text.strip_prefix(word)?)))
        .and_then(|(word, behind)| Some((word.to_ascii_uppercase().parse().ok()?, behind)))
}

/// Whether a word may stand in an affinity column: a list of numbers, or a
/// word for "none".
pub(super) fn is_affinity(word: &str) -> bool {
    let list = word.strip_suffix("N/A").unwrap_or(word);
    let list_char = |c: char| c.is_ascii_digit() || matches!(c, ',' | '-');
    is_none(word) || (!list.is_empty() && list.chars().all(list_char))
}

/// Whether a word says that a cell is empty.
pub(super) fn is_none(word: &str) -> bool {
    matches!(word, "" | "N/A" | "n/a" | "?" | "-" | "None")
}

/// Whether a word may stand in a row.
pub(super) fn is_cell(word: &str) -> bool {
    links(word).is_some() || is_affinity(word)
}

/// The number of a `GPU7` at the front of a text, and what follows it.
pub(super) fn gpu_name(text: &str) -> Option<(&str, u32, &str)> {
    let digits = text.strip_prefix("GPU")?;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let number = digits.get(..end)?.parse().ok()?;
    let length = text.len() - digits.len() + end;
    Some((text.get(..length)?, number, text.get(length..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(word: &str) -> Option<(Vec<Link>, &str)> {
        links(word).map(|found| (found.links, found.rest))
    }

    #[test]
    fn glued_link_words_come_apart() {
        assert_eq!(read("NODEPIX"), Some((vec![Link::Node, Link::Pix], "")));
        assert_eq!(read("XPIX"), Some((vec![Link::Same, Link::Pix], "")));
        assert_eq!(read("SYS0-51"), Some((vec![Link::Sys], "0-51")));
        let eighteen = Link::NvLink(18);
        assert_eq!(read("NV18NV18"), Some((vec![eighteen, eighteen], "")));
    }

    #[test]
    fn other_words_are_no_links() {
        for word in ["Xeon", "PIXEL", "NV", "NV0", "NV180", "0-31", "GPU0", "", "PXBfoo", "N/A"] {
            assert_eq!(read(word), None, "{word}");
        }
    }

    #[test]
    fn nvlinks_glued_to_a_list_are_ambiguous() {
        assert!(links("NV120-23").is_none_or(|found| found.is_ambiguous()));
        assert!(links("NV40-31").is_none_or(|found| found.is_ambiguous()));
        assert!(!links("SYS0-23").unwrap().is_ambiguous());
    }

    #[test]
    fn tokens_know_their_tabs() {
        let tabs: Vec<usize> = tokens("GPU0\t X \t\t1  N/A").iter().map(|t| t.tabs).collect();
        assert_eq!(tabs, [0, 1, 2, 0]);
    }
}
