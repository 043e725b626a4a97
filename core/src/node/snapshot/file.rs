//! The snapshot file: reading a trusted one, and replacing it atomically.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use super::{MAX_SIZE, Snapshot, SnapshotError};
use crate::node::{Node, Roots};
use crate::trusted::{ROOT, TrustError, folder_of, open_trusted_folder, read_trusted_with_folder};

/// The run folder has a few files; another one's are not gone through.
const MOST_ENTRIES: usize = 1000;

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The folder cannot be made or opened.
    #[error("cannot make the folder {path}: {error}")]
    Folder {
        /// The folder.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// The folder is one that a reader would not trust.
    #[error(transparent)]
    Untrusted(#[from] TrustError),
    /// The file cannot be written or put in place.
    #[error("cannot write {path}: {error}")]
    Write {
        /// The file.
        path: String,
        /// Why.
        error: io::Error,
    },
}

impl Snapshot {
    /// Replaces the file, see [`replace`].
    ///
    /// # Errors
    /// [`SaveError`]; nothing is left behind.
    pub fn save(&self, path: &Path) -> Result<(), SaveError> {
        replace(path, self.to_json().as_bytes())
    }

    /// Reads the file if it can be trusted: root's own, in a folder of
    /// root's, writable by nobody else, not a link, of a sane size, of this
    /// schema, consistent, young enough and taken of this machine as it is now.
    ///
    /// # Errors
    /// [`SnapshotError`], one for each of these.
    pub fn load(
        path: &Path,
        roots: &Roots,
        max_age: Duration,
        now: SystemTime,
    ) -> Result<Node, SnapshotError> {
        Self::load_of(ROOT, path, roots, max_age, now).map(|snapshot| snapshot.node)
    }

    /// As [`Snapshot::load`], with the file's other fields.
    ///
    /// # Errors
    /// As [`Snapshot::load`].
    pub fn load_whole(
        path: &Path,
        roots: &Roots,
        max_age: Duration,
        now: SystemTime,
    ) -> Result<Snapshot, SnapshotError> {
        Self::load_of(ROOT, path, roots, max_age, now)
    }

    fn load_of(
        owner: u32,
        path: &Path,
        roots: &Roots,
        max_age: Duration,
        now: SystemTime,
    ) -> Result<Snapshot, SnapshotError> {
        let snapshot = Snapshot::parse(&read_trusted_with_folder(path, owner, MAX_SIZE as u64)?)?;
        snapshot.is_current(roots, max_age, now)?;
        Ok(snapshot)
    }
}

/// Replaces a file atomically: readers see the old one or the new one, whole. File
/// mode 0644; the folder is made with 0755 if it is missing.
///
/// # Errors
/// [`SaveError`]; nothing is left behind.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), SaveError> {
    let (folder, name) = (folder_of(path), file_name(path));
    make_folder(folder)?;
    let owner = rustix::process::geteuid().as_raw();
    let directory = open_trusted_folder(folder, owner)?;
    remove_abandoned(&directory, &name);
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let temporary = format!(".{name}.{}.{count}", process::id());
    let written = write_new(&directory, &temporary, bytes)
        .and_then(|()| rustix::fs::renameat(&directory, &temporary, &directory, &name));
    if let Err(error) = written {
        // The error that matters is the first one.
        let _ = rustix::fs::unlinkat(&directory, &temporary, AtFlags::empty());
        return Err(SaveError::Write { path: text(path), error: error.into() });
    }
    // The new file is whole and in place; a failing sync of the folder
    // could only bring back the old one after a crash.
    let _ = rustix::fs::fsync(&directory);
    Ok(())
}

/// Removes what processes have left that were killed while they wrote this file.
fn remove_abandoned(directory: &OwnedFd, name: &str) {
    let Ok(entries) = Dir::read_from(directory) else { return };
    for entry in entries.take(MOST_ENTRIES).flatten() {
        let writer = entry.file_name().to_str().ok().and_then(|file| writer(file, name));
        let is_gone = |writer| rustix::process::test_kill_process(writer) == Err(Errno::SRCH);
        if writer.is_some_and(is_gone) {
            let _ = rustix::fs::unlinkat(directory, entry.file_name(), AtFlags::empty());
        }
    }
}

/// The process that a temporary file's name names.
fn writer(file: &str, name: &str) -> Option<Pid> {
    let rest = file.strip_prefix('.')?.strip_prefix(name)?.strip_prefix('.')?;
    let (process, count) = rest.split_once('.')?;
    count.parse::<u32>().ok()?;
    Pid::from_raw(process.parse().ok().filter(|process| *process > 0)?)
}

fn write_new(directory: &OwnedFd, name: &str, bytes: &[u8]) -> Result<(), Errno> {
    // One that is there belonged to a process of the same number that died.
    let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file =
        File::from(rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o600))?);
    let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    file.write_all(bytes).map_err(errno)?;
    // Not through the open mode: that is subject to the umask.
    file.set_permissions(Permissions::from_mode(0o644)).map_err(errno)?;
    file.sync_all().map_err(errno)
}

/// Makes the run folder with mode 0755, whatever the umask; one that is there
/// is left as it is.
///
/// # Errors
/// [`SaveError::Folder`].
pub fn make_folder(folder: &Path) -> Result<(), SaveError> {
    let failed = |error| SaveError::Folder { path: text(folder), error };
    match fs::create_dir(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        Err(error) => return Err(failed(error)),
    }
    fs::set_permissions(folder, Permissions::from_mode(0o755)).map_err(failed)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
