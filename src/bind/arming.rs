//! Making a task that keeps several devices load the worker shim.

use crate::config::LocalRank;

use super::edits::Rank;
use super::leftovers::others;
use super::worker::{RECORD, Record, prints};

/// What ld.so(8) loads into every program that is started.
pub(super) const PRELOAD: &str = "LD_PRELOAD";

/// Slurm sets it in the tasks of `srun --container`. They start in a root that
/// cannot be looked into beforehand.
const OCI_CONTAINER: &str = "SLURM_CONTAINER";

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
    let contained = (rank.env)(OCI_CONTAINER).is_some_and(|bundle| !bundle.is_empty());
    let Some(shim) = rank.worker.filter(|_| rank.settings.workers && !contained) else {
        return Vec::new();
    };
    let record = Record {
        process: shim.process,
        virtual_rank: rank.settings.local_rank == LocalRank::Virtual,
        visible: visible.as_bytes(),
        prints: prints(rank.env),
    };
    let mut text = Vec::new();
    record.write(&mut |piece| text.extend_from_slice(piece));
    let preload = (rank.env)(PRELOAD).unwrap_or_default();
    // An outer step's may be another file.
    let preload = others(&preload).unwrap_or(preload);
    let separator = if preload.is_empty() { "" } else { ":" };
    vec![
        (PRELOAD, format!("{}{separator}{preload}", shim.file)),
        (RECORD, String::from_utf8_lossy(&text).into_owned()),
    ]
}
