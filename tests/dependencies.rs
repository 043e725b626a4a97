//! The crates that gpubind is made of: each direct one is explained in
//! docs/dependencies.md, all licences allow what Apache-2.0 needs, and those that come
//! in two versions are known. Offline: asks cargo what it has already fetched.

// Helpers of tests end by panicking too.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Licences that may be combined with Apache-2.0 in a program.
const ALLOWED: [&str; 11] = [
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    // Per file: applies to changes to the crate's own files, of which there are none.
    "MPL-2.0",
];

/// What is installed.
const SHIPPED: [&str; 3] = ["gpubind", "spank-gpubind", "gpubind-worker"];

/// Crates of which the shipped programs' sources hold two versions, and the crate that
/// brings the older one.
const TWICE: [(&str, &str); 5] = [
    ("linux-raw-sys", "rustix"),
    ("rustix", "crossterm"),
    ("syn", "thiserror-impl"),
    ("thiserror", "nvml-wrapper"),
    ("thiserror-impl", "thiserror"),
];

fn metadata() -> Value {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version=1", "--locked", "--offline"]);
    cargo.args(["--filter-platform", "x86_64-unknown-linux-gnu"]);
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn every_direct_dependency_is_explained() {
    let metadata = metadata();
    let members: BTreeSet<&str> =
        metadata["workspace_members"].as_array().unwrap().iter().map(text).collect();
    let packages = metadata["packages"].as_array().unwrap();
    let own = packages.iter().filter(|package| members.contains(text(&package["id"])));
    let dependencies = own.flat_map(|package| package["dependencies"].as_array().unwrap());
    // Those with a path are our own.
    let foreign = dependencies.filter(|dependency| dependency["path"].is_null());
    let used: BTreeSet<&str> = foreign.map(|dependency| text(&dependency["name"])).collect();

    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/dependencies.md");
    let page = std::fs::read_to_string(page).unwrap();
    let explained: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(explained, used);
}

#[test]
fn every_licence_is_compatible() {
    let metadata = metadata();
    for package in metadata["packages"].as_array().unwrap() {
        let (name, licence) = (text(&package["name"]), text(&package["license"]));
        assert!(allowed(licence), "{name} has the licence {licence:?}");
    }
    // The judge itself.
    assert!(allowed("(MIT OR GPL-3.0) AND Unicode-3.0") && allowed("GPL-2.0/MIT"));
    assert!(allowed("Apache-2.0 WITH LLVM-exception OR GPL-2.0"));
    assert!(!allowed("") && !allowed("GPL-3.0") && !allowed("MIT AND GPL-3.0"));
    assert!(!allowed("(MIT OR ISC) AND GPL-3.0"));
}

/// Whether an SPDX expression leaves a choice that is allowed. Old crates write `/`
/// for `OR`.
fn allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    !words.is_empty() && any_of(&words, &mut at) && at == words.len()
}

fn any_of(words: &[&str], at: &mut usize) -> bool {
    let mut good = all_of(words, at);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        good |= all_of(words, at);
    }
    good
}

fn all_of(words: &[&str], at: &mut usize) -> bool {
    let mut good = one(words, at);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        good &= one(words, at);
    }
    good
}

fn one(words: &[&str], at: &mut usize) -> bool {
    let word = words.get(*at).copied().unwrap_or_default();
    *at += 1;
    if word == "(" {
        let good = any_of(words, at);
        // The closing one.
        *at += 1;
        return good;
    }
    if words.get(*at) == Some(&"WITH") {
        // An exception only ever permits more.
        *at += 2;
    }
    ALLOWED.contains(&word)
}

#[test]
fn crates_in_two_versions_are_known() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let package = |id: &str| packages.iter().find(|package| package["id"] == id).unwrap();
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let mut open: Vec<&str> = packages
        .iter()
        .filter(|package| SHIPPED.contains(&text(&package["name"])))
        .map(|package| text(&package["id"]))
        .collect();
    assert_eq!(open.len(), SHIPPED.len());
    let mut seen = BTreeSet::new();
    let mut users: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let node = nodes.iter().find(|node| node["id"] == id).unwrap();
        for dependency in node["deps"].as_array().unwrap() {
            // Not those for tests, nor for build scripts.
            let kinds = dependency["dep_kinds"].as_array().unwrap();
            if kinds.iter().any(|kind| kind["kind"].is_null()) {
                let used = text(&dependency["pkg"]);
                open.push(used);
                let key = (text(&package(used)["name"]), text(&package(used)["version"]));
                users.entry(key).or_default().insert(text(&package(id)["name"]));
            }
        }
    }
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, version) in users.keys() {
        versions.entry(name).or_default().push(version);
    }
    let twice: Vec<_> = versions.iter().filter(|(_, versions)| versions.len() > 1).collect();
    let names: Vec<&str> = twice.iter().map(|(name, _)| **name).collect();
    assert_eq!(names, TWICE.map(|(name, _)| name), "of all: {versions:?}");
    for (name, user) in TWICE {
        let of_it = users.iter().filter(|((used, _), _)| *used == name);
        let named = of_it.flat_map(|(_, users)| users).any(|one| *one == user);
        assert!(named, "{user} does not use {name}");
    }
}

/// What root's daemons load is a short list, and each crate on it is named with its reason.
#[test]
fn what_can_run_as_root_is_named_and_short() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "-p", "spank-gpubind", "-e", "normal", "--prefix", "none"]);
    cargo.args(["--locked", "--offline", "--target", "x86_64-unknown-linux-gnu"]);
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let lines: BTreeSet<&str> = tree.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines.len() <= 45, "{} lines: {lines:?}", lines.len());
    let crates: BTreeSet<&str> =
        lines.iter().filter_map(|line| line.split_whitespace().next()).collect();

    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/dependencies.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("## What can run as root").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let named: BTreeSet<&str> = rows.filter(|name| *name != "crate").collect();
    assert_eq!(named, crates);
}
