//! The plugin's arguments in plugstack.conf.

use std::path::PathBuf;
use std::time::Duration;

/// Arguments behind the plugin's path in plugstack.conf: `key=value` words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlugstackArgs {
    /// `program=PATH`: the gpubind program that reads NVML.
    pub program: PathBuf,
    /// `worker=FILE`: the worker shim that tasks with several devices load.
    pub worker: PathBuf,
    /// `fsroot=DIR`: folder in front of /sys, /proc, /dev and /run.
    pub fsroot: PathBuf,
    /// `nvml=FILE`: the NVML library; without it the loader's own search path.
    pub nvml: Option<PathBuf>,
    /// `probe-timeout=SECONDS`: how long reading NVML may hold up a step.
    pub probe_timeout: Duration,
    /// `snapshot-max-age=SECONDS`: how old a saved node description may be.
    pub snapshot_max_age: Duration,
}

/// A word that is no argument of the plugin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlugstackError {
    /// A key that does not exist.
    #[error(
        "plugstack.conf: unknown argument `{0}`; valid: program=PATH, worker=FILE, fsroot=DIR, \
         nvml=FILE, probe-timeout=SECONDS, snapshot-max-age=SECONDS"
    )]
    Unknown(String),
    /// A value that the key does not take.
    #[error("plugstack.conf: `{word}` needs {needs}")]
    Value {
        /// The word as written.
        word: String,
        /// What the value must be.
        needs: &'static str,
    },
}

impl Default for PlugstackArgs {
    fn default() -> Self {
        PlugstackArgs {
            program: PathBuf::from("/usr/bin/gpubind"),
            worker: PathBuf::from("/usr/lib/gpubind/libgpubind_worker.so"),
            fsroot: PathBuf::from("/"),
            nvml: None,
            probe_timeout: Duration::from_secs(10),
            // A lost GPU or a downed NVLink changes no fingerprint.
            snapshot_max_age: Duration::from_secs(24 * 60 * 60),
        }
    }
}

impl PlugstackArgs {
    /// Reads the words. A wrong word is told and skipped, the others count: a
    /// mistyped argument must not keep a site's jobs from being bound.
    pub fn read<'a>(words: impl IntoIterator<Item = &'a str>) -> (Self, Vec<PlugstackError>) {
        let mut args = PlugstackArgs::default();
        let mut errors = Vec::new();
        for word in words {
            if let Err(error) = args.take(word) {
                errors.push(error);
            }
        }
        (args, errors)
    }

    fn take(&mut self, word: &str) -> Result<(), PlugstackError> {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let path = || match value.starts_with('/') {
            true => Ok(PathBuf::from(value)),
            false => Err(PlugstackError::Value { word: word.into(), needs: "an absolute path" }),
        };
        let seconds = || match value.parse() {
            Ok(seconds @ 1..=604_800) => Ok(Duration::from_secs(seconds)),
            _ => Err(PlugstackError::Value {
                word: word.into(),
                needs: "a number of seconds from 1 to 604800 (a week)",
            }),
        };
        match key {
            "program" => self.program = path()?,
            // LD_PRELOAD's entries end there, ld.so(8).
            "worker" if value.contains(':') => {
                return Err(PlugstackError::Value {
                    word: word.into(),
                    needs: "a path without colons, for LD_PRELOAD",
                });
            }
            "worker" => self.worker = path()?,
            "fsroot" => self.fsroot = path()?,
            "nvml" => self.nvml = Some(path()?),
            "probe-timeout" => self.probe_timeout = seconds()?,
            "snapshot-max-age" => self.snapshot_max_age = seconds()?,
            _ => return Err(PlugstackError::Unknown(word.to_owned())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_words_count_and_bad_ones_are_told() {
        let words = [
            "program=/opt/gpubind",
            "probe-timeout=0",
            "nvml=lib.so",
            "colour=red",
            "fsroot=/x",
            "worker=/a:b.so",
        ];
        let (args, errors) = PlugstackArgs::read(words);
        assert_eq!(args.program, PathBuf::from("/opt/gpubind"));
        assert_eq!(args.fsroot, PathBuf::from("/x"));
        assert_eq!(args.nvml, None);
        assert_eq!(args.probe_timeout, PlugstackArgs::default().probe_timeout);
        let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert!(
            messages[0].contains("`probe-timeout=0` needs a number of seconds"),
            "{messages:?}"
        );
        assert!(messages[1].contains("`nvml=lib.so` needs an absolute path"), "{messages:?}");
        assert!(messages[2].contains("unknown argument `colour=red`"), "{messages:?}");
        assert!(messages[3].contains("needs a path without colons"), "{messages:?}");
        assert_eq!(args.worker, PlugstackArgs::default().worker);
    }
}
