//! Undoes a terminal's line wrap that a copy turned into padding.
//!
//! Some terminals hand out a wrapped line as one line with blanks up to the end
//! of the screen buffer between its parts, the same blanks at the same column
//! in every line. A column name that the blanks cut in two shows where.

use super::clean::Line;

/// Shorter gaps than this are ordinary column spacing.
const SHORTEST: usize = 24;

/// Words of the header that no gap can stand in.
const WORDS: [&str; 5] = ["CPU", "Affinity", "NUMA", "GPU", "ID"];

/// Takes the padding out of all lines, if a column name gives it away.
pub(super) fn cut(lines: Vec<Line>) -> Vec<Line> {
    let Some((start, end)) = lines.iter().find_map(|line| split_word(&line.text)) else {
        return lines;
    };
    let without = |line: Line| {
        let chars: Vec<char> = line.text.chars().collect();
        match (chars.get(..start), chars.get(start..end), chars.get(end..)) {
            (Some(left), Some(gap), Some(right)) if gap.iter().all(|c| *c == ' ') => {
                Line { text: left.iter().chain(right).collect(), ..line }
            }
            _ => line,
        }
    };
    lines.into_iter().map(without).collect()
}

/// The columns of a gap that parts a word of the header.
fn split_word(text: &str) -> Option<(usize, usize)> {
    let chars: Vec<char> = text.chars().collect();
    let mut start = 0;
    while start < chars.len() {
        let gap = chars.iter().skip(start).take_while(|c| **c == ' ').count();
        if gap >= SHORTEST {
            let is_word = |c: &&char| **c != ' ' && **c != '\t';
            let left = chars.iter().take(start).rev().take_while(is_word);
            let left: String = left.collect::<Vec<_>>().into_iter().rev().collect();
            let right: String = chars.iter().skip(start + gap).take_while(is_word).collect();
            let parts = !left.is_empty() && !right.is_empty();
            if parts && WORDS.contains(&format!("{left}{right}").as_str()) {
                return Some((start, start + gap));
            }
        }
        start += gap.max(1);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_inside_a_column_name_is_taken_out_of_every_line() {
        let gap = " ".repeat(40);
        let texts = [
            format!("      GPU0 CPU Affi{gap}nity"),
            format!("GPU0   X   0-17,36-{gap}53"),
            "short".to_owned(),
        ];
        let lines = texts.iter().map(|text| Line { number: 1, text: text.clone() });
        let texts: Vec<String> = cut(lines.collect()).into_iter().map(|l| l.text).collect();
        assert_eq!(texts[0], "      GPU0 CPU Affinity");
        assert_eq!(texts[1], "GPU0   X   0-17,36-53");
        assert_eq!(texts[2], "short");
    }
}
