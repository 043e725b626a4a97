//! Making a task load the worker shim into what it starts.

use std::ffi::{OsStr, OsString};

use gpubind_shim_core::record::{Later, Record, fingerprints};
use gpubind_shim_core::worker::Surplus;

use crate::request::{LocalRank, Mode};
use crate::variables;

use super::inherited::preload_without_shim;
use super::rank::Rank;

/// Whether a task loads the shim.
pub(super) enum Arming {
    /// It does: the shim's record, and LD_PRELOAD.
    Armed { record: String, preload: OsString },
    /// It should, and cannot read the shim's file, or starts in a root that cannot be
    /// looked into beforehand.
    NoShim {
        /// Whether its workers see all of its devices therefore.
        is_unserved: bool,
        /// Whether what a container's image overwrites is not given back.
        is_overwritten: bool,
    },
    /// It need not: what it starts has nothing to be given or spared.
    Unneeded,
}

/// What arms a task with this share of devices, CPUs for the workers and rank variables.
///
/// In mode `auto` each worker below it is to have one device. Below a task with one device
/// there is nothing to share out, but a launcher's ranks must not take the task's RANK for
/// theirs. Only a task that is alone on its node is likely to start a launcher; all others
/// are spared the shim, but for those whose variables an image overwrites.
pub(super) fn arm(
    rank: &Rank,
    visible: &str,
    cpus: &str,
    share: usize,
    ranks: &[(&'static str, String)],
    is_sharing_wanted: bool,
) -> Arming {
    let shares = rank.settings.mode == Mode::Auto && share > 1;
    let has_ranks = rank.settings.mode == Mode::Auto && rank.most_tasks == 1 && !ranks.is_empty();
    let serves = shares || has_ranks;
    if !serves && !rank.is_before_container {
        return Arming::Unneeded;
    }
    let contained = (rank.env)(variables::OCI_CONTAINER).is_some_and(|bundle| !bundle.is_empty());
    let wanted = rank.settings.workers;
    let Some(shim) = rank.worker.filter(|_| wanted && !contained) else {
        return match (shares && wanted, rank.is_before_container) {
            (false, false) => Arming::Unneeded,
            (is_unserved, is_overwritten) => Arming::NoShim { is_unserved, is_overwritten },
        };
    };
    let record = Record {
        process: shim.process,
        virtual_rank: rank.settings.local_rank == LocalRank::Virtual,
        later: match rank.is_before_container {
            true => Later::Overwritten { serves },
            false => Later::Kept,
        },
        surplus: match (is_sharing_wanted, rank.settings.strict) {
            (true, _) => Surplus::Wanted,
            (false, true) => Surplus::Refused,
            (false, false) => Surplus::Reported,
        },
        visible: visible.as_bytes(),
        cpus: cpus.as_bytes(),
        fingerprints: fingerprints(rank.env),
    };
    let mut text = Vec::new();
    record.write(&mut |piece| text.extend_from_slice(piece));
    let record = String::from_utf8_lossy(&text).into_owned();
    Arming::Armed { record, preload: preload(shim.file, rank.preload) }
}

/// LD_PRELOAD with the shim before what is there.
fn preload(file: &str, before: Option<&OsStr>) -> OsString {
    let before = before.unwrap_or_default();
    // An outer step's may be another file.
    let others = preload_without_shim(before).unwrap_or_else(|| before.to_owned());
    let mut preload = OsString::from(file);
    if !others.is_empty() {
        preload.push(":");
        preload.push(others);
    }
    preload
}
