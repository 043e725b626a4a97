//! Which of a command's bindings is this step's own: what a task finds in its
//! environment (the receiver of [`super::propagation`]).
//!
//! One srun can start several components with different requests, but gives the
//! same environment to all of them.

use super::binding::Binding;
use super::propagation::{VariableError, job_request, personal_default};
use super::transport::Bindings;
use crate::variables;

/// Where a component stands among all that its srun has started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ComponentPosition {
    /// Its number in a heterogeneous job, where that is known.
    pub group: Option<usize>,
    /// Tasks of the components before it.
    pub before: u32,
    /// Its own tasks, on all of its nodes.
    pub tasks: u32,
    /// Tasks of all components.
    pub total: u32,
}

/// What a step asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepRequest {
    /// Whose binding is in effect.
    pub binding: Binding,
    /// Whether the job or the step itself asks for it, and not a personal default.
    pub is_explicit: bool,
}

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What the step that the calling task belongs to asks for: Slurm's own text for the
/// step's binding where it tells, else what srun has left. Where srun has no plugin, the
/// job's own request or the personal default is in effect.
///
/// Slurm's text is the step's own, since srun takes an inherited one away; up to
/// 25.05 it is missing in a step with one task on the node (mgr.c,
/// job_manager).
///
/// # Errors
/// [`VariableError`].
pub fn step_request(position: ComponentPosition, env: Env) -> Result<StepRequest, VariableError> {
    let job = job_request(env)?;
    let default = personal_default(env)?.map_or(Binding::Unspecified, Binding::Gpubind);
    let text = Binding::from_tres_bind(&env(variables::STEP_TRES_BIND).unwrap_or_default());
    let own_text = text.unwrap_or_default();
    let left = step_variable(env)?;
    let of_srun = match &left {
        Some(bindings) => of_position(bindings, position),
        None => of_position(&job, position),
    };
    let candidates = [own_text, of_srun];
    let found = candidates.into_iter().find(|binding| *binding != Binding::Unspecified);
    let binding = found.unwrap_or_else(|| match &left {
        Some(_) => Binding::Unspecified,
        None => without_srun(&default, env),
    });
    let is_explicit = binding != default || of_position(&job, position) != Binding::Unspecified;
    Ok(StepRequest { binding, is_explicit })
}

/// What a batch script or an interactive shell asks for: only what the job itself does.
/// `option` is the value of `#SBATCH --gpubind` as Slurm has handed it over.
///
/// # Errors
/// [`VariableError`].
pub fn script_request(option: Option<&str>, env: Env) -> Result<StepRequest, VariableError> {
    let binding = match (job_request(env)?.of_group(0), option) {
        (Binding::Unspecified, Some(text)) => {
            let variable = variables::SCRIPT_OPTION;
            let request = text.parse().map_err(|error| VariableError { variable, error })?;
            Binding::Gpubind(request)
        }
        (binding, _) => binding,
    };
    Ok(StepRequest { binding, is_explicit: true })
}

/// What a step inside this one inherits as the job's own request: this component's,
/// where srun has left one for each.
pub fn inside_component(position: ComponentPosition, env: Env) -> Option<Bindings> {
    match job_request(env) {
        Ok(Bindings::ByGroup(list)) => {
            let binding = of_position(&Bindings::ByGroup(list), position);
            Some(Bindings::of(vec![(0, binding)]))
        }
        Ok(_) | Err(_) => None,
    }
}

fn step_variable(env: Env) -> Result<Option<Bindings>, VariableError> {
    let variable = variables::STEP_REQUEST;
    let read =
        |text: String| Bindings::read(&text).map_err(|error| VariableError { variable, error });
    env(variable).map(read).transpose()
}

/// Where srun has left nothing: Slurm's text as srun itself hands it down, from 23.11 on.
/// Not where there is a request: it may be an outer step's.
fn without_srun(default: &Binding, env: Env) -> Binding {
    if *default != Binding::Unspecified {
        return default.clone();
    }
    let text = env(variables::TRES_BIND).unwrap_or_default();
    Binding::from_tres_bind(&text).unwrap_or_default()
}

/// The component's binding. Where its number is not known, the first and the last can be
/// told by their tasks; of those between, only their order is known: they must agree.
fn of_position(bindings: &Bindings, position: ComponentPosition) -> Binding {
    let Bindings::ByGroup(list) = bindings else { return bindings.of_group(0) };
    if let Some(group) = position.group {
        return bindings.of_group(group);
    }
    if position.before == 0 {
        return bindings.of_group(0);
    }
    let is_last = position.before.saturating_add(position.tasks) >= position.total;
    let between = list.get(1..list.len().saturating_sub(1)).unwrap_or_default();
    match (is_last, list.last(), between.first()) {
        (true, Some((_, last)), _) => last.clone(),
        (false, _, Some((_, first))) if between.iter().all(|(_, other)| other == first) => {
            first.clone()
        }
        _ => Binding::Unspecified,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(binding: &Binding) -> String {
        match binding {
            Binding::Gpubind(request) => request.to_string(),
            Binding::Slurm => "Slurm's".to_owned(),
            Binding::Unspecified => "nothing".to_owned(),
        }
    }

    /// What a component asks for, and whether by itself.
    fn at(position: ComponentPosition, variables: &[(&str, &str)]) -> (String, bool) {
        let env = |name: &str| {
            let found = variables.iter().find(|(set, _)| *set == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let request = step_request(position, &env).unwrap();
        (words(&request.binding), request.is_explicit)
    }

    const ALONE: ComponentPosition =
        ComponentPosition { group: Some(0), before: 0, tasks: 2, total: 2 };

    #[test]
    fn slurms_text_names_the_steps_request() {
        for (text, request) in [
            ("gpu:none,spank:first", "first"),
            ("gres/gpu:none,spank:first", "first"),
            ("gres/nic:closest+gres/gpu:verbose,none,spank", "verbose"),
            ("gpu:closest", "Slurm's"),
            ("gpu:none", "Slurm's"),
            ("gres/nic:closest", "ordered"),
            ("gpu:none,spanky", "ordered"),
        ] {
            let left = [("SLURM_GPUBIND_STEP", "ordered"), ("SLURMD_TRES_BIND", text)];
            assert_eq!(at(ALONE, &left).0, request, "{text}");
        }
    }

    #[test]
    fn the_components_number_decides_and_else_its_tasks() {
        let list = [("SLURM_GPUBIND_STEP", "0:single;1:first;2:ordered;3:off")];
        for (group, request) in ["single", "first", "ordered", "off", "nothing"].iter().enumerate()
        {
            let position = ComponentPosition { group: Some(group), ..ALONE };
            assert_eq!(at(position, &list).0, *request);
        }
        let by_tasks = |text, before, total| {
            let position = ComponentPosition { group: None, before, tasks: 2, total };
            at(position, &[("SLURM_GPUBIND_STEP", text)]).0
        };
        assert_eq!(by_tasks("0:first;1:ordered", 0, 4), "first");
        assert_eq!(by_tasks("0:first;1:ordered", 2, 4), "ordered");
        assert_eq!(by_tasks("0:first;1:", 2, 4), "nothing");
        assert_eq!(by_tasks("0:first;1:off;2:off;3:ordered", 4, 8), "off");
        assert_eq!(by_tasks("0:first;1:off;2:auto;3:ordered", 4, 8), "nothing", "nobody can tell");
    }

    #[test]
    fn a_personal_default_is_no_explicit_request() {
        let default = ("SLURM_GPUBIND", "auto");
        assert_eq!(at(ALONE, &[default, ("SLURM_GPUBIND_STEP", "auto")]), ("auto".into(), false));
        let own = [default, ("SLURM_GPUBIND_STEP", "auto"), ("SLURM_GPUBIND_JOB", "auto")];
        assert_eq!(at(ALONE, &own), ("auto".into(), true));
        assert_eq!(at(ALONE, &[("SLURM_GPUBIND_STEP", "first")]), ("first".into(), true));
        // srun has no plugin.
        assert_eq!(at(ALONE, &[default]), ("auto".into(), false));
        assert_eq!(at(ALONE, &[default, ("SLURM_GPUBIND_JOB", "off")]).0, "off");
        assert_eq!(at(ALONE, &[("SLURM_TRES_BIND", "gres/gpu:per_task:2")]).0, "Slurm's");
    }

    #[test]
    fn a_script_has_what_its_job_asks_for_and_no_default() {
        let of = |option, variables: &[(&str, &str)]| {
            let env = |name: &str| {
                let found = variables.iter().find(|(set, _)| *set == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            words(&script_request(option, &env).unwrap().binding)
        };
        assert_eq!(of(None, &[("SLURM_GPUBIND", "auto")]), "nothing");
        assert_eq!(of(None, &[("SLURM_GPUBIND_JOB", "0:first;1:off")]), "first");
        assert_eq!(of(Some("single"), &[]), "single", "with --export-file");
    }

    #[test]
    fn a_step_inside_a_component_inherits_that_components_request() {
        let inside = |group, job: &str| {
            let env = |name: &str| (name == "SLURM_GPUBIND_JOB").then(|| job.to_owned());
            let position = ComponentPosition { group: Some(group), ..ALONE };
            inside_component(position, &env).map(|bindings| bindings.to_string())
        };
        assert_eq!(inside(1, "0:single;1:first").as_deref(), Some("first"));
        assert_eq!(inside(1, "0:single;1:").as_deref(), Some(""));
        assert_eq!(inside(1, "first"), None, "it stays");
    }
}
