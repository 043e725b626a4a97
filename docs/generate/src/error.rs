//! Why a page could not be written.

use std::io;
use std::path::{Path, PathBuf};

/// What could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {error}", path.display())]
pub struct WriteError {
    path: PathBuf,
    error: io::Error,
}

impl WriteError {
    /// For `map_err`: names the file.
    pub fn at(path: &Path) -> impl FnOnce(io::Error) -> WriteError {
        let path = path.to_owned();
        move |error| WriteError { path, error }
    }
}
