//! docs/troubleshooting.md against the sources: each message that a user or an admin can
//! see has a row there. Messages are found by where they stand in the sources, so a new
//! one is missed by nobody. The table of `gpubind check` is generated: see docs/generate.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

use std::fs;
use std::path::{Path, PathBuf};

use gpubind::cli::check_messages;

/// What stands before the text of a message.
const MARKS: [&str; 11] = [
    "#[error(",
    "log::error(",
    "log::user(",
    "problem(",
    "and_say(",
    "once.push(",
    "eprintln!(",
    " say(",
    "refuse(",
    "complain(",
    " warn(",
];

/// Files whose other texts are shown as well, by way of a value: what `report --check`
/// finds, why NVML fails, and notes for slurmd's debug log.
const ALL_TEXTS: [&str; 4] = [
    "src/cli/report/alone.rs",
    "src/cli/report/check.rs",
    "core/src/step/allocation.rs",
    "src/nvml/mod.rs",
];

/// Files with many similar messages, and what the one row says that stands for all.
const GROUPS: [(&str, &str); 9] = [
    ("src/cli/site_policy.rs", "without effect: WHY"),
    ("src/slurm/gres_rules.rs", "slurmd does not start: gres.conf, WHY"),
    ("topo-text/src/error.rs", "FILE: line N, row GPU0: …, and the like"),
    ("machine/src/", "FILE: line N: … (a machine file, .toml)"),
    ("core/src/node/check.rs", "the snapshot contradicts itself: …"),
    ("core/src/node/id_set.rs", "… is not a CPU number or a range like 0-15"),
    ("core/src/step/cpu_bind.rs", "SLURM_CPU_BIND_LIST: …; CPU sets are unknown"),
    ("src/cli/plan/cpus_error.rs", "--cpus: …, --cpu-bind: …, --cpus-per-task: …"),
    ("src/cli/plan/devices.rs", "--devices: …"),
];

/// One message of the sources.
struct Message {
    file: String,
    template: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

fn messages() -> Vec<Message> {
    let mut files = Vec::new();
    let folders = ["src", "core/src", "machine/src", "shim-core/src", "topo-text/src", "spank/src"];
    for folder in folders {
        sources(&root().join(folder), &mut files);
    }
    files.sort();
    let mut all = Vec::new();
    for path in files {
        let file = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        // Tests stand at the end of a file.
        // Not at one that is in a file of its own.
        let mut tests = text.match_indices("#[cfg(test)]\nmod ").map(|(at, _)| &text[at..]);
        let tests = tests.find(|rest| rest.lines().nth(1).is_some_and(|line| line.ends_with('{')));
        let code = &text[..text.len() - tests.map_or(0, str::len)];
        let code: String = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .flat_map(|line| [line, "\n"])
            .collect();
        let more: &[&str] = match ALL_TEXTS.contains(&file.as_str()) {
            true => &["format!(", "push(", "=> ", "Err(", "Some(", "then(|| "],
            false if file == "core/src/request/command_line.rs" => &["f,"],
            false if file == "core/src/request/grammar.rs" => &["=> format!("],
            // The plugin's diagnostics are in slurmd's log.
            false if file.starts_with("spank/") => &["tracing::debug!(", "tracing::info!("],
            false => &[],
        };
        for mark in MARKS.iter().chain(more) {
            for (at, _) in code.match_indices(mark) {
                if let Some(template) = literal(&code[at + mark.len()..]) {
                    all.push(Message { file: file.clone(), template });
                }
            }
        }
    }
    all
}

/// The text that begins here, perhaps in a `format!`.
fn literal(code: &str) -> Option<String> {
    let mut rest = code.trim_start();
    for before in ["&", "{", "format!(", "("] {
        rest = rest.strip_prefix(before).unwrap_or(rest).trim_start();
    }
    let mut letters = rest.strip_prefix('"')?.chars().peekable();
    let mut text = String::new();
    loop {
        match letters.next()? {
            '"' => return Some(text),
            '\\' => match letters.next()? {
                '\n' => while letters.next_if(|letter| letter.is_whitespace()).is_some() {},
                'n' => text.push('\n'),
                other => text.push(other),
            },
            letter => text.push(letter),
        }
    }
}

/// A template's words between its values.
fn fragments(template: &str) -> Vec<String> {
    let mut parts = Vec::new();
    // The program's name before each of its lines.
    let mut rest = template.strip_prefix("gpubind: ").unwrap_or(template);
    while let Some((before, after)) = rest.split_once('{') {
        parts.push(before);
        rest = after.split_once('}').map_or("", |(_, rest)| rest);
    }
    parts.push(rest);
    let parts = parts.iter().map(|part| plain(part));
    parts.filter(|part| part.chars().any(char::is_alphanumeric)).collect()
}

/// Without Markdown's marks, which the messages have too.
fn plain(text: &str) -> String {
    text.replace(['`', '\\'], "").trim().to_owned()
}

fn letters(text: &str) -> usize {
    text.chars().filter(|letter| letter.is_alphabetic()).count()
}

/// Whether the cell has these parts, in this order.
fn matches(cell: &str, parts: &[String]) -> bool {
    let mut rest = cell;
    parts.iter().all(|part| match rest.split_once(part.as_str()) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

/// The first cells of the page's tables' rows.
fn rows() -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    // Before them: things that are seen without a message.
    let (_, page) = page.split_once("\n## srun, sbatch and salloc\n").unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    rows.map(|row| {
        let cells: Vec<&str> = row.split(" | ").collect();
        assert!(cells.len() == 3 || cells.len() == 4, "not a whole row: {row}");
        assert!(cells.iter().all(|cell| !cell.trim().is_empty()), "an empty cell: {row}");
        plain(cells[0])
    })
    .collect()
}

#[test]
fn each_message_of_the_sources_is_in_the_page() {
    let rows = rows();
    let messages = messages();
    assert!(messages.len() > 150, "only {} messages were found", messages.len());
    let mut missing = Vec::new();
    for Message { file, template } in &messages {
        let group = GROUPS.iter().find(|(place, _)| file.starts_with(place));
        let parts = match group {
            Some((_, row)) => vec![plain(row)],
            None => fragments(template),
        };
        // A text such as `{path}: {error}` only hands on another one.
        if letters(&parts.concat()) >= 4 && !rows.iter().any(|row| matches(row, &parts)) {
            missing.push(format!("{file}: {template}"));
        }
    }
    assert!(missing.is_empty(), "docs/troubleshooting.md lacks:\n{}", missing.join("\n"));
    for (place, _) in GROUPS {
        let has = messages.iter().any(|message| message.file.starts_with(place));
        assert!(has, "nothing is in {place} any more");
    }
}

#[test]
fn each_row_of_the_page_is_of_a_message() {
    let messages = messages();
    let known = |row: &str| {
        let group = GROUPS.iter().any(|(_, text)| plain(text) == row);
        group
            || messages.iter().any(|message| {
                let parts = fragments(&message.template);
                // More than a word that the row happens to have, too.
                3 * letters(&parts.concat()) >= letters(row) && matches(row, &parts)
            })
            || check_messages().any(|message| matches(row, &fragments(message.found)))
    };
    let gone: Vec<String> =
        rows().into_iter().filter(|row| row != "message" && !known(row)).collect();
    assert!(gone.is_empty(), "no source says any more:\n{}", gone.join("\n"));
}

#[test]
fn messages_are_found_wherever_they_stand() {
    assert_eq!(literal("\n  \"a \\\n     {b} \\\"c\\\"\", d").unwrap(), "a {b} \"c\"");
    assert_eq!(literal("&format!(\"x\"))").unwrap(), "x");
    assert_eq!(literal("&error.to_string())"), None);
    assert_eq!(fragments("{}:{line}: `{a}` needs {b}; or {c}"), ["needs", "; or"]);
    assert!(matches("a needs B; or C", &fragments("{a} needs {b}; or {c}")));
    assert!(!matches("a; or C needs B", &fragments("{a} needs {b}; or {c}")));
}
