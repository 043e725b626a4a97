//! No dependency goes round in a ring: neither between the crates of the workspace, nor
//! between the folders of a crate, nor between its files.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

mod source_support;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use proc_macro2::TokenTree;
use serde_json::Value;
use source_support::{CRATES, Module, Name, modules, modules_of_text};

/// Who needs whom.
type Needs = BTreeMap<String, BTreeSet<String>>;

/// The modules of a crate, by their paths.
struct Crate<'m> {
    modules: &'m [Module],
}

impl<'m> Crate<'m> {
    fn module(&self, path: &[String]) -> Option<&'m Module> {
        self.modules.iter().find(|module| module.path == path)
    }

    /// The path from the crate's root; `None` for one that leads to another crate.
    fn absolute(&self, from: &Module, path: &[String]) -> Option<Vec<String>> {
        let mut base = match path.first()?.as_str() {
            "crate" => vec![from.path[0].clone()],
            "self" | "super" => from.path.clone(),
            name if from.names.contains_key(name) || self.child(from, name).is_some() => {
                let path = [&from.path[..], path].concat();
                return Some(path);
            }
            _ => return None,
        };
        let mut rest = &path[usize::from(path[0] != "super")..];
        while rest.first().is_some_and(|word| word == "super") {
            base.pop();
            rest = &rest[1..];
        }
        Some([&base[..], rest].concat())
    }

    fn child(&self, from: &Module, name: &str) -> Option<&'m Module> {
        self.module(&[&from.path[..], &[name.to_owned()]].concat())
    }

    /// The module that defines what a path names, whatever has handed it on.
    fn definer(&self, path: &[String], depth: usize) -> Option<&'m Module> {
        let longest = (1..=path.len()).rev().find_map(|length| {
            let module = self.module(&path[..length])?;
            Some((module, &path[length..]))
        });
        let (module, rest) = longest?;
        let Some(name) = rest.first() else { return Some(module) };
        let through = match module.names.get(name) {
            Some(Name::Use { path, .. }) if depth < 20 => self.absolute(module, path),
            _ => None,
        };
        match through {
            Some(path) if path[..] != [&module.path[..], &rest[..1]].concat()[..] => {
                self.definer(&path, depth + 1)
            }
            _ => Some(module),
        }
    }

    /// For each file, the files that define what it uses. Not what a folder's own mod.rs
    /// hands on to others, and not what a file takes from the mod.rs above it: that says
    /// what its folder is about.
    fn needs(&self) -> Needs {
        let mut needs = Needs::new();
        for module in self.modules {
            let of = needs.entry(module.file.clone()).or_default();
            for path in used(module) {
                let Some(path) = self.absolute(module, &path) else { continue };
                let Some(definer) = self.definer(&path, 0) else { continue };
                let is_above = module.path.starts_with(&definer.path);
                if definer.file != module.file && !is_above {
                    of.insert(definer.file.clone());
                }
            }
        }
        needs
    }
}

/// The paths that a module's code uses.
fn used(module: &Module) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for name in module.names.values() {
        if let Name::Use { path, public: false, .. } = name {
            paths.push(path.clone());
        }
    }
    in_code(&module.code, &mut paths);
    paths
}

/// Paths such as `crate::words::count` in tokens.
fn in_code(tokens: &[TokenTree], paths: &mut Vec<Vec<String>>) {
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Group(group) => {
                in_code(&group.stream().into_iter().collect::<Vec<_>>(), paths);
            }
            TokenTree::Ident(word) => {
                let mut path = vec![word.to_string()];
                while let [TokenTree::Punct(one), TokenTree::Punct(two), TokenTree::Ident(next)] =
                    tokens.get(at..at + 3).unwrap_or_default()
                {
                    if one.as_char() != ':' || two.as_char() != ':' {
                        break;
                    }
                    path.push(next.to_string());
                    at += 3;
                }
                if path.len() > 1 {
                    paths.push(path);
                }
            }
            _ => {}
        }
    }
}

/// The same between folders: what files of one need of files of another that is not
/// inside or around it.
fn of_folders(files: &Needs) -> Needs {
    let folder = |file: &str| file.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
    let mut needs = Needs::new();
    for (file, others) in files {
        let own = folder(file);
        for other in others.iter().map(|other| folder(other)) {
            let is_inside = |a: &str, b: &str| a == b || a.starts_with(&format!("{b}/"));
            if !is_inside(&own, &other) && !is_inside(&other, &own) {
                needs.entry(own.clone()).or_default().insert(other);
            }
        }
    }
    needs
}

/// The rings, each as the names on it.
fn rings(needs: &Needs) -> Vec<String> {
    // What stays when all that need nothing, or that nobody needs, are taken away.
    let mut left = needs.clone();
    loop {
        let names: BTreeSet<String> = left.keys().cloned().collect();
        let needed: BTreeSet<String> = left.values().flatten().cloned().collect();
        let before = left.len();
        for others in left.values_mut() {
            others.retain(|other| names.contains(other));
        }
        left.retain(|name, others| !others.is_empty() && needed.contains(name));
        if left.len() == before {
            break;
        }
    }
    let line = |(name, others): (&String, &BTreeSet<String>)| {
        format!("{name} -> {}", others.iter().cloned().collect::<Vec<_>>().join(", "))
    };
    left.iter().map(line).collect()
}

#[test]
fn no_files_and_no_folders_need_each_other() {
    let mut wrong = Vec::new();
    for (name, file) in CRATES {
        let modules = modules(name, file);
        let files = Crate { modules: &modules }.needs();
        wrong.extend(rings(&files));
        wrong.extend(rings(&of_folders(&files)));
    }
    assert!(wrong.is_empty(), "a type is in the wrong file:\n{}", wrong.join("\n"));
}

#[test]
fn no_crates_need_each_other() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version=1", "--locked", "--offline", "--no-deps"]);
    let output = cargo.current_dir(source_support::root()).output().unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut needs = Needs::new();
    for package in metadata["packages"].as_array().unwrap() {
        let of = needs.entry(package["name"].as_str().unwrap().to_owned()).or_default();
        // Tests may come back to what they test.
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let own = dependencies.filter(|it| it["kind"] != "dev" && !it["path"].is_null());
        of.extend(own.map(|it| it["name"].as_str().unwrap().to_owned()));
    }
    assert!(needs["spank-gpubind"].contains("gpubind-core"));
    assert_eq!(rings(&needs), [""; 0]);
    // The plugin's side knows nothing of the program's.
    for name in ["gpubind-core", "gpubind-shim-core", "spank-gpubind", "gpubind-worker"] {
        for other in ["gpubind", "gpubind-machine", "gpubind-topo-text"] {
            assert!(!needs[name].contains(other), "{name} needs {other}");
        }
    }
}

/// The judge itself.
#[test]
fn a_ring_is_found_through_what_hands_names_on() {
    let text = "
        mod a { use super::Thing; pub fn f(_: Thing) {} }
        mod b { pub struct Thing; fn g() { super::a::f(Thing) } }
        pub use b::Thing;
    ";
    let mut modules = modules_of_text("x", text);
    for module in &mut modules {
        module.file = module.path.join("/");
    }
    let needs = Crate { modules: &modules }.needs();
    assert_eq!(rings(&needs), ["x/a -> x/b", "x/b -> x/a"]);
    let folders = Needs::from([
        ("x/one/a.rs".to_owned(), BTreeSet::from(["x/two/b.rs".to_owned()])),
        ("x/two/c.rs".to_owned(), BTreeSet::from(["x/one/d.rs".to_owned()])),
    ]);
    assert_eq!(rings(&of_folders(&folders)), ["x/one -> x/two", "x/two -> x/one"]);
}
