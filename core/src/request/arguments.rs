//! A command line of srun, sbatch or salloc word by word, as getopt_long(3) reads it:
//! options first, then the program, and in srun further components after a lone `:`.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};

use super::command::Command;
use super::slurm_options::{Arity, long, short_option};
use crate::SlurmRelease;

/// What the next words of a command line are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Element {
    /// An option that is known.
    Option(LongOption),
    /// A `:`: what follows is another component.
    Separator,
    /// The program, at this position. What follows, up to a `:` in srun, is its own.
    Program(usize),
    /// An option that is not known, at this position, with a word behind it that can be
    /// its value, or else the program. What follows is not read, up to a `:` in srun.
    Unclear(usize),
}

/// A known option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LongOption {
    /// Its name in full.
    pub name: &'static str,
    /// Its position in argv.
    pub position: usize,
    /// Its value, if it takes one and has it.
    pub value: Option<String>,
    /// Whether the value is in the same word.
    pub is_one_word: bool,
}

/// Whether a word can be a program, under the folder that the command would go to.
pub type IsProgram<'a> = &'a dyn Fn(&OsStr, Option<&OsStr>) -> bool;

/// Reads the command line `argv`, the command's own name first.
pub struct Arguments<'a> {
    command: Command,
    release: SlurmRelease,
    argv: &'a [OsString],
    is_program: IsProgram<'a>,
    position: usize,
    /// The component's `--chdir`.
    chdir: Option<String>,
    /// Read, and not yet given.
    pending: VecDeque<LongOption>,
}

impl<'a> Arguments<'a> {
    pub fn new(
        command: Command,
        release: SlurmRelease,
        argv: &'a [OsString],
        is_program: IsProgram<'a>,
    ) -> Self {
        let pending = VecDeque::new();
        Arguments { command, release, argv, is_program, position: 1, chdir: None, pending }
    }

    /// Goes to what follows a program's arguments: in srun another component.
    fn skip_program(&mut self) {
        let rest = self.argv.get(self.position..).unwrap_or_default();
        let arguments = match self.command {
            Command::Srun => rest.iter().position(|word| word == ":"),
            Command::Sbatch | Command::Salloc => None,
        };
        self.position += arguments.unwrap_or(rest.len());
    }

    fn program(&mut self, position: usize) -> Option<Element> {
        self.position = position;
        self.skip_program();
        (position < self.argv.len()).then_some(Element::Program(position))
    }

    /// Reads a long option, given without its dashes. `None` for one that is not known
    /// and whose words are clear.
    fn long(&mut self, option: &str) -> Option<Element> {
        let position = self.position;
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (option, None),
        };
        let is_one_word = value.is_some();
        let next = self.argv.get(position + 1);
        self.position += 1;
        let Some((name, arity)) = long(self.command, self.release, name) else {
            let next = next.filter(|next| {
                !is_one_word && *next != ":" && !next.as_encoded_bytes().starts_with(b"-")
            })?;
            if (self.is_program)(next, self.chdir.as_deref().map(OsStr::new)) {
                self.skip_program();
                return Some(Element::Unclear(position));
            }
            self.position += 1;
            return None;
        };
        let takes_next = arity == Arity::Value && !is_one_word;
        self.position += usize::from(takes_next);
        let next = next.filter(|_| takes_next).map(|next| next.to_string_lossy().into_owned());
        let value = value.or(next);
        if name == "chdir" {
            self.chdir.clone_from(&value);
        }
        Some(Element::Option(LongOption { name, position, value, is_one_word }))
    }

    /// Reads a cluster of short options, such as `lN2` or `vn`. Only those that matter
    /// to gpubind are given.
    fn short(&mut self, letters: &str) {
        let position = self.position;
        self.position += 1;
        let mut rest = letters.chars();
        while let Some(letter) = rest.next() {
            let arity = short_option(self.command, letter);
            let value = match arity {
                Arity::Flag => None,
                Arity::Optional => Some(rest.as_str().to_owned()),
                Arity::Value if !rest.as_str().is_empty() => Some(rest.as_str().to_owned()),
                Arity::Value => {
                    self.position += 1;
                    let next = self.argv.get(position + 1);
                    next.map(|next| next.to_string_lossy().into_owned())
                }
            };
            let name = match letter {
                'D' => "chdir",
                'h' => "help",
                'V' => "version",
                _ => "",
            };
            if name == "chdir" {
                self.chdir.clone_from(&value);
            }
            if !name.is_empty() {
                self.pending.push_back(LongOption { name, position, value, is_one_word: true });
            }
            if arity != Arity::Flag {
                return;
            }
        }
    }
}

impl Iterator for Arguments<'_> {
    type Item = Element;

    fn next(&mut self) -> Option<Element> {
        loop {
            if let Some(option) = self.pending.pop_front() {
                return Some(Element::Option(option));
            }
            let word = self.argv.get(self.position)?.to_string_lossy();
            match word.strip_prefix('-') {
                _ if word == ":" => {
                    self.position += 1;
                    self.chdir = None;
                    return Some(Element::Separator);
                }
                Some("-") => {
                    let position = self.position + 1;
                    // After it, even a `:` can only be a separator.
                    if self.argv.get(position).is_some_and(|next| next == ":") {
                        self.position = position;
                        continue;
                    }
                    return self.program(position);
                }
                None | Some("") => return self.program(self.position),
                Some(letters) => match letters.strip_prefix('-') {
                    Some(option) => {
                        if let Some(element) = self.long(option) {
                            return Some(element);
                        }
                    }
                    None => self.short(letters),
                },
            }
        }
    }
}
