//! The snapshot: a node's description in a file, so that NVML is read once and
//! not by every step; and the record of a reading that failed.
//!
//! What lives here: the file's form, writing it, and deciding whether a file
//! that is there is valid. What does not: reading NVML (the `gpubind` program
//! does, see [`super::load_or_probe`]). All of this runs as root inside
//! slurmstepd, so nothing here trusts the file before its owner, mode and size
//! are known.

mod failure;
mod file;
mod fingerprint;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::{Node, NodeError, Roots};
use crate::trusted::TrustError;
pub use failure::{FailedReading, RETRY_AFTER};
pub use file::{SaveError, make_folder};
pub use fingerprint::Fingerprint;

/// The version of the file's form; a reader rejects all others.
pub const SCHEMA: u32 = 2;

/// How old a snapshot may be where nothing else is said: a downed NVLink or a
/// lost GPU changes no fingerprint.
pub const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// How old a snapshot may be in which GPUs are unusable: one that is well again changes
/// no fingerprint either, and should be used soon.
pub const UNUSABLE_MAX_AGE: Duration = Duration::from_secs(5 * 60);

/// The largest file that is read; a real one has some kilobytes per GPU.
pub const MAX_SIZE: usize = 4 * 1024 * 1024;

/// A node's description with what is needed to see whether it is still valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`SCHEMA`] of the program that wrote it.
    pub schema: u32,
    /// When NVML was read, in seconds since 1970 (UTC).
    pub taken_at: u64,
    /// The state of the machine that it belongs to.
    pub fingerprint: Fingerprint,
    /// The machine.
    pub node: Node,
}

/// Why a snapshot is not used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The file or its folder.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// Larger than [`MAX_SIZE`].
    #[error("the snapshot is larger than {MAX_SIZE} bytes")]
    TooLarge,
    /// Not JSON, or JSON of another form.
    #[error("the snapshot is not valid: {0}")]
    Json(#[from] serde_json::Error),
    /// Written by a program with another form.
    #[error("the snapshot has schema {0}, this program reads schema {SCHEMA}")]
    Schema(u32),
    /// The node contradicts itself.
    #[error("the snapshot contradicts itself: {0}")]
    Inconsistent(#[from] NodeError),
    /// Taken too long ago.
    #[error("the snapshot is {age} s old, more than the {max} s allowed")]
    TooOld {
        /// Its age in seconds.
        age: u64,
        /// The allowed age in seconds.
        max: u64,
    },
    /// Taken a while ago, with GPUs that could not be used.
    #[error(
        "the snapshot is {0} s old and lists GPUs that could not be used; such a one is valid for {max} s",
        max = UNUSABLE_MAX_AGE.as_secs()
    )]
    Unusable(u64),
    /// Taken in the future.
    #[error("the snapshot was taken {0} s in the future: the clock was set back")]
    Future(u64),
    /// The machine changed since.
    #[error("the snapshot is stale: {0} changed since it was taken")]
    Stale(&'static str),
}

impl Snapshot {
    /// A snapshot of a node that has just been read. `fingerprint` must have
    /// been taken before the reading began, so that a change in between makes
    /// the snapshot stale and not wrong.
    pub fn new(node: Node, fingerprint: Fingerprint, now: SystemTime) -> Snapshot {
        Snapshot { schema: SCHEMA, taken_at: seconds(now), fingerprint, node }
    }

    /// Reads a snapshot's text from a trusted source (the output of a `gpubind
    /// snapshot` just run, a file that the user names). Neither age nor
    /// fingerprint are looked at.
    ///
    /// # Errors
    /// [`SnapshotError::TooLarge`], [`SnapshotError::Json`],
    /// [`SnapshotError::Schema`] or [`SnapshotError::Inconsistent`].
    pub fn parse(text: &[u8]) -> Result<Snapshot, SnapshotError> {
        if text.len() > MAX_SIZE {
            return Err(SnapshotError::TooLarge);
        }
        // Another form need not have these fields, and its version says so better than the
        // first one that is missing.
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let snapshot: Snapshot = match serde_json::from_slice(text) {
            Ok(snapshot) => snapshot,
            Err(error) => match serde_json::from_slice(text) {
                Ok(Version { schema }) if schema != SCHEMA => {
                    return Err(SnapshotError::Schema(schema));
                }
                _ => return Err(error.into()),
            },
        };
        if snapshot.schema != SCHEMA {
            return Err(SnapshotError::Schema(snapshot.schema));
        }
        snapshot.node.check()?;
        Ok(snapshot)
    }

    /// The file's text: JSON with a newline at its end.
    pub fn to_json(&self) -> String {
        // Plain data without maps: serialising cannot fail.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Whether the snapshot still describes the machine below `roots`.
    ///
    /// # Errors
    /// [`SnapshotError::TooOld`], [`SnapshotError::Unusable`],
    /// [`SnapshotError::Future`] or [`SnapshotError::Stale`].
    pub fn is_current(
        &self,
        roots: &Roots,
        max_age: Duration,
        now: SystemTime,
    ) -> Result<(), SnapshotError> {
        let now = seconds(now);
        let age = now
            .checked_sub(self.taken_at)
            .ok_or_else(|| SnapshotError::Future(self.taken_at.saturating_sub(now)))?;
        if age > max_age.as_secs() {
            return Err(SnapshotError::TooOld { age, max: max_age.as_secs() });
        }
        if !self.node.unusable.is_empty() && age > UNUSABLE_MAX_AGE.as_secs() {
            return Err(SnapshotError::Unusable(age));
        }
        match self.fingerprint.difference(&Fingerprint::take(roots)) {
            Some(what) => Err(SnapshotError::Stale(what)),
            None if self.fingerprint.has_other_gres() => Err(SnapshotError::Stale("gres.conf")),
            None => Ok(()),
        }
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
