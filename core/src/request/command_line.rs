//! Finding gpubind's words on the command line of srun, sbatch and salloc.
//!
//! Slurm refuses `--gpu-bind=spank`, so the plugin replaces such a word before
//! Slurm parses it. It must not touch the user program's own arguments, so this
//! reads the line as the command's getopt_long(3) does: options first, then the
//! program, and in srun another component after a lone `:`.

use std::ffi::{OsStr, OsString};

use crate::node::IdSet;

use super::binding::{Binding, accepted_by_slurm};
use super::command::Command;
use super::grammar::RequestError;
use super::items::{Mode, Request};
use super::slurm_options::{Arity, long, short};

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// Words to replace: position in argv and new text. Never more or fewer words.
    pub replacements: Vec<(usize, String)>,
    /// The components, at least one.
    pub components: Vec<Component>,
    /// The job of srun's `--jobid`.
    pub job_id: Option<String>,
    /// Whether the command only prints about itself: `--help`, `--usage`, `--version`.
    pub is_informational: bool,
}

impl CommandLine {
    /// Whether any component says something about binding.
    pub fn says_something(&self) -> bool {
        self.components.iter().any(|component| component.binding != Binding::Unspecified)
    }

    /// The component that is being read.
    fn current(&mut self) -> Option<&mut Component> {
        self.components.last_mut()
    }

    fn binding(&mut self, binding: Binding) {
        if let Some(component) = self.current() {
            component.binding = binding;
        }
    }

    fn binds_implicitly(&mut self) {
        if let Some(component) = self.current() {
            component.binds_implicitly = true;
        }
    }

    fn start_component(&mut self) {
        let groups = vec![self.components.len()];
        self.components.push(Component { groups, ..Component::default() });
    }
}

/// An option with a request, which is to be written in another way.
struct RequestOption {
    /// The component's number.
    component: usize,
    /// The option's position in argv.
    position: usize,
    /// Whether its value is in the same word.
    glued: bool,
    /// The value of Slurm's `--gpu-bind` that says the same.
    slurm: String,
    request: Request,
}

impl RequestOption {
    /// The words to put in its place. A `--gpu-bind` that says `none` keeps Slurm
    /// from binding. Not so for shared GRES, which Slurm does not bind anyway:
    /// 22.05 then ends the tasks of a step with several on a node by a
    /// segmentation fault (gres.c, gres_g_task_set_env, mixes arguments up). Nor for
    /// `off`: under `none` a task's devices are not what Slurm makes of them by itself.
    fn replacements(&self, components: &[Component]) -> Vec<(usize, String)> {
        let shared_gres =
            components.get(self.component).is_some_and(|component| component.shared_gres);
        let (option, value) = match shared_gres || self.request.mode == Some(Mode::Off) {
            true => ("--gpubind", self.request.to_string()),
            false => ("--gpu-bind", self.slurm.clone()),
        };
        match self.glued {
            true => vec![(self.position, format!("{option}={value}"))],
            false => vec![(self.position, option.to_owned()), (self.position + 1, value)],
        }
    }
}

/// Reads the command line `argv` (with the command's own name first).
///
/// `is_program` tells whether a word could be the program to run; it decides
/// only about the word after an option that is not in the table (another SPANK
/// plugin's, or a newer release's): a program means that the option was a flag.
pub fn read_command_line(
    command: Command,
    argv: &[OsString],
    is_program: &dyn Fn(&OsStr) -> bool,
) -> Result<CommandLine, RequestError> {
    let mut line = CommandLine {
        replacements: Vec::new(),
        components: Vec::new(),
        job_id: None,
        is_informational: false,
    };
    line.start_component();
    let mut requests = Vec::new();
    let mut position = 1;
    while let Some(word) = argv.get(position) {
        let text = word.to_str().unwrap_or_default();
        if text == ":" {
            line.start_component();
            position += 1;
        } else if let Some(option) = text.strip_prefix("--").filter(|option| !option.is_empty()) {
            let next = argv.get(position + 1);
            let (words, option) = read_long(command, option, next, is_program, &mut line)?;
            requests.extend(option.map(|option| RequestOption { position, ..option }));
            position += words;
        } else if text.len() > 1 && text.starts_with('-') && text != "--" {
            line.is_informational |= text.starts_with("-V") || text.starts_with("-h");
            position += words_of_short(command, &text[1..]);
        } else {
            // The program. Only srun starts further components behind it.
            match (command, argv[position..].iter().position(|word| word == ":")) {
                (Command::Srun, Some(colon)) => position += colon,
                _ => break,
            }
        }
    }
    // Last, because a --gres may stand behind.
    line.replacements =
        requests.iter().flat_map(|option| option.replacements(&line.components)).collect();
    Ok(line)
}

/// Reads one long option (without its dashes); gives the number of words it takes
/// and the request that it makes, at a position that the caller knows.
fn read_long(
    command: Command,
    option: &str,
    next: Option<&OsString>,
    is_program: &dyn Fn(&OsStr) -> bool,
    line: &mut CommandLine,
) -> Result<(usize, Option<RequestOption>), RequestError> {
    let (name, glued) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    };
    let Some((name, arity)) = long(command, name) else {
        let takes_next = glued.is_none()
            && next.is_some_and(|next| {
                next != ":" && !next.as_encoded_bytes().starts_with(b"-") && !is_program(next)
            });
        return Ok((1 + usize::from(takes_next), None));
    };
    line.is_informational |= matches!(name, "help" | "usage" | "version");
    let words = if arity == Arity::Value && glued.is_none() { 2 } else { 1 };
    let Some(value) = glued.or_else(|| next.and_then(|next| next.to_str())) else {
        return Ok((words, None));
    };
    let component = line.components.len() - 1;
    let request_option = |slurm, request| {
        let glued = glued.is_some();
        Ok((words, Some(RequestOption { component, position: 0, glued, slurm, request })))
    };
    match name {
        "gpu-bind" => {
            let binding = Binding::from_gpu_bind(value)?;
            line.binding(binding.clone());
            if let Binding::Gpubind(request) = binding {
                return request_option(accepted_by_slurm(value), request);
            }
        }
        // Written as a --gpu-bind, it switches Slurm's implicit binding off as well.
        "gpubind" => {
            let request: Request = value.parse()?;
            line.binding(Binding::Gpubind(request.clone()));
            let colon = if value.is_empty() { "" } else { ":" };
            return request_option(format!("none,spank{colon}{value}"), request);
        }
        "gres" if asks_for_shared_gres(value) => {
            if let Some(component) = line.current() {
                component.shared_gres = true;
            }
        }
        "tres-bind" if value.contains("gpu") => line.binding(Binding::Slurm),
        "gpus-per-task" | "ntasks-per-gpu" => line.binds_implicitly(),
        "tres-per-task" if value.contains("gpu") => line.binds_implicitly(),
        // The letter g stands for the nearest GPUs.
        "accel-bind" if value.contains('g') => line.binds_implicitly(),
        "jobid" => line.job_id = Some(value.to_owned()),
        "het-group" | "pack-group" => {
            if let (Some(groups), Some(component)) = (groups(value), line.current()) {
                component.groups = groups;
            }
        }
        _ => {}
    }
    Ok((words, None))
}

/// Whether a `--gres` value, such as `gpu:a100:2,gres/shard:4`, asks for shared GRES.
pub(super) fn asks_for_shared_gres(value: &str) -> bool {
    let name =
        |gres: &str| gres.trim_start_matches("gres/").split([':', '=']).next().map(str::to_owned);
    value
        .split(',')
        .filter_map(|gres| name(gres.trim()))
        .any(|name| matches!(name.as_str(), "shard" | "mps"))
}

/// The numbers in a `--het-group` value such as `0,2-3`; `None` where srun would
/// not understand it either.
fn groups(value: &str) -> Option<Vec<usize>> {
    /// Slurm's own bound (src/srun/libsrun/opt.h).
    const MAX_HET_JOB_COMPONENTS: usize = 128;
    let list = value.trim_start_matches('[').trim_end_matches(']');
    let numbers: IdSet = list.parse().ok()?;
    let groups: Vec<usize> = numbers.iter().take_while(|at| *at < MAX_HET_JOB_COMPONENTS).collect();
    (!groups.is_empty()).then_some(groups)
}

/// The number of words that a cluster of short options takes, such as `lN2` or `vn`.
fn words_of_short(command: Command, letters: &str) -> usize {
    let mut rest = letters.chars();
    for letter in rest.by_ref() {
        if short(command, letter) == Arity::Value {
            return if rest.as_str().is_empty() { 2 } else { 1 };
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line as Slurm would see it, and what its components say.
    fn components(command: Command, text: &str) -> (String, Vec<Component>) {
        let mut argv: Vec<OsString> = text.split(' ').map(OsString::from).collect();
        let is_program = |word: &OsStr| matches!(word.to_str(), Some("prog" | "./prog" | "srun"));
        let line = read_command_line(command, &argv, &is_program).unwrap();
        let words = argv.len();
        for (position, word) in line.replacements {
            argv[position] = word.into();
        }
        assert_eq!(argv.len(), words);
        let seen: Vec<_> = argv.iter().map(|word| word.to_str().unwrap()).collect();
        (seen.join(" "), line.components)
    }

    /// The line as Slurm would see it, and the last component's binding.
    fn read(command: Command, text: &str) -> (String, Binding) {
        let (seen, mut components) = components(command, text);
        (seen, components.pop().unwrap().binding)
    }

    fn ours(items: &str) -> Binding {
        Binding::Gpubind(items.parse().unwrap())
    }

    #[test]
    fn every_spelling_of_the_option_is_rewritten() {
        for (typed, seen, items) in [
            ("srun --gpu-bind=spank prog", "srun --gpu-bind=none,spank prog", ""),
            ("srun --gpu-bind spank prog", "srun --gpu-bind none,spank prog", ""),
            ("srun --gpu-b=spank:single prog", "srun --gpu-bind=none,spank:single prog", "single"),
            (
                "srun --gpubind=ids=uuid prog",
                "srun --gpu-bind=none,spank:ids=uuid prog",
                "ids=uuid",
            ),
            ("srun --gpu-bind spank:off prog", "srun --gpubind off prog", "off"),
            ("srun --gpubind=off prog", "srun --gpubind=off prog", "off"),
            ("srun --gpubind first prog", "srun --gpu-bind none,spank:first prog", "first"),
            (
                "srun --gpu-bind=verbose,spank prog",
                "srun --gpu-bind=verbose,none,spank prog",
                "verbose",
            ),
        ] {
            assert_eq!(read(Command::Srun, typed), (seen.to_owned(), ours(items)), "{typed}");
        }
    }

    #[test]
    fn a_rewritten_line_stays_as_it_is() {
        let line = "srun -N2 --gpu-bind=none,spank:single prog";
        assert_eq!(read(Command::Srun, line), (line.to_owned(), ours("single")));
    }

    #[test]
    fn who_asks_for_shared_gres_gets_no_binding_of_slurms() {
        for (typed, seen) in [
            ("srun --gres=shard:1 --gpu-bind=spank:first prog", "--gres=shard:1 --gpubind=first"),
            ("srun --gpu-bind spank --gres gpu:1,gres/mps:5 prog", "--gpubind spank --gres"),
            ("srun --gpubind=first --gres=shard prog", "--gpubind=first --gres"),
            ("srun --gres=gpu:shard:1 --gpubind=first prog", "--gpu-bind=none,spank:first"),
            (
                "srun --gpubind=first prog : --gres=shard:1 --gpubind=first prog",
                "--gpu-bind=none,spank:first prog : --gres=shard:1 --gpubind=first",
            ),
        ] {
            let line = read(Command::Srun, typed).0;
            assert!(line.contains(seen), "{typed} became {line}");
            assert_eq!(read(Command::Srun, &line).0, line, "again");
        }
    }

    #[test]
    fn the_programs_own_arguments_are_not_touched() {
        for line in [
            "srun -N2 prog --gpu-bind=spank",
            "srun -lN 2 prog --gpu-bind=spank",
            "srun --nodes 2 --label prog --gpu-bind=spank",
            "srun --overlap prog --gpu-bind=spank",
            "srun --exclusive prog --gpu-bind=spank",
            "srun -- prog --gpu-bind=spank",
            "srun --some-flag prog --gpu-bind=spank",
            "sbatch --wait script : --gpu-bind=spank",
            "salloc -n1 prog : --gpu-bind=spank",
        ] {
            let command = Command::from_argv0(OsStr::new(line.split(' ').next().unwrap())).unwrap();
            assert_eq!(read(command, line), (line.to_owned(), Binding::Unspecified), "{line}");
        }
    }

    #[test]
    fn options_behind_values_and_unknown_options_are_still_found() {
        for typed in [
            "srun -n 4 -c2 -J name --time 5 --gpu-bind=spank prog",
            "srun -vn 4 --mem=0 -I --gpu-bind=spank prog",
            "srun --other-plugin value --gpu-bind=spank prog",
            "srun --other-plugin=value --gpu-bind=spank prog",
            "srun --some-flag --gpu-bind=spank prog",
        ] {
            let seen = typed.replace("=spank", "=none,spank");
            assert_eq!(read(Command::Srun, typed), (seen, ours("")), "{typed}");
        }
    }

    #[test]
    fn salloc_leaves_the_inner_srun_alone() {
        let (seen, _) = read(Command::Salloc, "salloc --gpu-bind=spank srun --gpu-bind=spank prog");
        assert_eq!(seen, "salloc --gpu-bind=none,spank srun --gpu-bind=spank prog");
    }

    #[test]
    fn every_component_of_a_heterogeneous_step_is_read() {
        let typed =
            "srun -n1 --gpu-bind=spank prog --gpu-bind=spank : -n2 --gpu-bind=spank:single prog";
        let (seen, found) = components(Command::Srun, typed);
        assert_eq!(
            seen,
            "srun -n1 --gpu-bind=none,spank prog --gpu-bind=spank : \
             -n2 --gpu-bind=none,spank:single prog"
        );
        let component =
            |binding, group| Component { binding, groups: vec![group], ..Component::default() };
        assert_eq!(found, [component(ours(""), 0), component(ours("single"), 1)]);
        let (seen, _) = read(Command::Sbatch, "sbatch -n1 --gpubind=first : -n2 --gpubind=first x");
        assert_eq!(seen.matches("--gpu-bind=none,spank:first").count(), 2);
    }

    #[test]
    fn a_component_may_run_in_other_groups_than_its_own() {
        let line = "srun --het-group=1,3-4 --gpu-bind=spank prog : prog : --het-group 0 prog";
        let (_, found) = components(Command::Srun, line);
        let groups: Vec<_> = found.iter().map(|component| component.groups.as_slice()).collect();
        assert_eq!(groups, [&[1, 3, 4][..], &[1], &[0]]);
        let bindings: Vec<_> = found.iter().map(|component| &component.binding).collect();
        assert_eq!(bindings, [&ours(""), &Binding::Unspecified, &Binding::Unspecified]);
        let (_, found) = components(Command::Srun, "srun --het-group=x prog");
        assert_eq!(found[0].groups, [0]);
    }

    #[test]
    fn the_last_option_decides_and_slurms_own_binding_is_seen() {
        for (line, binding) in [
            ("srun --gpu-bind=closest prog", Binding::Slurm),
            ("srun --tres-bind=gres/gpu:single:1 prog", Binding::Slurm),
            ("srun --tres-bind=gres/nic:closest prog", Binding::Unspecified),
            ("srun --gpu-bind=spank --gpu-bind=closest prog", Binding::Slurm),
            ("srun --gpu-bind=closest --gpu-bind=spank:first prog", ours("first")),
        ] {
            assert_eq!(read(Command::Srun, line).1, binding, "{line}");
        }
    }

    #[test]
    fn options_by_which_slurm_binds_of_its_own_accord_are_seen() {
        for (line, binds) in [
            ("srun --gpus-per-task=1 prog", true),
            ("srun --gpus-per-t a100:2 prog", true),
            ("srun --ntasks-per-gpu=2 prog", true),
            ("srun --tres-per-task=cpu:1,gres/gpu:1 prog", true),
            ("srun --tres-per-task=cpu:1 prog", false),
            ("srun --accel-bind=gv prog", true),
            ("srun --accel-bind=n prog", false),
            ("srun --gpus-per-node=8 prog --gpus-per-task=1", false),
        ] {
            let found = components(Command::Srun, line).1;
            assert_eq!(found[0].binds_implicitly, binds, "{line}");
        }
        let found = components(Command::Srun, "srun --gpus=1 prog : --gpus-per-task=1 prog").1;
        assert_eq!([found[0].binds_implicitly, found[1].binds_implicitly], [false, true]);
    }

    #[test]
    fn a_line_that_ends_early_or_is_not_utf8_is_no_problem() {
        use std::os::unix::ffi::OsStringExt;
        for line in ["srun", "srun --gpu-bind", "srun -n", "srun --", "srun -", "srun :"] {
            assert_eq!(
                read(Command::Srun, line),
                (line.to_owned(), Binding::Unspecified),
                "{line}"
            );
        }
        let argv =
            ["srun".into(), OsString::from_vec(vec![b'-', b'-', 0xff]), "--gpu-bind=spank".into()];
        let line = read_command_line(Command::Srun, &argv, &|_| true).unwrap();
        assert!(line.replacements.is_empty(), "a word that is not text is taken for the program");
    }
}
