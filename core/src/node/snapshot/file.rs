//! The snapshot file: whether it may be believed, and replacing it atomically.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{MAX_SIZE, Snapshot, SnapshotError};
use crate::node::{Node, Roots};

/// Only root's word is taken about a machine.
const ROOT: u32 = 0;

/// Why a snapshot was not written.
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
    /// The folder is one that a reader would not believe.
    #[error(transparent)]
    Untrusted(#[from] SnapshotError),
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
    /// Replaces the file atomically: readers see the old one or the new one,
    /// whole. File mode 0644; the folder is made with 0755 if it is missing.
    ///
    /// # Errors
    /// [`SaveError`]; nothing is left behind.
    pub fn save(&self, path: &Path) -> Result<(), SaveError> {
        let (folder, name) = split(path);
        make_folder(&folder)?;
        let owner = rustix::process::geteuid().as_raw();
        let directory = open_folder(&folder, owner)?;
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        let temporary = format!(".{name}.{}.{count}", process::id());
        let written = write_new(&directory, &temporary, self.to_json().as_bytes())
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

    /// Reads the file if it may be believed: root's own, in a folder of
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
        let snapshot = Snapshot::parse(&read_trusted(owner, path)?)?;
        snapshot.is_current(roots, max_age, now)?;
        Ok(snapshot)
    }
}

/// The file's bytes, if file and folder belong to `owner` and nobody else can
/// write them. All questions go to the opened file, so that it cannot be
/// exchanged between question and answer.
fn read_trusted(owner: u32, path: &Path) -> Result<Vec<u8>, SnapshotError> {
    let (folder, name) = split(path);
    let directory = open_folder(&folder, owner)?;
    // NONBLOCK: opening a FIFO must not wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&directory, &name, flags, Mode::empty())
        .map_err(|errno| open_error(path, errno))?;
    trust(&file, owner, path, FileType::RegularFile)?;
    let mut bytes = Vec::new();
    File::from(file)
        .take(MAX_SIZE as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| SnapshotError::Read { path: text(path), error })?;
    if bytes.len() > MAX_SIZE {
        return Err(SnapshotError::TooLarge);
    }
    Ok(bytes)
}

fn open_folder(folder: &Path, owner: u32) -> Result<OwnedFd, SnapshotError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(CWD, folder, flags, Mode::empty())
        .map_err(|errno| open_error(folder, errno))?;
    trust(&directory, owner, folder, FileType::Directory)?;
    Ok(directory)
}

/// With NOFOLLOW a link answers ELOOP, or ENOTDIR where DIRECTORY is asked for.
fn open_error(path: &Path, errno: Errno) -> SnapshotError {
    let link = matches!(errno, Errno::LOOP | Errno::NOTDIR)
        && fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    match errno {
        _ if link => SnapshotError::Symlink(text(path)),
        Errno::NOENT => SnapshotError::Missing(text(path)),
        _ => SnapshotError::Read { path: text(path), error: errno.into() },
    }
}

fn trust(fd: impl AsFd, owner: u32, path: &Path, kind: FileType) -> Result<(), SnapshotError> {
    let stat = rustix::fs::fstat(fd)
        .map_err(|errno| SnapshotError::Read { path: text(path), error: errno.into() })?;
    if FileType::from_raw_mode(stat.st_mode) != kind {
        return Err(SnapshotError::NotAFile(text(path)));
    }
    if stat.st_uid != owner {
        return Err(SnapshotError::Owner { path: text(path), found: stat.st_uid, expected: owner });
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(SnapshotError::Writable { path: text(path), mode: stat.st_mode & 0o7777 });
    }
    Ok(())
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

fn split(path: &Path) -> (PathBuf, String) {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    (folder, name.unwrap_or_default())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
