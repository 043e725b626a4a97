//! Making a task load the worker shim into what it starts.

use std::ffi::{OsStr, OsString};

use gpubind_shim_core::record::{Record, fingerprints};

use crate::request::LocalRank;
use crate::variables;

use super::inherited::preload_without_shim;
use super::rank::Rank;

/// Whether a task loads the shim.
pub(super) enum Arming {
    /// It does: the shim's record, and LD_PRELOAD.
    Armed { record: String, preload: OsString },
    /// It should, and cannot read the shim's file, or starts in a root that cannot be
    /// looked into beforehand.
    NoShim,
    /// It need not: what it starts has nothing to be given or spared.
    Unneeded,
}

/// What arms a task of mode `auto` with this share of devices and these rank variables.
///
/// Below a task with one device there is nothing to share out, but a launcher's ranks
/// must not take the task's RANK for theirs. Only a task that is alone on its node is
/// likely to start a launcher; all others are spared the shim.
pub(super) fn arm(
    rank: &Rank,
    visible: &str,
    share: usize,
    ranks: &[(&'static str, String)],
) -> Arming {
    let has_ranks = rank.most_tasks == 1 && !ranks.is_empty();
    if !rank.settings.workers || (share < 2 && !has_ranks) {
        return Arming::Unneeded;
    }
    let contained = (rank.env)(variables::OCI_CONTAINER).is_some_and(|bundle| !bundle.is_empty());
    let Some(shim) = rank.worker.filter(|_| !contained) else {
        return if share < 2 { Arming::Unneeded } else { Arming::NoShim };
    };
    let record = Record {
        process: shim.process,
        virtual_rank: rank.settings.local_rank == LocalRank::Virtual,
        visible: visible.as_bytes(),
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
