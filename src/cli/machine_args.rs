//! The options by which a command knows which machine to look at.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::nvml::{self, NvmlError};
use gpubind_core::node::snapshot::{MAX_AGE, Snapshot};
use gpubind_core::node::{LoadOrProbeError, Node, ProbeOptions, Roots, load_or_probe};
use gpubind_core::variables;

/// Where the machine's files and its NVML library are.
#[derive(Debug, Clone, clap::Args)]
pub struct MachineArgs {
    /// Folder in front of /sys, /proc, /dev and /run, for containers and tests
    #[arg(long, value_name = "DIR", default_value = "/", env = variables::OPTION_FSROOT)]
    pub fsroot: PathBuf,
    /// The NVML library [default: libnvidia-ml.so.1 where the loader finds it]
    #[arg(long, value_name = "FILE", env = variables::OPTION_NVML)]
    pub nvml: Option<PathBuf>,
}

impl MachineArgs {
    /// The machine's file tree.
    pub fn roots(&self) -> Roots {
        Roots::new(self.fsroot.clone())
    }

    /// The same as [`MachineArgs::node`], for a process that must not hang or crash: NVML is
    /// read in a child, in this time.
    ///
    /// # Errors
    /// [`LoadOrProbeError`] if neither tells.
    pub fn node_within(&self, timeout: Duration) -> Result<Node, LoadOrProbeError> {
        // The child works in another folder.
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let source = ProbeOptions {
            roots: Roots::new(absolute(&self.fsroot)),
            program: gpubind_core::child::SELF.into(),
            // A bare name is for the loader to find.
            nvml: self.nvml.as_ref().map(|nvml| match nvml.components().count() {
                0 | 1 => nvml.clone(),
                _ => absolute(nvml),
            }),
            timeout,
            max_age: MAX_AGE,
        };
        load_or_probe(&source).map(|(node, _)| node)
    }

    /// The whole machine: from the saved snapshot if it can be trusted and is valid, else from NVML.
    ///
    /// # Errors
    /// [`NvmlError`] if neither tells.
    pub fn node(&self) -> Result<Node, NvmlError> {
        let roots = self.roots();
        match Snapshot::load(&roots.snapshot(), &roots, MAX_AGE, SystemTime::now()) {
            Ok(node) => Ok(node),
            Err(why) => {
                tracing::info!("reading NVML; the saved snapshot is not used: {why}");
                nvml::read(self.nvml.as_deref(), &roots)
            }
        }
    }
}
