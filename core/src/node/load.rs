//! Getting a node's description in a place where NVML must not be loaded.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::snapshot::{Snapshot, SnapshotError};
use super::{Node, Roots};
use crate::child::{self as probe, ProbeError};

/// Where the description comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeOptions {
    /// The machine's file tree.
    pub roots: Roots,
    /// The gpubind program.
    pub program: PathBuf,
    /// The NVML library; without it the loader's own search path.
    pub nvml: Option<PathBuf>,
    /// How long reading NVML may take.
    pub timeout: Duration,
    /// How old the saved description may be.
    pub max_age: Duration,
}

impl ProbeOptions {
    /// The program's options that say which machine to read.
    fn args(&self) -> Vec<OsString> {
        let max_age = self.max_age.as_secs().to_string();
        let mut args: Vec<OsString> = vec!["--max-age".into(), max_age.into()];
        args.extend(["--fsroot".into(), self.roots.fsroot().into()]);
        if let Some(nvml) = &self.nvml {
            args.extend(["--nvml".into(), nvml.into()]);
        }
        args
    }
}

/// How long starting the program may take; it does its work in the background.
const START: Duration = Duration::from_secs(2);

/// Has the program read NVML and save a new snapshot, whatever there is now, and
/// does not wait for that. For the start of slurmd: the machine may have changed
/// in a way that no fingerprint shows, and the first step should not wait.
///
/// # Errors
/// [`ProbeError`] if the program could not be started.
pub fn refresh(source: &ProbeOptions) -> Result<(), ProbeError> {
    let deadline = source.timeout.as_secs().max(1).to_string();
    let args = ["snapshot", "--save", "--fresh", "--background", "--deadline", &deadline];
    let args = [&args.map(OsString::from)[..], &source.args()].concat();
    probe::run(&source.program, &args, START).map(drop)
}

/// Why there is no description.
#[derive(Debug, thiserror::Error)]
pub enum LoadOrProbeError {
    /// The program gave no answer.
    #[error("cannot read this node's GPUs: {0}")]
    Probe(#[from] ProbeError),
    /// The program's answer is no snapshot.
    #[error("cannot read this node's GPUs: {program} answered wrongly: {error}")]
    Answer {
        /// The program.
        program: String,
        /// What is wrong with its answer.
        error: SnapshotError,
    },
}

/// Reads the saved snapshot if it can be trusted and is valid; else runs the program, which
/// reads NVML and saves a new one. Gives the node, and why the saved one was
/// not used.
///
/// # Errors
/// [`LoadOrProbeError`], no later than half a second after [`ProbeOptions::timeout`].
pub fn load_or_probe(
    source: &ProbeOptions,
) -> Result<(Node, Option<SnapshotError>), LoadOrProbeError> {
    let ProbeOptions { roots, program, timeout, max_age, .. } = source;
    let saved = Snapshot::load(&roots.snapshot(), roots, *max_age, SystemTime::now());
    let why = match saved {
        Ok(node) => {
            tracing::debug!("using the saved snapshot {}", roots.snapshot().display());
            return Ok((node, None));
        }
        Err(why) => why,
    };
    tracing::info!("reading NVML; the saved snapshot is not used: {why}");
    let args = [&["snapshot", "--save", "--show"].map(OsString::from)[..], &source.args()].concat();
    let answer = probe::run(program, &args, *timeout)?;
    match Snapshot::parse(&answer) {
        Ok(snapshot) => Ok((snapshot.node, Some(why))),
        Err(error) => {
            Err(LoadOrProbeError::Answer { program: program.display().to_string(), error })
        }
    }
}
