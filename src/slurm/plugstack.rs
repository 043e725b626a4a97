//! Slurm's plugstack.conf: which plugins a node loads, and with what arguments.
//!
//! Reads the file as Slurm does (spank(8); src/common/plugstack.c, from 23.02 on
//! spank.c): a `#` begins a comment wherever it stands, words are parted by blanks
//! and tabs and know no quotes, `include` takes one glob pattern, relative to the
//! file that it stands in, and a line that cannot be understood is skipped.

use std::io;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, glob_with};

use super::lines::{FILES, text_of};
use crate::slurm::SlurmConf;

/// The name of gpubind's plugin file, wherever it lies.
const PLUGIN: &str = "spank_gpubind.so";

/// How deep files may include each other here. Slurm has no bound, and so no
/// defence against a file that includes itself.
const MAX_DEPTH: usize = 16;

/// A line that loads a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginLine {
    /// The file that it stands in.
    pub file: PathBuf,
    /// Its number there, from 1.
    pub line: usize,
    /// Whether Slurm gives up where the plugin fails (`required`).
    pub required: bool,
    /// The plugin as written: a path, or a name below Slurm's PluginDir.
    pub plugin: String,
    /// The words behind it.
    pub args: Vec<String>,
}

impl PluginLine {
    /// Whether it loads gpubind's plugin.
    pub fn is_gpubind(&self) -> bool {
        Path::new(&self.plugin).file_name().is_some_and(|name| name == PLUGIN)
    }
}

/// What keeps a part of plugstack.conf from being read.
#[derive(Debug, thiserror::Error)]
pub enum PlugstackProblem {
    /// There is no such file. To Slurm that is an empty one.
    #[error("there is no file {}", .0.display())]
    Missing(PathBuf),
    /// A file that is there cannot be read. Slurm's commands and daemons fail.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A line that Slurm skips.
    #[error(
        "{}:{line}: Slurm skips `{text}`; a line begins with optional, required or include and \
         goes on with a path", file.display()
    )]
    Line {
        /// The file.
        file: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// What it says.
        text: String,
    },
    /// An include pattern that no file matches.
    #[error("{}:{line}: no file matches `{pattern}`", file.display())]
    NoMatch {
        /// The file.
        file: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// The pattern as written.
        pattern: String,
    },
    /// Files that include each other without end.
    #[error(
        "{}:{line}: includes are nested more than {MAX_DEPTH} deep, or are more than {FILES} files",
        file.display()
    )]
    Depth {
        /// The file.
        file: PathBuf,
        /// The line's number, from 1.
        line: usize,
    },
}

/// A plugstack.conf with all that it includes.
#[derive(Debug, Default)]
pub struct PlugstackFile {
    /// The lines that load plugins, in Slurm's order.
    pub plugins: Vec<PluginLine>,
    /// The files that were read, in the order of their first lines.
    pub files: Vec<PathBuf>,
    /// What was wrong on the way; the rest is read all the same.
    pub problems: Vec<PlugstackProblem>,
}

impl PlugstackFile {
    /// Reads a file and what it includes.
    pub fn read(path: &Path) -> PlugstackFile {
        let mut found = PlugstackFile::default();
        found.take_file(path, 0);
        found
    }

    /// The lines that load gpubind's plugin. Slurm really loads each of them.
    pub fn gpubind(&self) -> impl Iterator<Item = &PluginLine> {
        self.plugins.iter().filter(|line| line.is_gpubind())
    }

    fn take_file(&mut self, path: &Path, depth: usize) {
        let text = match text_of(path) {
            // Slurm reads bytes; what is not UTF-8 is no word of ours.
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.problems.push(PlugstackProblem::Missing(path.to_owned()));
                return;
            }
            Err(error) => {
                self.problems.push(PlugstackProblem::Read { path: path.to_owned(), error });
                return;
            }
        };
        self.files.push(path.to_owned());
        for (at, text) in text.lines().enumerate() {
            self.take_line(path, at + 1, text, depth);
        }
    }

    fn take_line(&mut self, file: &Path, line: usize, text: &str, depth: usize) {
        let said = text.split('#').next().unwrap_or_default();
        let mut words = said.split([' ', '\t', '\r']).filter(|word| !word.is_empty());
        let Some(first) = words.next() else { return };
        match (first, words.next()) {
            ("include", Some(pattern)) => self.include(file, line, pattern, depth),
            ("optional" | "required", Some(plugin)) => self.plugins.push(PluginLine {
                file: file.to_owned(),
                line,
                required: first == "required",
                plugin: plugin.to_owned(),
                args: words.map(str::to_owned).collect(),
            }),
            _ => self.problems.push(PlugstackProblem::Line {
                file: file.to_owned(),
                line,
                text: said.trim().to_owned(),
            }),
        }
    }

    fn include(&mut self, file: &Path, line: usize, pattern: &str, depth: usize) {
        if depth >= MAX_DEPTH || self.files.len() >= FILES {
            self.problems.push(PlugstackProblem::Depth { file: file.to_owned(), line });
            return;
        }
        let folder = file.parent().unwrap_or(Path::new(""));
        let whole = match pattern.starts_with('/') || folder.as_os_str().is_empty() {
            true => pattern.to_owned(),
            // Slurm, too, reads what is special in the folder's own name as a pattern.
            false => format!("{}/{pattern}", folder.display()),
        };
        // As glob(3) without flags, which gives paths in sorted order.
        let options = MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: true,
        };
        let paths = glob_with(&whole, options).map(|paths| paths.filter_map(Result::ok).collect());
        let paths: Vec<PathBuf> = paths.unwrap_or_default();
        if paths.is_empty() {
            self.problems.push(PlugstackProblem::NoMatch {
                file: file.to_owned(),
                line,
                pattern: pattern.to_owned(),
            });
        }
        for path in &paths {
            if self.files.len() < FILES {
                self.take_file(path, depth + 1);
            }
        }
    }
}

/// Where Slurm looks for its plugstack.conf, by the slurm.conf that the variable
/// SLURM_CONF names, else by the one in the first of the usual places that has one. A
/// slurm.conf that cannot be read says nothing of it.
pub fn plugstack_path(slurm_conf: Option<&Path>) -> PathBuf {
    let (usual, there) = SlurmConf::usual_places();
    let slurm_conf = slurm_conf.or(there).unwrap_or(usual);
    let named = SlurmConf::read(slurm_conf).ok().and_then(|conf| conf.plugstack());
    named.unwrap_or_else(|| slurm_conf.with_file_name("plugstack.conf"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A folder with these files; the first is read.
    fn read(files: &[(&str, &str)]) -> (tempfile::TempDir, PlugstackFile) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = PlugstackFile::read(&folder.path().join(files[0].0));
        (folder, found)
    }

    /// Each plugin line as `FILE:LINE MUST PLUGIN ARGS`.
    fn lines(found: &PlugstackFile) -> Vec<String> {
        let line = |line: &PluginLine| {
            let file = line.file.file_name().unwrap().to_str().unwrap().to_owned();
            let must = if line.required { "required" } else { "optional" };
            format!("{file}:{} {must} {} {}", line.line, line.plugin, line.args.join(" "))
        };
        found.plugins.iter().map(line).collect()
    }

    #[test]
    fn lines_are_read_as_slurm_reads_them() {
        let (_folder, found) = read(&[(
            "plugstack.conf",
            "# a comment\n\n\trequired\tfirst.so  a=1 b # c\noptional /x/spank_gpubind.so#no\r\n",
        )]);
        assert_eq!(
            lines(&found),
            [
                "plugstack.conf:3 required first.so a=1 b",
                "plugstack.conf:4 optional /x/spank_gpubind.so "
            ]
        );
        assert!(found.problems.is_empty(), "{:?}", found.problems);
        assert_eq!(found.gpubind().map(|line| line.line).collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn includes_are_relative_to_their_file_sorted_and_leave_hidden_files_out() {
        let (_folder, found) = read(&[
            ("plugstack.conf", "optional a.so\ninclude plugstack.conf.d/*.conf\noptional z.so\n"),
            ("plugstack.conf.d/20.conf", "optional spank_gpubind.so config=/etc/g.toml\n"),
            ("plugstack.conf.d/10.conf", "include more/*\n"),
            ("plugstack.conf.d/more/x", "required m.so\n"),
            ("plugstack.conf.d/.hidden.conf", "optional hidden.so\n"),
            ("plugstack.conf.d/readme.txt", "optional readme.so\n"),
        ]);
        let expected = [
            "plugstack.conf:1 optional a.so ",
            "x:1 required m.so ",
            "20.conf:1 optional spank_gpubind.so config=/etc/g.toml",
            "plugstack.conf:3 optional z.so ",
        ];
        assert_eq!(lines(&found), expected);
        assert_eq!(found.files.len(), 4);
        assert!(found.problems.is_empty(), "{:?}", found.problems);
    }

    #[test]
    fn what_slurm_skips_is_reported_and_the_rest_is_read() {
        let text = "opt a.so\noptional\ninclude nothing/*.conf\noptional b.so\n";
        let (folder, found) = read(&[("plugstack.conf", text)]);
        assert_eq!(lines(&found), ["plugstack.conf:4 optional b.so "]);
        let messages: Vec<String> = found.problems.iter().map(ToString::to_string).collect();
        let file = folder.path().join("plugstack.conf").display().to_string();
        assert_eq!(messages.len(), 3);
        assert!(
            messages[0].starts_with(&format!("{file}:1: Slurm skips `opt a.so`")),
            "{messages:?}"
        );
        assert!(
            messages[1].starts_with(&format!("{file}:2: Slurm skips `optional`")),
            "{messages:?}"
        );
        assert_eq!(messages[2], format!("{file}:3: no file matches `nothing/*.conf`"));
    }

    #[test]
    fn a_file_that_includes_itself_comes_to_an_end() {
        let (_folder, found) = read(&[("plugstack.conf", "include plugstack.conf\n")]);
        assert!(matches!(found.problems[..], [PlugstackProblem::Depth { line: 1, .. }]));
    }

    #[test]
    fn a_missing_file_and_an_unreadable_one_are_different() {
        let folder = tempfile::tempdir().unwrap();
        let found = PlugstackFile::read(&folder.path().join("no.conf"));
        assert!(matches!(found.problems[..], [PlugstackProblem::Missing(_)]));
        let found = PlugstackFile::read(folder.path());
        assert!(matches!(found.problems[..], [PlugstackProblem::Read { .. }]));
    }

    #[test]
    fn slurm_conf_says_where_the_file_is() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("slurm.conf");
        fs::write(&conf, "ClusterName=x\n#PlugStackConfig=/no\n").unwrap();
        assert_eq!(plugstack_path(Some(&conf)), folder.path().join("plugstack.conf"));
        fs::write(&conf, "plugstackconfig = /etc/other.conf # here\n").unwrap();
        assert_eq!(plugstack_path(Some(&conf)), PathBuf::from("/etc/other.conf"));
    }
}
