//! The site file on disk: whether root may believe it.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::file::{SiteFile, SiteFileError};

/// Where the site file is, unless plugstack.conf's `config=PATH` says otherwise.
pub const SITE_FILE: &str = "/etc/gpubind.toml";

/// The longest file that is read; a real one has some kilobytes.
const MAX_SIZE: u64 = 256 * 1024;

/// Who may own the file.
const ROOT: u32 = 0;

/// Why a site file does not count.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It cannot be opened or read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A folder, a device, a pipe.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// Another than root could have written it.
    #[error(
        "{} must belong to root and be writable by root only; it belongs to user {owner} and has \
         mode {mode:04o}", path.display()
    )]
    Untrusted {
        /// The file.
        path: PathBuf,
        /// Its owner's uid.
        owner: u32,
        /// Its permission bits.
        mode: u32,
    },
    /// Longer than any such file can be.
    #[error("{} is longer than {MAX_SIZE} bytes", .0.display())]
    TooLong(PathBuf),
    /// Not UTF-8, as TOML must be.
    #[error("{} is not UTF-8 text", .0.display())]
    NotText(PathBuf),
    /// Read, but not understood.
    #[error(transparent)]
    File(#[from] SiteFileError),
}

/// Reads the site file; `None` where there is none at the built-in place. One that
/// plugstack.conf names must be there.
///
/// # Errors
/// [`LoadError`].
pub fn load(path: &Path) -> Result<Option<SiteFile>, LoadError> {
    let read = |error| LoadError::Read { path: path.to_owned(), error };
    let is_file = |mode| FileType::from_raw_mode(mode) == FileType::RegularFile;
    // Before it is opened: to open a device can do something.
    match rustix::fs::stat(path) {
        Ok(stat) if is_file(stat.st_mode) => {}
        Ok(_) => return Err(LoadError::NotAFile(path.to_owned())),
        Err(Errno::NOENT) if path == Path::new(SITE_FILE) => return Ok(None),
        Err(errno) => return Err(read(errno.into())),
    }
    // NONBLOCK: should it be a pipe by now, opening it must not wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| read(errno.into()))?;
    let stat = rustix::fs::fstat(&file).map_err(|errno| read(errno.into()))?;
    if !is_file(stat.st_mode) {
        return Err(LoadError::NotAFile(path.to_owned()));
    }
    if stat.st_uid != ROOT || stat.st_mode & 0o022 != 0 {
        let mode = stat.st_mode & 0o7777;
        return Err(LoadError::Untrusted { path: path.to_owned(), owner: stat.st_uid, mode });
    }
    let mut bytes = Vec::new();
    File::from(file).take(MAX_SIZE + 1).read_to_end(&mut bytes).map_err(read)?;
    if bytes.len() as u64 > MAX_SIZE {
        return Err(LoadError::TooLong(path.to_owned()));
    }
    let text = String::from_utf8(bytes).map_err(|_| LoadError::NotText(path.to_owned()))?;
    Ok(Some(SiteFile::parse(&text, path)?))
}
