//! Host lists as Slurm writes them, such as `gpu[01-16],big1`.

/// No cluster has more nodes in one line; a mistyped range must not fill the memory.
const MOST_NODES: usize = 100_000;

/// The names in a list; none where it is not one.
pub(super) fn hosts(list: &str) -> Vec<String> {
    expanded(list).unwrap_or_default()
}

fn expanded(list: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for word in words(list)? {
        all.extend(names(word)?);
        all.truncate(MOST_NODES);
    }
    Some(all)
}

/// The words between the commas that are in no brackets.
fn words(list: &str) -> Option<Vec<&str>> {
    let mut words = Vec::new();
    let mut start = 0;
    let mut inside = false;
    for (at, letter) in list.char_indices() {
        match letter {
            '[' | ']' if inside == (letter == '[') => return None,
            '[' | ']' => inside = !inside,
            ',' if !inside => {
                words.push(list.get(start..at)?);
                start = at + 1;
            }
            _ => {}
        }
    }
    words.push(list.get(start..)?);
    words.retain(|word| !word.is_empty());
    (!inside).then_some(words)
}

/// The names of one word: `rack[0-1]n[01-16]` has 32.
fn names(word: &str) -> Option<Vec<String>> {
    let mut names = vec![String::new()];
    let mut rest = word;
    // Slurm takes nothing behind the last bracket.
    if word.contains('[') && !word.ends_with(']') {
        return None;
    }
    while let Some((before, behind)) = rest.split_once('[') {
        let (ranges, behind) = behind.split_once(']')?;
        let numbers = numbers(ranges)?;
        names = names
            .iter()
            .flat_map(|name| numbers.iter().map(move |number| format!("{name}{before}{number}")))
            .take(MOST_NODES)
            .collect();
        rest = behind;
    }
    for name in &mut names {
        name.push_str(rest);
    }
    Some(names)
}

/// The numbers of `01-16,20`, as wide as the first of each range is written.
fn numbers(ranges: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(first) || !is_number(last) {
            return None;
        }
        let (from, to) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        if from > to {
            return None;
        }
        let width = first.len();
        all.extend((from..=to).take(MOST_NODES).map(|number| format!("{number:0width$}")));
        all.truncate(MOST_NODES);
    }
    Some(all)
}

/// The shortest list of these names, which keep their order: `gpu[01-16],big1`.
pub(crate) fn folded(names: &[impl AsRef<str>]) -> String {
    let mut runs: Vec<Run> = Vec::new();
    for name in names {
        let next = Run::of(name.as_ref());
        match runs.last_mut().filter(|run| run.is_before(&next)) {
            Some(run) => run.last = next.last,
            None => runs.push(next),
        }
    }
    let same = |a: &Run, b: &Run| a.width > 0 && (a.prefix, a.width) == (b.prefix, b.width);
    runs.chunk_by(same).map(joined).collect::<Vec<_>>().join(",")
}

/// Names that differ in the number at their end, which rises by one.
struct Run<'a> {
    prefix: &'a str,
    /// Digits of the number, if leading zeros make that matter; 0 where there is no number.
    width: usize,
    first: u64,
    last: u64,
}

impl<'a> Run<'a> {
    fn of(name: &'a str) -> Run<'a> {
        let prefix = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let digits = name.get(prefix.len()..).unwrap_or_default();
        match digits.parse() {
            Ok(number) => Run { prefix, width: digits.len(), first: number, last: number },
            Err(_) => Run { prefix: name, width: 0, first: 0, last: 0 },
        }
    }

    fn is_before(&self, next: &Run) -> bool {
        let is_next = self.last.checked_add(1) == Some(next.first);
        is_next && self.width > 0 && (self.prefix, self.width) == (next.prefix, next.width)
    }
}

/// Runs of one prefix and width in brackets.
fn joined(runs: &[Run]) -> String {
    let number = |number: u64, width: usize| format!("{number:0width$}");
    let range = |run: &Run| match run.first == run.last {
        true => number(run.first, run.width),
        false => format!("{}-{}", number(run.first, run.width), number(run.last, run.width)),
    };
    let Some(first) = runs.first() else { return String::new() };
    let ranges: Vec<String> = runs.iter().map(range).collect();
    match (first.width, ranges.as_slice()) {
        (0, _) => first.prefix.to_owned(),
        (_, [one]) if first.first == first.last => format!("{}{one}", first.prefix),
        _ => format!("{}[{}]", first.prefix, ranges.join(",")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folded_lists_expand_to_the_same_names() {
        for (names, expected) in [
            (&["a"][..], "a"),
            (&["gpu1", "gpu2", "gpu3"], "gpu[1-3]"),
            (&["gpu08", "gpu09", "gpu10", "gpu20", "big1"], "gpu[08-10,20],big1"),
            (&["gpu9", "gpu10"], "gpu9,gpu10"),
            (&["a", "b"], "a,b"),
            (&["r0n1", "r0n2", "r1n1"], "r0n[1-2],r1n1"),
            (
                &["n18446744073709551615", "n18446744073709551616"],
                "n18446744073709551615,n18446744073709551616",
            ),
        ] {
            assert_eq!(folded(names), expected);
            assert_eq!(hosts(expected), names);
        }
        assert_eq!(folded(&[""; 0]), "");
    }

    /// What `scontrol show hostnames` of 22.05 prints.
    #[test]
    fn lists_are_expanded_as_slurm_expands_them() {
        for (list, expected) in [
            ("a", "a"),
            ("a,b-1.x", "a b-1.x"),
            ("gpu[1-3]", "gpu1 gpu2 gpu3"),
            ("gpu[08-11,20],big1", "gpu08 gpu09 gpu10 gpu11 gpu20 big1"),
            ("r[0-1]n[1-2]", "r0n1 r0n2 r1n1 r1n2"),
            ("a[98-101]", "a98 a99 a100 a101"),
            ("a,,b", "a b"),
            ("n[001]", "n001"),
        ] {
            assert_eq!(hosts(list).join(" "), expected, "{list}");
        }
    }

    #[test]
    fn what_is_no_list_has_no_names() {
        for list in
            ["", "n[1-2]-ib", "a[", "a]", "a[1", "a[1-]", "a[2-1]", "a[x]", "a[[1]]", "a[]", ","]
        {
            assert_eq!(hosts(list), [""; 0], "{list}");
        }
    }

    #[test]
    fn a_mistyped_range_does_not_fill_the_memory() {
        assert_eq!(hosts("a[0-18446744073709551614]").len(), MOST_NODES);
        assert_eq!(hosts("a[0-999999]b[0-999999]").len(), MOST_NODES);
    }
}
