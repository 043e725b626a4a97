//! What holds for one step, after all sources have been put together.

use super::Site;
use crate::request::{Ids, LocalRank, Mode, Request};

/// The settings of a step: the request over the site's over the built-in ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Whether the user asked for gpubind, and not only the site's default.
    pub asked: bool,
    /// How a task sees the step's devices.
    pub mode: Mode,
    /// Whether several tasks on one device are wanted.
    pub share: bool,
    /// How whole GPUs are written.
    pub ids: Ids,
    /// What LOCAL_RANK means where exactly one device is visible.
    pub local_rank: LocalRank,
    /// Whether RANK, WORLD_SIZE and the like are exported where unset.
    pub rank_env: bool,
    /// Whether a task that keeps several devices loads the worker shim.
    pub workers: bool,
    /// Whether each rank says on stderr what it got.
    pub verbose: bool,
    /// Whether a task that cannot be bound as asked fails.
    pub strict: bool,
}

impl Settings {
    /// A step's settings: what the user asked for, over what the site sets. Without a
    /// request, only the site's default has gpubind act.
    pub fn of(request: Option<&Request>, site: &Site) -> Settings {
        let plain = Request::default();
        let (asked, site) = (request.is_some(), &site.request);
        let request = request.unwrap_or(&plain);
        Settings {
            asked,
            mode: request.mode.or(site.mode).unwrap_or(Mode::Auto),
            share: request.share || site.share,
            ids: request.ids.or(site.ids).unwrap_or(Ids::Index),
            local_rank: request.local_rank.or(site.local_rank).unwrap_or(LocalRank::Virtual),
            // Who asks for gpubind wants ranks; a site's default must not make every
            // program believe that it runs under torchrun.
            rank_env: request.rank_env.or(site.rank_env).unwrap_or(asked),
            workers: request.workers.or(site.workers).unwrap_or(true),
            verbose: request.verbose || site.verbose,
            strict: request.strict || site.strict,
        }
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
}
