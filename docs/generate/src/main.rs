//! Writes what the packages hold besides programs: man pages and shell completions.
//!
//! `gpubind-docs DIR` fills DIR/man and DIR/completions. A program of its own, so
//! that neither the `gpubind` program nor the plugin carries any of it. `gpubind-docs
//! --pages docs` makes the generated Markdown anew, which is kept with the sources.

mod completions;
mod error;
mod markdown;
mod pages;
mod roff;
mod sections;
mod site;
mod unsafe_code;
mod variables;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use error::WriteError;

fn main() -> ExitCode {
    let words: Vec<_> = env::args_os().skip(1).collect();
    let done = match &words[..] {
        [option, folder] if option == "--pages" => write_pages(Path::new(folder)),
        [folder] => write(Path::new(folder)),
        _ => {
            eprintln!("usage: gpubind-docs [--pages] DIR");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gpubind-docs: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The generated Markdown, in the folder with the pages by hand.
fn write_pages(folder: &Path) -> Result<(), WriteError> {
    markdown::write(folder)?;
    unsafe_code::write(folder)?;
    variables::write(folder)
}

/// Fills the folder anew: a page of a command that is gone must not stay.
fn write(folder: &Path) -> Result<(), WriteError> {
    let man = emptied(&folder.join("man"))?;
    let completions = emptied(&folder.join("completions"))?;
    pages::write(&man)?;
    completions::write(&completions)
}

fn emptied(folder: &Path) -> Result<PathBuf, WriteError> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(WriteError::at(folder))?;
    }
    fs::create_dir_all(folder).map_err(WriteError::at(folder))?;
    Ok(folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_is_completed_in_each_shell() {
        let folder = tempfile::tempdir().unwrap();
        // Twice: what is there already is no hindrance.
        write(folder.path()).unwrap();
        fs::write(folder.path().join("man/gpubind-gone.1"), "").unwrap();
        write(folder.path()).unwrap();
        assert!(!folder.path().join("man/gpubind-gone.1").exists());
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let commands = gpubind::cli::command();
        let mut count = 0;
        for command in commands.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let page = read(&format!("man/gpubind-{name}.1"));
            for section in ["SYNOPSIS", "EXIT STATUS", "ENVIRONMENT", "EXAMPLES", "SEE ALSO"] {
                let (_, rest) = page.split_once(&format!(".SH {section}\n")).unwrap();
                let text = rest.split(".SH ").next().unwrap();
                assert!(text.chars().any(char::is_alphabetic), "{name}, {section}: {page}");
            }
            for shell in ["gpubind.bash", "_gpubind", "gpubind.fish"] {
                assert!(read(&format!("completions/{shell}")).contains(name), "{shell}: {name}");
            }
            // roff writes a hyphen that may not become a dash as `\-`.
            let listed = read("man/gpubind.1").replace("\\-", "-");
            assert!(listed.contains(&format!("gpubind-{name}(1)")), "gpubind(1) lacks {name}");
            count += 1;
        }
        let first = read("man/gpubind.1").replace("\\-", "-");
        let (_, synopsis) = first.split_once(".SH SYNOPSIS\n").unwrap();
        assert!(synopsis.starts_with("\\fBsrun --gpu-bind=spank\\fR"), "{synopsis}");
        assert!(count >= 4, "{count} commands");
    }
}
