//! docs/unsafe.md: every block of unsafe code with its reason, from the comments beside
//! them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::WriteError;

/// The crates whose code is installed, and where each runs.
const CRATES: [(&str, &str); 7] = [
    (
        "spank",
        "the plugin: slurmd and slurmstepd as root, srun, sbatch, salloc and tasks as the user",
    ),
    ("core", "the same, and the program"),
    ("shim-core", "the plugin, the program and the shim"),
    ("worker", "the shim: any program below a task, as the user"),
    ("src", "the program, as whoever calls it"),
    ("machine", "the program, reading a machine's description"),
    ("topo-text", "the program, reading pasted text"),
];

const HEAD: &str = "\
# Unsafe code

Each `unsafe` block of what is installed, with the reason why it is sound. Made by
`cargo run -p gpubind-docs -- --pages docs` from the comments in the sources; a test
compares, so that none is added without a line here. Where Rust's safe interfaces and
`rustix` have what is needed, there is none.
";

/// A block, and why it is sound.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    file: String,
    reason: String,
}

fn page(root: &Path) -> io::Result<String> {
    let mut page = HEAD.to_owned();
    for (name, place) in CRATES {
        let folder = if name == "src" { root.join(name) } else { root.join(name).join("src") };
        let mut blocks = Vec::new();
        for file in sources(&folder)? {
            let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            blocks.extend(blocks_of(&shown, &fs::read_to_string(&file)?));
        }
        page += &format!("\n## {name}: {}\n\n{}.\n", blocks.len(), capitalised(place));
        if !blocks.is_empty() {
            page += "\n| file | why it is sound |\n|---|---|\n";
        }
        for Block { file, reason } in blocks {
            page += &format!("| `{file}` | {} |\n", reason.replace('|', "\\|"));
        }
    }
    Ok(page)
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// The Rust files below a folder, sorted.
fn sources(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.extension() {
            _ if path.is_dir() => all.extend(sources(&path)?),
            Some(end) if end == "rs" && !path.ends_with("tests.rs") => all.push(path),
            _ => {}
        }
    }
    all.sort();
    Ok(all)
}

/// The blocks of a file, without its tests.
fn blocks_of(file: &str, text: &str) -> Vec<Block> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines: Vec<&str> = code.lines().map(str::trim).collect();
    let mut blocks = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| !line.starts_with("//")) {
        let count = line.matches("unsafe {").count() + line.matches("unsafe impl").count();
        let reason = reason(lines.get(..at).unwrap_or_default());
        blocks.extend((0..count).map(|_| Block { file: file.to_owned(), reason: reason.clone() }));
    }
    blocks
}

/// The last reason before a block: clippy sees to it that there is one for each.
fn reason(before: &[&str]) -> String {
    let Some(start) = before.iter().rposition(|line| line.starts_with("// SAFETY: ")) else {
        return String::new();
    };
    let lines = before.iter().skip(start).take_while(|line| line.starts_with("//"));
    let words = lines.map(|line| line.trim_start_matches("//").trim());
    let text = words.collect::<Vec<_>>().join(" ");
    text.trim_start_matches("SAFETY: ").trim_end_matches('.').to_owned()
}

/// Writes it into the folder with the other pages, of which the sources are beside it.
///
/// # Errors
/// [`WriteError`].
pub fn write(folder: &Path) -> Result<(), WriteError> {
    let root = folder.parent().filter(|root| !root.as_os_str().is_empty());
    let page = page(root.unwrap_or(Path::new("."))).map_err(WriteError::at(folder))?;
    let path = folder.join("unsafe.md");
    fs::write(&path, page).map_err(WriteError::at(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_unsafe_code_is_what_the_sources_say() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let kept = fs::read_to_string(root.join("docs/unsafe.md")).unwrap();
        let again = "run: cargo run -p gpubind-docs -- --pages docs";
        assert!(kept == page(&root).unwrap(), "docs/unsafe.md is old; {again}");
        assert!(!kept.contains("|  |"), "a block without a reason");
    }

    #[test]
    fn blocks_are_found_with_their_reasons_and_tests_are_left_out() {
        let code = "// unsafe { no\n    // SAFETY: one\n    // and two.\n    let a = unsafe { f(unsafe { g() }) };\n\
                    #[unsafe(no_mangle)]\n// SAFETY: an impl.\nunsafe impl A for B {}\n\
                    #[cfg(test)]\nmod tests { unsafe { } }\n";
        let block = |reason: &str| Block { file: "f".to_owned(), reason: reason.to_owned() };
        let expected = [block("one and two"), block("one and two"), block("an impl")];
        assert_eq!(blocks_of("f", code), expected);
    }
}
