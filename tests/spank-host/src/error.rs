//! Why a step cannot be run.

use std::io;

use crate::plugin::PluginError;

/// Why a step cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    #[error(transparent)]
    Plugin(#[from] PluginError),
    #[error("cannot {0}: {1}")]
    System(&'static str, #[source] io::Error),
}
