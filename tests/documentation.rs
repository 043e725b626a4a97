//! The documentation's commands, run, and its links, followed. A block marked `console`
//! holds commands behind `$ `, each with its output; a line `...` stands for any lines.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README.md and the like, and all pages of docs/: path and text.
fn pages() -> Vec<(PathBuf, String)> {
    let mut paths = Vec::new();
    for folder in [root().to_owned(), root().join("docs")] {
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        paths.extend(files.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            (path, text)
        })
        .collect()
}

/// A command, and the lines that it is to print.
struct Shown<'a> {
    command: &'a str,
    lines: Vec<&'a str>,
}

fn shown(page: &str) -> Vec<Shown<'_>> {
    let mut all: Vec<Shown> = Vec::new();
    for block in page.split("\n```console\n").skip(1) {
        let (block, _) = block.split_once("\n```").unwrap();
        let mut of_block: Vec<Shown> = Vec::new();
        for line in block.lines() {
            match (line.strip_prefix("$ "), of_block.last_mut()) {
                (Some(command), _) => of_block.push(Shown { command, lines: Vec::new() }),
                (None, Some(last)) => last.lines.push(line),
                (None, None) => panic!("output without a command: {line}"),
            }
        }
        all.extend(of_block);
    }
    all
}

/// Whether these lines are those of the pattern, in which `...` is any number of them.
fn fits(pattern: &[&str], lines: &[&str]) -> bool {
    match pattern {
        [] => lines.is_empty(),
        ["...", rest @ ..] => (0..=lines.len()).any(|skipped| fits(rest, &lines[skipped..])),
        [first, rest @ ..] => lines.first() == Some(first) && fits(rest, &lines[1..]),
    }
}

#[test]
fn commands_in_the_documentation_print_what_is_shown() {
    let program = Path::new(env!("CARGO_BIN_EXE_gpubind"));
    let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
    let mut count = 0;
    for (page, text) in pages() {
        for Shown { command, lines } in shown(&text) {
            assert!(command.starts_with("gpubind "), "not ours to run: {command}");
            let run = Command::new("sh")
                .args(["-c", &format!("{command} 2>&1")])
                .current_dir(root())
                .env_clear()
                .env("PATH", &path)
                .output()
                .unwrap();
            let output = String::from_utf8(run.stdout).unwrap();
            let printed: Vec<&str> = output.lines().collect();
            let page = page.display();
            assert!(fits(&lines, &printed), "{page}: `{command}` fingerprints:\n{output}");
            count += 1;
        }
    }
    assert!(count >= 4, "only {count} commands");
}

#[test]
fn links_in_the_documentation_lead_somewhere_and_the_readme_to_all_pages() {
    let pages = pages();
    for (page, text) in &pages {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap();
            let target = page.parent().unwrap().join(file);
            let elsewhere = link.contains("://") || file.is_empty();
            assert!(elsewhere || target.exists(), "{}: no {link}", page.display());
        }
    }
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for (page, _) in &pages {
        let path = page.strip_prefix(root()).unwrap().to_str().unwrap();
        assert!(path == "README.md" || readme.contains(&format!("]({path})")), "no link to {path}");
    }
}

#[test]
fn dots_stand_for_any_lines_and_nothing_else_does() {
    assert!(fits(&["a", "...", "d"], &["a", "b", "c", "d"]));
    assert!(fits(&["a", "..."], &["a"]));
    assert!(!fits(&["a"], &["a", "b"]) && !fits(&["a", "b"], &["a"]) && !fits(&["a"], &["b"]));
    let page = "x\n```console\n$ one\n1\n\n$ two\n```\n";
    let shown = shown(page);
    assert_eq!((shown[0].command, &shown[0].lines[..]), ("one", &["1", ""][..]));
    assert_eq!((shown[1].command, shown[1].lines.len()), ("two", 0));
}
