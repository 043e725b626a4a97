//! docs/security.md names tests; each of them is there.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

use std::fs;
use std::path::Path;

#[test]
fn the_tests_that_the_page_names_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/security.md")).unwrap();
    let (_, table) = page.split_once("\n| input | ").unwrap();
    let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with("| ")).collect();
    assert!(rows.len() > 12, "{} rows", rows.len());
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        assert_eq!(cells.len(), 4, "{row}");
        for name in cells[3].split(", ") {
            let (file, function) = name.trim().trim_matches('`').split_once(": ").unwrap();
            let text = fs::read_to_string(root.join(file)).unwrap_or_default();
            assert!(text.contains(&format!("fn {function}(")), "no {function} in {file}");
        }
    }
}
