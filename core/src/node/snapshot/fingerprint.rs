//! The state of a machine that a snapshot belongs to.

use serde::{Deserialize, Serialize};

use crate::node::{Roots, procfs};

/// What changes when a machine's GPUs change: cheap to read, a few small files
/// in /proc, no NVML and no GPU woken. Kept as text, not as a hash, so that a
/// stale snapshot can say what changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The kernel's boot id.
    boot_id: Option<String>,
    /// First line of /proc/driver/nvidia/version.
    driver: Option<String>,
    /// `ADDRESS MINOR`, with ` excluded` where the driver keeps the GPU back.
    gpus: Vec<String>,
    /// The existing MIG instances, `gpu<minor>/gi<G>/ci<C>`.
    mig: Vec<String>,
}

impl Fingerprint {
    /// Takes the fingerprint of the machine below `roots`. What cannot be read
    /// counts as not there.
    pub fn take(roots: &Roots) -> Fingerprint {
        let gpus = procfs::gpus(roots)
            .iter()
            .map(|gpu| {
                let minor = gpu.minor.map_or("?".to_owned(), |minor| minor.to_string());
                format!("{} {minor}{}", gpu.pci, if gpu.excluded { " excluded" } else { "" })
            })
            .collect();
        Fingerprint {
            boot_id: procfs::boot_id(roots),
            driver: procfs::driver(roots),
            gpus,
            mig: procfs::mig_layout(roots),
        }
    }

    /// The first part that differs from the other fingerprint, in words.
    pub fn difference(&self, other: &Fingerprint) -> Option<&'static str> {
        let parts = [
            (self.boot_id != other.boot_id, "the boot id"),
            (self.driver != other.driver, "the driver version"),
            (self.gpus != other.gpus, "the list of GPUs"),
            (self.mig != other.mig, "the MIG layout"),
        ];
        parts.into_iter().find(|(differs, _)| *differs).map(|(_, what)| what)
    }
}
