//! Opening files that only root can have written.
//!
//! What Slurm's daemons read or run as root goes through here. All questions go to the
//! opened file, so that it cannot be exchanged between question and answer.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

/// The user id of root.
pub const ROOT: u32 = 0;

/// Why a file or folder is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("there is no {}", .0.display())]
    Missing(PathBuf),
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{} is a symbolic link; name the file itself", .0.display())]
    Symlink(PathBuf),
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    #[error("{} is not a folder", .0.display())]
    NotAFolder(PathBuf),
    #[error("{} belongs to user {found}, not to user {expected}", path.display())]
    Owner { path: PathBuf, found: u32, expected: u32 },
    #[error("{} is writable by others than its owner (mode {mode:04o})", path.display())]
    Writable { path: PathBuf, mode: u32 },
    #[error("{} is larger than {max} bytes", path.display())]
    TooLarge { path: PathBuf, max: u64 },
}

/// Opens a regular file of `owner`'s that nobody else can write.
///
/// # Errors
/// [`TrustError`]; a symbolic link is one.
pub fn open_trusted(path: &Path, owner: u32) -> Result<File, TrustError> {
    open(CWD, path, path, owner)
}

/// The content of such a file, if it has at most `max` bytes.
///
/// # Errors
/// [`TrustError`].
pub fn read_trusted(path: &Path, owner: u32, max: u64) -> Result<Vec<u8>, TrustError> {
    read(open_trusted(path, owner)?, path, max)
}

/// The same for a file whose folder must be `owner`'s as well.
///
/// # Errors
/// [`TrustError`].
pub fn read_trusted_with_folder(path: &Path, owner: u32, max: u64) -> Result<Vec<u8>, TrustError> {
    let name = path.file_name().map(Path::new).unwrap_or(path);
    let folder = open_trusted_folder(folder_of(path), owner)?;
    read(open(folder, name, path, owner)?, path, max)
}

/// Opens a folder of `owner`'s that nobody else can write.
///
/// # Errors
/// [`TrustError`]; a symbolic link is one.
pub fn open_trusted_folder(path: &Path, owner: u32) -> Result<OwnedFd, TrustError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(CWD, path, flags, Mode::empty())
        .map_err(|errno| open_error(path, errno))?;
    check(&folder, path, owner, FileType::Directory)?;
    Ok(folder)
}

/// The program that a path names, which may be a link, if only `owner` can have written
/// it. Its folder is not asked: distributions have had a group-writable /usr/local/bin.
///
/// # Errors
/// [`TrustError`].
pub fn trusted_program(path: &Path, owner: u32) -> Result<PathBuf, TrustError> {
    let file = fs::canonicalize(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => TrustError::Missing(path.to_owned()),
        _ => TrustError::Read { path: path.to_owned(), error },
    })?;
    open_trusted(&file, owner)?;
    Ok(file)
}

/// The folder of a path; `.` for a bare name.
pub fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

fn open(folder: impl AsFd, name: &Path, path: &Path, owner: u32) -> Result<File, TrustError> {
    // NONBLOCK: opening a FIFO must not wait for a writer. NOCTTY: slurmd has no terminal.
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::openat(folder, name, flags, Mode::empty())
        .map_err(|errno| open_error(path, errno))?;
    check(&file, path, owner, FileType::RegularFile)?;
    Ok(file.into())
}

fn read(file: File, path: &Path, max: u64) -> Result<Vec<u8>, TrustError> {
    let failed = |error| TrustError::Read { path: path.to_owned(), error };
    let too_large = || TrustError::TooLarge { path: path.to_owned(), max };
    if file.metadata().map_err(failed)?.len() > max {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    file.take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    match bytes.len() as u64 > max {
        true => Err(too_large()),
        false => Ok(bytes),
    }
}

fn open_error(path: &Path, errno: Errno) -> TrustError {
    // With NOFOLLOW a link gives ELOOP, or ENOTDIR where DIRECTORY is asked for.
    let link = matches!(errno, Errno::LOOP | Errno::NOTDIR)
        && fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    match errno {
        _ if link => TrustError::Symlink(path.to_owned()),
        Errno::NOENT => TrustError::Missing(path.to_owned()),
        _ => TrustError::Read { path: path.to_owned(), error: errno.into() },
    }
}

fn check(fd: impl AsFd, path: &Path, owner: u32, kind: FileType) -> Result<(), TrustError> {
    let stat = rustix::fs::fstat(fd)
        .map_err(|errno| TrustError::Read { path: path.to_owned(), error: errno.into() })?;
    let path = path.to_owned();
    if FileType::from_raw_mode(stat.st_mode) != kind {
        return Err(match kind {
            FileType::Directory => TrustError::NotAFolder(path),
            _ => TrustError::NotAFile(path),
        });
    }
    if stat.st_uid != owner {
        return Err(TrustError::Owner { path, found: stat.st_uid, expected: owner });
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(TrustError::Writable { path, mode: stat.st_mode & 0o7777 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A file that only the owner can write, and who that is.
    fn file() -> (tempfile::TempDir, PathBuf, u32) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "12345").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        (folder, path, rustix::process::geteuid().as_raw())
    }

    #[test]
    fn an_own_file_is_read_up_to_its_limit() {
        let (_folder, path, owner) = file();
        assert_eq!(read_trusted(&path, owner, 5).unwrap(), b"12345");
        assert_eq!(read_trusted_with_folder(&path, owner, 5).unwrap(), b"12345");
        let error = read_trusted(&path, owner, 4).unwrap_err();
        assert!(matches!(error, TrustError::TooLarge { max: 4, .. }), "{error}");
    }

    #[test]
    fn what_another_can_have_written_is_refused() {
        let (_folder, path, owner) = file();
        let error = open_trusted(&path, owner + 1).unwrap_err();
        assert!(matches!(error, TrustError::Owner { .. }), "{error}");
        for mode in [0o664, 0o646] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = open_trusted(&path, owner).unwrap_err();
            assert!(matches!(error, TrustError::Writable { mode: found, .. } if found == mode));
            assert!(trusted_program(&path, owner).is_err());
        }
    }

    #[test]
    fn a_link_is_refused_but_may_name_a_program() {
        let (folder, path, owner) = file();
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        let error = open_trusted(&link, owner).unwrap_err();
        assert!(matches!(error, TrustError::Symlink(_)), "{error}");
        assert_eq!(trusted_program(&link, owner).unwrap(), path.canonicalize().unwrap());
        symlink(folder.path().join("none"), folder.path().join("dead")).unwrap();
        let error = trusted_program(&folder.path().join("dead"), owner).unwrap_err();
        assert!(matches!(error, TrustError::Missing(_)), "{error}");
    }

    #[test]
    fn devices_pipes_and_folders_are_no_files_and_nothing_waits() {
        let (folder, _, owner) = file();
        let pipe = folder.path().join("pipe");
        let mode = Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
        for path in [&pipe, &folder.path().to_owned(), &PathBuf::from("/dev/null")] {
            let error = open_trusted(path, owner).unwrap_err();
            assert!(matches!(error, TrustError::NotAFile(_)), "{error}");
        }
        let error = open_trusted_folder(&pipe, owner).unwrap_err();
        assert!(matches!(error, TrustError::Read { .. }), "{error}");
    }
}
