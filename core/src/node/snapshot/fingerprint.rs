//! The state of a machine that a snapshot belongs to.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
    /// gres.conf, where the description depends on it, and what it includes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gres: Vec<FileState>,
}

/// A file of Slurm's as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FileState {
    path: PathBuf,
    /// `DEVICE:INODE:SIZE:SECONDS.NANOSECONDS`; `None` where there was no such file.
    state: Option<String>,
}

impl FileState {
    fn take(path: &Path) -> io::Result<FileState> {
        let state = match fs::metadata(path) {
            Ok(meta) => {
                let (device, inode, size) = (meta.dev(), meta.ino(), meta.len());
                Some(format!("{device}:{inode}:{size}:{}.{}", meta.mtime(), meta.mtime_nsec()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(FileState { path: path.to_owned(), state })
    }

    /// Whether it is another file now. One that is not there any more is none: a process
    /// in a container may see the snapshot and not Slurm's configuration.
    fn has_changed(&self) -> bool {
        FileState::take(&self.path).is_ok_and(|now| now.state.is_some() && now.state != self.state)
    }
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
            gres: Vec::new(),
        }
    }

    /// The same for a description that depends on these files of Slurm's, too.
    pub fn with_gres(self, files: &[PathBuf]) -> Fingerprint {
        Fingerprint { gres: files.iter().flat_map(|file| FileState::take(file)).collect(), ..self }
    }

    /// Whether one of those files is another one now.
    pub fn has_other_gres(&self) -> bool {
        self.gres.iter().any(FileState::has_changed)
    }

    /// The first part of the machine that differs from the other fingerprint, in words.
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
