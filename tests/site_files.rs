//! The files in etc/ and the documentation against the table of keys.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

use std::fs;
use std::path::{Path, PathBuf};

use gpubind_core::site::{
    EffectiveSettings, JobInfo, KEYS, Origin, PlugstackArgs, Scope, SiteFile, TomlForm,
};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The file with every setting switched on: a `#` with no blank behind it marks one.
fn uncommented(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.is_empty() && !rest.starts_with(' ') => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn parse(text: &str) -> SiteFile {
    SiteFile::parse(text, Path::new("etc/gpubind.toml")).unwrap()
}

#[test]
fn the_site_file_that_is_installed_says_nothing() {
    let file = parse(&read("etc/gpubind.toml"));
    assert_eq!(file, SiteFile::default());
}

#[test]
fn the_site_file_names_every_key_with_its_built_in_value() {
    let text = uncommented(&read("etc/gpubind.toml"));
    let file = parse(&text);
    let effective = EffectiveSettings::new(file.layers(&JobInfo::default()));
    let built_in = EffectiveSettings::new([]);
    let mut lines = Vec::new();
    for (value, built_in) in effective.values().iter().zip(built_in.values()) {
        let name = value.key.name;
        if value.key.scope == Scope::Plugstack {
            assert!(!text.contains(&format!("\n{name} =")), "{name} belongs to plugstack.conf");
            continue;
        }
        assert_eq!(value.text, built_in.text, "{name}");
        let Origin::File { line, .. } = value.origin else {
            panic!("{name} is missing from etc/gpubind.toml");
        };
        lines.push(line);
        let form = match value.key.toml_form() {
            TomlForm::Text => format!("{name} = \"{}\"", value.text),
            TomlForm::Number => format!("{name} = {}", value.text),
            TomlForm::List => format!("{name} = []"),
        };
        assert_eq!(text.lines().nth(line - 1), Some(form.as_str()));
        // A reason, and where there are words, each of them, stand above.
        let about = text.lines().collect::<Vec<_>>()[..line - 1].join("\n");
        let about = about.rsplit("\n\n").next().unwrap().to_owned();
        assert!(about.contains("Change it"), "{name} has no reason to change it: {about}");
        // What on and off mean goes without saying.
        let words = value.key.words();
        let words = if words == ["on", "off"] { Vec::new() } else { words };
        assert!(words.iter().all(|word| about.contains(word)), "{name}: {about}");
    }
    assert!(lines.is_sorted(), "the file has the table's order");
    assert_eq!(file.partitions().collect::<Vec<_>>(), ["interactive"]);
}

#[test]
fn the_plugstack_file_names_every_argument_with_its_built_in_value() {
    let text = read("etc/plugstack.conf.d/zz-gpubind.conf");
    let words: Vec<&str> = text.split_whitespace().collect();
    for key in &KEYS {
        let word = format!("{}={}", key.name, key.default);
        assert!(words.contains(&word.as_str()), "no {word}");
    }
    let found = gpubind::slurm::PlugstackFile::read(
        &PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("etc/plugstack.conf.d/zz-gpubind.conf"),
    );
    let [line] = &found.plugins[..] else { panic!("one line that loads a plugin: {found:?}") };
    assert!(line.is_gpubind() && !line.required);
    let args = line.args.iter().map(String::as_str);
    let (args, errors) = PlugstackArgs::read(args, &Origin::Plugstack(None));
    assert_eq!((args, errors), (PlugstackArgs::default(), vec![]));
}

/// The table of keys as docs/site-policy.md has it.
fn table() -> String {
    let mut table = "| key | value | built-in | what |\n|---|---|---|---|\n".to_owned();
    for key in &KEYS {
        let value = match key.placeholder() {
            words if words.contains('|') => words.replace('|', ", "),
            other => other,
        };
        let default = if key.default.is_empty() { "none" } else { key.default };
        let name = match key.scope {
            Scope::PerJob => format!("`{}`", key.name),
            Scope::PerNode => format!("`{}` ¹", key.name),
            Scope::Plugstack => format!("`{}` ²", key.name),
        };
        table += &format!("| {name} | {value} | {default} | {} |\n", key.what);
    }
    table
}

#[test]
fn the_documentation_has_the_table_of_keys() {
    let docs = read("docs/site-policy.md");
    assert!(docs.contains(&table()), "docs/site-policy.md lacks this table:\n{}", table());
}

#[test]
fn the_documentations_examples_are_valid() {
    let docs = read("docs/site-policy.md");
    let blocks: Vec<&str> =
        docs.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        assert_ne!(parse(block), SiteFile::default(), "{block}");
    }
    let line = docs.lines().find(|line| line.starts_with("optional spank_gpubind.so ")).unwrap();
    let (_, errors) = PlugstackArgs::read(line.split(' ').skip(2), &Origin::Plugstack(None));
    assert_eq!(errors, []);
}
