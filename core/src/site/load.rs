//! The site file on disk.

use std::path::{Path, PathBuf};

use super::file::{SiteFile, SiteFileError};
use super::keys::SITE_FILE;
use crate::trusted::{ROOT, TrustError, read_trusted};

/// The longest file that is read; a real one has some kilobytes.
const MAX_SIZE: u64 = 256 * 1024;

/// A site file that is ignored.
#[derive(Debug, thiserror::Error)]
#[error("ignoring {}: {why}", path.display())]
pub struct LoadError {
    pub path: PathBuf,
    pub why: LoadProblem,
}

/// Why a site file is ignored.
#[derive(Debug, thiserror::Error)]
pub enum LoadProblem {
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("it is not UTF-8 text")]
    NotText(#[from] std::string::FromUtf8Error),
    #[error(transparent)]
    File(#[from] SiteFileError),
}

/// Reads the site file; `None` where there is none at the built-in place. One that
/// plugstack.conf names must be there.
///
/// # Errors
/// [`LoadError`].
pub fn load(path: &Path) -> Result<Option<SiteFile>, LoadError> {
    match read(path) {
        Err(LoadProblem::Trust(TrustError::Missing(_))) if path == Path::new(SITE_FILE) => {
            tracing::debug!("there is no site file {}", path.display());
            Ok(None)
        }
        read => read.map(Some).map_err(|why| LoadError { path: path.to_owned(), why }),
    }
}

fn read(path: &Path) -> Result<SiteFile, LoadProblem> {
    let text = String::from_utf8(read_trusted(path, ROOT, MAX_SIZE)?)?;
    tracing::debug!("reading the site file {}", path.display());
    Ok(SiteFile::parse(&text, path)?)
}
