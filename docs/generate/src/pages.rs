//! Man pages: section 1 from the program's own definitions, section 5 from
//! etc/gpubind.toml, section 8 from docs/man.

use std::fs;
use std::path::Path;

use clap_mangen::Man;

use crate::error::WriteError;
use crate::{sections, site};

/// The plugin's page, written by hand; `@VERSION@` stands for the version.
const PLUGIN: &str = include_str!("../../man/spank_gpubind.8");

/// Writes all pages.
///
/// # Errors
/// [`WriteError`].
pub fn write(folder: &Path) -> Result<(), WriteError> {
    let command = gpubind::cli::command();
    let version = command.get_version().unwrap_or_default().to_owned();
    // The pages' foot names the product, not the command.
    let source = format!("gpubind {version}");
    // `help` repeats what the pages say.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    for command in std::iter::once(&command).chain(commands) {
        let man = Man::new(command.clone()).manual("gpubind").source(&source);
        let path = folder.join(man.get_filename());
        let mut page = Vec::new();
        man.render(&mut page).map_err(WriteError::at(&path))?;
        let mut page =
            String::from_utf8_lossy(&page).into_owned() + &sections::of(command.get_name());
        if command.get_name() == "gpubind" {
            page = page.replacen(".SH SYNOPSIS\n", &format!(".SH SYNOPSIS\n{}", sections::SRUN), 1);
        }
        fs::write(&path, page).map_err(WriteError::at(&path))?;
    }
    let plugin = PLUGIN.replace("@VERSION@", &version);
    for (name, text) in [("gpubind.toml.5", site::page(&version)), ("spank_gpubind.8", plugin)] {
        let path = folder.join(name);
        fs::write(&path, text).map_err(WriteError::at(&path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use gpubind_core::request::written_items;
    use gpubind_core::site::{KEYS, Scope};

    use super::*;

    #[test]
    fn the_plugins_page_names_each_item_and_each_argument_of_its_own() {
        let page = PLUGIN.replace("\\-", "-");
        for (_, _, item) in written_items() {
            assert!(page.contains(&format!("\n.B {item}\n")), "no item {item}");
        }
        for key in KEYS.iter().filter(|key| key.scope == Scope::Plugstack) {
            assert!(page.contains(&format!("\n.BI {}= ", key.name)), "no argument {}", key.name);
            assert!(page.contains(&format!("[{}]", key.default)), "not {}", key.default);
        }
    }
}
