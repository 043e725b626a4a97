//! What a command line of srun, sbatch or salloc says, once it has been read, and what
//! a batch script and Slurm's own parsing add to it.

use std::fmt;

use super::binding::Binding;
use super::grammar::{RequestError, is_help};
use super::items::Request;

/// gpubind's own option.
pub(super) const GPUBIND: &str = "gpubind";

/// One component of the command line; they stand with a `:` between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Component {
    /// Whose binding is asked for; the last option decides, as in Slurm.
    pub binding: Binding,
    /// The components of a heterogeneous job in which it runs, one after the
    /// other: of srun's `--het-group`, else the one with its own number.
    pub groups: Vec<usize>,
    /// Whether it asks for shared GRES, gres/shard or gres/mps.
    pub shared_gres: bool,
    /// Whether it has an option by which Slurm binds GPUs to tasks of its own accord,
    /// such as `--gpus-per-task`.
    pub binds_implicitly: bool,
}

/// What a command line says, and what Slurm should read instead.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// Words to replace: position in argv and new text. Never more or fewer words.
    pub replacements: Vec<(usize, String)>,
    /// The components, at least one.
    pub components: Vec<Component>,
    /// The position of the first program; in sbatch, of the script.
    pub program: Option<usize>,
    /// Whether sbatch makes the script itself, by `--wrap`.
    pub has_wrap: bool,
    /// What may be meant for gpubind, or else for the program.
    pub unclear: Vec<Unclear>,
    /// The job of srun's `--jobid`.
    pub job_id: Option<String>,
    /// Whether the command only prints about itself: `--help`, `--usage`, `--version`.
    pub is_informational: bool,
    /// Whether it asks for the list of items: `--gpubind=help`.
    pub asks_for_help: bool,
}

/// An option with a request, behind one that is not known and a word that can be that
/// one's value, or else the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unclear {
    /// Its component.
    pub component: usize,
    /// `gpubind` or `gpu-bind`.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// The option that is not known.
    pub behind: String,
    /// The word that can be a program.
    pub program: String,
}

impl Unclear {
    /// Whether Slurm will refuse it, if it is Slurm's; else Slurm parses it itself.
    pub fn slurm_refuses(&self) -> bool {
        self.name != GPUBIND
    }
}

impl fmt::Display for Unclear {
    /// For the user, whom Slurm is about to tell that it does not know `spank`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items = match Binding::from_gpu_bind(&self.value) {
            Ok(Binding::Gpubind(request)) => request.to_type(),
            _ => Request::default().to_type(),
        };
        write!(
            f,
            "`--{}={}` is left alone: it can be an argument of the program `{}`, since gpubind does \
             not know whether {} takes a value; for Slurm, write --gpubind={items} before {}",
            self.name, self.value, self.program, self.behind, self.behind
        )
    }
}

/// A command line that asks for something that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--{option}: {error}")]
pub struct CommandLineError {
    /// The option's name.
    pub option: &'static str,
    /// Its position in argv.
    pub position: usize,
    /// What is wrong with its value.
    pub error: RequestError,
}

impl CommandLine {
    /// Whether any component says something about binding.
    pub fn says_something(&self) -> bool {
        self.components.iter().any(|component| component.binding != Binding::Unspecified)
    }

    /// The component that is being read.
    pub(super) fn current(&mut self) -> &mut Component {
        if self.components.is_empty() {
            self.start_component();
        }
        let last = self.components.len() - 1;
        &mut self.components[last]
    }

    /// Begins another component.
    pub(super) fn start_component(&mut self) {
        let groups = vec![self.components.len()];
        self.components.push(Component { groups, ..Component::default() });
    }

    /// This command line, and where a component says nothing of binding, that of the batch
    /// script.
    #[must_use]
    pub fn over_script(mut self, script: &CommandLine) -> CommandLine {
        while self.components.len() < script.components.len() {
            self.start_component();
        }
        for (own, scripts) in self.components.iter_mut().zip(&script.components) {
            if own.binding == Binding::Unspecified {
                own.binding = scripts.binding.clone();
            }
            own.shared_gres |= scripts.shared_gres;
            own.binds_implicitly |= scripts.binds_implicitly;
        }
        self.asks_for_help |= script.asks_for_help;
        self
    }

    /// This command line with the value that Slurm itself has parsed for `--gpubind`,
    /// where that makes clear what was [`Unclear`].
    ///
    /// # Errors
    /// Items that cannot be understood.
    pub fn with_parsed_option(&self, value: &str) -> Result<Option<CommandLine>, CommandLineError> {
        let mut line = self.clone();
        let mut is_clear = false;
        for unclear in &self.unclear {
            if unclear.name == GPUBIND && unclear.value == value {
                is_clear = true;
                line.asks_for_help |= is_help(value);
                if let Some(component) = line.components.get_mut(unclear.component) {
                    component.binding = option_value(value)?;
                }
            }
        }
        Ok(is_clear.then_some(line))
    }
}

/// What a value of `--gpubind` asks for.
fn option_value(value: &str) -> Result<Binding, CommandLineError> {
    if is_help(value) {
        return Ok(Binding::Unspecified);
    }
    let wrong = |error| CommandLineError { option: GPUBIND, position: 0, error };
    value.parse().map(Binding::Gpubind).map_err(wrong)
}
