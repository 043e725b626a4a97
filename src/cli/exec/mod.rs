//! `gpubind exec`: binds this process, then becomes the command. What this machine's
//! admin has set for it is in `site`, the CPUs that the step's tasks have in `cpus`.

mod cpus;
mod site;

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitCode};
use std::time::Duration;

use serde::Serialize;
use tracing::level_filters::LevelFilter;

use super::ending::{CommandError, USAGE, complain, warn};
use super::host::host;
use super::machine_args::MachineArgs;
use super::output;
use cpus::{TaskCpus, task_cpus, worker_cpus};
use gpubind_core::bind::{
    Outcome, Process, Shim, SkipReason, Warning, edits_for_process, skip_reason,
};
use gpubind_core::node::{IdSet, Roots};
use gpubind_core::request::{Cpus, Request, RequestError, request_of_process};
use gpubind_core::site::{EffectiveSettings, Settings, Site};
use gpubind_core::step::{
    RankInfo, RankSource, Reach, core_threads, own_cpus, rank_info, reach, set_own_cpus,
};
use gpubind_core::variables;

/// Run a command with its nearest GPU, with or without Slurm
///
/// Sets the environment as the plugin does in a task, and becomes COMMAND, so that
/// signals and the exit code are COMMAND's own. The process's number on the node is the
/// launcher's (torchrun, mpirun, …), else Slurm's; without one it is alone. The GPUs to
/// choose from are those in CUDA_VISIBLE_DEVICES, else all that can be reached. A process
/// that has one GPU already, or that gpubind has bound, is left as it is.
///
/// A worker of a launcher gets exactly one GPU. Otherwise a process is a task: with fewer
/// tasks than GPUs each keeps its share, nearest first, unless --mode=single says
/// otherwise; torchrun or mpirun as COMMAND has each worker take its entry.
///
/// SLURM_GPUBIND and gpubind.toml hold defaults for the items. If the GPUs cannot be read, they are assigned
/// in index order, with a warning; COMMAND is started all the same.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Exit codes: COMMAND's; 126 if it cannot be run, 127 if it is not found, \
                        2 for wrong options.\n\n\
                        Examples:\n  \
                        torchrun --no-python --nproc-per-node=4 gpubind exec -- python train.py\n  \
                        mpirun -n 8 gpubind exec -- ./app\n  \
                        srun -n 8 gpubind exec --verbose -- ./app")]
pub struct ExecArgs {
    /// What to see of the GPUs, and other items of --gpu-bind=spank: auto, single, ordered,
    /// first, off, share, strict, …
    #[arg(long, value_name = "ITEM,…", value_parser = items)]
    mode: Option<String>,
    /// How GPUs are written: index or uuid; MIG instances are always written as UUIDs
    #[arg(long, value_name = "HOW", value_parser = |text: &str| items(&format!("ids={text}")))]
    ids: Option<String>,
    /// LOCAL_RANK where one GPU is visible: virtual (0) or keep
    #[arg(long, value_name = "HOW", value_parser = |text: &str| items(&format!("local-rank={text}")))]
    local_rank: Option<String>,
    /// In a task of Slurm's, set RANK, WORLD_SIZE, MASTER_ADDR and the like where unset: on or off
    #[arg(long, value_name = "ON", value_parser = |text: &str| items(&format!("rank-env={text}")))]
    rank_env: Option<String>,
    /// Say on stderr which GPU this process got, and why
    #[arg(long)]
    verbose: bool,
    /// Print the changes to the environment, and run nothing
    #[arg(long)]
    dry_run: bool,
    /// Print them as a JSON object
    #[arg(long, requires = "dry_run")]
    json: bool,
    /// How many seconds reading the GPUs may take
    #[arg(long, value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    deadline: u64,
    #[command(flatten)]
    machine: MachineArgs,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND", required_unless_present = "dry_run")]
    command: Vec<OsString>,
}

impl ExecArgs {
    /// Who wants to know why a GPU was chosen also wants to know what was missing.
    pub(super) fn least_level(&self) -> LevelFilter {
        if self.verbose { LevelFilter::INFO } else { LevelFilter::OFF }
    }
}

/// Checks an option's items by themselves, so that a mistake names its option.
fn items(text: &str) -> Result<String, RequestError> {
    text.parse::<Request>().map(|_| text.to_owned())
}

/// Why the command was not started.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// Two options contradict each other.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// `strict` was asked for, and the process cannot be bound as asked.
    #[error("strict: {0}")]
    Strict(Warning),
    /// The system would not run it.
    #[error("cannot run {command}: {error}")]
    Run {
        /// The command.
        command: String,
        /// Why.
        error: io::Error,
    },
}

impl ExecError {
    /// The program's exit code, for a command as env(1) and the shells have it.
    fn exit_code(&self) -> u8 {
        match self {
            ExecError::Request(_) => USAGE,
            ExecError::Run { error, .. } if error.kind() == io::ErrorKind::NotFound => 127,
            ExecError::Run { .. } => 126,
            ExecError::Strict(_) => 1,
        }
    }
}

/// Runs the command; comes back only from a dry run, or if it cannot be run.
///
/// # Errors
/// [`CommandError`].
pub fn run(args: &ExecArgs, out: &mut dyn Write) -> Result<ExitCode, CommandError> {
    let changes = match changes(args) {
        Ok(changes) => changes,
        Err(error) => return Ok(complain(&error, error.exit_code())),
    };
    match args.command.split_first() {
        Some((program, arguments)) if !args.dry_run => {
            let error = become_command(program, arguments, &changes);
            Ok(complain(&error, error.exit_code()))
        }
        _ => {
            changes.print(args.json, out)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// What binding changes in this process's environment.
fn changes(args: &ExecArgs) -> Result<Changes, ExecError> {
    let env = |name: &str| env::var(name).ok();
    let rank_info = rank_info(process::id(), &env);
    let site = site::site(&args.machine.roots(), &env).unwrap_or_else(|error| {
        if rank_info.local_rank == 0 {
            say(&format!("warning: {error}"));
        }
        EffectiveSettings::new([]).site()
    });
    let settings = settings(args, &rank_info, &site)?;
    let outcome = match skip_reason(&rank_info, &settings, &env) {
        Some(why) => Outcome::skipped(why),
        None => bind(args, &rank_info, &settings, &site),
    };
    tell(&outcome, &rank_info, &settings)?;
    Ok(Changes::of(outcome))
}

fn become_command(program: &OsStr, arguments: &[OsString], changes: &Changes) -> ExecError {
    let mut command = Command::new(program);
    command.args(arguments).envs(&changes.set);
    if let Some(cpus) = &changes.cpus
        && let Err(error) = set_own_cpus(cpus)
    {
        say(&format!("warning: cpus=local: cannot leave CPUs {cpus} only: {error}"));
        command.env_remove(variables::CPUS);
    }
    for name in &changes.unset {
        command.env_remove(name);
    }
    let error = command.exec();
    ExecError::Run { command: program.to_string_lossy().into_owned(), error }
}

/// The options over SLURM_GPUBIND over the site's over the defaults.
fn settings(args: &ExecArgs, rank_info: &RankInfo, site: &Site) -> Result<Settings, ExecError> {
    let given = [&args.mode, &args.ids, &args.local_rank, &args.rank_env].into_iter().flatten();
    let given: Vec<&str> = given.map(String::as_str).collect();
    let asked: Request = given.join(",").parse()?;
    let inherited = request_of_process(&|name| env::var(name).ok()).unwrap_or_else(|error| {
        if rank_info.local_rank == 0 {
            say(&format!("ignoring {error}"));
        }
        Request::default()
    });
    let settings = Settings::of(Some(&asked.or(&inherited)), site);
    Ok(Settings { verbose: settings.verbose || args.verbose, ..settings })
}

fn bind(args: &ExecArgs, rank_info: &RankInfo, settings: &Settings, site: &Site) -> Outcome {
    let shim = site::shim(site);
    let node = args.machine.node_within(Duration::from_secs(args.deadline));
    let node = node.map_err(|error| error.to_string());
    let reach = match &node {
        Ok(node) => reach(node, &args.machine.roots().dev()),
        Err(_) => Reach::default(),
    };
    let env = |name: &str| env::var(name).ok();
    let cpus = own_cpus();
    let told = match &node {
        Ok(node) if rank_info.source == RankSource::Slurm => {
            task_cpus(rank_info, &cpus, node, &env)
        }
        Ok(_) if settings.cpus == Cpus::Local => worker_cpus(rank_info, &cpus, &env),
        _ => TaskCpus::Given,
    };
    let mut settings = settings.clone();
    let announced = match told {
        TaskCpus::Given => None,
        TaskCpus::Announced(sets) => Some(sets),
        TaskCpus::NoReply(ranks) if rank_info.source == RankSource::Slurm => {
            if rank_info.local_rank == 0 {
                let ranks = ranks.into_iter().collect();
                say(&format!("warning: {}", Warning::CpusUnknown { ranks }));
            }
            None
        }
        TaskCpus::NoReply(_) => {
            // What its launcher has given it is perhaps its own already.
            settings.cpus = Cpus::Keep;
            None
        }
    };
    edits_for_process(&Process {
        node: node.as_ref().map_err(String::as_str),
        reach: &reach,
        rank_info,
        cpus: &cpus,
        task_cpus: announced.as_deref(),
        threads: &|cpu| core_threads(&args.machine.roots(), cpu),
        settings: &settings,
        exclude: &site.exclude,
        // The command has this process's number.
        worker: shim.as_deref().map(|file| Shim { file, process: process::id() }),
        is_in_step: is_in_step(),
        is_in_container: is_in_container(&args.machine.roots()),
        preload: env::var_os(variables::LD_PRELOAD).as_deref(),
        env: &env,
    })
}

/// Whether the process is in a step: Slurm's variables say so, or the cgroup that
/// slurmstepd has made for it (src/plugins/cgroup, `job_ID/step_ID`).
fn is_in_step() -> bool {
    let in_cgroup = || {
        let cgroups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        cgroups.lines().any(|line| line.contains("/job_") && line.contains("/step_"))
    };
    env::var_os(variables::JOB_ID).is_some() || in_cgroup()
}

/// Whether podman or docker says so, each by a file of its own.
fn is_in_container(roots: &Roots) -> bool {
    ["run/.containerenv", ".dockerenv"].iter().any(|file| roots.fsroot().join(file).exists())
}

/// Says what the user should know: once for all processes of the node, and for each
/// where `verbose` was asked for.
fn tell(outcome: &Outcome, rank_info: &RankInfo, settings: &Settings) -> Result<(), ExecError> {
    let notes = outcome.edits.as_ref().map_or(&[][..], |edits| &edits.notes);
    let mut grave = outcome.warnings.iter().chain(notes.iter().filter(|it| it.is_grave()));
    if let Some(warning) = grave.next().filter(|_| settings.strict) {
        return Err(ExecError::Strict(warning.clone()));
    }
    if rank_info.local_rank == 0 {
        outcome.warnings.iter().for_each(|warning| say(&format!("warning: {warning}")));
    }
    let own = outcome.edits.iter().filter_map(|edits| edits.own_warning.as_ref());
    own.for_each(|warning| say(&format!("warning: {warning}")));
    if !settings.verbose {
        return Ok(());
    }
    if rank_info.local_rank == 0 {
        notes.iter().for_each(|note| say(&note.to_string()));
    }
    let rank = rank_info.rank.map_or_else(String::new, |rank| format!("rank {rank} "));
    let from = match rank_info.source {
        RankSource::Alone => String::new(),
        numbered => format!(" (of {numbered})"),
    };
    let who = format!("{rank}on {}{from}", host());
    match &outcome.edits {
        Ok(edits) => {
            edits.summary.iter().for_each(|summary| say(&format!("{}: {summary}", host())));
            edits.report.iter().for_each(|report| say(&format!("{who}, {report}")));
        }
        // The warning has said so.
        Err(SkipReason::NoDevice) => {}
        Err(why) => say(&format!(
            "{who}, local rank {}: the environment stays as it is: {why}",
            rank_info.local_rank
        )),
    }
    Ok(())
}

fn say(text: &str) {
    warn(&text);
}

/// What changes in the environment; `--dry-run --json` prints it.
#[derive(Debug, Serialize)]
struct Changes {
    /// The version of the JSON form: docs/json.md.
    schema: u32,
    #[serde(serialize_with = "as_text")]
    set: BTreeMap<String, OsString>,
    unset: Vec<String>,
    /// The CPUs on which the command is to run, where that changes; GPUBIND_CPUS tells.
    #[serde(skip)]
    cpus: Option<IdSet>,
}

fn as_text<S: serde::Serializer>(
    set: &BTreeMap<String, OsString>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(set.iter().map(|(name, value)| (name, value.to_string_lossy())))
}

impl Changes {
    fn of(outcome: Outcome) -> Changes {
        let mut changes: BTreeMap<String, Option<OsString>> =
            outcome.undo.into_iter().map(|(name, value)| (name, value.map(Into::into))).collect();
        let (edits, preload, cpus) = match outcome.edits {
            Ok(edits) => (edits.set, edits.preload, edits.cpus),
            Err(_) => (Vec::new(), None, None),
        };
        let edits = edits.into_iter().map(|(name, value)| (name.to_owned(), Some(value.into())));
        changes.extend(edits);
        if let Some(preload) = preload.or(outcome.undo_preload) {
            let preload = Some(preload).filter(|preload| !preload.is_empty());
            changes.insert(variables::LD_PRELOAD.to_owned(), preload);
        }
        let (schema, set, unset) = (1, BTreeMap::new(), Vec::new());
        let mut all = Changes { schema, set, unset, cpus };
        for (name, value) in changes {
            match value {
                Some(value) => drop(all.set.insert(name, value)),
                None => all.unset.push(name),
            }
        }
        all
    }

    fn print(&self, json: bool, out: &mut dyn Write) -> io::Result<()> {
        if json {
            return output::json(self, out);
        }
        for name in &self.unset {
            writeln!(out, "unset {name}")?;
        }
        for (name, value) in &self.set {
            writeln!(out, "{name}={}", quoted(&value.to_string_lossy()))?;
        }
        Ok(())
    }
}

/// The text as one word of a shell.
fn quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.,:/@%+=".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        for text in
            ["", "0,1", "local to its CPUs", "it's", "a'b'c", "$HOME `x` \\ \"", "two\nlines"]
        {
            let script = format!("printf %s {}", quoted(text));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
        }
    }
}
