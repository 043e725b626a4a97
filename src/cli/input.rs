//! A file that a command reads whole; - is standard input.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// A file's text and what messages call it.
pub(super) struct Input {
    /// The file's path, or `standard input`.
    pub name: String,
    /// What it has; bytes that are not UTF-8 are replaced.
    pub text: String,
}

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {name}: {error}")]
pub struct InputError {
    name: String,
    error: io::Error,
}

/// Reads a file to its end.
///
/// # Errors
/// [`InputError`] if it cannot be opened or read.
pub(super) fn read(path: &Path) -> Result<Input, InputError> {
    let is_input = path == Path::new("-");
    let name = if is_input { "standard input".to_owned() } else { path.display().to_string() };
    let mut bytes = Vec::new();
    let read = match is_input {
        true => io::stdin().lock().read_to_end(&mut bytes).map(drop),
        false => fs::read(path).map(|read| bytes = read),
    };
    match read {
        Ok(()) => Ok(Input { name, text: String::from_utf8_lossy(&bytes).into_owned() }),
        Err(error) => Err(InputError { name, error }),
    }
}
