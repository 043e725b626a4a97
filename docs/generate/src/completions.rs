//! Shell completions, from the program's own definitions.

use std::path::Path;

use clap_complete::{Shell, generate_to};

use crate::error::WriteError;

/// Writes `gpubind.bash`, `_gpubind` (zsh) and `gpubind.fish`, each by the name
/// that its shell looks for.
///
/// # Errors
/// [`WriteError`].
pub fn write(folder: &Path) -> Result<(), WriteError> {
    let mut command = gpubind::cli::command();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut command, "gpubind", folder).map_err(WriteError::at(folder))?;
    }
    Ok(())
}
