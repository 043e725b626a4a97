//! The record of a reading of NVML that failed: so that not each of many steps waits
//! for a driver that hangs.

use std::fs;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::file::{SaveError, replace};
use super::{Fingerprint, SCHEMA, seconds};
use crate::node::Roots;
use crate::trusted::{ROOT, read_trusted_with_folder};

/// How long NVML is not asked again after it has failed, unless the machine changes. A
/// command that a person starts asks all the same.
pub const RETRY_AFTER: Duration = Duration::from_secs(60);

/// The largest record that is read.
const MAX_SIZE: u64 = 64 * 1024;
/// The longest message that is kept, in characters.
const MESSAGE: usize = 500;

/// A reading of NVML that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedReading {
    schema: u32,
    /// When, in seconds since 1970 (UTC).
    failed_at: u64,
    /// The state of the machine then.
    fingerprint: Fingerprint,
    /// Why, in one line.
    message: String,
}

impl FailedReading {
    /// A reading that has just failed.
    pub fn new(message: &str, fingerprint: Fingerprint, now: SystemTime) -> FailedReading {
        let message = message.chars().map(|c| if c.is_control() { '?' } else { c });
        let message = message.take(MESSAGE).collect();
        FailedReading { schema: SCHEMA, failed_at: seconds(now), fingerprint, message }
    }

    /// Keeps the record for later steps.
    ///
    /// # Errors
    /// [`SaveError`].
    pub fn save(&self, roots: &Roots) -> Result<(), SaveError> {
        // Plain data without maps: serialising cannot fail.
        let text = serde_json::to_string(self).unwrap_or_default();
        replace(&roots.failure(), text.as_bytes())
    }

    /// Forgets the record: NVML has answered.
    pub fn forget(roots: &Roots) {
        // Where it cannot be removed it is soon too old.
        let _ = fs::remove_file(roots.failure());
    }

    /// Why NVML need not be asked now, and how many seconds ago it failed; `None` where it
    /// should be asked. The record is trusted as the snapshot is.
    pub fn recent(roots: &Roots, now: SystemTime) -> Option<(String, u64)> {
        let bytes = read_trusted_with_folder(&roots.failure(), ROOT, MAX_SIZE).ok()?;
        let failure: FailedReading = serde_json::from_slice(&bytes).ok()?;
        let age = seconds(now).checked_sub(failure.failed_at)?;
        let is_recent = failure.schema == SCHEMA && age < RETRY_AFTER.as_secs();
        let is_same = || failure.fingerprint.difference(&Fingerprint::take(roots)).is_none();
        (is_recent && is_same()).then_some((failure.message, age))
    }
}
