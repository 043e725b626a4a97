//! Many nodes at a glance: a line for each, and nodes that say the same in one.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use super::message::{Finding, Level};
use crate::cli::input::{self, Input, InputError};
use crate::slurm::folded;
use gpubind_core::words::count;

/// A line's most bytes. slurmstepd passes output on in messages of 1,024 bytes
/// (MAX_MSG_LEN in src/slurmd/slurmstepd/io.c) and cuts longer lines.
const LINE: usize = 900;

/// The levels that a line can have; a note is nothing to do.
const LEVELS: [Level; 3] = [Level::Ok, Level::Warning, Level::Broken];

/// Why lines are not folded.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    #[error(transparent)]
    Open(#[from] InputError),
    #[error(
        "{path} has no line of a node; write: srun … gpubind check --brief | gpubind check --fold"
    )]
    Nothing { path: String },
}

/// One line: the node, and ok or all that is wrong. The node's name is not in what it
/// says, so that nodes with the same fault say the same.
pub fn line(findings: &[Finding], host: &str) -> String {
    let mut wrong: Vec<&Finding> =
        findings.iter().filter(|finding| finding.level >= Level::Warning).collect();
    // The worst first, each level in the order of the checks.
    wrong.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    let said = wrong.iter().map(|Finding { check, level, found, .. }| {
        let found: Vec<&str> =
            found.split(' ').map(|word| if word == host { "this node" } else { word }).collect();
        format!("{}: {check}: {}", level.word(), found.join(" "))
    });
    let said: Vec<String> = said.collect();
    let mut text = match said.is_empty() {
        true => format!("{host}: {}", Level::Ok.word()),
        false => format!("{host}: {}", said.join("; ")),
    };
    if text.len() > LINE {
        let end = (0..=LINE).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Nodes that say the same.
struct Group<'a> {
    level: Level,
    said: &'a str,
    nodes: Vec<&'a str>,
}

/// Reads the lines of many nodes (- for standard input), prints each text once with the
/// nodes that say it, the worst first, and gives back the worst level and a sum. Other
/// lines are skipped, and so is what `srun --label` puts before each.
///
/// # Errors
/// [`FoldError`], as an I/O error of its own kind where the output cannot be written.
pub fn fold(path: &Path, out: &mut dyn Write) -> Result<io::Result<(Level, String)>, FoldError> {
    let Input { name, text } = input::read(path)?;
    let groups = groups(&text);
    let Some(worst) = groups.first().map(|group| group.level) else {
        return Err(FoldError::Nothing { path: name });
    };
    let nodes = |level: Option<Level>| {
        let of = groups.iter().filter(|group| level.is_none_or(|level| group.level == level));
        of.map(|group| group.nodes.len()).sum::<usize>()
    };
    let [ok, warning, broken] = LEVELS.map(|level| nodes(Some(level)));
    let sum = format!(
        "{}: {ok} ok, {warning} with warnings, {broken} broken",
        count(nodes(None), "node")
    );
    let written = groups
        .iter()
        .try_for_each(|group| writeln!(out, "{}: {}", folded(&group.nodes), group.said));
    Ok(written.map(|()| (worst, sum)))
}

fn groups(text: &str) -> Vec<Group<'_>> {
    let mut nodes: BTreeMap<&str, (Level, &str)> = BTreeMap::new();
    for (node, level, said) in text.lines().filter_map(of_node) {
        nodes.insert(node, (level, said));
    }
    let mut groups: Vec<Group> = Vec::new();
    for (node, (level, said)) in nodes {
        match groups.iter_mut().find(|group| group.said == said) {
            Some(group) => group.nodes.push(node),
            None => groups.push(Group { level, said, nodes: vec![node] }),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse((group.level, group.nodes.len())));
    groups
}

/// The node, how it is, and what it says.
fn of_node(line: &str) -> Option<(&str, Level, &str)> {
    let (mut node, mut rest) = line.split_once(": ")?;
    loop {
        let word = rest.split(':').next()?.trim_end();
        if let Some(level) = LEVELS.into_iter().find(|level| level.word() == word) {
            return Some((node.trim(), level, rest.trim_end()));
        }
        // What stood there was a label of srun's.
        (node, rest) = rest.split_once(": ").filter(|_| node.trim().parse::<u32>().is_ok())?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(level: Level, check: &'static str, found: &str) -> Finding {
        Finding { check, level, found: found.to_owned(), advice: None }
    }

    #[test]
    fn a_line_says_ok_or_all_that_is_wrong_the_worst_first() {
        let note = finding(Level::Note, "cgroup", "not on");
        assert_eq!(line(&[finding(Level::Ok, "nvml", "8 GPUs"), note], "n1"), "n1: ok");
        let wrong = [
            finding(Level::Warning, "snapshot", "none yet"),
            finding(Level::Broken, "gres-count", "slurm.conf gives n1 8 GPUs, not 7"),
        ];
        let expected = "n1: broken: gres-count: slurm.conf gives this node 8 GPUs, not 7; \
                        warning: snapshot: none yet";
        assert_eq!(line(&wrong, "n1"), expected);
        let long = line(&[finding(Level::Broken, "nvml", &"é".repeat(2_000))], "n1");
        assert!(long.len() <= LINE + '…'.len_utf8() && long.ends_with('…'));
    }

    #[test]
    fn nodes_that_say_the_same_are_one_group() {
        let text = "n1: ok\n 0: n3: ok\nsrun: error: n9: task 3: Exited with exit code 1\n\
                    n2: warning: snapshot: none: yet\n12: n4: broken: nvml: gone\nn1: ok\n";
        let groups = groups(text);
        let shown: Vec<(String, &str)> =
            groups.iter().map(|group| (folded(&group.nodes), group.said)).collect();
        let expected = [
            ("n4".to_owned(), "broken: nvml: gone"),
            ("n2".to_owned(), "warning: snapshot: none: yet"),
            ("n[1,3]".to_owned(), "ok"),
        ];
        assert_eq!(shown, expected);
    }
}
