//! The lock that lets one process at a time read NVML: when a step starts on a fresh
//! node, so may others.
//!
//! The process that has it is not the one that reads NVML, so it cannot hang in the
//! driver, and the lock ends with it. A process that is stopped (SIGSTOP, the freezer)
//! keeps it all the same: the file's modification time says until when the lock is
//! good, and after that it is broken. Who must read NVML anew breaks it at once. A lock is
//! broken by removing its file; who has it looks whether the file is still there, and goes.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

use gpubind_core::node::snapshot::{SaveError, make_folder};

/// How often it is tried.
const TICK: Duration = Duration::from_millis(20);
/// How long after its time a lock is still honoured.
const GRACE: Duration = Duration::from_secs(10);
/// How often in a row a lock must be found too old: its file is a moment older than
/// the lock.
const OLD: u32 = 3;

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub(super) enum LockError {
    /// Another process has it.
    #[error("another process is still reading NVML")]
    Busy,
    /// It cannot be made.
    #[error("no lock against other snapshots: {0}")]
    Failed(#[from] SaveError),
}

/// The lock, until it is dropped or the process ends.
pub(super) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Waits for the lock until `until`, and takes it for at most `time`; with `takes_over`
    /// from whoever has it. No longer than `is_wanted` says so.
    pub(super) fn take(
        folder: &Path,
        until: Instant,
        time: Duration,
        takes_over: bool,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Lock, LockError> {
        make_folder(folder)?;
        let path = folder.join("lock");
        let failed = |error| SaveError::Write { path: path.display().to_string(), error };
        let mut old = if takes_over { OLD } else { 0 };
        loop {
            let file = open(&path).map_err(|errno| failed(errno.into()))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Otherwise it has just been broken, and there is another file now.
                Ok(()) if is_same(&file, &path) => {
                    file.set_modified(SystemTime::now() + time).map_err(failed)?;
                    return Ok(Lock { file, path });
                }
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => {
                    old = match old {
                        OLD => OLD,
                        _ if is_over(&file) => old + 1,
                        _ => 0,
                    };
                    if old == OLD && is_same(&file, &path) {
                        fs::remove_file(&path).map_err(failed)?;
                        old = 0;
                        continue;
                    }
                }
                Err(errno) => return Err(failed(errno.into()).into()),
            }
            if Instant::now() >= until || !is_wanted() {
                return Err(LockError::Busy);
            }
            thread::sleep(TICK);
        }
    }
}

impl Lock {
    /// Whether nobody has broken it.
    pub(super) fn is_held(&self) -> bool {
        is_same(&self.file, &self.path)
    }
}

fn open(path: &PathBuf) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Not readable by others: whoever can open it can take the lock.
    Ok(rustix::fs::openat(CWD, path, flags, Mode::from_raw_mode(0o600))?.into())
}

fn is_same(file: &File, path: &Path) -> bool {
    let (Ok(file), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else {
        return false;
    };
    (file.dev(), file.ino()) == (there.dev(), there.ino())
}

fn is_over(file: &File) -> bool {
    let until = file.metadata().and_then(|meta| meta.modified());
    until.is_ok_and(|until| until + GRACE < SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(200);

    fn take(folder: &Path) -> Result<Lock, LockError> {
        Lock::take(folder, Instant::now() + SHORT, Duration::from_secs(60), false, &|| true)
    }

    #[test]
    fn a_lock_keeps_others_out_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let first = take(folder.path()).unwrap();
        assert!(matches!(take(folder.path()), Err(LockError::Busy)));
        drop(first);
        take(folder.path()).unwrap();
    }

    #[test]
    fn a_lock_whose_time_is_over_is_broken() {
        let folder = tempfile::tempdir().unwrap();
        let first = take(folder.path()).unwrap();
        let file = folder.path().join("lock");
        let over = SystemTime::now() - GRACE - Duration::from_secs(1);
        File::options().write(true).open(&file).unwrap().set_modified(over).unwrap();
        let second = take(folder.path()).unwrap();
        assert!(matches!(take(folder.path()), Err(LockError::Busy)), "the second one holds");
        assert!(!first.is_held() && second.is_held());
    }

    #[test]
    fn a_lock_that_is_taken_over_is_held_by_the_last_one_only() {
        let folder = tempfile::tempdir().unwrap();
        let first = take(folder.path()).unwrap();
        assert!(first.is_held());
        let until = Instant::now() + SHORT;
        let second = Lock::take(folder.path(), until, SHORT, true, &|| true).unwrap();
        assert!(!first.is_held() && second.is_held());
        std::fs::remove_dir_all(folder.path()).unwrap();
        assert!(!second.is_held());
    }

    #[test]
    fn nobody_waits_for_a_lock_that_is_not_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let _first = take(folder.path()).unwrap();
        let begin = Instant::now();
        let until = begin + Duration::from_secs(60);
        let second = Lock::take(folder.path(), until, SHORT, false, &|| false);
        assert!(matches!(second, Err(LockError::Busy)));
        assert!(begin.elapsed() < Duration::from_secs(10));
    }
}
