//! The `#SBATCH` lines of a batch script, as sbatch reads them (src/sbatch/opt.c,
//! `_opt_batch_script` and `get_argument`).
//!
//! sbatch parses them after the plugin's turn, and in its own copy: what is wrong there
//! can only be reported.

use std::ffi::OsString;
use std::iter::Peekable;
use std::str::Chars;

use super::command::Command;
use super::command_line::{CommandLine, CommandLineError};
use super::reading::read;
use crate::SlurmRelease;

/// A line of a script that sbatch or gpubind will not understand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// Slurm refuses it.
    #[error(
        "line {line}: sbatch does not understand `--gpu-bind={typed}` in a script; write \
         #SBATCH --gpubind={items}"
    )]
    GpuBind {
        /// The line, from 1.
        line: usize,
        /// The option's value as typed.
        typed: String,
        /// The items that say the same.
        items: String,
    },
    /// Its items cannot be understood.
    #[error("line {line}: {error}")]
    Option {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        error: CommandLineError,
    },
}

/// What a script's lines say; each `#SBATCH hetjob` begins another component.
///
/// # Errors
/// [`ScriptError`] for the first line that is wrong.
pub fn read_script(release: SlurmRelease, text: &str) -> Result<CommandLine, ScriptError> {
    let mut script = CommandLine::default();
    for words in components(text) {
        let (lines, mut argv): (Vec<usize>, Vec<OsString>) = words.into_iter().unzip();
        argv.insert(0, "sbatch".into());
        // The command's own name has no line.
        let line = |position: usize| {
            position.checked_sub(1).and_then(|at| lines.get(at)).copied().unwrap_or_default()
        };
        let (read, requests) = read(Command::Sbatch, release, &argv, &|_, _| false)
            .map_err(|error| ScriptError::Option { line: line(error.position), error })?;
        if let Some(option) = requests.iter().find(|option| option.slurm_refuses()) {
            return Err(ScriptError::GpuBind {
                line: line(option.typed.position),
                typed: option.typed.value.clone().unwrap_or_default(),
                items: option.request.to_type(),
            });
        }
        let number = script.components.len();
        script.components.extend(read.components.into_iter().take(1));
        if let Some(component) = script.components.get_mut(number) {
            component.groups = vec![number];
        }
        script.asks_for_help |= read.asks_for_help;
    }
    Ok(script)
}

/// The words of each component, each with its line.
fn components(text: &str) -> Vec<Vec<(usize, OsString)>> {
    let mut components = vec![Vec::new()];
    for (number, line) in text.lines().enumerate() {
        let options = line.strip_prefix("#SBATCH").or(line.strip_prefix("#SLURM"));
        let Some(options) = options else {
            let first = line.trim_start_matches(|c: char| c.is_ascii_whitespace()).chars().next();
            if first.is_some_and(|first| first != '#') {
                break;
            }
            continue;
        };
        let options = options.trim_start();
        let separator = ["packjob", "hetjob"].iter().find(|word| begins_with_word(options, word));
        let options = separator.and_then(|word| options.get(word.len()..)).unwrap_or(options);
        if separator.is_some() {
            components.push(Vec::new());
        }
        if let Some(words) = components.last_mut() {
            words.extend(arguments(options).map(|word| (number + 1, word.into())));
        }
    }
    components
}

/// Whether a line begins with this word, in any case.
fn begins_with_word(line: &str, word: &str) -> bool {
    let begins = line.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
    begins
        && line
            .get(word.len()..)
            .is_some_and(|rest| !rest.starts_with(|c: char| !c.is_whitespace()))
}

/// The words of a line: quotes keep blanks, a backslash what follows it, and what is
/// behind a `#` is a comment.
fn arguments(line: &str) -> impl Iterator<Item = String> {
    let mut rest = line.chars().peekable();
    std::iter::from_fn(move || argument(&mut rest))
}

fn argument(rest: &mut Peekable<Chars>) -> Option<String> {
    while rest.next_if(char::is_ascii_whitespace).is_some() {}
    let mut word = None;
    let mut quote = None;
    loop {
        let next = rest.peek().copied();
        match (next, quote) {
            (None, _) => break,
            (Some('\\'), _) => {
                rest.next();
                if let Some(escaped) = rest.next() {
                    word.get_or_insert_with(String::new).push(escaped);
                }
            }
            (Some(c), Some(open)) if c == open => {
                quote = None;
                rest.next();
            }
            (Some(c @ ('"' | '\'')), None) => {
                quote = Some(c);
                rest.next();
            }
            // Slurm ends with an error at a word that begins with a colon.
            (Some(':'), None) if word.is_none() => break,
            (Some('#'), None) => break,
            (Some(c), None) if c.is_ascii_whitespace() => break,
            (Some(c), _) => {
                word.get_or_insert_with(String::new).push(c);
                rest.next();
            }
        }
    }
    word
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::request::Binding;

    const NOW: SlurmRelease = SlurmRelease::new(26, 5);

    fn bindings(text: &str) -> Vec<String> {
        let words = |binding: &Binding| match binding {
            Binding::Gpubind(request) => request.to_string(),
            Binding::Slurm => "Slurm's".to_owned(),
            Binding::Unspecified => "-".to_owned(),
        };
        let script = read_script(NOW, text).unwrap();
        script.components.iter().map(|component| words(&component.binding)).collect()
    }

    #[test]
    fn options_are_read_up_to_the_first_command() {
        let script = "#!/bin/bash -l\n\n  # a comment\n#SBATCH -N2 --gpubind=first # why\n\
                      #SBATCH\t--time 5\necho\n#SBATCH --gpubind=single\n";
        assert_eq!(bindings(script), ["first"]);
        assert_eq!(bindings("#SBATCH --gpu-bind=none,spank:ids=uuid"), ["ids=uuid"]);
        assert_eq!(bindings("#SBATCH --gpubind\n#SBATCH first"), ["first"], "over lines");
        assert_eq!(bindings("#SBATCH --gpubind \"first,verbose\""), ["first,verbose"]);
        assert_eq!(bindings("#SBATCH -J a\\ b '--gpubind=first'"), ["first"]);
        assert_eq!(bindings("#SBATCH --comment --gpubind=first"), ["-"], "a comment's text");
        assert_eq!(bindings("# SBATCH --gpubind=first\n#SLURM -n1"), ["-"]);
        assert_eq!(bindings("#SBATCH --gpu-bind=closest"), ["Slurm's"]);
        assert_eq!(bindings(""), ["-"]);
    }

    #[test]
    fn each_hetjob_line_begins_a_component() {
        let script = "#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n1 --gpubind=first\n\
                      #SBATCH packjob --gpubind=ordered\n#SBATCH HetJob\n";
        assert_eq!(bindings(script), ["-", "first", "ordered", "-"]);
        let script = read_script(NOW, script).unwrap();
        let groups: Vec<_> = script.components.iter().map(|one| one.groups.clone()).collect();
        assert_eq!(groups, [[0], [1], [2], [3]]);
        assert_eq!(bindings("#SBATCH hetjobs"), ["-"]);
    }

    #[test]
    fn what_sbatch_would_refuse_is_reported_with_its_line_and_what_to_write() {
        let wrong = |text: &str| read_script(NOW, text).unwrap_err().to_string();
        assert_eq!(
            wrong("#!/bin/sh\n#SBATCH -n1\n#SBATCH --gpu-bind=spank:first\n"),
            "line 3: sbatch does not understand `--gpu-bind=spank:first` in a script; write \
             #SBATCH --gpubind=first"
        );
        assert!(wrong("#SBATCH --gpu-bind spank").ends_with("write #SBATCH --gpubind=auto"));
        assert!(
            wrong("#SBATCH -G1\n#SBATCH hetjob\n#SBATCH --gpu-bi=verbose,spank")
                .starts_with("line 3: ")
        );
        assert!(
            wrong("\n#SBATCH --gpubind=atuo")
                .starts_with("line 2: --gpubind: unknown item `atuo`; did you mean `auto`?")
        );
    }

    #[test]
    fn a_command_line_wins_over_the_script_component_by_component() {
        let script = read_script(NOW, "#SBATCH --gpubind=first\n#SBATCH hetjob --gpubind=single");
        let over = |typed: &str| {
            let argv: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
            let line = read(Command::Sbatch, NOW, &argv, &|_, _| true).unwrap().0;
            let line = line.over_script(script.as_ref().unwrap());
            line.components.iter().map(|one| one.binding.clone()).collect::<Vec<_>>()
        };
        let items = |items: &str| Binding::Gpubind(items.parse().unwrap());
        assert_eq!(over("sbatch x"), [items("first"), items("single")]);
        assert_eq!(over("sbatch --gpubind=off x"), [items("off"), items("single")]);
        assert_eq!(over("sbatch -n1 : --gpu-bind=none x"), [items("first"), Binding::Slurm]);
    }

    proptest! {
        #[test]
        fn any_script_is_read(text in "(#SBATCH|#|\n| |\\PC|--gpubind|--gpu-bind|=|spank|hetjob|\"|\\\\)*") {
            let _ = read_script(NOW, &text);
        }

        #[test]
        fn quoted_words_come_back(words in proptest::collection::vec("[a-z #\"'\\\\]{1,8}", 1..5)) {
            let quoted = |word: &String| {
                word.chars().map(|c| format!("\\{c}")).collect::<String>()
            };
            let line = words.iter().map(quoted).collect::<Vec<_>>().join(" ");
            prop_assert_eq!(arguments(&line).collect::<Vec<_>>(), words);
        }
    }
}
