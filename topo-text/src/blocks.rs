//! Joins the blocks into which the `topo` command folds a matrix that is wider than the
//! terminal: each block has all the rows, with their labels, and some of the columns.

use super::cells::gpu_name;
use super::clean::Line;

/// Rows of one block, below their header.
struct Block<'l> {
    /// Header and rows, in which a list that was broken is whole again.
    texts: Vec<String>,
    labels: Vec<&'l str>,
    /// Column at which the cells begin, in characters.
    start: usize,
    /// How many lines it takes.
    lines: usize,
}

/// Puts the blocks of a folded matrix side by side; all other text stays as it is.
pub(super) fn join(lines: Vec<Line>) -> Vec<Line> {
    // Only one place is tried: text of any length is read in time.
    let pairs = lines.iter().zip(lines.iter().skip(1));
    let at = pairs.map(|(header, row)| begins_matrix(header, row)).position(|begins| begins);
    let Some((at, first)) = at.and_then(|at| Some((at, block(&lines, at)?))) else {
        return lines;
    };
    let mut joined = first.texts.clone();
    let mut end = at + first.lines;
    while let Some(next) = next_block(&lines, end).filter(|next| next.labels == first.labels) {
        let width = joined.iter().map(|text| text.chars().count()).max().unwrap_or(0);
        for (text, more) in joined.iter_mut().zip(&next.texts) {
            let cells: String = more.chars().skip(next.start).collect();
            *text = format!("{text:width$}  {cells}");
        }
        end += 1 + next.lines;
    }
    if end == at + first.lines {
        return lines;
    }
    let mut all: Vec<Line> = lines.iter().take(at).cloned().collect();
    let numbers = lines.iter().skip(at).map(|line| line.number);
    all.extend(joined.into_iter().zip(numbers).map(|(text, number)| Line { number, text }));
    all.extend(lines.into_iter().skip(end));
    all
}

/// Whether these lines are a header that begins with a GPU, and the row of that GPU.
fn begins_matrix(header: &Line, row: &Line) -> bool {
    let label = row.text.split(' ').next().unwrap_or_default();
    header.text.starts_with(' ')
        && header.text.split_whitespace().next() == Some(label)
        && gpu_name(label).is_some_and(|(_, _, rest)| rest.is_empty())
}

/// A block behind a blank line, with other columns.
fn next_block(lines: &[Line], end: usize) -> Option<Block<'_>> {
    lines.get(end).filter(|line| line.text.trim().is_empty())?;
    let block = block(lines, end + 1)?;
    let header = block.texts.first()?.split_whitespace().next()?;
    (block.labels.first() != Some(&header)).then_some(block)
}

/// A header that begins with blanks, and rows whose labels are GPUs.
fn block(lines: &[Line], at: usize) -> Option<Block<'_>> {
    let header = &lines.get(at)?.text;
    let start = header.chars().take_while(|letter| *letter == ' ').count();
    if start == 0 || header.contains('\t') || header.trim().is_empty() {
        return None;
    }
    let mut texts = vec![header.trim_end().to_owned()];
    let mut labels = Vec::new();
    for line in lines.iter().skip(at + 1) {
        let text = line.text.trim_end();
        let label = text.split(' ').next().unwrap_or_default();
        if text.is_empty() {
            break;
        } else if gpu_name(label).is_some_and(|(_, _, rest)| rest.is_empty()) {
            texts.push(text.to_owned());
            labels.push(label);
        } else {
            // The rest of a list that ended with a comma.
            let row = texts.last_mut().filter(|row| label.is_empty() && row.ends_with(','))?;
            row.push_str(text.trim_start());
        }
    }
    let count = lines.iter().skip(at).take_while(|line| !line.text.trim().is_empty()).count();
    (!labels.is_empty()).then_some(Block { texts, labels, start, lines: count })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(text: &str) -> Vec<String> {
        let lines = text.lines().enumerate();
        let lines = lines.map(|(at, text)| Line { number: at + 1, text: text.to_owned() });
        join(lines.collect()).into_iter().map(|line| line.text).collect()
    }

    const FOLDED: &str = "before\n      GPU0  GPU1\nGPU0   X    NV4\nGPU1  NV4    X\n\n      \
                          CPU Affinity\nGPU0  0,2,\n      4\nGPU1  1,3\n\n      NUMA Affinity\n\
                          GPU0  0\nGPU1  1\n\nLegend:";

    #[test]
    fn blocks_stand_side_by_side_again() {
        let expected = [
            "before",
            "      GPU0  GPU1  CPU Affinity  NUMA Affinity",
            "GPU0   X    NV4   0,2,4         0",
            "GPU1  NV4    X    1,3           1",
            "",
            "Legend:",
        ];
        assert_eq!(joined(FOLDED), expected);
    }

    #[test]
    fn two_matrices_and_other_rows_are_no_blocks() {
        let twice = "      GPU0\nGPU0   X\n\n      GPU0\nGPU0   X";
        assert_eq!(joined(twice).join("\n"), twice);
        let others = FOLDED.replace("GPU1  1", "GPU2  1");
        assert_eq!(joined(&others).join("\n"), others);
        let between = FOLDED.replace("\n\n      NUMA", "\n\nx\n      NUMA");
        assert_eq!(joined(&between).len(), 11);
    }
}
