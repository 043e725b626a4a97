//! The plugin's arguments in plugstack.conf.

use super::{
    EffectiveSettings, JobInfo, KEYS, Key, Layer, LoadError, Origin, Site, SiteFile, load,
};

/// Arguments behind the plugin's path in plugstack.conf: `key=value` words, with the
/// keys of gpubind.toml, `config=PATH` and `fsroot=DIR`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlugstackArgs {
    /// What they say.
    pub layer: Layer,
}

/// A word that is no argument of the plugin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlugstackError {
    /// A key that does not exist.
    #[error("{origin}: unknown argument `{word}`; valid: {}", valid())]
    Unknown {
        /// Where it stands.
        origin: Origin,
        /// The word as written.
        word: String,
    },
    /// A value that the key does not take.
    #[error("{origin}: `{word}` needs {needs}")]
    Value {
        /// Where it stands.
        origin: Origin,
        /// The word as written.
        word: String,
        /// What the value must be.
        needs: String,
    },
}

fn valid() -> String {
    let word = |key: &Key| format!("{}={}", key.name, key.placeholder());
    KEYS.iter().map(word).collect::<Vec<_>>().join(", ")
}

impl PlugstackArgs {
    /// Reads the words. A wrong word is told and skipped, the others count: a
    /// mistyped argument must not keep a site's jobs from being bound. `origin` is
    /// an [`Origin::Plugstack`].
    pub fn read<'a>(
        words: impl IntoIterator<Item = &'a str>,
        origin: &Origin,
    ) -> (Self, Vec<PlugstackError>) {
        let mut args = PlugstackArgs::default();
        let errors = words.into_iter().filter_map(|word| args.take(word, origin).err());
        let errors = errors.collect();
        (args, errors)
    }

    /// What the site sets for a job: these arguments over the site file.
    pub fn site(&self, file: Option<&SiteFile>, job: &JobInfo) -> Site {
        let file = file.map_or_else(Vec::new, |file| file.layers(job));
        EffectiveSettings::new(file.into_iter().chain([&self.layer])).site()
    }

    /// The same, with the site file read. One that is broken counts as absent, so that
    /// it stops no job; what is wrong with it comes along.
    pub fn load_site(&self, job: &JobInfo) -> (Site, Option<LoadError>) {
        match load(&self.site(None, job).config) {
            Ok(file) => (self.site(file.as_ref(), job), None),
            Err(error) => (self.site(None, job), Some(error)),
        }
    }

    fn take(&mut self, word: &str, origin: &Origin) -> Result<(), PlugstackError> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            return Err(PlugstackError::Unknown { origin: origin.clone(), word: word.to_owned() });
        };
        let bare = key.is_switch().then_some("on");
        let text = value.or(bare).and_then(|value| key.canonical(value));
        let text = text.ok_or_else(|| PlugstackError::Value {
            origin: origin.clone(),
            word: word.to_owned(),
            needs: key.expected(),
        })?;
        self.layer.set(key.name, text, origin.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn good_words_count_and_bad_ones_are_told() {
        let words = [
            "program=/opt/gpubind",
            "probe-timeout=0",
            "nvml=lib.so",
            "colour=red",
            "fsroot=/x",
            "verbose",
            "mode",
            "exclude=b7:00.0,GPU-1",
            "worker=/a:b.so",
        ];
        let (args, errors) = PlugstackArgs::read(words, &Origin::Plugstack(None));
        let site = args.site(None, &JobInfo::default());
        assert_eq!(site.program, PathBuf::from("/opt/gpubind"));
        assert_eq!(site.fsroot, PathBuf::from("/x"));
        assert_eq!(site.nvml, None);
        assert_eq!(site.probe_timeout, Site::default().probe_timeout);
        assert!(site.request.verbose == Some(true));
        assert_eq!(site.exclude.len(), 2);
        let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let told = |at: usize, text: &str| assert!(messages[at].contains(text), "{messages:?}");
        told(0, "plugstack.conf: `probe-timeout=0` needs a number of seconds");
        told(1, "`nvml=lib.so` needs an absolute path");
        told(
            2,
            "unknown argument `colour=red`; valid: default=on-request|always, mode=by-request|auto",
        );
        told(3, "`mode` needs one of by-request, auto");
        told(4, "`worker=/a:b.so` needs an absolute path without colons");
        assert_eq!(messages.len(), 5);
    }
}
