//! Which of a command line's requests is this step's own.
//!
//! One srun can start several components with different requests, but gives the
//! same environment to all of them.

use crate::request::{BindText, Mode, Request, RequestError, tres_bind_text};
use crate::site::{BindDefault, Settings, Site};
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

/// What a step wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// gpubind, with these items, or `off`.
    Request(Request),
    /// Slurm's own binding.
    Slurms,
    /// Nobody has said anything: the site's default decides.
    Nothing,
}

/// Why gpubind leaves a step alone before it looks at anything of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAsked {
    /// The user wants Slurm's binding.
    #[error("Slurm's own binding was asked for")]
    Slurms,
    /// The site binds on request only.
    #[error("gpubind was not asked for")]
    OnRequest,
}

impl Wanted {
    /// The step's settings where gpubind acts, be it to say that it is off.
    ///
    /// # Errors
    /// [`NotAsked`].
    pub fn settings(&self, site: &Site) -> Result<Settings, NotAsked> {
        match self {
            Wanted::Request(request) => Ok(Settings::of(Some(request), site)),
            Wanted::Nothing if site.default == BindDefault::Always => Ok(Settings::of(None, site)),
            Wanted::Nothing => Err(NotAsked::OnRequest),
            Wanted::Slurms => Err(NotAsked::Slurms),
        }
    }

    /// Whether a site's settings can decide anything here.
    pub fn may_be_bound(&self) -> bool {
        match self {
            Wanted::Request(request) => request.mode != Some(Mode::Off),
            Wanted::Slurms => false,
            Wanted::Nothing => true,
        }
    }

    /// What a step inside this one is to inherit.
    pub fn to_propagate(&self) -> Option<Request> {
        match self {
            Wanted::Request(request) => Some(request.clone()),
            Wanted::Slurms => Some(Request { mode: Some(Mode::Off), ..Request::default() }),
            Wanted::Nothing => None,
        }
    }
}

/// What the step that the calling task belongs to wants: Slurm's own text for
/// the step's binding where it tells, else the entry of the list that srun has
/// left, else `inherited`, which holds for all components alike.
///
/// Slurm's text is the step's own, since srun takes an inherited one away; up to
/// 25.05 it is missing in a step with one task on the node (mgr.c,
/// job_manager).
///
/// # Errors
/// A request that cannot be understood.
pub fn wanted(
    inherited: Option<&str>,
    place: ComponentPosition,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Wanted, RequestError> {
    if let Some(wanted) = slurms_text(variables::STEP_TRES_BIND, env) {
        return Ok(wanted);
    }
    let list = env(variables::COMPONENT_REQUESTS);
    match list.as_deref().and_then(|list| entry(list, place)).or(inherited) {
        // Not where there is a request: this text may be an outer step's.
        None | Some("") => Ok(slurms_text(variables::TRES_BIND, env).unwrap_or(Wanted::Nothing)),
        // Without a request, srun has seen an option for Slurm's own binding.
        Some("off") if inherited.is_none() => Ok(Wanted::Slurms),
        Some(request) => request.parse().map(Wanted::Request),
    }
}

/// What Slurm's text for a step's binding says of GPUs.
fn slurms_text(variable: &str, env: &dyn Fn(&str) -> Option<String>) -> Option<Wanted> {
    match env(variable).as_deref().and_then(tres_bind_text)? {
        Ok(BindText::Ours { request, .. }) => Some(Wanted::Request(request)),
        Ok(BindText::Slurms) => Some(Wanted::Slurms),
        Err(_) => None,
    }
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

    /// What a component wants, with the list's and Slurm's text for the step.
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
        said(wanted(Some("single"), place, &env).unwrap())
    }

    fn said(wanted: Wanted) -> String {
        match wanted {
            Wanted::Request(request) => request.to_string(),
            Wanted::Slurms => "Slurm's".to_owned(),
            Wanted::Nothing => "nothing".to_owned(),
        }
    }

    #[test]
    fn slurms_text_tells_the_steps_request() {
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
    fn without_it_the_components_place_tells() {
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
    fn where_nobody_asked_slurms_other_text_tells_of_its_own_binding() {
        let with = |list: Option<&str>, tres: Option<&str>| {
            let env = |name: &str| {
                let value = match name {
                    variables::COMPONENT_REQUESTS => list,
                    variables::TRES_BIND => tres,
                    _ => None,
                };
                value.map(str::to_owned)
            };
            said(wanted(None, ComponentPosition { before: 0, tasks: 1, total: 1 }, &env).unwrap())
        };
        assert_eq!(with(None, None), "nothing");
        assert_eq!(with(None, Some("gres/gpu:per_task:2")), "Slurm's");
        assert_eq!(with(None, Some("gres/gpu:none")), "Slurm's");
        assert_eq!(with(None, Some("gres/nic:closest")), "nothing");
        assert_eq!(with(None, Some("gres/gpu:none,spank:first")), "first");
        assert_eq!(with(Some("off"), None), "Slurm's");
    }

    #[test]
    fn the_site_decides_only_where_nobody_has_said_anything() {
        let request = |text: &str| Wanted::Request(text.parse().unwrap());
        let of = |acts, wanted: &Wanted| {
            let site = Site { default: acts, request: "first".parse().unwrap(), ..Site::default() };
            wanted.settings(&site).map(|settings| (settings.mode, settings.asked))
        };
        for acts in [BindDefault::OnRequest, BindDefault::Always] {
            assert_eq!(of(acts, &request("spank")), Ok((Mode::First, true)));
            assert_eq!(of(acts, &request("off")), Ok((Mode::Off, true)));
            assert_eq!(of(acts, &Wanted::Slurms), Err(NotAsked::Slurms));
        }
        assert_eq!(of(BindDefault::Always, &Wanted::Nothing), Ok((Mode::First, false)));
        assert_eq!(of(BindDefault::OnRequest, &Wanted::Nothing), Err(NotAsked::OnRequest));
    }
}
