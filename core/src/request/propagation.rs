//! How a request gets from srun, sbatch and salloc to the tasks, and where it ends:
//! the changes that these commands make to the environment of what they start.
//!
//! | variable | set by | what it says |
//! |---|---|---|
//! | `SLURM_GPUBIND` | the user, nobody else | a personal default |
//! | `SLURM_GPUBIND_JOB` | sbatch and salloc, and srun for what runs inside its step | what a job or step has itself asked for |
//! | `SLURM_GPUBIND_STEP` | srun, for its own tasks, in which the plugin takes it away | what is in effect in the step |
//!
//! In srun this decides, the first that says something: its own options, the job's own
//! request, the job's own `--gpu-bind` in Slurm's variables, the personal default, and a
//! binding that Slurm makes of its own accord. A job that is submitted from inside
//! another starts with the personal default again.

use super::Change;
use super::binding::Binding;
use super::command::Command;
use super::command_line::{CommandLine, Component, Unclear};
use super::grammar::RequestError;
use super::items::Request;
use super::slurm_variables as slurm;
use super::transport::Bindings;
use crate::variables;

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A variable whose request cannot be understood, where it is used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: {error}")]
pub struct VariableError {
    /// The variable's name.
    pub variable: &'static str,
    /// What is wrong with its value.
    pub error: RequestError,
}

/// The changes that a command makes to its environment, for what it starts: by its
/// command line, by what Slurm has parsed for the plugin's option where that is known
/// yet, and by the environment that it was started with.
///
/// # Errors
/// [`VariableError`].
pub fn propagate(
    command: Command,
    line: &CommandLine,
    parsed: Option<&Request>,
    env: Env,
) -> Result<Vec<Change>, VariableError> {
    match command {
        Command::Srun => of_step(line, parsed, env),
        Command::Sbatch | Command::Salloc => Ok(of_new_job(line, parsed, env)),
    }
}

fn of_new_job(line: &CommandLine, parsed: Option<&Request>, env: Env) -> Vec<Change> {
    let mut changes = Vec::new();
    if is_in_a_job(env) || env(variables::JOB_REQUEST).is_some() {
        changes.extend(slurm::of_an_outer_job(env));
        changes.extend(unset(env, variables::SCRIPT_OPTION));
    }
    changes.extend(unset(env, variables::STEP_REQUEST));
    let own = |component: &Component| match (&component.binding, parsed) {
        // What Slurm has parsed is of no component in particular.
        (Binding::Unspecified, Some(request)) if line.components.len() == 1 => {
            Binding::Gpubind(request.clone())
        }
        // Slurm hands its own binding down by itself.
        (Binding::Slurm | Binding::Unspecified, _) => Binding::Unspecified,
        (binding, _) => binding.clone(),
    };
    let own = line.components.iter().map(own).enumerate().collect();
    changes.extend(set(env, variables::JOB_REQUEST, &Bindings::of(own)));
    changes
}

/// Where a component's binding comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Own,
    Inherited,
}

/// What srun knows besides its components.
struct Surroundings<'a> {
    /// The job's own request.
    job: Bindings,
    /// What Slurm has parsed for the plugin's option, and whether that is the job's.
    parsed: Option<(&'a Request, Source)>,
    /// Whether Slurm's variables are of the job that the step is a part of, or the user's
    /// own.
    has_slurms: bool,
    /// Whether the step is a part of the job that srun runs in.
    in_job: bool,
    env: Env<'a>,
}

fn of_step<'a>(
    line: &CommandLine,
    parsed: Option<&'a Request>,
    env: Env<'a>,
) -> Result<Vec<Change>, VariableError> {
    // A step of another job has nothing to do with the requests of this one.
    let is_others = is_in_a_job(env) && is_of_another_job(line, env);
    let in_job = is_in_a_job(env) && !is_others;
    let job = if in_job { job_request(env)? } else { Bindings::Unspecified };
    let handed_down = env(variables::SCRIPT_OPTION).and_then(|text| text.parse::<Request>().ok());
    let parsed = parsed.map(|request| match handed_down.as_ref() == Some(request) {
        true => (request, Source::Inherited),
        false => (request, Source::Own),
    });
    let around = Surroundings { job, parsed, has_slurms: !is_others, in_job, env };
    let mut found = Vec::new();
    for component in &line.components {
        for group in &component.groups {
            let (binding, source) = of_component(component, *group, &around)?;
            found.push((component, *group, binding, source));
        }
    }
    let bindings = |wanted: &dyn Fn(&Source, &Binding) -> Binding| {
        Bindings::of(found.iter().map(|(_, group, it, from)| (*group, wanted(from, it))).collect())
    };
    let in_effect = bindings(&|_, binding| binding.clone());
    let own = bindings(&|source, binding| match source {
        Source::Own => binding.clone(),
        Source::Inherited => Binding::Unspecified,
    });

    let mut changes: Vec<Change> = Vec::new();
    changes.extend(set(env, variables::STEP_REQUEST, &in_effect));
    changes.extend(set(env, variables::JOB_REQUEST, &for_what_runs_inside(own, around.job)));
    // So that what a task finds there is its own step's.
    changes.extend(unset(env, variables::STEP_TRES_BIND));
    let is_off = |(_, _, binding, _): &(_, _, Binding, _)| !binding.may_be_bound();
    if is_others {
        changes.extend(slurm::of_an_outer_job(env));
    } else if !found.is_empty() && found.iter().all(is_off) && in_job {
        // Under `none` a task's devices are not as Slurm makes them by itself.
        changes.extend(slurm::without_gpubinds_texts(env, ""));
    }
    let inherited = found.iter().find_map(|(component, _, binding, source)| match binding {
        Binding::Gpubind(request)
            if *source == Source::Inherited && binding.may_be_bound() && !component.shared_gres =>
        {
            Some(request)
        }
        _ => None,
    });
    // Slurm reads it before it is clear whether a later option says otherwise.
    let is_clear = line.unclear.iter().all(Unclear::slurm_refuses);
    if let Some(request) = inherited.filter(|_| is_clear && !slurm::has_shared_gres(env)) {
        changes.extend(slurm::without_slurms_binding(request, env));
    }
    Ok(changes)
}

/// What is in effect for one component, and whether its own options say so.
fn of_component(
    component: &Component,
    group: usize,
    around: &Surroundings,
) -> Result<(Binding, Source), VariableError> {
    if component.binding != Binding::Unspecified {
        return Ok((component.binding.clone(), Source::Own));
    }
    let env = around.env;
    let of_option = |wanted: Source| match around.parsed {
        Some((request, source)) if source == wanted => Binding::Gpubind(request.clone()),
        _ => Binding::Unspecified,
    };
    let in_job = |binding: &dyn Fn() -> Binding| {
        if around.in_job { binding() } else { Binding::Unspecified }
    };
    let own = of_option(Source::Own);
    if own != Binding::Unspecified {
        return Ok((own, Source::Own));
    }
    let candidates: [&dyn Fn() -> Binding; 4] = [
        &|| around.job.of_group(group),
        &|| of_option(Source::Inherited),
        &|| in_job(&|| slurm::explicit(env, &format!("_HET_GROUP_{group}"))),
        // Outside of a job, these are the user's own defaults for Slurm's options.
        &|| if around.has_slurms { slurm::explicit(env, "") } else { Binding::Unspecified },
    ];
    let mut said = candidates.iter().map(|it| it()).filter(|it| *it != Binding::Unspecified);
    if let Some(binding) = said.next() {
        return Ok((binding, Source::Inherited));
    }
    if let Some(request) = personal_default(env)? {
        return Ok((Binding::Gpubind(request), Source::Inherited));
    }
    let is_slurms = component.binds_implicitly || slurm::binds_implicitly(env);
    let binding = if is_slurms { Binding::Slurm } else { Binding::Unspecified };
    Ok((binding, Source::Inherited))
}

/// The job's own request for what runs inside a step: the step's own options, over what
/// the job has asked for. A step that Slurm binds changes it only where there is one.
fn for_what_runs_inside(own: Bindings, job: Bindings) -> Bindings {
    match own {
        Bindings::Unspecified => job,
        Bindings::All(Binding::Slurm) if job == Bindings::Unspecified => job,
        own => own,
    }
}

/// What the job has itself asked for.
///
/// # Errors
/// [`VariableError`].
pub fn job_request(env: Env) -> Result<Bindings, VariableError> {
    let variable = variables::JOB_REQUEST;
    let text = env(variable).unwrap_or_default();
    Bindings::read(&text).map_err(|error| VariableError { variable, error })
}

/// The user's personal default.
///
/// # Errors
/// [`VariableError`].
pub fn personal_default(env: Env) -> Result<Option<Request>, VariableError> {
    let variable = variables::REQUEST;
    let text = env(variable).filter(|text| !text.trim().is_empty());
    let request = text.map(|text| text.parse()).transpose();
    request.map_err(|error| VariableError { variable, error })
}

/// What a process that no srun has started asks for, such as `gpubind exec`: the job's own
/// request, else the personal default; a plain request where nobody has said anything.
///
/// # Errors
/// [`VariableError`].
pub fn request_of_process(env: Env) -> Result<Request, VariableError> {
    match job_request(env)?.of_group(0) {
        Binding::Gpubind(request) => Ok(request),
        Binding::Slurm | Binding::Unspecified => Ok(personal_default(env)?.unwrap_or_default()),
    }
}

/// srun starts a step where it knows of a job (srun_job.c, existing_allocation).
fn is_in_a_job(env: Env) -> bool {
    [variables::JOB_ID, variables::JOBID].iter().any(|name| env(name).is_some())
}

fn is_of_another_job(line: &CommandLine, env: Env) -> bool {
    line.job_id.as_deref().is_some_and(|id| {
        ![variables::JOB_ID, variables::JOBID].iter().any(|name| env(name).as_deref() == Some(id))
    })
}

/// Sets a variable to these bindings, or unsets it where they say nothing.
fn set(env: Env, name: &str, bindings: &Bindings) -> Option<Change> {
    match bindings {
        Bindings::Unspecified => unset(env, name),
        said => Some((name.to_owned(), Some(said.to_string()))),
    }
}

fn unset(env: Env, name: &str) -> Option<Change> {
    env(name).is_some().then(|| (name.to_owned(), None))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::SlurmRelease;
    use crate::request::read_command_line;

    /// Those variables of `env` that a command's changes leave set, as `NAME=value`
    /// words in the order of their names. `parsed` is what Slurm has parsed for the
    /// plugin's option.
    fn after(typed: &str, parsed: Option<&str>, env: &[(&str, &str)]) -> Result<String, String> {
        let argv: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
        let command = Command::from_argv0(&argv[0]).unwrap();
        let line =
            read_command_line(command, SlurmRelease::new(26, 5), &argv, &|_, _| true).unwrap();
        let parsed: Option<Request> = parsed.map(|text| text.parse().unwrap());
        let mut left: std::collections::BTreeMap<String, String> =
            env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let changes = propagate(command, &line, parsed.as_ref(), &|name| left.get(name).cloned());
        for (name, value) in changes.map_err(|error| error.to_string())? {
            match value {
                Some(value) => left.insert(name, value),
                None => left.remove(&name),
            };
        }
        let words: Vec<String> =
            left.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Ok(words.join(" "))
    }

    #[track_caller]
    fn becomes(typed: &str, env: &[(&str, &str)], left: &str) {
        assert_eq!(after(typed, None, env).unwrap(), left, "{typed} with {env:?}");
    }

    const JOB: (&str, &str) = ("SLURM_JOB_ID", "7");
    const DEFAULT: (&str, &str) = ("SLURM_GPUBIND", "first,verbose");

    #[test]
    fn a_personal_default_is_never_written_and_own_requests_win_over_it() {
        let own = "SLURM_GPUBIND_JOB=single SLURM_GPUBIND_STEP=single";
        becomes("srun --gpubind=single x", &[], own);
        becomes(
            "srun --gpubind=single x",
            &[DEFAULT],
            &format!("SLURM_GPUBIND=first,verbose {own}"),
        );
        becomes("sbatch --gpubind=auto x", &[], "SLURM_GPUBIND_JOB=auto");
        becomes("sbatch --gpu-bind=spank x", &[], "SLURM_GPUBIND_JOB=spank");
        becomes("sbatch x", &[DEFAULT], "SLURM_GPUBIND=first,verbose");
        let step = "SLURM_GPUBIND=first,verbose SLURM_GPUBIND_STEP=first,verbose \
                    SLURM_GPU_BIND=none,spank:first,verbose";
        becomes("srun x", &[DEFAULT], step);
    }

    #[test]
    fn whatever_a_shell_exports_again_the_jobs_own_words_win() {
        let own = [JOB, DEFAULT, ("SLURM_GPUBIND_JOB", "off")];
        let left = after("srun x", None, &own).unwrap();
        assert!(left.contains("SLURM_GPUBIND_STEP=off"), "{left}");
        for name in ["SLURM_GPU_BIND", "SLURM_TRES_BIND"] {
            let value = if name == "SLURM_GPU_BIND" { "closest" } else { "gres/gpu:closest" };
            let left = after("srun x", None, &[JOB, DEFAULT, (name, value)]).unwrap();
            assert!(left.contains("SLURM_GPUBIND_STEP=slurm"), "{left}");
            let ours = value.replace("closest", "none,spank:single");
            let left = after("srun x", None, &[JOB, DEFAULT, (name, &ours)]).unwrap();
            assert!(left.contains("SLURM_GPUBIND_STEP=single"), "{left}");
        }
        // unset SLURM_GPUBIND in a job: its steps are nobody's request any more.
        becomes("srun x", &[JOB], "SLURM_JOB_ID=7");
    }

    #[test]
    fn slurms_own_binding_stands_for_the_step_and_below_it_where_a_job_has_asked() {
        becomes("srun --gpu-bind=closest x", &[], "SLURM_GPUBIND_STEP=slurm");
        let left = "SLURM_GPUBIND=first,verbose SLURM_GPUBIND_STEP=slurm";
        becomes("srun --gpu-bind=closest x", &[DEFAULT], left);
        let job = [JOB, ("SLURM_GPUBIND_JOB", "auto")];
        let left = "SLURM_GPUBIND_JOB=slurm SLURM_GPUBIND_STEP=slurm SLURM_JOB_ID=7";
        becomes("srun --gpu-bind=closest x", &job, left);
        becomes("sbatch --gpu-bind=closest x", &[], "");
    }

    #[test]
    fn slurms_implicit_binding_keeps_the_sites_default_away_but_no_request() {
        becomes("srun --gpus-per-task=1 x", &[], "SLURM_GPUBIND_STEP=slurm");
        becomes("srun --gpus-per-node=8 x", &[("SLURM_GPUBIND_STEP", "slurm")], "");
        becomes("srun --gpus=1 a : --gpus-per-task=1 b", &[], "SLURM_GPUBIND_STEP=0:;1:slurm");
        becomes("sbatch --gpus-per-task=1 x", &[], "");
        for (name, value) in [
            ("SLURM_GPUS_PER_TASK", "1"),
            ("SLURM_NTASKS_PER_GPU", "2"),
            ("SLURM_TRES_PER_TASK", "cpu=1,gres/gpu=1"),
        ] {
            let left = after("srun x", None, &[(name, value)]).unwrap();
            assert!(left.starts_with("SLURM_GPUBIND_STEP=slurm "), "{name}={value}: {left}");
        }
        becomes("srun x", &[("SLURM_TRES_PER_TASK", "cpu=1")], "SLURM_TRES_PER_TASK=cpu=1");
        // 23.11's text for it is no explicit one.
        let implicit = [
            JOB,
            DEFAULT,
            ("SLURM_GPUS_PER_TASK", "1"),
            ("SLURM_TRES_BIND", "gres/gpu:per_task:1"),
        ];
        let left = after("srun x", None, &implicit).unwrap();
        assert!(left.contains("SLURM_GPUBIND_STEP=first,verbose"), "{left}");
        assert!(left.contains("SLURM_TRES_BIND=gres/gpu:none,spank:first,verbose"), "{left}");
    }

    #[test]
    fn shared_gres_needs_no_word_against_slurms_binding() {
        let default = ("SLURM_GPUBIND", "single");
        let left = "SLURM_GPUBIND=single SLURM_GPUBIND_STEP=single";
        becomes("srun --gres=shard:1 x", &[default], left);
        for (name, value) in [("SLURM_SHARDS_ON_NODE", "4"), ("SLURM_GRES", "mps:5")] {
            let left = after("srun x", None, &[JOB, default, (name, value)]).unwrap();
            assert!(!left.contains("SLURM_GPU_BIND="), "{left}");
        }
    }

    #[test]
    fn off_leaves_slurm_no_word_of_gpubinds() {
        let outer = [
            JOB,
            ("SLURM_GPUBIND_JOB", "single"),
            ("SLURM_GPU_BIND", "none,spank:single"),
            ("SLURM_TRES_BIND", "gres/nic:closest+gres/gpu:none,spank:single"),
        ];
        let left = "SLURM_GPUBIND_JOB=off SLURM_GPUBIND_STEP=off SLURM_JOB_ID=7 \
                    SLURM_TRES_BIND=gres/nic:closest";
        becomes("srun --gpubind=off x", &outer, left);
    }

    #[test]
    fn what_slurm_has_parsed_counts_where_the_command_line_could_not_be_read() {
        let parsed = |typed: &str, value, env: &[(&str, &str)]| after(typed, Some(value), env);
        let left = parsed("srun x", "off", &[("SLURM_GPUBIND", "auto")]).unwrap();
        assert!(left.contains("SLURM_GPUBIND_STEP=off"), "{left}");
        let job = [JOB, ("SLURM_GPUBIND_JOB", "single")];
        let left = parsed("srun x", "first", &job).unwrap();
        assert!(left.contains("SLURM_GPUBIND_JOB=first SLURM_GPUBIND_STEP=first"), "{left}");
        // Handed down by sbatch, it is the job's, and the only trace of it with
        // --export-file.
        let handed = [&job[..], &[(variables::SCRIPT_OPTION, "first")]].concat();
        let left = parsed("srun x", "first", &handed).unwrap();
        assert!(left.contains("SLURM_GPUBIND_STEP=single"), "{left}");
        let left = parsed("srun x", "first", &[JOB, handed[2]]).unwrap();
        assert!(left.contains("SLURM_GPUBIND_STEP=first"), "{left}");
        let left = parsed("sbatch x", "first", &[]).unwrap();
        assert_eq!(left, "SLURM_GPUBIND_JOB=first");
    }

    #[test]
    fn a_job_that_is_submitted_from_inside_another_starts_with_the_personal_default() {
        let outer = [
            JOB,
            DEFAULT,
            ("SLURM_GPUBIND_JOB", "single"),
            ("SLURM_GPU_BIND", "none,spank:single"),
            ("SLURM_TRES_BIND", "gres/gpu:none,spank:single"),
            ("SLURM_GPU_BIND_HET_GROUP_1", "none,spank"),
            ("SLURM_HET_SIZE", "2"),
            (variables::SCRIPT_OPTION, "single"),
        ];
        for typed in ["sbatch x", "salloc x", "sbatch --gpu-bind=closest x"] {
            becomes(typed, &outer, "SLURM_GPUBIND=first,verbose SLURM_HET_SIZE=2 SLURM_JOB_ID=7");
        }
        let own = after("sbatch --gpubind=auto x", None, &outer).unwrap();
        assert!(own.contains("SLURM_GPUBIND_JOB=auto"), "{own}");
        let slurms = [JOB, ("SLURM_TRES_BIND", "gres/nic:closest+gres/gpu:single:1")];
        let left = "SLURM_JOB_ID=7 SLURM_TRES_BIND=gres/nic:closest+gres/gpu:single:1";
        becomes("sbatch x", &slurms, left);
    }

    #[test]
    fn a_step_of_another_job_has_none_of_this_jobs_requests() {
        let job = [JOB, ("SLURM_GPUBIND_JOB", "single"), ("SLURM_GPU_BIND", "none,spank:single")];
        becomes("srun --jobid=8 x", &job, "SLURM_JOB_ID=7");
        let left = after("srun --jobid 7 x", None, &job).unwrap();
        assert!(left.contains("SLURM_GPUBIND_STEP=single"), "{left}");
    }

    #[test]
    fn components_keep_their_numbers() {
        let list = "SLURM_GPUBIND_JOB=0:auto;1:first SLURM_GPUBIND_STEP=0:auto;1:first";
        becomes("srun --gpubind=auto a : --gpubind=first b", &[], list);
        let stale = [("SLURM_GPUBIND_STEP", "single"), ("SLURMD_TRES_BIND", "gpu:none")];
        becomes("srun --gpubind=auto a : --gpubind=first b", &stale, list);
        let same = "SLURM_GPUBIND_JOB=first SLURM_GPUBIND_STEP=first";
        becomes("srun --gpubind=first a : --gpubind=first b", &stale, same);
        let left = after("srun --het-group=0,2 --gpubind=first a : b", None, &[]).unwrap();
        assert!(left.contains("STEP=0:first;1:;2:first"), "{left}");
        // A component that has not asked is not bound.
        becomes("sbatch -n1 : -n1 --gpu-bind=spank:first x", &[], "SLURM_GPUBIND_JOB=0:;1:first");
        let job = [JOB, ("SLURM_GPUBIND_JOB", "0:;1:first")];
        assert!(!after("srun x", None, &job).unwrap().contains("STEP"));
        let left = after("srun --het-group=1 x", None, &job).unwrap();
        assert!(left.contains("SLURM_GPUBIND_STEP=first"), "{left}");
        let slurms = [
            JOB,
            ("SLURM_GPU_BIND_HET_GROUP_0", "none,spank:single"),
            ("SLURM_GPU_BIND_HET_GROUP_1", "closest"),
        ];
        let left = after("srun --het-group=0-1 a", None, &slurms).unwrap();
        assert!(left.contains("SLURM_GPUBIND_STEP=0:single;1:slurm"), "{left}");
    }

    #[test]
    fn without_a_request_nothing_is_set() {
        for typed in ["srun x", "sbatch x", "salloc x", "srun a : b"] {
            becomes(typed, &[], "");
        }
        let closest = [("SLURM_GPU_BIND", "closest")];
        becomes("sbatch x", &closest, "SLURM_GPU_BIND=closest");
        becomes("srun x", &[("SLURMD_TRES_BIND", "gpu:none")], "");
        becomes("salloc x", &[("SLURMD_TRES_BIND", "gpu:none")], "SLURMD_TRES_BIND=gpu:none");
    }

    #[test]
    fn slurm_is_told_of_no_request_that_an_unclear_option_may_take_back() {
        let job = [JOB, ("SLURM_GPUBIND_JOB", "single")];
        assert!(after("srun x --gpubind=off", None, &job).unwrap().contains("SLURM_GPU_BIND"));
        let left = after("srun --myflag x --gpubind=off", None, &job).unwrap();
        assert!(left.contains("STEP=single") && !left.contains("SLURM_GPU_BIND"), "{left}");
    }

    #[test]
    fn a_bad_request_in_the_environment_counts_only_where_it_is_used() {
        let bad = [("SLURM_GPUBIND", "nonsense")];
        let error = after("srun x", None, &bad).unwrap_err();
        assert!(error.starts_with("SLURM_GPUBIND: unknown item `nonsense`"), "{error}");
        assert!(after("srun --gpu-bind=closest x", None, &bad).is_ok());
        assert!(after("srun --gpubind=auto x", None, &bad).is_ok());
        let job = [JOB, ("SLURM_GPUBIND_JOB", "nonsense")];
        assert!(after("srun x", None, &job).unwrap_err().starts_with("SLURM_GPUBIND_JOB: "));
    }
}
