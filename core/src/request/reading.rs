//! Finding gpubind's words on the command line of srun, sbatch and salloc.
//!
//! Slurm refuses `--gpu-bind=spank`, so the plugin replaces such a word before
//! Slurm parses it. It must not touch the user program's own arguments.

use std::ffi::OsString;

use super::arguments::{Arguments, Element, IsProgram, LongOption};
use super::binding::{Binding, accepted_by_slurm};
use super::command::Command;
use super::command_line::{CommandLine, CommandLineError, Component, GPUBIND, Unclear};
use super::grammar::{is_help, shown};
use super::items::{Mode, Request};
use super::slurm_options::long;
use crate::SlurmRelease;
use crate::node::IdSet;

/// Slurm's option, which gpubind shares.
pub(super) const GPU_BIND: &str = "gpu-bind";

/// An option with a request, which is to be written in another way.
pub(super) struct RequestOption {
    /// The component's number.
    component: usize,
    /// The option as typed.
    pub typed: LongOption,
    /// The value of Slurm's `--gpu-bind` that says the same.
    slurm: String,
    pub request: Request,
}

impl RequestOption {
    /// Whether Slurm refuses the option as typed.
    pub fn slurm_refuses(&self) -> bool {
        self.typed.name == GPU_BIND && self.typed.value.as_ref() != Some(&self.slurm)
    }

    /// The words to put in its place. A `--gpu-bind` that says `none` keeps Slurm
    /// from binding. Not so for shared GRES, which Slurm does not bind anyway:
    /// 22.05 then ends the tasks of a step with several on a node by a
    /// segmentation fault (gres.c, gres_g_task_set_env, mixes arguments up). Nor for
    /// `off`: under `none` a task's devices are not what Slurm makes of them by itself.
    fn replacements(&self, components: &[Component]) -> Vec<(usize, String)> {
        let shared_gres =
            components.get(self.component).is_some_and(|component| component.shared_gres);
        let (option, value) = match shared_gres || self.request.mode == Some(Mode::Off) {
            true => (GPUBIND, self.request.to_string()),
            false => (GPU_BIND, self.slurm.clone()),
        };
        let position = self.typed.position;
        match self.typed.is_one_word {
            true => vec![(position, format!("--{option}={value}"))],
            false => vec![(position, format!("--{option}")), (position + 1, value)],
        }
    }
}

/// Reads the command line `argv` (with the command's own name first).
///
/// `is_program` tells whether a word could be the program to run; it decides
/// only about the word after an option that is in no table (another SPANK
/// plugin's, or a newer release's).
///
/// # Errors
/// [`CommandLineError`] for the first option of gpubind's that cannot be understood.
pub fn read_command_line(
    command: Command,
    release: SlurmRelease,
    argv: &[OsString],
    is_program: IsProgram,
) -> Result<CommandLine, CommandLineError> {
    read(command, release, argv, is_program).map(|(line, _)| line)
}

/// The same, with the options that [`CommandLine::replacements`] are for.
pub(super) fn read(
    command: Command,
    release: SlurmRelease,
    argv: &[OsString],
    is_program: IsProgram,
) -> Result<(CommandLine, Vec<RequestOption>), CommandLineError> {
    let mut line = CommandLine::default();
    line.start_component();
    let mut requests = Vec::new();
    for element in Arguments::new(command, release, argv, is_program) {
        match element {
            Element::Separator => line.start_component(),
            Element::Program(position) => line.program = line.program.or(Some(position)),
            Element::Unclear(position) => {
                let rest = argv.get(position..).unwrap_or_default();
                let component = line.components.len() - 1;
                line.unclear.extend(unclear(command, release, rest, component));
                line.program = line.program.or(Some(position + 1));
            }
            Element::Option(option) => requests.extend(take_option(option, &mut line)?),
        }
    }
    // Last, because a --gres may stand behind.
    line.replacements =
        requests.iter().flat_map(|option| option.replacements(&line.components)).collect();
    Ok((line, requests))
}

/// Takes in one option; gives it back where it makes a request.
fn take_option(
    option: LongOption,
    line: &mut CommandLine,
) -> Result<Option<RequestOption>, CommandLineError> {
    if matches!(option.name, "help" | "usage" | "version") {
        line.is_informational = true;
    }
    let Some(value) = option.value.as_deref() else { return Ok(None) };
    let component = line.components.len() - 1;
    let wrong = |error| CommandLineError { option: option.name, position: option.position, error };
    let request = match option.name {
        GPU_BIND if value.strip_prefix("spank:").is_some_and(is_help) => {
            line.asks_for_help = true;
            None
        }
        GPU_BIND => {
            let binding = Binding::from_gpu_bind(value).map_err(wrong)?;
            line.current().binding = binding.clone();
            match binding {
                Binding::Gpubind(request) => Some((accepted_by_slurm(value), request)),
                Binding::Slurm | Binding::Unspecified => None,
            }
        }
        GPUBIND if is_help(value) => {
            line.asks_for_help = true;
            None
        }
        // Written as a --gpu-bind, it switches Slurm's implicit binding off as well.
        GPUBIND => {
            let request: Request = value.parse().map_err(wrong)?;
            line.current().binding = Binding::Gpubind(request.clone());
            let colon = if value.is_empty() { "" } else { ":" };
            Some((format!("none,spank{colon}{value}"), request))
        }
        "wrap" => {
            line.has_wrap = true;
            None
        }
        "jobid" => {
            line.job_id = Some(value.to_owned());
            None
        }
        name => {
            take_slurms_option(name, value, line.current());
            None
        }
    };
    Ok(request.map(|(slurm, request)| RequestOption { component, typed: option, slurm, request }))
}

/// What other options of Slurm say about binding.
fn take_slurms_option(name: &str, value: &str, component: &mut Component) {
    match name {
        "gres" => component.shared_gres |= asks_for_shared_gres(value),
        "tres-bind" if value.contains("gpu") => component.binding = Binding::Slurm,
        "gpus-per-task" | "ntasks-per-gpu" => component.binds_implicitly = true,
        "tres-per-task" => component.binds_implicitly |= value.contains("gpu"),
        // The letter g stands for the nearest GPUs.
        "accel-bind" => component.binds_implicitly |= value.contains('g'),
        "het-group" | "pack-group" => {
            if let Some(groups) = groups(value) {
                component.groups = groups;
            }
        }
        _ => {}
    }
}

/// The options with a request among words whose beginning is unclear: an option that is
/// not known, and a word that can be its value or the program.
fn unclear(
    command: Command,
    release: SlurmRelease,
    words: &[OsString],
    component: usize,
) -> Vec<Unclear> {
    let lossy = |at: usize| words.get(at).map(|word| shown(&word.to_string_lossy()));
    let (Some(behind), Some(program)) = (lossy(0), lossy(1)) else { return Vec::new() };
    let end = match command {
        Command::Srun => words.iter().position(|word| word == ":").unwrap_or(words.len()),
        Command::Sbatch | Command::Salloc => words.len(),
    };
    let option = |at: usize| {
        let word = words.get(at)?.to_str()?.strip_prefix("--")?;
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, words.get(at + 1).and_then(|next| next.to_str())),
        };
        let name = long(command, release, name)?.0;
        let value = value?;
        let is_ours = name == GPUBIND
            || name == GPU_BIND
                && !matches!(Binding::from_gpu_bind(value), Ok(Binding::Slurm))
                && accepted_by_slurm(value) != value;
        let (behind, program) = (behind.clone(), program.clone());
        is_ours.then(|| Unclear { component, name, value: value.to_owned(), behind, program })
    };
    (2..end).filter_map(option).collect()
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

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use proptest::prelude::*;

    use super::*;

    const NOW: SlurmRelease = SlurmRelease::new(26, 5);

    /// `prog`, and under the folder `work` also `./own`.
    fn is_program(word: &OsStr, folder: Option<&OsStr>) -> bool {
        match word.to_str() {
            Some("prog" | "./prog" | "srun" | "test") => true,
            Some("./own") => folder == Some(OsStr::new("work")),
            _ => false,
        }
    }

    /// The line as Slurm would see it, and what its components say.
    fn components(command: Command, text: &str) -> (String, Vec<Component>) {
        let mut argv: Vec<OsString> = text.split(' ').map(OsString::from).collect();
        let line = read_command_line(command, NOW, &argv, &is_program).unwrap();
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
        let line = read_command_line(Command::Srun, NOW, &argv, &|_, _| true).unwrap();
        assert_eq!(line.replacements, [(2, "--gpu-bind=none,spank".to_owned())]);
    }

    #[test]
    fn a_value_that_is_also_a_program_hides_no_option_of_a_known_plugin() {
        for (typed, seen) in [
            ("srun --container-name test --gpubind=single x", "--gpu-bind=none,spank:single x"),
            ("srun --container-im test --gpu-bind=spank x", "--gpu-bind=none,spank x"),
            (
                "srun --container-writable --gpubind=first test --gpubind=x",
                ":first test --gpubind=x",
            ),
            ("salloc --wait 1 --gpu-bind=spank", "--gpu-bind=none,spank"),
            ("salloc --job test --gpu-bind=spank", "--gpu-bind=none,spank"),
            ("srun --resources test --gpu-bind=spank x", "--gpu-bind=none,spank x"),
            ("srun -Kn 4 --gpu-bind=spank", "srun -Kn 4 --gpu-bind=spank"),
        ] {
            let command =
                Command::from_argv0(OsStr::new(typed.split(' ').next().unwrap())).unwrap();
            let line = read(command, typed).0;
            assert!(line.ends_with(seen), "{typed} became {line}");
        }
    }

    #[test]
    fn what_can_be_the_programs_is_left_alone_and_reported() {
        let read = |typed: &str| {
            let argv: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
            read_command_line(Command::Srun, NOW, &argv, &is_program).unwrap()
        };
        let line = read("srun --myflag prog --gpu-bind=spank:first --gpubind off : -n1 prog");
        assert_eq!((&line.replacements[..], line.components.len()), (&[][..], 2));
        assert_eq!(line.program, Some(2));
        let unclear: Vec<_> = line.unclear.iter().map(|one| (one.name, &one.value[..])).collect();
        assert_eq!(unclear, [("gpu-bind", "spank:first"), ("gpubind", "off")]);
        assert_eq!(
            line.unclear[0].to_string(),
            "`--gpu-bind=spank:first` is left alone: it can be an argument of the program `prog`, \
             since gpubind does not know whether --myflag takes a value; for Slurm, write \
             --gpubind=first before --myflag"
        );
        // What Slurm takes as it is needs no word.
        assert_eq!(read("srun --myflag prog --gpu-bind=none,spank --gpu-bind=none").unclear, []);
        // A program is looked for where the command will run it.
        for chdir in ["--chdir=work", "--chdir work", "-D work", "-Dwork", "-lD work", "--chd=work"]
        {
            let line = read(&format!("srun {chdir} --myflag ./own --gpu-bind=spank"));
            assert_eq!((line.replacements.len(), line.unclear.len()), (0, 1), "{chdir}");
        }
        for typed in [
            "srun --myflag ./own --gpu-bind=spank",
            "srun -Dwork prog : --myflag ./own --gpu-bind=spank",
        ] {
            assert_eq!(read(typed).replacements.len(), 1, "{typed}: the option's value");
        }
    }

    #[test]
    fn what_slurm_itself_has_parsed_makes_clear_what_was_unclear() {
        let with = |typed: &str, value: &str| {
            let argv: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
            let line = read_command_line(Command::Srun, NOW, &argv, &is_program).unwrap();
            line.with_parsed_option(value)
        };
        let bindings = |typed: &str, value: &str| {
            let line = with(typed, value).unwrap()?;
            Some(line.components.into_iter().map(|one| one.binding).collect::<Vec<_>>())
        };
        let unclear = "srun --myflag prog --gpubind=off x";
        assert_eq!(bindings(unclear, "off"), Some(vec![ours("off")]));
        assert_eq!(bindings(unclear, "first"), None, "the job's, which it has inherited");
        assert_eq!(bindings("srun prog --gpubind=first", "first"), None);
        assert_eq!(bindings("srun --gpubind=first prog", "first"), None, "it is known");
        let second = "srun --gpubind=first prog : --myflag prog --gpubind off x";
        assert_eq!(bindings(second, "off"), Some(vec![ours("first"), ours("off")]));
        let error = with("srun --myflag prog --gpubind=atuo", "atuo").unwrap_err().to_string();
        assert!(error.starts_with("--gpubind: unknown item `atuo`"), "{error}");
        let help = with("srun --myflag prog --gpubind=help", "help").unwrap();
        assert!(help.unwrap().asks_for_help);
    }

    #[test]
    fn an_error_names_the_option_that_it_is_in() {
        let error = |typed: &str| {
            let argv: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
            let error = read_command_line(Command::Srun, NOW, &argv, &is_program).unwrap_err();
            (error.position, error.to_string())
        };
        let (position, message) = error("srun -n1 --gpubind=atuo prog");
        assert_eq!(position, 2);
        assert!(message.starts_with("--gpubind: unknown item `atuo`; did you mean `auto`?"));
        assert!(error("srun --gpu-bind=spank:xyz prog").1.starts_with("--gpu-bind: unknown item"));
    }

    #[test]
    fn texts_and_jobs_that_are_asked_for_are_seen() {
        let read = |typed: &str| {
            let argv: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
            read_command_line(Command::Srun, NOW, &argv, &is_program).unwrap()
        };
        for typed in ["srun --help", "srun -n1 --usage", "srun --version", "srun -V", "srun -vh"] {
            assert!(read(typed).is_informational, "{typed}");
        }
        assert!(!read("srun -v prog --help -V").is_informational);
        for typed in ["srun --gpubind=help", "srun --gpubind help", "srun --gpu-bind=spank:help"] {
            assert!(read(typed).asks_for_help, "{typed}");
        }
        assert!(!read("srun prog --gpubind=help").asks_for_help);
        let argv = ["sbatch", "--wrap", "srun x"].map(OsString::from);
        let line = read_command_line(Command::Sbatch, NOW, &argv, &is_program).unwrap();
        assert_eq!((line.has_wrap, line.program), (true, None));
        assert_eq!(read("srun --jobid=7 a : b").job_id.as_deref(), Some("7"));
    }

    /// Words of command lines.
    fn words() -> impl Strategy<Value = Vec<String>> {
        let word = prop_oneof![
            "-{0,2}[a-zA-Z]{0,6}(=[a-z:,]{0,5})?",
            "--gpu-?b?(ind)?(=|=spank|=none,spank:first)?",
            "--(container-name|myflag|chdir|label|ntasks|gres)(=x)?",
            Just("spank".to_owned()),
            Just("first".to_owned()),
            Just(":".to_owned()),
            Just("--".to_owned()),
            Just("prog".to_owned()),
        ];
        proptest::collection::vec(word, 0..12)
    }

    proptest! {
        #[test]
        fn a_line_once_rewritten_stays_and_says_the_same(words in words()) {
            for command in [Command::Srun, Command::Sbatch, Command::Salloc] {
                let mut argv: Vec<OsString> = vec!["x".into()];
                argv.extend(words.iter().map(OsString::from));
                let Ok(line) = read_command_line(command, NOW, &argv, &is_program) else { continue };
                for (position, word) in &line.replacements {
                    prop_assert!(*position < argv.len());
                    argv[*position] = word.into();
                }
                let again = read_command_line(command, NOW, &argv, &is_program).unwrap();
                for (position, word) in &again.replacements {
                    prop_assert_eq!(&argv[*position], OsStr::new(word));
                }
                prop_assert_eq!(again.components, line.components);
            }
        }

        #[test]
        fn nothing_behind_the_program_is_touched(before in words(), after in words()) {
            for command in [Command::Srun, Command::Sbatch, Command::Salloc] {
                let clear = before.iter().filter(|word| *word != ":" && *word != "--");
                let mut argv: Vec<OsString> = vec!["x".into()];
                argv.extend(clear.map(OsString::from));
                // An option that ends the line could take the next word.
                argv.push("--label=".into());
                let program = argv.len();
                argv.push("prog".into());
                argv.extend(after.iter().filter(|word| *word != ":").map(OsString::from));
                let Ok(line) = read_command_line(command, NOW, &argv, &is_program) else { continue };
                let behind = line.replacements.iter().filter(|(position, _)| *position >= program);
                prop_assert_eq!(behind.count(), 0, "{:?}", argv);
            }
        }
    }
}
