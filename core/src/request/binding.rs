//! Whose GPU binding is asked for, and the values of `--gpu-bind` and `--tres-bind`
//! that say so.

use super::grammar::{RequestError, shown};
use super::items::{Mode, Request};

/// Whose GPU binding somebody asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Binding {
    /// Nothing is said: the site's default decides.
    #[default]
    Unspecified,
    /// gpubind's, with these items, of which one may be `off`.
    Gpubind(Request),
    /// Slurm's own.
    Slurm,
}

impl Binding {
    /// Reads the value of a `--gpu-bind` option: `[verbose,]spank[:ITEM,…]`, the same
    /// with `none,` before `spank`, or anything of Slurm's own.
    ///
    /// # Errors
    /// Items that cannot be understood.
    pub fn from_gpu_bind(value: &str) -> Result<Binding, RequestError> {
        let (verbose, rest) = split_verbose(value);
        let Some(items) = rest.strip_prefix("spank") else { return Ok(Binding::Slurm) };
        let items = match items.strip_prefix(':') {
            Some(items) => items,
            None if items.is_empty() => items,
            None => return Err(RequestError::Spelling { text: shown(value) }),
        };
        let mut request: Request = items.parse()?;
        if !verbose.is_empty() {
            request.verbose = Some(true);
        }
        Ok(Binding::Gpubind(request))
    }

    /// Reads a TRES binding, `gres/gpu:…` or before 23.11 `gpu:…`, with other TRES
    /// beside it after a `+`. One that says nothing of GPUs is [`Binding::Unspecified`].
    ///
    /// # Errors
    /// Items that cannot be understood.
    pub fn from_tres_bind(text: &str) -> Result<Binding, RequestError> {
        match text.split('+').find_map(gpu_value) {
            Some(value) => Binding::from_gpu_bind(value),
            None => Ok(Binding::Unspecified),
        }
    }

    /// Whether the site's settings can have an effect.
    pub fn may_be_bound(&self) -> bool {
        match self {
            Binding::Gpubind(request) => request.mode != Some(Mode::Off),
            Binding::Slurm => false,
            Binding::Unspecified => true,
        }
    }

    /// The request that a step inside this one inherits.
    pub fn to_propagate(&self) -> Option<Request> {
        match self {
            Binding::Gpubind(request) => Some(request.clone()),
            Binding::Slurm => Some(Request::off()),
            Binding::Unspecified => None,
        }
    }
}

/// The value of `--gpu-bind` for Slurm, from one that asks for gpubind: a value that
/// begins with `none` passes every release's checks, binds nothing and keeps all of the
/// step's GPUs reachable (src/common/tres_bind.c).
pub fn accepted_by_slurm(value: &str) -> String {
    let (verbose, rest) = split_verbose(value);
    format!("{verbose}none,{rest}")
}

/// The prefix `verbose,`, and the value without it and without `none,`.
fn split_verbose(value: &str) -> (&str, &str) {
    let verbose = value.get(..8).filter(|prefix| prefix.eq_ignore_ascii_case("verbose,"));
    let verbose = verbose.unwrap_or_default();
    let rest = value.get(verbose.len()..).unwrap_or_default();
    (verbose, rest.strip_prefix("none,").unwrap_or(rest))
}

/// What one part of a TRES binding says of GPUs.
pub(super) fn gpu_value(part: &str) -> Option<&str> {
    part.strip_prefix("gres/gpu:").or(part.strip_prefix("gpu:"))
}

impl Request {
    /// The request as a `--gpu-bind` value that Slurm accepts.
    pub fn slurm_text(&self) -> String {
        let items = self.items();
        let colon = if items.is_empty() { "" } else { ":" };
        format!("none,spank{colon}{}", items.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_bind_value_is_rewritten_once_and_only_once() {
        for (typed, slurm) in [
            ("spank", "none,spank"),
            ("spank:single", "none,spank:single"),
            ("verbose,spank:ids=uuid", "verbose,none,spank:ids=uuid"),
            ("none,spank:first", "none,spank:first"),
            ("verbose,none,spank", "verbose,none,spank"),
        ] {
            let binding = Binding::from_gpu_bind(typed);
            assert!(matches!(binding, Ok(Binding::Gpubind(_))), "{typed} is a request");
            let rewritten = accepted_by_slurm(typed);
            assert_eq!(rewritten, slurm);
            assert_eq!(Binding::from_gpu_bind(&rewritten), binding);
            assert_eq!(accepted_by_slurm(&rewritten), slurm);
        }
        let Ok(Binding::Gpubind(request)) = Binding::from_gpu_bind("Verbose,spank:first") else {
            panic!("a request");
        };
        assert_eq!(request.to_string(), "first,verbose");
        assert_eq!(request.slurm_text(), "none,spank:first,verbose");
    }

    #[test]
    fn slurms_own_values_are_left_to_slurm() {
        for value in
            ["closest", "none", "single:2", "map_gpu:0,1", "verbose,closest", "mask_gpu:0x1", ""]
        {
            assert_eq!(Binding::from_gpu_bind(value), Ok(Binding::Slurm), "{value}");
        }
    }

    #[test]
    fn a_near_miss_is_answered_by_how_to_write_it() {
        for value in ["spank,single", "spanky", "spank=single"] {
            let message = Binding::from_gpu_bind(value).unwrap_err().to_string();
            assert!(message.contains("spank:ITEM"), "{message}");
        }
    }

    #[test]
    fn of_a_tres_binding_the_gpus_part_decides() {
        let first = Ok(Binding::Gpubind("first".parse().unwrap()));
        assert_eq!(Binding::from_tres_bind("gres/nic:closest+gres/gpu:none,spank:first"), first);
        assert_eq!(Binding::from_tres_bind("gpu:none,spank:first"), first);
        assert_eq!(Binding::from_tres_bind("gres/gpu:closest"), Ok(Binding::Slurm));
        assert_eq!(Binding::from_tres_bind("gres/nic:closest"), Ok(Binding::Unspecified));
        assert!(Binding::from_tres_bind("gres/gpu:none,spanky").is_err());
    }
}
