//! The workspace's own sources as tests read them: modules with the names that they
//! define and the tokens of their code, tests left out.
#![allow(dead_code, reason = "each test uses its part of this")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The crates whose sources are read: name in paths, and the file that each begins with.
pub const CRATES: [(&str, &str); 13] = [
    ("gpubind_shim_core", "shim-core/src/lib.rs"),
    ("gpubind_core", "core/src/lib.rs"),
    ("gpubind_machine", "machine/src/lib.rs"),
    ("gpubind_topo_text", "topo-text/src/lib.rs"),
    ("gpubind", "src/lib.rs"),
    ("gpubind_worker", "worker/src/lib.rs"),
    ("spank_gpubind", "spank/src/lib.rs"),
    ("fake_nvml", "tests/fake-nvml/src/lib.rs"),
    ("gpubind_docs", "docs/generate/src/main.rs"),
    ("slurm_tests", "tests/slurm/src/main.rs"),
    ("spank_host", "tests/spank-host/src/main.rs"),
    ("hook_tests", "tests/hooks/src/main.rs"),
    ("vm_tests", "tests/vm/src/main.rs"),
];

/// What a name in a module stands for.
#[derive(Debug, Clone)]
pub enum Name {
    /// Something that the module itself defines.
    Item,
    /// What a `use` has brought in.
    Use { path: Vec<String>, line: usize, public: bool },
}

/// A module: a file, or a part of one.
#[derive(Debug)]
pub struct Module {
    /// The crate's name, then the modules' down to this one.
    pub path: Vec<String>,
    /// The file, from the root of the checkout.
    pub file: String,
    pub names: BTreeMap<String, Name>,
    /// Modules of which everything is brought in, with the lines.
    pub globs: Vec<(Vec<String>, usize)>,
    /// Everything but the `use` items, the modules inside and the tests.
    pub code: Vec<TokenTree>,
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All modules of a crate, its root first.
pub fn modules(name: &str, file: &str) -> Vec<Module> {
    let mut found = Vec::new();
    let children = root().join(file).parent().unwrap().to_owned();
    read_file(vec![name.to_owned()], &root().join(file), &children, &mut found);
    found
}

/// The modules of a text that stands for a whole crate.
pub fn modules_of_text(name: &str, text: &str) -> Vec<Module> {
    let mut found = Vec::new();
    let tokens: TokenStream = text.parse().unwrap();
    read(vec![name.to_owned()], name.to_owned(), Path::new("."), tokens, &mut found);
    found
}

fn read_file(path: Vec<String>, file: &Path, children: &Path, found: &mut Vec<Module>) {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let tokens = text.parse().unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let name = file.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
    read(path, name, children, tokens, found);
}

/// Reads one module; `children` is the folder of those inside.
fn read(
    path: Vec<String>,
    file: String,
    children: &Path,
    tokens: TokenStream,
    found: &mut Vec<Module>,
) {
    let at = found.len();
    let names = BTreeMap::new();
    found.push(Module {
        path: path.clone(),
        file: file.clone(),
        names,
        globs: Vec::new(),
        code: Vec::new(),
    });
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut rest = &tokens[..];
    while let Some(item) = Item::next(&mut rest) {
        if item.is_test {
            continue;
        }
        match (item.keyword.as_str(), &item.name) {
            ("mod", Some(name)) => {
                let mut inner = path.clone();
                inner.push(name.clone());
                let folder = children.join(name);
                match item.body {
                    Some(body) => read(inner, file.clone(), &folder, body.stream(), found),
                    None => {
                        let beside = children.join(format!("{name}.rs"));
                        let inside = folder.join("mod.rs");
                        let file = if beside.exists() { beside } else { inside };
                        read_file(inner, &file, &folder, found);
                    }
                }
            }
            ("use", _) => {
                for leaf in leaves(&item.tokens[1..]) {
                    match leaf.alias.as_str() {
                        "*" => found[at].globs.push((leaf.path, leaf.line)),
                        alias => {
                            let (path, line) = (leaf.path, leaf.line);
                            let name = Name::Use { path, line, public: item.is_public };
                            found[at].names.insert(alias.to_owned(), name);
                        }
                    }
                }
            }
            (_, name) => {
                if let Some(name) = name {
                    found[at].names.insert(name.clone(), Name::Item);
                }
                found[at].code.extend(item.tokens);
            }
        }
    }
}

/// One item of a module, from its attributes to its end.
struct Item {
    is_test: bool,
    is_public: bool,
    keyword: String,
    name: Option<String>,
    body: Option<Group>,
    /// From the keyword on.
    tokens: Vec<TokenTree>,
}

/// What an item can begin with, behind `pub`, `unsafe` and the like.
const KEYWORDS: [&str; 12] = [
    "mod",
    "use",
    "fn",
    "struct",
    "enum",
    "union",
    "trait",
    "type",
    "const",
    "static",
    "impl",
    "macro_rules",
];

impl Item {
    fn next(rest: &mut &[TokenTree]) -> Option<Item> {
        let mut is_test = false;
        let mut is_public = false;
        let mut keyword = String::new();
        let mut start = 0;
        let mut at = 0;
        loop {
            match rest.get(at)? {
                TokenTree::Punct(mark) if mark.as_char() == '#' => {
                    let inner = matches!(rest.get(at + 1), Some(TokenTree::Punct(_)));
                    let attribute = rest.get(at + 1 + usize::from(inner))?.to_string();
                    is_test |= attribute.replace(' ', "") == "[cfg(test)]";
                    at += 2 + usize::from(inner);
                    if inner {
                        *rest = &rest[at..];
                        at = 0;
                    }
                    start = at;
                }
                TokenTree::Ident(word) => {
                    let word = word.to_string();
                    // `const fn` is a function.
                    let next = rest.get(at + 1).map(ToString::to_string).unwrap_or_default();
                    let prefix = ["fn", "unsafe", "extern"].contains(&next.as_str());
                    if KEYWORDS.contains(&word.as_str()) && !(word == "const" && prefix) {
                        keyword = word;
                        break;
                    }
                    is_public |= word == "pub";
                    at += 1;
                }
                // A macro's call, such as `variables! { … }`.
                TokenTree::Punct(mark) if mark.as_char() == '!' => break,
                _ => at += 1,
            }
        }
        let ends_at_semicolon = ["use", "type", "const", "static"].contains(&keyword.as_str());
        let mut end = at;
        let mut body = None;
        while let Some(token) = rest.get(end) {
            end += 1;
            match token {
                TokenTree::Group(group)
                    if group.delimiter() == Delimiter::Brace && !ends_at_semicolon =>
                {
                    body = Some(group.clone());
                    break;
                }
                TokenTree::Punct(mark) if mark.as_char() == ';' => break,
                _ => {}
            }
        }
        let name = match rest.get(at + 1 + usize::from(keyword == "macro_rules")) {
            Some(TokenTree::Ident(name)) if !["impl", "use", ""].contains(&keyword.as_str()) => {
                Some(name.to_string())
            }
            _ => None,
        };
        let from = if keyword == "use" || keyword == "mod" { at } else { start };
        let tokens = rest[from..end].to_vec();
        *rest = &rest[end..];
        Some(Item { is_test, is_public, keyword, name, body, tokens })
    }
}

/// One name that a `use` brings in.
pub struct Leaf {
    pub path: Vec<String>,
    pub alias: String,
    pub line: usize,
}

/// The names of a `use`, from behind the word to its semicolon.
pub fn leaves(tokens: &[TokenTree]) -> Vec<Leaf> {
    let mut found = Vec::new();
    tree(&[], tokens, &mut found);
    found
}

fn tree(before: &[String], tokens: &[TokenTree], found: &mut Vec<Leaf>) {
    let mut path = before.to_vec();
    let mut line = 0;
    let mut tokens = tokens.iter();
    while let Some(token) = tokens.next() {
        line = token.span().start().line;
        match token {
            TokenTree::Ident(word) if word == "as" => {
                let alias = tokens.next().unwrap().to_string();
                found.push(Leaf { path, alias, line });
                return;
            }
            TokenTree::Ident(word) => path.push(word.to_string()),
            TokenTree::Punct(mark) if mark.as_char() == '*' => {
                found.push(Leaf { path, alias: "*".to_owned(), line });
                return;
            }
            TokenTree::Group(group) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let is_comma = |token: &TokenTree| token.to_string() == ",";
                for part in inner.split(is_comma).filter(|part| !part.is_empty()) {
                    tree(&path, part, found);
                }
                return;
            }
            _ => {}
        }
    }
    if path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    if let Some(alias) = path.last().cloned() {
        found.push(Leaf { path, alias, line });
    }
}

/// The string literals of some code, with their lines; C strings and byte strings, too.
pub fn literals(code: &[TokenTree], found: &mut Vec<(String, usize)>) {
    for token in code {
        match token {
            TokenTree::Group(group) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                literals(&inner, found);
            }
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                if let Some((_, text)) = text.split_once('"') {
                    let text = text.trim_end_matches('#').trim_end_matches('"');
                    found.push((text.to_owned(), literal.span().start().line));
                }
            }
            _ => {}
        }
    }
}

/// The files of a folder that end like this, those of its folders included.
pub fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, end));
        } else if path.extension().is_some_and(|extension| extension == end) {
            found.push(path);
        }
    }
    found.sort();
    found
}
