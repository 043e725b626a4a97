//! Which request is a task's own (the receiver's side of [`super::propagation`]).
//!
//! One srun can start several components with different requests, but gives the
//! same environment to all of them.

use super::binding::Binding;
use super::grammar::RequestError;
use crate::variables;

/// Where a component stands among all tasks of the srun that has started it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ComponentPosition {
    /// Tasks of the components before it.
    pub before: u32,
    /// Its own tasks, on all of its nodes.
    pub tasks: u32,
    /// Tasks of all components.
    pub total: u32,
}

/// The binding that the calling task's step asks for: by Slurm's own text for the
/// step's binding where it names GPUs, else by the entry of the list that srun has
/// left, else by `inherited`, which is for all components alike.
///
/// Slurm's text is the step's own, since srun takes an inherited one away; up to
/// 25.05 it is missing in a step with one task on the node (mgr.c,
/// job_manager).
///
/// # Errors
/// A request that cannot be understood.
pub fn step_binding(
    inherited: Option<&str>,
    place: ComponentPosition,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Binding, RequestError> {
    if let Some(binding) = slurms_text(variables::STEP_TRES_BIND, env) {
        return Ok(binding);
    }
    let list = env(variables::COMPONENT_REQUESTS);
    match list.as_deref().and_then(|list| entry(list, place)).or(inherited) {
        // Not where there is a request: this text may be an outer step's.
        None | Some("") => Ok(slurms_text(variables::TRES_BIND, env).unwrap_or_default()),
        // Without a request, srun has seen an option for Slurm's own binding.
        Some("off") if inherited.is_none() => Ok(Binding::Slurm),
        Some(request) => request.parse().map(Binding::Gpubind),
    }
}

/// What Slurm's text for a step's binding says of GPUs, if anything.
fn slurms_text(variable: &str, env: &dyn Fn(&str) -> Option<String>) -> Option<Binding> {
    let binding = Binding::from_tres_bind(&env(variable)?).ok()?;
    Some(binding).filter(|binding| *binding != Binding::Unspecified)
}

/// The component's entry. Of the components between the first and the last, only
/// their order is known: they must agree.
fn entry(list: &str, place: ComponentPosition) -> Option<&str> {
    let entries: Vec<&str> = list.split(';').collect();
    let (first, last) = (entries.first()?, entries.last()?);
    if place.before == 0 {
        return Some(first);
    }
    if place.before.saturating_add(place.tasks) >= place.total {
        return Some(last);
    }
    let between = entries.get(1..entries.len().checked_sub(1)?)?;
    between.first().copied().filter(|entry| between.iter().all(|other| other == entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a component asks for, with the list's and Slurm's text for the step.
    fn of(list: Option<&str>, text: Option<&str>, before: u32, total: u32) -> String {
        let env = |name: &str| {
            let value = match name {
                variables::COMPONENT_REQUESTS => list,
                variables::STEP_TRES_BIND => text,
                _ => None,
            };
            value.map(str::to_owned)
        };
        let place = ComponentPosition { before, tasks: 2, total };
        words(step_binding(Some("single"), place, &env).unwrap())
    }

    fn words(binding: Binding) -> String {
        match binding {
            Binding::Gpubind(request) => request.to_string(),
            Binding::Slurm => "Slurm's".to_owned(),
            Binding::Unspecified => "nothing".to_owned(),
        }
    }

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
            assert_eq!(of(Some("ordered;ids=uuid"), Some(text), 0, 4), request, "{text}");
        }
    }

    #[test]
    fn without_it_the_components_place_decides() {
        let at = |list, before, total| of(Some(list), None, before, total);
        assert_eq!(at("first;ordered", 0, 4), "first");
        assert_eq!(at("first;ordered", 2, 4), "ordered");
        assert_eq!(at("first;", 2, 4), "nothing");
        assert_eq!(at("first;off;ordered", 2, 6), "off");
        assert_eq!(at("first;off;off;ordered", 4, 8), "off");
        assert_eq!(at("first;off;auto;ordered", 4, 8), "single", "nobody can tell");
        assert_eq!(of(None, None, 0, 2), "single");
    }

    #[test]
    fn where_nobody_asked_slurms_other_text_names_its_own_binding() {
        let with = |list: Option<&str>, tres: Option<&str>| {
            let env = |name: &str| {
                let value = match name {
                    variables::COMPONENT_REQUESTS => list,
                    variables::TRES_BIND => tres,
                    _ => None,
                };
                value.map(str::to_owned)
            };
            words(
                step_binding(None, ComponentPosition { before: 0, tasks: 1, total: 1 }, &env)
                    .unwrap(),
            )
        };
        assert_eq!(with(None, None), "nothing");
        assert_eq!(with(None, Some("gres/gpu:per_task:2")), "Slurm's");
        assert_eq!(with(None, Some("gres/gpu:none")), "Slurm's");
        assert_eq!(with(None, Some("gres/nic:closest")), "nothing");
        assert_eq!(with(None, Some("gres/gpu:none,spank:first")), "first");
        assert_eq!(with(Some("off"), None), "Slurm's");
    }
}
