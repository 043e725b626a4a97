//! The options by which a command is told which machine to look at.

use std::path::PathBuf;
use std::time::SystemTime;

use crate::node::nvml::{self, NvmlError};
use crate::node::snapshot::{MAX_AGE, Snapshot};
use crate::node::{Node, Roots};

/// Where the machine's files and its NVML library are.
#[derive(Debug, Clone, clap::Args)]
pub struct MachineArgs {
    /// Folder in front of /sys, /proc, /dev and /run, for containers and tests
    #[arg(long, value_name = "DIR", default_value = "/", env = "GPUBIND_FSROOT")]
    pub fsroot: PathBuf,
    /// The NVML library [default: libnvidia-ml.so.1 where the loader finds it]
    #[arg(long, value_name = "FILE", env = "GPUBIND_NVML")]
    pub nvml: Option<PathBuf>,
}

impl MachineArgs {
    /// The machine's file tree.
    pub fn roots(&self) -> Roots {
        Roots::new(self.fsroot.clone())
    }

    /// The whole machine: from the saved snapshot if it may be believed, else from NVML.
    ///
    /// # Errors
    /// [`NvmlError`] if neither tells.
    pub fn node(&self) -> Result<Node, NvmlError> {
        let roots = self.roots();
        match Snapshot::load(&roots.snapshot(), &roots, MAX_AGE, SystemTime::now()) {
            Ok(node) => Ok(node),
            Err(_) => nvml::read(self.nvml.as_deref(), &roots),
        }
    }
}
