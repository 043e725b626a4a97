//! The site file on disk.

use std::path::{Path, PathBuf};

use super::file::{SiteFile, SiteFileError};
use crate::trusted::{ROOT, TrustError, read_trusted};

/// Where the site file is, unless plugstack.conf's `config=PATH` says otherwise.
pub const SITE_FILE: &str = "/etc/gpubind.toml";

/// The longest file that is read; a real one has some kilobytes.
const MAX_SIZE: u64 = 256 * 1024;

/// Why a site file is ignored.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("{} is not UTF-8 text", .0.display())]
    NotText(PathBuf),
    #[error(transparent)]
    File(#[from] SiteFileError),
}

/// Reads the site file; `None` where there is none at the built-in place. One that
/// plugstack.conf names must be there.
///
/// # Errors
/// [`LoadError`].
pub fn load(path: &Path) -> Result<Option<SiteFile>, LoadError> {
    let bytes = match read_trusted(path, ROOT, MAX_SIZE) {
        Ok(bytes) => bytes,
        Err(TrustError::Missing(_)) if path == Path::new(SITE_FILE) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let text = String::from_utf8(bytes).map_err(|_| LoadError::NotText(path.to_owned()))?;
    Ok(Some(SiteFile::parse(&text, path)?))
}
