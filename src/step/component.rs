//! Which of a command line's requests is this step's own.
//!
//! One srun can start several components with different requests, but gives the
//! same environment to all of them.

use crate::config::{
    BindText, COMPONENTS_VARIABLE, Mode, Request, RequestError, STEP_BIND_VARIABLE, tres_bind_text,
};

/// Where a component stands among all tasks of the srun that has started it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// Tasks of the components before it.
    pub before: u32,
    /// Its own tasks, on all of its nodes.
    pub tasks: u32,
    /// Tasks of all components.
    pub total: u32,
}

/// The request of the step that the calling task belongs to: Slurm's own text for
/// the step's binding where it tells, else the entry of the list that srun has
/// left, else `inherited`, which holds for all components alike.
///
/// Slurm's text is the step's own, since srun takes an inherited one away; up to
/// 25.05 it is missing in a step with one task on the node (mgr.c,
/// job_manager).
///
/// # Errors
/// A request that cannot be understood.
pub fn request(
    inherited: &str,
    place: Place,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Request, RequestError> {
    match env(STEP_BIND_VARIABLE).as_deref().and_then(tres_bind_text) {
        Some(Ok(BindText::Ours { request, .. })) => return Ok(request),
        Some(Ok(BindText::Slurms)) => {
            return Ok(Request { mode: Some(Mode::Off), ..Request::default() });
        }
        Some(Err(_)) | None => {}
    }
    let list = env(COMPONENTS_VARIABLE);
    list.as_deref().and_then(|list| entry(list, place)).unwrap_or(inherited).parse()
}

/// The component's entry. Of the components between the first and the last, only
/// their order is known: they must agree.
fn entry(list: &str, place: Place) -> Option<&str> {
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

    /// The request, in a component of the list's, with Slurm's text for the step.
    fn of(list: Option<&str>, text: Option<&str>, before: u32, total: u32) -> String {
        let env = |name: &str| {
            let value = match name {
                COMPONENTS_VARIABLE => list,
                STEP_BIND_VARIABLE => text,
                _ => None,
            };
            value.map(str::to_owned)
        };
        request("single", Place { before, tasks: 2, total }, &env).unwrap().to_string()
    }

    #[test]
    fn slurms_text_tells_the_steps_request() {
        for (text, request) in [
            ("gpu:none,spank:first", "first"),
            ("gres/gpu:none,spank:first", "first"),
            ("gres/nic:closest+gres/gpu:verbose,none,spank", "auto,verbose"),
            ("gpu:closest", "off"),
            ("gpu:none", "off"),
            ("gres/nic:closest", "ordered"),
            ("gpu:none,spanky", "ordered"),
        ] {
            assert_eq!(of(Some("ordered;ids=uuid"), Some(text), 0, 4), request, "{text}");
        }
    }

    #[test]
    fn without_it_the_components_place_tells() {
        let at = |list, before, total| of(Some(list), None, before, total);
        assert_eq!(at("first;ordered", 0, 4), "first");
        assert_eq!(at("first;ordered", 2, 4), "ordered");
        assert_eq!(at("first;off;ordered", 2, 6), "off");
        assert_eq!(at("first;off;off;ordered", 4, 8), "off");
        assert_eq!(at("first;off;auto;ordered", 4, 8), "single", "nobody can tell");
        assert_eq!(of(None, None, 0, 2), "single");
    }
}
