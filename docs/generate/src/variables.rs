//! docs/variables.md, from the table of variables.

use std::fs;
use std::path::Path;

use gpubind_core::variables::VARIABLES;

use crate::error::WriteError;

const HEAD: &str = "\
# Environment variables

Every variable that gpubind reads or writes. Made by
`cargo run -p gpubind-docs -- --pages docs` from shim-core/src/variables.rs; tests compare,
and find names anywhere else in the code. *Plugin* is the SPANK plugin, *shim* the worker
shim, *program* the `gpubind` program.
";
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    let mut group = "";
    for variable in VARIABLES {
        if variable.group != group {
            group = variable.group;
            page += &format!("\n## {group}\n\n| variable | what | set by | read by |\n");
            page += "|---|---|---|---|\n";
        }
        page += &format!(
            "| `{}` | {} | {} | {} |\n",
            variable.name, variable.meaning, variable.set_by, variable.read_by
        );
    }
    page
}

/// Writes it into the folder with the other pages.
///
/// # Errors
/// [`WriteError`].
pub fn write(folder: &Path) -> Result<(), WriteError> {
    let path = folder.join("variables.md");
    fs::write(&path, page()).map_err(WriteError::at(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_variables_is_what_the_table_says() {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../variables.md");
        let kept = fs::read_to_string(kept).unwrap();
        let again = "run: cargo run -p gpubind-docs -- --pages docs";
        assert!(kept == page(), "docs/variables.md is old; {again}");
        let rows = kept.lines().filter(|line| line.starts_with("| `"));
        assert_eq!(rows.count(), VARIABLES.len());
        let groups = kept.lines().filter(|line| line.starts_with("## "));
        let mut names: Vec<&str> = groups.collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "a group in two places");
        assert!(!kept.contains("|  |"), "an empty cell");
    }
}
