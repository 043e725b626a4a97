//! Pages in docs/ that are made from definitions: docs/options.md, from the items, the
//! keys' precedence and the program's arguments; and the table of `gpubind check` in
//! docs/troubleshooting.md.

use std::fs;
use std::path::Path;

use clap::{Arg, Command};
use gpubind::cli::{Level, check_messages};
use gpubind_core::request::written_items;

use crate::error::WriteError;

const HEAD: &str = "\
# Options

Made by `cargo run -p gpubind-docs -- --pages docs` from the definitions that `--help` and
the parsers use; a test compares. Keys of gpubind.toml: [site-policy.md](site-policy.md).

## What to type

| where | how |
|---|---|
| srun, sbatch, salloc | `--gpu-bind=spank` or `--gpu-bind=spank:ITEM,…`; with `verbose,` before `spank` the same as the item |
| srun, sbatch, salloc, `#SBATCH` lines | `--gpubind=ITEM,…`; `--gpubind=auto` for a plain request |
| `#SBATCH` lines, and where a line must pass without the plugin | `--gpu-bind=none,spank` or `--gpu-bind=none,spank:ITEM,…` |
| a personal default | `export SLURM_GPUBIND=ITEM,…` |
| without Slurm | `gpubind exec --mode=ITEM,… -- COMMAND` |

`--gpubind=help` lists the items. `#SBATCH --gpu-bind=spank` is refused by sbatch, which
parses its own copy of the script; the message says what to write. `SLURM_GPU_BIND=spank`
works as `--gpu-bind=spank` does, and so do `SBATCH_GPU_BIND` and `SALLOC_GPU_BIND`.

An option of another plugin may stand before gpubind's. Where it is not known whether such an
option takes a value and the word behind it is also a program, what follows can be the
program's: `--gpubind` still works there, `--gpu-bind=spank` is left alone, with a warning.

## Who wins

Command line, then SLURM_GPUBIND, then plugstack.conf's arguments, then gpubind.toml, then
what is built in; each item by itself. Another `--gpu-bind` or `--tres-bind` on a command
line switches gpubind off for that command. An unknown item, or two that contradict each
other, end srun, sbatch and salloc with a line that names the item that was meant, or lists
the valid ones.

## Items

| item | what |
|---|---|
";

/// What stands before the table of checks, at the end of its page.
const CHECKS: &str = "| message | check | level | what to do |\n|---|---|---|---|\n";

/// The page of options.
pub fn options() -> String {
    let mut page = HEAD.to_owned();
    for (_, value, written) in written_items() {
        page += &format!("| `{written}` | {} |\n", value.what);
    }
    page += "\n## The program\n";
    let mut program = gpubind::cli::command().disable_help_subcommand(true);
    program.build();
    for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
        page += &section(command);
    }
    page
}

fn section(command: &Command) -> String {
    let mut command = command.clone();
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").trim();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut text =
        format!("\n### gpubind {}\n\n{about}.\n\n```\n{usage}\n```\n", command.get_name());
    text += "\n| argument | what |\n|---|---|\n";
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set() && !is_clap_s(arg)) {
        text += &row(arg);
    }
    text
}

/// `--help`, which every command has.
fn is_clap_s(arg: &Arg) -> bool {
    matches!(arg.get_id().as_str(), "help" | "version")
}

fn row(arg: &Arg) -> String {
    let takes = arg.get_action().takes_values();
    let names = arg.get_value_names().filter(|_| takes).unwrap_or_default();
    let value = names.first().map(ToString::to_string).unwrap_or_default();
    let name = match arg.get_long() {
        Some(long) if value.is_empty() => format!("--{long}"),
        Some(long) => format!("--{long}={value}"),
        None => value,
    };
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let default = arg.get_default_values().first().filter(|_| takes);
    let default = default
        .map_or_else(String::new, |value| format!(" [default: {}]", value.to_string_lossy()));
    format!("| `{name}` | {} |\n", cell(&format!("{help}{default}")))
}

/// The rows of what `gpubind check` says where something is to be known or done.
pub fn checks() -> String {
    let mut table = CHECKS.to_owned();
    for message in check_messages().filter(|message| message.level > Level::Ok) {
        let advice = if message.advice.is_empty() { "–" } else { message.advice };
        table += &format!(
            "| {} | {} | {} | {} |\n",
            cell(&values(message.found)),
            message.check,
            message.level.word(),
            cell(&values(advice))
        );
    }
    table
}

/// A template with its values' names in capitals.
fn values(template: &str) -> String {
    let mut text = String::new();
    let mut parts = template.split(['{', '}']);
    while let Some(words) = parts.next() {
        text += words;
        text += &parts.next().unwrap_or_default().to_uppercase();
    }
    text
}

/// Text that stays in its cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ").replace('<', "&lt;")
}

/// Writes both into the folder with the other pages.
///
/// # Errors
/// [`WriteError`].
pub fn write(folder: &Path) -> Result<(), WriteError> {
    let path = folder.join("options.md");
    fs::write(&path, options()).map_err(WriteError::at(&path))?;
    let path = folder.join("troubleshooting.md");
    let page = fs::read_to_string(&path).map_err(WriteError::at(&path))?;
    let by_hand = page.split_once(CHECKS).map_or(page.as_str(), |(before, _)| before);
    fs::write(&path, format!("{by_hand}{}", checks())).map_err(WriteError::at(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(name: &str) -> String {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)).unwrap()
    }

    const AGAIN: &str = "run: cargo run -p gpubind-docs -- --pages docs";

    #[test]
    fn the_page_of_options_is_what_the_definitions_say() {
        assert!(page("options.md") == options(), "docs/options.md is old; {AGAIN}");
        for name in ["`--json`", "`--cpu-bind=", "`strict`", "### gpubind exec"] {
            assert!(options().contains(name), "no {name}");
        }
    }

    #[test]
    fn the_readme_names_each_item() {
        let readme = page("../README.md");
        for (_, _, item) in written_items() {
            let cells = [format!("| `{item}`"), format!(", `{item}`")];
            assert!(cells.iter().any(|cell| readme.contains(cell)), "no item {item}");
        }
    }

    #[test]
    fn the_table_of_checks_is_what_they_say() {
        let checks = checks();
        assert!(
            page("troubleshooting.md").ends_with(&checks),
            "docs/troubleshooting.md is old; {AGAIN}"
        );
        assert!(checks.lines().count() > 40 && !checks.contains(['{', '}']), "{checks}");
    }

    #[test]
    fn writing_again_changes_the_generated_table_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("troubleshooting.md");
        fs::write(&path, "by hand\n\n").unwrap();
        write(folder.path()).unwrap();
        let once = fs::read_to_string(&path).unwrap();
        assert_eq!(once, format!("by hand\n\n{}", checks()));
        write(folder.path()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), once);
    }
}
