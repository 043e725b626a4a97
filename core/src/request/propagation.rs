//! How a request gets from srun, sbatch and salloc to the tasks, and where it ends.
//!
//! | variable | what it says |
//! |---|---|
//! | `SLURM_GPUBIND` | the request; set by a user, it is a personal default |
//! | `SLURM_GPUBIND_ORIGIN` | `REQUEST;DEFAULT`: while SLURM_GPUBIND is REQUEST, it is a job's own and has taken the place of the personal DEFAULT, if any |
//! | `SLURM_GPUBIND_COMPONENTS` | from srun to its tasks only: the requests of its components, where they differ from SLURM_GPUBIND; an empty one leaves it to the site, `off` keeps the site's default away from Slurm's own binding |
//!
//! A job's own request holds for the steps of that job: a job that is submitted
//! from inside starts with the personal default again.

use super::binding::{Binding, gpu_value};
use super::command::Command;
use super::command_line::{CommandLine, asks_for_shared_gres};
use super::grammar::RequestError;
use super::items::{Mode, Request};
use crate::variables;

/// By these, `--gpus-per-task` and its like of sbatch and salloc reach srun.
const BIND_IMPLICITLY: [&str; 3] =
    [variables::GPUS_PER_TASK, variables::NTASKS_PER_GPU, variables::TRES_PER_TASK];

/// A variable to set or, without a value, to unset.
pub type Change = (String, Option<String>);

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The changes that a command makes to its environment, for what it starts: by
/// its command line, and by the environment that it was started with.
///
/// # Errors
/// A request in the environment that cannot be understood, where it counts.
pub fn variables(
    command: Command,
    line: &CommandLine,
    env: Env,
) -> Result<Vec<Change>, RequestError> {
    let new_job = starts_a_job(command, env);
    let inherited = if new_job { personal(env) } else { said(env, variables::REQUEST) };
    let mut requests = Vec::new();
    // Of components without an option of their own.
    let mut by_inheritance = None;
    for component in &line.components {
        let for_group = |group: &usize| match &component.binding {
            Binding::Gpubind(request) => Ok(Some(request.clone())),
            Binding::Slurm => Ok(Some(Request::off())),
            Binding::Unspecified => {
                let in_this_job = |suffix: &str| match new_job {
                    true => None,
                    false => from_slurms_variables(env, suffix),
                };
                if let Some(request) = in_this_job(&format!("_HET_GROUP_{group}")) {
                    return Ok(Some(request));
                }
                let request = match &inherited {
                    Some(text) => Some(text.parse()?),
                    None => in_this_job("").or_else(|| {
                        let slurms = component.binds_implicitly || slurm_binds(env);
                        slurms.then(Request::off)
                    }),
                };
                if !component.shared_gres && !has_parts(env) {
                    by_inheritance = by_inheritance.take().or(request.clone().filter(is_on));
                }
                Ok(request)
            }
        };
        let found: Result<Vec<_>, RequestError> = component.groups.iter().map(for_group).collect();
        requests.extend(found?);
    }

    let mut changes = if new_job { leave_the_outer_job_behind(env) } else { Vec::new() };
    let of_a_component = requests.iter().flatten().find(|request| is_on(request));
    let request = match (of_a_component, &inherited) {
        (Some(request), _) => Some(request.clone()),
        // To stand aside needs words for all that run below only where someone has asked.
        (None, Some(_)) => requests.iter().flatten().next().cloned(),
        (None, None) => line.components.iter().find_map(|component| match &component.binding {
            Binding::Gpubind(request) => Some(request.clone()),
            Binding::Slurm | Binding::Unspecified => None,
        }),
    };
    let all_off = request.as_ref().is_some_and(|request| !is_on(request));
    changes.extend(propagate(request.as_ref(), env));
    let text =
        |request: &Option<Request>| request.as_ref().map(ToString::to_string).unwrap_or_default();
    let is_for_all = requests.iter().all(|other| text(other) == text(&request));
    if command == Command::Srun && !is_for_all {
        let list: Vec<String> = requests.iter().map(text).collect();
        changes.push((variables::COMPONENT_REQUESTS.to_owned(), Some(list.join(";"))));
    } else {
        changes.extend(unset(env, variables::COMPONENT_REQUESTS));
    }
    if command == Command::Srun {
        // So that what a task finds there is its own step's.
        changes.extend(unset(env, variables::STEP_TRES_BIND));
        if let Some(request) = by_inheritance {
            changes.extend(without_slurms_binding(&request, env));
        }
        if all_off && !new_job {
            // Under `none` a task's devices are not as Slurm makes them by itself.
            changes.extend(without_our_texts(env, ""));
        }
    }
    Ok(changes)
}

/// Whether what the command starts belongs to another job than the environment.
/// srun starts a step where it knows of a job (srun_job.c, existing_allocation).
fn starts_a_job(command: Command, env: Env) -> bool {
    command != Command::Srun || !is_in_a_job(env)
}

/// Whether the job has parts of GPUs, which an srun inside it gets without a word.
/// SLURM_GRES is srun's own option (src/common/slurm_opt.c); Slurm sets the others
/// in a job with gres/shard or gres/mps.
fn has_parts(env: Env) -> bool {
    env(variables::GRES).is_some_and(|gres| asks_for_shared_gres(&gres))
        || [variables::SHARDS_ON_NODE, variables::MPS_PERCENTAGE]
            .iter()
            .any(|name| env(name).is_some())
}

fn is_in_a_job(env: Env) -> bool {
    [variables::JOB_ID, variables::JOBID].iter().any(|name| env(name).is_some())
}

/// A variable's value that says something.
fn said(env: Env, name: &str) -> Option<String> {
    env(name).filter(|text| !text.trim().is_empty())
}

/// The user's personal default.
fn personal(env: Env) -> Option<String> {
    let request = said(env, variables::REQUEST);
    match env(variables::REQUEST_ORIGIN).as_deref().and_then(|origin| origin.split_once(';')) {
        Some((jobs, personal)) if request.as_deref() == Some(jobs) => {
            Some(personal.to_owned()).filter(|personal| !personal.is_empty())
        }
        _ => request,
    }
}

/// The changes after which `request` is what holds, for now, and the personal
/// default is not forgotten.
pub fn propagate(request: Option<&Request>, env: Env) -> Vec<Change> {
    let text = request.map(ToString::to_string);
    let personal = personal(env);
    let is_personal = |text: &str| {
        let personal = personal.as_deref().and_then(|personal| personal.parse::<Request>().ok());
        personal.is_some_and(|personal| personal.to_string() == text)
    };
    let mut changes = Vec::new();
    match &text {
        Some(text) if !is_personal(text) => {
            let origin = format!("{text};{}", personal.as_deref().unwrap_or_default());
            changes.push((variables::REQUEST_ORIGIN.to_owned(), Some(origin)));
        }
        _ => changes.extend(unset(env, variables::REQUEST_ORIGIN)),
    }
    if text.is_some() || said(env, variables::REQUEST).is_some() {
        changes.insert(0, (variables::REQUEST.to_owned(), text));
    }
    changes
}

/// What an outer job's request has left in Slurm's own variables: an inner step
/// of the new job would take it for the new job's.
fn leave_the_outer_job_behind(env: Env) -> Vec<Change> {
    if !is_in_a_job(env) && env(variables::REQUEST_ORIGIN).is_none() {
        return Vec::new();
    }
    let components = env(variables::HET_SIZE).and_then(|size| size.parse().ok()).unwrap_or(0);
    // Slurm keeps the older name of the same thing up, too.
    let groups = (0..components.min(128))
        .flat_map(|group: u32| ["HET", "PACK"].map(|name| format!("_{name}_GROUP_{group}")));
    let mut changes: Vec<Change> = unset(env, variables::SCRIPT_OPTION).into_iter().collect();
    for suffix in [String::new()].into_iter().chain(groups) {
        changes.extend(without_our_texts(env, &suffix));
    }
    changes
}

/// Takes gpubind's text out of the variables by which `--gpu-bind` is handed down.
fn without_our_texts(env: Env, suffix: &str) -> Vec<Change> {
    let (gpu, tres) =
        (format!("{}{suffix}", variables::GPU_BIND), format!("{}{suffix}", variables::TRES_BIND));
    let mut changes = Vec::new();
    if env(&gpu).is_some_and(|text| is_ours(&text)) {
        changes.push((gpu, None));
    }
    if let Some(text) = env(&tres) {
        let others = |part: &&str| gpu_value(part).is_none_or(|text| !is_ours(text));
        let kept: Vec<&str> = text.split('+').filter(others).collect();
        let kept = kept.join("+");
        if kept != text {
            changes.push((tres, Some(kept).filter(|kept| !kept.is_empty())));
        }
    }
    changes
}

fn is_ours(text: &str) -> bool {
    matches!(Binding::from_gpu_bind(text), Ok(Binding::Gpubind(_)))
}

/// The request in Slurm's own variables: `#SBATCH --gpu-bind=none,spank:…`
/// arrives so, and in a heterogeneous job, each component's with a suffix.
fn from_slurms_variables(env: Env, suffix: &str) -> Option<Request> {
    let value = |name: &str| env(&format!("{name}{suffix}"));
    let tres = value(variables::TRES_BIND).map(|text| Binding::from_tres_bind(&text));
    // The later one wins in srun, too (src/srun/libsrun/opt.c, env_vars).
    let binding = match tres {
        Some(Ok(Binding::Unspecified)) | None => {
            Binding::from_gpu_bind(&value(variables::GPU_BIND)?).ok()?
        }
        Some(binding) => binding.ok()?,
    };
    binding.to_propagate()
}

/// Whether srun, by what it reads from its environment, has Slurm bind GPUs to tasks.
fn slurm_binds(env: Env) -> bool {
    let implicit = |name: &&str| {
        env(name).is_some_and(|value| *name != variables::TRES_PER_TASK || value.contains("gpu"))
    };
    from_slurms_variables(env, "").is_some_and(|request| !is_on(&request))
        || BIND_IMPLICITLY.iter().any(implicit)
}

/// Keeps Slurm from narrowing each task to some GPUs, as `--gpus-per-task` and
/// inherited options would. 23.11 and later hand SLURM_TRES_BIND down and read
/// it after SLURM_GPU_BIND, so where it is set it must say the same.
fn without_slurms_binding(request: &Request, env: Env) -> Vec<Change> {
    let text = request.slurm_text();
    let mut set = vec![(variables::GPU_BIND.to_owned(), Some(text.clone()))];
    if let Some(tres) = env(variables::TRES_BIND) {
        let others = tres.split('+').filter(|part| !part.is_empty() && gpu_value(part).is_none());
        let ours = format!("gres/gpu:{text}");
        let parts: Vec<&str> = others.chain([ours.as_str()]).collect();
        set.push((variables::TRES_BIND.to_owned(), Some(parts.join("+"))));
    }
    set
}

fn unset(env: Env, name: &str) -> Option<Change> {
    env(name).is_some().then(|| (name.to_owned(), None))
}

fn is_on(request: &Request) -> bool {
    request.mode != Some(Mode::Off)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::request::read_command_line;

    /// Those variables of `env` that a command's change leaves set, as
    /// `NAME=value` words in the order of their names.
    fn after(typed: &str, env: &[(&str, &str)]) -> Result<String, RequestError> {
        let argv: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
        let command = Command::from_argv0(&argv[0]).unwrap();
        let line = read_command_line(command, &argv, &|_| true).unwrap();
        let mut left: std::collections::BTreeMap<String, String> =
            env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        for (name, value) in variables(command, &line, &|name: &str| left.get(name).cloned())? {
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
        assert_eq!(after(typed, env).unwrap(), left, "{typed} with {env:?}");
    }

    const IN_A_JOB: (&str, &str) = ("SLURM_JOB_ID", "7");

    #[test]
    fn a_request_of_the_command_line_takes_the_place_of_the_personal_default() {
        let origin = "SLURM_GPUBIND=single SLURM_GPUBIND_ORIGIN=single;";
        becomes("srun --gpubind=single x", &[], origin);
        let default = [("SLURM_GPUBIND", "first,verbose")];
        becomes("srun --gpubind=single x", &default, &format!("{origin}first,verbose"));
        becomes("sbatch --gpubind=auto x", &[("SLURM_GPUBIND", "auto")], "SLURM_GPUBIND=auto");
        let plain = "SLURM_GPUBIND=spank SLURM_GPUBIND_ORIGIN=spank;auto";
        becomes("sbatch --gpu-bind=spank x", &[("SLURM_GPUBIND", "auto")], plain);
    }

    #[test]
    fn slurms_own_binding_switches_a_request_off_and_adds_nothing_where_there_is_none() {
        let left = "SLURM_GPUBIND=off SLURM_GPUBIND_ORIGIN=off;auto";
        becomes("srun --gpu-bind=closest x", &[("SLURM_GPUBIND", "auto")], left);
        // Where nobody has asked, it keeps the site's default away, from this step only.
        let aside = "SLURM_GPUBIND_COMPONENTS=off";
        becomes("srun --gpu-bind=closest x", &[], aside);
        becomes("sbatch --gpu-bind=closest x", &[], "");
        let blank = [("SLURM_GPUBIND", " ")];
        becomes("srun --gpu-bind=closest x", &blank, &format!("SLURM_GPUBIND=  {aside}"));
    }

    #[test]
    fn off_is_handed_down_and_leaves_slurm_no_word_of_ours() {
        let off = "SLURM_GPUBIND=off SLURM_GPUBIND_ORIGIN=off;";
        becomes("sbatch --gpubind=off x", &[], off);
        becomes("srun --gpu-bind=spank:off x", &[], off);
        let outer = [
            IN_A_JOB,
            ("SLURM_GPUBIND", "single"),
            ("SLURM_GPUBIND_ORIGIN", "single;"),
            ("SLURM_GPU_BIND", "none,spank:single"),
            ("SLURM_TRES_BIND", "gres/nic:closest+gres/gpu:none,spank:single"),
        ];
        let left = format!("{off} SLURM_JOB_ID=7 SLURM_TRES_BIND=gres/nic:closest");
        becomes("srun --gpubind=off x", &outer, &left);
    }

    #[test]
    fn slurms_implicit_binding_keeps_the_sites_default_away_but_no_request() {
        let aside = "SLURM_GPUBIND_COMPONENTS=off";
        becomes("srun --gpus-per-task=1 x", &[], aside);
        becomes("srun --gpus-per-node=8 x", &[("SLURM_GPUBIND_COMPONENTS", "off")], "");
        becomes("srun --gpus=1 a : --gpus-per-task=1 b", &[], "SLURM_GPUBIND_COMPONENTS=;off");
        becomes("sbatch --gpus-per-task=1 x", &[], "");
        for (name, value) in [
            ("SLURM_GPUS_PER_TASK", "1"),
            ("SLURM_NTASKS_PER_GPU", "2"),
            ("SLURM_TRES_PER_TASK", "cpu=1,gres/gpu=1"),
            ("SLURM_TRES_BIND", "gres/gpu:per_task:1"),
            ("SLURM_GPU_BIND", "none"),
        ] {
            let left = after("srun x", &[(name, value)]).unwrap();
            assert!(left.starts_with(&format!("{aside} ")), "{name}={value}: {left}");
        }
        becomes("srun x", &[("SLURM_TRES_PER_TASK", "cpu=1")], "SLURM_TRES_PER_TASK=cpu=1");
        let asked = after("srun --gpus-per-task=1 x", &[("SLURM_GPUBIND", "first")]).unwrap();
        assert!(!asked.contains(aside), "{asked}");
    }

    #[test]
    fn without_options_a_step_has_the_request_of_its_job_and_slurm_binds_nothing() {
        let request = ("SLURM_GPUBIND", "single");
        let left = "SLURM_GPUBIND=single SLURM_GPU_BIND=none,spank:single";
        becomes("srun x", &[request], left);
        becomes("sbatch x", &[request], "SLURM_GPUBIND=single");
        let tres = ("SLURM_TRES_BIND", "gres/nic:closest+gres/gpu:per_task:1");
        let left = format!("{left} SLURM_TRES_BIND=gres/nic:closest+gres/gpu:none,spank:single");
        becomes("srun x", &[request, tres], &left);
        becomes("srun x", &[("SLURM_GPUBIND", "off")], "SLURM_GPUBIND=off");
    }

    #[test]
    fn parts_of_gpus_are_not_bound_by_slurm_and_need_no_word_against_it() {
        let request = ("SLURM_GPUBIND", "single");
        becomes("srun --gres=shard:1 x", &[request], "SLURM_GPUBIND=single");
        for (name, value) in [("SLURM_SHARDS_ON_NODE", "4"), ("SLURM_GRES", "mps:5")] {
            let left = after("srun x", &[IN_A_JOB, request, (name, value)]).unwrap();
            assert!(!left.contains("SLURM_GPU_BIND"), "{left}");
        }
    }

    #[test]
    fn a_batch_scripts_bind_text_arrives_by_slurms_variables() {
        for (name, value) in [
            ("SLURM_GPU_BIND", "none,spank:first"),
            ("SLURM_TRES_BIND", "gres/gpu:none,spank:first"),
            ("SLURM_TRES_BIND", "gres/nic:closest+gres/gpu:none,spank:first"),
        ] {
            let left = after("srun x", &[IN_A_JOB, (name, value)]).unwrap();
            assert!(left.starts_with("SLURM_GPUBIND=first SLURM_GPUBIND_ORIGIN=first;"), "{left}");
        }
        let closest = [IN_A_JOB, ("SLURM_GPU_BIND", "closest")];
        let aside = "SLURM_GPUBIND_COMPONENTS=off SLURM_GPU_BIND=closest SLURM_JOB_ID=7";
        becomes("srun x", &closest, aside);
    }

    #[test]
    fn a_job_that_is_submitted_from_inside_another_starts_with_the_personal_default() {
        let outer = [
            IN_A_JOB,
            ("SLURM_GPUBIND", "single"),
            ("SLURM_GPUBIND_ORIGIN", "single;"),
            ("SLURM_GPU_BIND", "none,spank:single"),
            ("SLURM_TRES_BIND", "gres/gpu:none,spank:single"),
            (variables::SCRIPT_OPTION, "single"),
        ];
        for typed in ["sbatch x", "salloc x", "sbatch --gpu-bind=closest x"] {
            becomes(typed, &outer, "SLURM_JOB_ID=7");
        }
        // A step of the same job, on the other hand, has the job's request.
        assert!(after("srun x", &outer).unwrap().contains("SLURM_GPUBIND=single "));
        let with_default = [&outer[..], &[("SLURM_GPUBIND_ORIGIN", "single;first")]].concat();
        becomes("sbatch x", &with_default, "SLURM_GPUBIND=first SLURM_JOB_ID=7");
        let own = "SLURM_GPUBIND=auto SLURM_GPUBIND_ORIGIN=auto;first SLURM_JOB_ID=7";
        becomes("sbatch --gpubind=auto x", &with_default, own);
        // What the user exports in the job is the user's.
        let exported = [&outer[..1], &[("SLURM_GPUBIND", "first"), outer[2]]].concat();
        becomes("sbatch x", &exported, "SLURM_GPUBIND=first SLURM_JOB_ID=7");
        let slurms = [IN_A_JOB, ("SLURM_TRES_BIND", "gres/nic:closest+gres/gpu:single:1")];
        let left = "SLURM_JOB_ID=7 SLURM_TRES_BIND=gres/nic:closest+gres/gpu:single:1";
        becomes("sbatch x", &slurms, left);
    }

    #[test]
    fn an_outer_heterogeneous_job_is_left_behind_as_well() {
        let outer = [
            IN_A_JOB,
            ("SLURM_HET_SIZE", "2"),
            ("SLURM_GPU_BIND_HET_GROUP_0", "closest"),
            ("SLURM_GPU_BIND_HET_GROUP_1", "none,spank"),
            ("SLURM_GPU_BIND_PACK_GROUP_1", "none,spank"),
        ];
        let left = "SLURM_GPU_BIND_HET_GROUP_0=closest SLURM_HET_SIZE=2 SLURM_JOB_ID=7";
        becomes("sbatch x", &outer, left);
    }

    #[test]
    fn components_that_differ_travel_in_a_list() {
        let list = "SLURM_GPUBIND=auto SLURM_GPUBIND_COMPONENTS=auto;first \
                    SLURM_GPUBIND_ORIGIN=auto;";
        becomes("srun --gpubind=auto a : --gpubind=first b", &[], list);
        let stale = [("SLURM_GPUBIND_COMPONENTS", "single;off"), ("SLURMD_TRES_BIND", "gpu:none")];
        becomes("srun --gpubind=auto a : --gpubind=first b", &stale, list);
        let same = "SLURM_GPUBIND=first SLURM_GPUBIND_ORIGIN=first;";
        becomes("srun --gpubind=first a : --gpubind=first b", &stale, same);
        let left = after("srun a : --gpubind=first b : --gpu-bind=closest c", &[]).unwrap();
        assert!(left.contains("COMPONENTS=;first;off "), "{left}");
        let left = after("srun --het-group=0,2 --gpubind=first a : b", &[]).unwrap();
        assert!(left.contains("COMPONENTS=first;first; "), "{left}");
    }

    #[test]
    fn each_component_of_a_heterogeneous_job_hands_its_request_down() {
        let job = [
            IN_A_JOB,
            ("SLURM_GPUBIND", "first"),
            ("SLURM_GPU_BIND_HET_GROUP_0", "none,spank:single"),
            ("SLURM_GPU_BIND_HET_GROUP_1", "none,spank:first"),
            ("SLURM_GPU_BIND_HET_GROUP_2", "closest"),
        ];
        let left = after("srun --het-group=0-2 a", &job).unwrap();
        assert!(left.contains("SLURM_GPUBIND_COMPONENTS=single;first;off "), "{left}");
        assert!(!left.contains("SLURM_GPU_BIND="), "{left}");
        let left = after("srun --het-group=1 a", &job).unwrap();
        assert!(left.starts_with("SLURM_GPUBIND=first SLURM_GPU_BIND_HET"), "{left}");
    }

    #[test]
    fn without_a_request_nothing_is_set() {
        for typed in ["srun x", "sbatch x", "salloc x", "srun a : b"] {
            becomes(typed, &[], "");
        }
        let closest = [("SLURM_GPU_BIND", "closest")];
        becomes("sbatch x", &closest, "SLURM_GPU_BIND=closest");
        // The text of a step that srun runs in tells nothing of the new one.
        becomes("srun x", &[("SLURMD_TRES_BIND", "gpu:none")], "");
        becomes("salloc x", &[("SLURMD_TRES_BIND", "gpu:none")], "SLURMD_TRES_BIND=gpu:none");
    }

    #[test]
    fn a_bad_request_in_the_environment_counts_only_where_it_is_used() {
        let bad = [("SLURM_GPUBIND", "nonsense")];
        assert!(after("srun x", &bad).is_err());
        assert!(after("srun --gpu-bind=closest x", &bad).is_ok());
        assert!(after("srun --gpubind=auto x", &bad).is_ok());
    }
}
