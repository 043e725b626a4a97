//! The folder that stands for `/`.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The folder that stands for `/`. Paths are relative to it.
pub struct Root(PathBuf);

impl Root {
    /// Makes the folder, and removes what an earlier layout left in it.
    pub fn new(folder: &Path) -> io::Result<Root> {
        for part in ["nvml/machine.toml", "nvml/libnvidia-ml.so.1"] {
            ignore_missing(fs::remove_file(folder.join(part)))?;
        }
        for part in ["sys", "proc"] {
            ignore_missing(fs::remove_dir_all(folder.join(part)))?;
        }
        fs::create_dir_all(folder)?;
        Ok(Root(folder.to_path_buf()))
    }

    /// Writes a file, as the kernel would show it, and the folders above it.
    pub fn write(&self, path: &str, text: &str) -> io::Result<()> {
        self.write_bytes(path, text.as_bytes())
    }

    /// The same for any content.
    pub fn write_bytes(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let file = self.0.join(path);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(file, bytes)
    }

    /// Makes a folder.
    pub fn folder(&self, path: &str) -> io::Result<()> {
        fs::create_dir_all(self.0.join(path))
    }

    /// Makes a relative link at `path` to `target`, both below the root, so
    /// that the whole root can be moved or mounted elsewhere.
    pub fn link(&self, path: &str, target: &str) -> io::Result<()> {
        let link = self.0.join(path);
        if let Some(folder) = link.parent() {
            fs::create_dir_all(folder)?;
        }
        let up = "../".repeat(path.split('/').count() - 1);
        symlink(format!("{up}{target}"), link)
    }
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
