//! What slurmd refuses in gres.conf, and where its GPUs differ from slurm.conf's.
//!
//! The rules are those of `_parse_gres_config`, `_validate_gres_conf`, `_merge_gres2`
//! (src/interfaces/gres.c; 22.05: src/common/gres.c) and of parse_config.c;
//! `slurmd -G` shows what they make of a file.

use std::collections::BTreeMap;

use super::gres_line::{GresLine, parse_count};
use super::lines::Line;

/// The keys of a line of gres.conf, in small letters.
const KEYS: [&str; 13] = [
    "autodetect",
    "count",
    "cores",
    "cpus",
    "file",
    "files",
    "flags",
    "link",
    "links",
    "multiplefiles",
    "name",
    "nodename",
    "type",
];
/// The keys that a line may begin with.
const FIRST_KEYS: [&str; 3] = ["autodetect", "name", "nodename"];

/// Why slurmd does not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GresRefusal {
    #[error("line {line}: Slurm knows no key `{key}` there")]
    Key { line: usize, key: String },
    #[error("line {line}: `{word}` is not KEY=VALUE")]
    Word { line: usize, word: String },
    #[error("line {line}: a line begins with Name=, NodeName= or AutoDetect=, not with {key}=")]
    FirstKey { line: usize, key: String },
    #[error("line {line}: File= and MultipleFiles= exclude each other")]
    BothFiles { line: usize },
    #[error("line {line}: Count={count} is not a number")]
    CountText { line: usize, count: String },
    #[error("line {line}: Count={count}, but File= lists {files}")]
    Count { line: usize, count: u64, files: usize },
    #[error(
        "line {with} has {key}=, line {without} has none; all lines of Name=gpu have it, or none"
    )]
    Mixed { key: &'static str, with: usize, without: usize },
    #[error(
        "lines {first} and {second}: without File= and Type=, Name=gpu may stand in one line only"
    )]
    Repeated { first: usize, second: usize },
}

/// Where gres.conf's types or counts of GPUs differ from slurm.conf's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GresTypeProblem {
    #[error("slurm.conf gives some GPUs of the node a type, and others none")]
    SlurmMixed,
    #[error("line {line} has no Type=, but slurm.conf has {types}")]
    Untyped { line: usize, types: String },
    #[error("line {line} has Type={found}, but slurm.conf has {types}")]
    Unlike { line: usize, found: String, types: String },
    #[error("{listed} of Type={kind} are listed, but slurm.conf gives {count}")]
    Fewer { kind: String, listed: u64, count: u64 },
    #[error("{listed} of Type={kind} are listed, but slurm.conf gives only {count}")]
    More { kind: String, listed: u64, count: u64 },
}

/// The first thing for which slurmd refuses the file. `lines` are all of the file's,
/// whatever node they are for: slurmd reads them all. `of_node` are the node's own.
pub fn refusal(lines: &[Line], of_node: &[GresLine]) -> Option<GresRefusal> {
    let of_lines = lines.iter().find_map(line_refusal);
    of_lines.or_else(|| of_node.iter().find_map(count_refusal)).or_else(|| mixed(of_node))
}

fn line_refusal(line: &Line) -> Option<GresRefusal> {
    let number = line.number;
    let lower = |key: &String| key.to_ascii_lowercase();
    if let Some(word) = line.stray.first() {
        return Some(GresRefusal::Word { line: number, word: word.clone() });
    }
    let keys = || line.pairs.iter().map(|(key, _)| key);
    if let Some(key) = keys().find(|key| !KEYS.contains(&lower(key).as_str())) {
        return Some(GresRefusal::Key { line: number, key: key.clone() });
    }
    let key = keys().next().filter(|key| !FIRST_KEYS.contains(&lower(key).as_str()));
    key.map(|key| GresRefusal::FirstKey { line: number, key: key.clone() })
}

fn count_refusal(line: &GresLine) -> Option<GresRefusal> {
    let number = line.number;
    if line.has_both_files {
        return Some(GresRefusal::BothFiles { line: number });
    }
    let count = line.count.as_ref()?;
    match parse_count(count) {
        None => Some(GresRefusal::CountText { line: number, count: count.clone() }),
        Some(count) if line.devices > 0 && count != line.devices as u64 => {
            Some(GresRefusal::Count { line: number, count, files: line.devices })
        }
        Some(_) => None,
    }
}

fn mixed(lines: &[GresLine]) -> Option<GresRefusal> {
    let find = |wanted: bool, has: fn(&GresLine) -> bool| {
        lines.iter().find(|line| has(line) == wanted).map(|line| line.number)
    };
    let of_key = |key, has: fn(&GresLine) -> bool| {
        let (with, without) = (find(true, has)?, find(false, has)?);
        Some(GresRefusal::Mixed { key, with, without })
    };
    let has_files: fn(&GresLine) -> bool = |line| line.devices > 0;
    let has_type: fn(&GresLine) -> bool = |line| line.kind.is_some();
    let bare = lines.iter().filter(|line| !has_files(line) && !has_type(line));
    let mut bare = bare.map(|line| line.number);
    of_key("File", has_files)
        .or_else(|| of_key("Type", has_type))
        .or_else(|| Some(GresRefusal::Repeated { first: bare.next()?, second: bare.next()? }))
}

/// How gres.conf's GPUs differ in type from slurm.conf's, as (type, count).
/// `is_detected`: AutoDetect finds the types.
pub fn type_problem(
    lines: &[GresLine],
    is_detected: bool,
    slurm: &[(Option<String>, u64)],
) -> Option<GresTypeProblem> {
    let typed: Vec<&str> = slurm.iter().filter_map(|(kind, _)| kind.as_deref()).collect();
    if typed.is_empty() {
        // Then gres.conf's types are left out.
        return None;
    }
    if typed.len() < slurm.len() {
        return Some(GresTypeProblem::SlurmMixed);
    }
    let types = || {
        let all = typed.iter().map(|kind| format!("gpu:{kind}"));
        all.collect::<Vec<_>>().join(" and ")
    };
    let mut listed: BTreeMap<&str, u64> = BTreeMap::new();
    for line in lines {
        match line.kind.as_deref() {
            Some(kind) if typed.contains(&kind) => *listed.entry(kind).or_default() += line.gpus(),
            Some(kind) => {
                let (line, found) = (line.number, kind.to_owned());
                return Some(GresTypeProblem::Unlike { line, found, types: types() });
            }
            // AutoDetect finds the type.
            None if is_detected => {}
            None => return Some(GresTypeProblem::Untyped { line: line.number, types: types() }),
        }
    }
    if is_detected || lines.is_empty() {
        return None;
    }
    let mut given: BTreeMap<&str, u64> = BTreeMap::new();
    for (kind, count) in typed.iter().zip(slurm.iter().map(|(_, count)| *count)) {
        *given.entry(kind).or_default() += count;
    }
    given.into_iter().find_map(|(kind, count)| {
        let listed = listed.get(kind).copied().unwrap_or(0);
        let kind = kind.to_owned();
        match listed.cmp(&count) {
            std::cmp::Ordering::Less => Some(GresTypeProblem::Fewer { kind, listed, count }),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(GresTypeProblem::More { kind, listed, count }),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::gres::{NodeGres, of_lines};
    use super::super::lines::Lines;
    use super::*;

    fn read(text: &str) -> (Vec<Line>, NodeGres) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gres.conf");
        std::fs::write(&file, text).unwrap();
        let lines = Lines::read(&file).unwrap().lines;
        let gres = of_lines(&lines, Some("n1"));
        (lines, gres)
    }

    fn refused(text: &str) -> String {
        let (lines, gres) = read(text);
        refusal(&lines, &gres.lines).map_or_else(String::new, |refusal| refusal.to_string())
    }

    #[test]
    fn what_slurmd_starts_with_is_not_refused() {
        for text in [
            "",
            "AutoDetect=nvml\nName=gpu\n",
            "Name=gpu Type=a File=/dev/nvidia[0-1]\nNAME=gpu type=b files=/dev/nvidia2 Count=1\n",
            "NodeName=n[1-2] Name=gpu MultipleFiles=/dev/a,/dev/b Flags=nvidia_gpu_env Link=-1,0\n",
            "NodeName=n1 AutoDetect=off\nName=gpu\nName=shard Count=8\nName=shard Count=8\n",
            "NodeName=n1 Name=gpu\nNodeName=n2 Name=gpu\n",
            "Name=gpu Count=2\n",
        ] {
            assert_eq!(refused(text), "", "{text}");
        }
    }

    #[test]
    fn what_keeps_slurmd_from_starting_is_named_with_its_line() {
        for (text, why) in [
            ("AutoDetect=nvml\nName=gpu\nName=gpu\n", "lines 2 and 3: without File= and Type="),
            ("Name=gpu File=/dev/nvidia0\nShared=no\n", "line 2: Slurm knows no key `Shared`"),
            ("Name=gpu Shared=no\n", "line 1: Slurm knows no key `Shared`"),
            ("NodeName=n2 Foo=1 Name=gpu\n", "line 1: Slurm knows no key `Foo`"),
            ("Type=x Name=gpu File=/dev/nvidia0\n", "line 1: a line begins with Name="),
            ("foo bar\n", "line 1: `foo` is not KEY=VALUE"),
            ("Name=gpu File=/dev/a MultipleFiles=/dev/b\n", "line 1: File= and MultipleFiles="),
            ("Name=gpu File=/dev/a,/dev/b Count=1\n", "line 1: Count=1, but File= lists 2"),
            ("Name=gpu Count=2x\n", "line 1: Count=2x is not a number"),
            ("Name=gpu File=/dev/a\nName=gpu Count=1\n", "line 1 has File=, line 2 has none"),
            (
                "Name=gpu File=/dev/a\nName=gpu Type=x File=/dev/b\n",
                "line 2 has Type=, line 1 has none",
            ),
        ] {
            assert!(refused(text).starts_with(why), "{text}: {}", refused(text));
        }
    }

    #[test]
    fn types_are_compared_by_case_and_count() {
        let problem = |text: &str, slurm: &[(&str, u64)]| {
            let slurm = slurm
                .iter()
                .map(|(kind, count)| ((!kind.is_empty()).then(|| (*kind).to_owned()), *count));
            let slurm: Vec<_> = slurm.collect();
            let gres = read(text).1;
            let problem = type_problem(&gres.lines, gres.autodetect.is_some(), &slurm);
            problem.map_or_else(String::new, |found| found.to_string())
        };
        let eight = [("h100", 8)];
        let typed = |kind: &str| format!("Name=gpu Type={kind} File=/dev/nvidia[0-7]\n");
        assert_eq!(problem(&typed("h100"), &eight), "");
        assert_eq!(problem(&typed("h100"), &[("", 8)]), "");
        assert_eq!(problem("", &eight), "");
        assert_eq!(problem("AutoDetect=nvml\nName=gpu\n", &eight), "");
        let (upper, other) = (problem(&typed("H100"), &eight), problem(&typed("a100"), &eight));
        assert_eq!(upper, "line 1 has Type=H100, but slurm.conf has gpu:h100");
        assert_eq!(other, "line 1 has Type=a100, but slurm.conf has gpu:h100");
        let untyped = problem("Name=gpu File=/dev/nvidia[0-7]\n", &eight);
        assert_eq!(untyped, "line 1 has no Type=, but slurm.conf has gpu:h100");
        let mixed = problem(&typed("h100"), &[("h100", 4), ("", 4)]);
        assert_eq!(mixed, "slurm.conf gives some GPUs of the node a type, and others none");
        let two = "Name=gpu Type=a File=/dev/nvidia[0-2]\nName=gpu Type=b File=/dev/nvidia3\n";
        assert_eq!(problem(two, &[("a", 3), ("b", 1)]), "");
        let fewer = problem(two, &[("a", 2), ("b", 2)]);
        assert_eq!(fewer, "3 of Type=a are listed, but slurm.conf gives only 2");
        let fewer = problem(two, &[("a", 3), ("b", 2)]);
        assert_eq!(fewer, "1 of Type=b are listed, but slurm.conf gives 2");
    }

    #[test]
    fn counts_may_have_a_suffix() {
        for (text, count) in [("4", Some(4)), ("2K", Some(2048)), ("2x", None), ("", None)] {
            assert_eq!(parse_count(text), count, "{text}");
        }
    }
}
