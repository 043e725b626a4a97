//! Making a task that keeps several devices load the worker shim.

use crate::request::LocalRank;
use crate::variables;

use super::edits::Rank;
use super::leftovers::others;
use gpubind_shim_core::record::{Record, fingerprints};

/// The worker shim, as a task can load it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shim<'a> {
    /// Its file, which the task can read where it runs.
    pub file: &'a str,
    /// The task's process id.
    pub process: u32,
}

/// What arms a task that sees these devices.
pub(super) fn arm(rank: &Rank, visible: &str) -> Vec<(&'static str, String)> {
    let contained = (rank.env)(variables::OCI_CONTAINER).is_some_and(|bundle| !bundle.is_empty());
    let Some(shim) = rank.worker.filter(|_| rank.settings.workers && !contained) else {
        return Vec::new();
    };
    let record = Record {
        process: shim.process,
        virtual_rank: rank.settings.local_rank == LocalRank::Virtual,
        visible: visible.as_bytes(),
        fingerprints: fingerprints(rank.env),
    };
    let mut text = Vec::new();
    record.write(&mut |piece| text.extend_from_slice(piece));
    let preload = (rank.env)(variables::LD_PRELOAD).unwrap_or_default();
    // An outer step's may be another file.
    let preload = others(&preload).unwrap_or(preload);
    let separator = if preload.is_empty() { "" } else { ":" };
    vec![
        (variables::LD_PRELOAD, format!("{}{separator}{preload}", shim.file)),
        (variables::WORKERS, String::from_utf8_lossy(&text).into_owned()),
    ]
}
