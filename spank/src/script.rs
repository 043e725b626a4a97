//! sbatch's script, before sbatch reads it: the file that it will find, or what is left
//! of a file on stdin.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use gpubind_core::request::CommandLine;
use gpubind_core::variables;

/// How much is read; `#SBATCH` lines stand before the first command.
const LONGEST: u64 = 1024 * 1024;

/// The script's name and text. `None` where it cannot be read without taking it away
/// from sbatch, as from a pipe.
pub fn read(line: &CommandLine, words: &[OsString]) -> Option<(String, String)> {
    let (name, bytes) = match line.program {
        Some(position) => {
            let file = find(words.get(position)?)?;
            let mut bytes = Vec::new();
            File::open(&file).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
            (file.to_string_lossy().into_owned(), bytes)
        }
        None if line.has_wrap => return None,
        None => ("stdin".to_owned(), rest_of_stdin().ok()?),
    };
    Some((name, String::from_utf8_lossy(&bytes).into_owned()))
}

/// The file that sbatch takes for this word (src/common/proc_args.c, search_path; asked
/// by src/sbatch/opt.c to look in the current folder first, and not whether it is a
/// program).
pub fn find(word: &OsStr) -> Option<PathBuf> {
    let is_file = |file: &PathBuf| file.metadata().is_ok_and(|it| it.is_file());
    let word = Path::new(word);
    if word.as_os_str().as_encoded_bytes().starts_with(b"/")
        || word.as_os_str().as_encoded_bytes().starts_with(b".")
    {
        return Some(word.to_owned()).filter(is_file);
    }
    let path = env::var_os(variables::PATH).unwrap_or_default();
    let folders = env::split_paths(&path).map(|folder| folder.join(word));
    std::iter::once(word.to_owned()).chain(folders).find(is_file)
}

/// What sbatch will read from stdin, if that is a file; it stays to be read.
fn rest_of_stdin() -> io::Result<Vec<u8>> {
    let mut file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let start = file.stream_position()?;
    let length = meta.len().saturating_sub(start).min(LONGEST);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    let read = file.read_at(&mut bytes, start)?;
    bytes.truncate(read);
    Ok(bytes)
}
