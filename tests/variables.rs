//! The names of environment variables are in one file, shim-core/src/variables.rs: all
//! other code uses its constants, so that docs/variables.md is complete.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

mod source_support;

use std::collections::BTreeSet;

use gpubind_core::variables::VARIABLES;
use source_support::{CRATES, literals, modules, modules_of_text};

const TABLE: &str = "shim-core/src/variables.rs";

/// Literals that are a variable's name by chance: the word for a value that is a path.
const OTHERS: [(&str, &str); 1] = [("core/src/site/keys.rs", "PATH")];

/// What is compiled into something that is installed.
fn is_shipped(file: &str) -> bool {
    !file.starts_with("tests/") && !file.starts_with("docs/")
}

#[test]
fn variables_are_named_in_one_file_only() {
    let mut wrong = Vec::new();
    let mut named = 0;
    for (name, file) in CRATES.into_iter().filter(|(_, file)| is_shipped(file)) {
        for module in modules(name, file) {
            let mut found = Vec::new();
            literals(&module.code, &mut found);
            for (text, line) in found {
                let text = text.trim_end_matches('=');
                if !VARIABLES.iter().any(|variable| variable.name == text) {
                    continue;
                }
                if module.file == TABLE {
                    named += 1;
                } else if !OTHERS.contains(&(module.file.as_str(), text)) {
                    wrong.push(format!("{}:{line}: {text}", module.file));
                }
            }
        }
    }
    assert_eq!(named, VARIABLES.len(), "each name once");
    assert!(wrong.is_empty(), "use the constants of {TABLE}:\n{}", wrong.join("\n"));
}

#[test]
fn every_variable_is_used() {
    // A constant's name is searched in all code, since macros use some.
    let all: Vec<String> = CRATES
        .into_iter()
        .filter(|(_, file)| is_shipped(file))
        .flat_map(|(name, file)| modules(name, file))
        .filter(|module| module.file != TABLE)
        .flat_map(|module| module.code.iter().map(ToString::to_string).collect::<Vec<_>>())
        .collect();
    let all = all.join(" ");
    let words: BTreeSet<&str> =
        all.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
    let table = modules("gpubind_shim_core", "shim-core/src/lib.rs");
    let table = table.iter().find(|module| module.file == TABLE).unwrap();
    let text: Vec<String> = table.code.iter().map(ToString::to_string).collect();
    let text = text.join(" ");
    let unused: Vec<&str> = VARIABLES
        .iter()
        .filter_map(|variable| {
            let (before, _) = text.split_once(&format!("= \"{}\"", variable.name))?;
            let constant = before.trim_end().rsplit(' ').next()?;
            (!words.contains(constant)).then_some(constant)
        })
        .collect();
    assert!(unused.is_empty(), "no code uses: {unused:?}");
}

#[test]
fn literals_are_found_wherever_they_stand() {
    let text = "fn a() { b(&[\"X=\"]); c!(d = b\"Y\", r#\"Z\"#) }
        #[cfg(test)] mod tests { const T: &str = \"T\"; }";
    let mut found = Vec::new();
    literals(&modules_of_text("a", text)[0].code, &mut found);
    let texts: Vec<&str> = found.iter().map(|(text, _)| text.as_str()).collect();
    assert_eq!(texts, ["X=", "Y", "Z"]);
}
