//! srun's options about CPUs, as srun spells them.

use crate::slurm::{BindUnit, Distribution};

/// `--distribution`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DistributionArg {
    /// As typed.
    pub text: String,
    /// How tasks are dealt to sockets.
    pub sockets: Distribution,
}

/// Reads `--distribution`. What it says of nodes makes no difference on one; where it says
/// nothing of sockets they take turns, and a plane fills the first one first (srun(1),
/// and dist_tasks.c, `lllp_distribution`).
pub(super) fn distribution(text: &str) -> Result<DistributionArg, String> {
    let sockets = match text.split_once(':').unwrap_or((text, "")) {
        ("block" | "cyclic", "" | "cyclic" | "*") => Distribution::Cyclic,
        ("block" | "cyclic" | "*", "block") => Distribution::Block,
        ("block" | "cyclic" | "*", "fcyclic") => Distribution::FullCyclic,
        ("*", "cyclic" | "*") => Distribution::Cyclic,
        (plane, "") if is_plane(plane) => Distribution::Block,
        _ => {
            return Err("use block, cyclic, block:block, block:cyclic, block:fcyclic (or \
                        cyclic: before the colon) or plane=N"
                .to_owned());
        }
    };
    Ok(DistributionArg { text: text.to_owned(), sockets })
}

fn is_plane(text: &str) -> bool {
    let size = text.strip_prefix("plane=").and_then(|size| size.parse::<u32>().ok());
    size.is_some_and(|size| size > 0)
}

/// `--cpu-bind`, as far as it has no list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bind {
    /// To units.
    Unit(BindUnit),
    /// To nothing.
    None,
    /// Each rank to the NUMA node of its number.
    RankLdom,
}

/// Reads a `--cpu-bind` without a list; `None` for any other.
pub(super) fn bind(text: &str) -> Option<Bind> {
    let mut words =
        text.split(',').filter(|word| !matches!(*word, "quiet" | "q" | "verbose" | "v"));
    let bind = match words.next()? {
        "threads" => Bind::Unit(BindUnit::Threads),
        "cores" => Bind::Unit(BindUnit::Cores),
        "sockets" => Bind::Unit(BindUnit::Sockets),
        "ldoms" => Bind::Unit(BindUnit::Ldoms),
        "none" | "no" => Bind::None,
        "rank_ldom" => Bind::RankLdom,
        _ => return None,
    };
    words.next().is_none().then_some(bind)
}

/// `--hint`: only what makes a difference to a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum HintArg {
    Nomultithread,
    Multithread,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_read_as_srun_reads_them() {
        for (text, sockets) in [
            ("block", Distribution::Cyclic),
            ("cyclic", Distribution::Cyclic),
            ("block:block", Distribution::Block),
            ("cyclic:block", Distribution::Block),
            ("*:block", Distribution::Block),
            ("cyclic:cyclic", Distribution::Cyclic),
            ("block:fcyclic", Distribution::FullCyclic),
            ("plane=4", Distribution::Block),
        ] {
            assert_eq!(distribution(text).unwrap().sockets, sockets, "{text}");
        }
        for text in ["", "blok", "block:x", "plane", "plane=0", "block:block:block"] {
            assert!(distribution(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bindings_without_a_list_are_read() {
        assert_eq!(bind("cores"), Some(Bind::Unit(BindUnit::Cores)));
        assert_eq!(bind("verbose,ldoms"), Some(Bind::Unit(BindUnit::Ldoms)));
        assert_eq!(bind("q,none"), Some(Bind::None));
        for text in ["rank", "map_cpu:0", "cores,threads", "quiet", ""] {
            assert_eq!(bind(text), None, "{text}");
        }
    }
}
