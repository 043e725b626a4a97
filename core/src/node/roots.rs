//! Where a machine's files are.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// No file that is read here as one small text (sysfs, procfs) is longer.
const SMALL: u64 = 64 * 1024;
const TYPICAL: usize = 4096;
/// No folder that is listed here has more entries.
const ENTRIES: usize = 4096;

/// The root of the file tree that /sys, /proc, /dev and /run are read below:
/// `/`, or another folder for containers, tests and fake machines.
///
/// ```
/// use gpubind_core::node::Roots;
/// assert_eq!(Roots::new("/").sys().to_str(), Some("/sys"));
/// assert_eq!(Roots::new("/tmp/m").snapshot().to_str(), Some("/tmp/m/run/gpubind/node.json"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    fsroot: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Roots::new("/")
    }
}

impl Roots {
    /// The machine whose file tree begins at `fsroot`.
    pub fn new(fsroot: impl Into<PathBuf>) -> Roots {
        Roots { fsroot: fsroot.into() }
    }

    /// The root folder itself.
    pub fn fsroot(&self) -> &Path {
        &self.fsroot
    }

    /// /sys.
    pub fn sys(&self) -> PathBuf {
        self.fsroot.join("sys")
    }

    /// /proc.
    pub fn proc(&self) -> PathBuf {
        self.fsroot.join("proc")
    }

    /// /dev.
    pub fn dev(&self) -> PathBuf {
        self.fsroot.join("dev")
    }

    /// gpubind's own run folder, /run/gpubind.
    pub fn run(&self) -> PathBuf {
        self.fsroot.join("run/gpubind")
    }

    /// The snapshot file, /run/gpubind/node.json.
    pub fn snapshot(&self) -> PathBuf {
        self.run().join("node.json")
    }

    /// The record of a reading of NVML that failed, /run/gpubind/failure.json.
    pub fn failure(&self) -> PathBuf {
        self.run().join("failure.json")
    }
}

/// A small text file without the blanks around it; fails on one that is longer
/// than any sysfs or procfs value.
pub fn read_small(path: &Path) -> io::Result<String> {
    // Most are shorter: one call reads them, another one finds the end.
    let mut text = String::with_capacity(TYPICAL);
    let length = File::open(path)?.take(SMALL + 1).read_to_string(&mut text)?;
    if length as u64 > SMALL {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than 64 KiB"));
    }
    Ok(text.trim().to_owned())
}

/// The names in a folder, sorted; empty where there is no such folder.
pub fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .take(ENTRIES)
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}
