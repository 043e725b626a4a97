//! Getting a node's description in a place where NVML must not be loaded.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, SystemTime};

use super::snapshot::{FailedReading, RETRY_AFTER, Snapshot, SnapshotError};
use super::{Node, Roots};
use crate::child::{self, ProbeError};

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

/// How long starting the program may take; it does its work in the background.
const START: Duration = Duration::from_secs(2);
/// How long the background's reading may take: without persistence mode, NVML takes
/// seconds for each GPU, and nobody waits here.
pub const BACKGROUND_DEADLINE: Duration = Duration::from_secs(5 * 60);
/// How much longer than its deadline the program may take to end what hangs.
const GRACE: Duration = Duration::from_secs(2);

impl ProbeOptions {
    /// The program's arguments: what to do, by when, and which machine to read.
    fn args(&self, words: &[&str], deadline: Duration) -> Vec<OsString> {
        let mut args: Vec<OsString> = words.iter().map(OsString::from).collect();
        args.extend(["--deadline".into(), deadline.as_secs().max(1).to_string().into()]);
        args.extend(["--parent".into(), process::id().to_string().into()]);
        args.extend(["--max-age".into(), self.max_age.as_secs().to_string().into()]);
        args.extend(["--fsroot".into(), self.roots.fsroot().into()]);
        if let Some(nvml) = &self.nvml {
            args.extend(["--nvml".into(), nvml.into()]);
        }
        args
    }
}

/// Has the program read NVML and save a new snapshot, whatever there is now, and
/// does not wait for that. For the start of slurmd: the machine may have changed
/// in a way that no fingerprint shows, and the first step should not wait.
///
/// # Errors
/// [`ProbeError`] if the program could not be started.
pub fn refresh(source: &ProbeOptions) -> Result<(), ProbeError> {
    let words = ["snapshot", "--save", "--fresh", "--background"];
    let deadline = source.timeout.max(BACKGROUND_DEADLINE);
    child::run(&source.program, &source.args(&words, deadline), START).map(drop)
}

/// Why there is no description.
#[derive(Debug, thiserror::Error)]
pub enum LoadOrProbeError {
    /// The program gave no answer.
    #[error("cannot read this node's GPUs: {0}")]
    Probe(#[from] ProbeError),
    /// The program says why.
    #[error("cannot read this node's GPUs: {0}")]
    Reading(String),
    /// It said so a moment ago, and is not asked again so soon.
    #[error(
        "cannot read this node's GPUs: {message} ({age} s ago; NVML is asked again after {retry} s)",
        retry = RETRY_AFTER.as_secs()
    )]
    Remembered {
        /// Why.
        message: String,
        /// How long ago, in seconds.
        age: u64,
    },
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
/// reads NVML and saves a new one. Gives the node, and why the saved one was not used.
///
/// # Errors
/// [`LoadOrProbeError`], no later than two seconds after [`ProbeOptions::timeout`].
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
    let is_command = program == Path::new(child::SELF);
    if let Some((message, age)) =
        FailedReading::recent(roots, SystemTime::now()).filter(|_| !is_command)
    {
        return Err(LoadOrProbeError::Remembered { message, age });
    }
    tracing::info!("reading NVML; the saved snapshot is not used: {why}");
    let args = source.args(&["snapshot", "--save", "--show"], *timeout);
    let answer = child::run(program, &args, *timeout + GRACE).map_err(reading)?;
    match Snapshot::parse(&answer) {
        Ok(snapshot) => Ok((snapshot.node, Some(why))),
        Err(error) => {
            Err(LoadOrProbeError::Answer { program: program.display().to_string(), error })
        }
    }
}

fn reading(error: ProbeError) -> LoadOrProbeError {
    match error.program_message() {
        Some(message) => LoadOrProbeError::Reading(message.to_owned()),
        None => error.into(),
    }
}
