//! Man pages: section 1 from the program's own definitions, the others from
//! docs/man.

use std::fs;
use std::path::Path;

use clap_mangen::Man;

use crate::WriteError;

/// Pages that are written by hand, in roff; `@VERSION@` stands for the version.
const WRITTEN: &[(&str, &str)] = &[("spank_gpubind.8", include_str!("../../man/spank_gpubind.8"))];

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
        man.generate_to(folder).map_err(WriteError::at(folder))?;
    }
    for (name, text) in WRITTEN {
        let path = folder.join(name);
        fs::write(&path, text.replace("@VERSION@", &version)).map_err(WriteError::at(&path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use gpubind::config::{ITEMS, PlugstackArgs};

    use super::*;

    #[test]
    fn the_plugins_page_names_each_item_and_argument() {
        let page = WRITTEN[0].1.replace("\\-", "-");
        for item in ITEMS {
            assert!(page.contains(&format!("\n.B {item}\n")), "no item {item}");
        }
        // The message about a wrong argument lists the right ones.
        let (_, errors) = PlugstackArgs::read(["colour=red"]);
        let message = errors[0].to_string();
        let valid = message.rsplit("valid: ").next().unwrap();
        for argument in valid.split(", ") {
            let name = argument.split('=').next().unwrap();
            assert!(page.contains(&format!("\n.BI {name}= ")), "no argument {name}");
        }
    }
}
