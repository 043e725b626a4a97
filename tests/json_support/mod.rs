//! docs/json.md as data, and documents in the same form.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

/// For each field its types: `gpus[].minor` has `integer` and `null`.
pub type Fields = BTreeMap<String, BTreeSet<String>>;

/// The type of a probed value that is not known.
const REFUSED: &str = "refused";

/// A table of the page: field and type as they are written.
struct Table {
    rows: Vec<(String, String)>,
}

/// The page's tables by their headings.
pub struct Page {
    tables: BTreeMap<String, Table>,
    pub text: String,
}

impl Page {
    pub fn read() -> Page {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/json.md");
        Page::of(fs::read_to_string(path).unwrap())
    }

    fn of(text: String) -> Page {
        let mut tables = BTreeMap::new();
        for section in text.split("\n## ").skip(1) {
            let (heading, body) = section.split_once('\n').unwrap();
            let row = |line: &str| {
                let mut cells = line.strip_prefix("| `")?.split(" | ");
                let field = cells.next()?.strip_suffix('`')?;
                Some((field.to_owned(), cells.next()?.to_owned()))
            };
            let rows: Vec<(String, String)> = body.lines().filter_map(row).collect();
            if !rows.is_empty() {
                tables.insert(heading.to_owned(), Table { rows });
            }
        }
        Page { tables, text }
    }

    /// The headings with a table.
    pub fn headings(&self) -> BTreeSet<&str> {
        self.tables.keys().map(String::as_str).collect()
    }

    /// The rows below a heading: the first two cells.
    pub fn rows(&self, heading: &str) -> &[(String, String)] {
        &self.tables.get(heading).unwrap_or_else(|| panic!("no table {heading}")).rows
    }

    /// The fields of a document, those that stand in other tables among them.
    pub fn fields(&self, heading: &str) -> Fields {
        let mut fields = Fields::new();
        self.add(heading, "", &mut fields);
        // What has fields is an object, and what has entries an array.
        let parents: Vec<(String, &str)> = fields.keys().flat_map(|path| parents(path)).collect();
        for (path, kind) in parents {
            fields.entry(path).or_insert_with(|| BTreeSet::from([kind.to_owned()]));
        }
        fields
    }

    fn add(&self, heading: &str, base: &str, fields: &mut Fields) {
        for (path, kinds) in self.rows(heading) {
            let path = if base.is_empty() { path.clone() } else { format!("{base}.{path}") };
            for kind in kinds.split(" or ") {
                let mut has = |kind: &str| {
                    fields.entry(path.clone()).or_default().insert(kind.to_owned());
                };
                if let Some((name, _)) = kind.strip_prefix('[').and_then(|it| it.split_once(']')) {
                    has("object");
                    self.add(name, &path, fields);
                } else if let Some(kind) = kind.strip_prefix("probed ") {
                    has(kind);
                    has(REFUSED);
                } else {
                    has(kind);
                }
            }
        }
    }
}

/// `a.b[].c` is a field of an object `a.b[]`, which is an entry of an array `a.b`, …
fn parents(path: &str) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let kind;
        (rest, kind) = match (rest.strip_suffix("[]"), rest.rsplit_once('.')) {
            (Some(array), _) => (array, "array"),
            (None, Some((object, _))) => (object, "object"),
            (None, None) => ("", "object"),
        };
        found.push((rest.to_owned(), kind));
    }
    found
}

/// The fields of what was printed, with all types that they have had; `page` says which
/// strings are words, which values are probed, and what may be absent.
pub fn seen<'v>(documents: impl IntoIterator<Item = &'v Value>, page: &Fields) -> Fields {
    let mut seen = Fields::new();
    for document in documents {
        look("", document, page, &mut seen);
    }
    seen
}

fn look(path: &str, value: &Value, page: &Fields, seen: &mut Fields) {
    let known = page.get(path);
    let is = |kind: &str| known.is_some_and(|kinds| kinds.contains(kind));
    let mut has = |kind: &str| {
        seen.entry(path.to_owned()).or_default().insert(kind.to_owned());
    };
    if is(REFUSED) {
        let known = value.get("known");
        match known {
            Some(known) => {
                let mut plain = page.clone();
                plain.get_mut(path).unwrap().remove(REFUSED);
                return look(path, known, &plain, seen);
            }
            None if *value == "unsupported" || value["failed"].is_u64() => return has(REFUSED),
            None => {}
        }
    }
    match value {
        Value::Null => has("null"),
        Value::Bool(_) => has("boolean"),
        Value::Number(number) => has(if number.is_u64() { "integer" } else { "number" }),
        Value::String(text) => {
            let is_word = known.is_some_and(|kinds| kinds.iter().any(|kind| kind.starts_with('"')));
            has(&if is_word { format!("\"{text}\"") } else { "string".to_owned() });
        }
        Value::Array(entries) => {
            has("array");
            entries.iter().for_each(|entry| look(&format!("{path}[]"), entry, page, seen));
        }
        Value::Object(fields) => {
            has("object");
            let field = |name: &str| match path {
                "" => name.to_owned(),
                path => format!("{path}.{name}"),
            };
            let has_any_name = page.contains_key(&field("*"));
            for (name, value) in fields {
                look(&field(if has_any_name { "*" } else { name }), value, page, seen);
            }
            for documented in page.keys() {
                let name = documented.strip_prefix(&field("")).unwrap_or_default();
                let is_own = !name.is_empty() && !name.contains(['.', '[', '*']);
                if is_own && !fields.contains_key(name) {
                    seen.entry(documented.clone()).or_default().insert("absent".to_owned());
                }
            }
        }
    }
}

/// What the page and the program disagree on.
pub fn difference(page: &Fields, seen: &Fields) -> Vec<String> {
    let paths: BTreeSet<&String> = page.keys().chain(seen.keys()).collect();
    let none = BTreeSet::new();
    let mut found = Vec::new();
    for path in paths {
        let (said, printed) = (page.get(path).unwrap_or(&none), seen.get(path).unwrap_or(&none));
        found.extend(printed.difference(said).map(|kind| format!("{path}: not said: {kind}")));
        found.extend(said.difference(printed).map(|kind| format!("{path}: never seen: {kind}")));
    }
    found
}

/// The judge itself.
#[test]
fn what_is_missing_on_either_side_is_found() {
    let text = "x\n## a\n| `n` | integer | |\n| `b[]` | [b](#b) or null | |\n| `w` | \"x\" or \"y\" | |\n\
                ## b\n| `c` | probed string | |\n| `o` | integer or absent | |\n";
    let page = Page::of(text.to_owned());
    let fields = page.fields("a");
    let judge = |documents: &[Value]| difference(&fields, &seen(documents, &fields));
    let entry = |c: Value| serde_json::json!({"n": 1, "b": [null, {"c": c, "o": 1}], "w": "x"});
    let mut whole = vec![
        entry(serde_json::json!({"known": "k"})),
        entry("unsupported".into()),
        serde_json::json!({"n": 1, "b": [{"c": {"failed": 3}}], "w": "y"}),
    ];
    assert_eq!(judge(&whole), [""; 0]);
    assert_eq!(judge(&whole[1..]), ["b[].c: never seen: string"]);
    assert_eq!(judge(&whole[..2]), ["b[].o: never seen: absent", "w: never seen: \"y\""]);
    whole[0]["n"] = (-1).into();
    whole[0]["z"] = 1.into();
    whole[1]["w"] = "z".into();
    let expected = ["n: not said: number", "w: not said: \"z\"", "z: not said: integer"];
    assert_eq!(judge(&whole), expected);
}
