//! The settings in effect for one step, after all sources have been put together.

use super::{BindDefault, Site};
use crate::request::{Binding, Request, Settings};

/// Why gpubind leaves a step alone before it looks at anything of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAsked {
    /// The user wants Slurm's binding.
    #[error("Slurm's own binding was asked for")]
    Slurm,
    /// The site binds on request only.
    #[error("gpubind was not asked for")]
    OnRequest,
}

impl Settings {
    /// A step's settings where gpubind acts, be it to say that it is off: what the user
    /// asks for, over what the site sets.
    ///
    /// # Errors
    /// [`NotAsked`].
    pub fn for_binding(binding: &Binding, site: &Site) -> Result<Settings, NotAsked> {
        match binding {
            Binding::Gpubind(request) => Ok(Settings::of(Some(request), site)),
            Binding::Unspecified if site.default == BindDefault::Always => {
                Ok(Settings::of(None, site))
            }
            Binding::Unspecified => Err(NotAsked::OnRequest),
            Binding::Slurm => Err(NotAsked::Slurm),
        }
    }

    /// What the user asks for, over what the site sets. Without a request, only the
    /// site's default has gpubind act.
    pub fn of(request: Option<&Request>, site: &Site) -> Settings {
        let asked = request.is_some();
        Settings::new(asked, &request.cloned().unwrap_or_default().or(&site.request))
    }
}

impl From<&Request> for Settings {
    /// The settings where no site has a say.
    fn from(request: &Request) -> Self {
        Settings::of(Some(request), &Site::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Ids, LocalRank, Mode};

    fn of(request: Option<&str>, site: &str) -> Settings {
        let request: Option<Request> = request.map(|text| text.parse().unwrap());
        let site = Site { request: site.parse().unwrap(), ..Site::default() };
        Settings::of(request.as_ref(), &site)
    }

    #[test]
    fn a_request_wins_over_the_site_item_by_item() {
        let site = "first,ids=uuid,local-rank=keep,workers=off,share";
        let settings = of(Some("ids=index,strict"), site);
        assert_eq!((settings.mode, settings.ids), (Mode::First, Ids::Index));
        assert_eq!(settings.local_rank, LocalRank::Keep);
        assert_eq!((settings.workers, settings.share, settings.strict), (false, true, true));
        assert_eq!(of(Some("auto"), site).mode, Mode::Auto);
        assert_eq!(of(Some("off"), site).mode, Mode::Off);
    }

    #[test]
    fn rank_variables_are_set_for_who_asks_unless_the_site_says_otherwise() {
        let rank_env = |request, site| of(request, site).rank_env;
        assert!(rank_env(Some("spank"), "spank"));
        assert!(!rank_env(None, "spank"));
        assert!(rank_env(None, "rank-env=on"));
        assert!(!rank_env(Some("spank"), "rank-env=off"));
        assert!(rank_env(Some("rank-env=on"), "rank-env=off"));
    }

    #[test]
    fn the_site_decides_only_where_nobody_has_said_anything() {
        let request = |text: &str| Binding::Gpubind(text.parse().unwrap());
        let of = |default, binding: &Binding| {
            let site = Site { default, request: "first".parse().unwrap(), ..Site::default() };
            Settings::for_binding(binding, &site).map(|settings| (settings.mode, settings.asked))
        };
        for default in [BindDefault::OnRequest, BindDefault::Always] {
            assert_eq!(of(default, &request("spank")), Ok((Mode::First, true)));
            assert_eq!(of(default, &request("off")), Ok((Mode::Off, true)));
            assert_eq!(of(default, &Binding::Slurm), Err(NotAsked::Slurm));
        }
        assert_eq!(of(BindDefault::Always, &Binding::Unspecified), Ok((Mode::First, false)));
        assert_eq!(of(BindDefault::OnRequest, &Binding::Unspecified), Err(NotAsked::OnRequest));
    }
}
