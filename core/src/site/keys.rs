//! The table of keys: those of the items, and the site's own. The parsers' messages,
//! `gpubind config`, and the tests of etc/gpubind.toml and of docs/site-policy.md all
//! go by it.

use crate::nearest::nearest;
use crate::node::PciAddress;
use crate::request::{ITEMS, Item};

/// Where a key may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// In gpubind.toml, there also in `[partition.NAME]` and `[constraint.NAME]`, and
    /// in plugstack.conf.
    PerJob,
    /// In gpubind.toml outside of tables, and in plugstack.conf.
    PerNode,
    /// In plugstack.conf only: it says where everything else is.
    Plugstack,
}

/// What a key takes as its value.
#[derive(Debug, Clone, Copy)]
pub enum ValueKind {
    /// One of an item's values. Of `on` and `off` alone, gpubind.toml takes true and
    /// false as well, and plugstack.conf the bare key for `on`.
    Item(&'static Item),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A number of seconds, from 1 to a week.
    Seconds,
    /// An absolute path.
    Path,
    /// A path that ld.so(8) can read out of LD_PRELOAD.
    Preload,
    /// An absolute path, or [`LIBRARY`] wherever the loader finds it.
    Library,
    /// GPUs by PCI address or UUID; in plugstack.conf with commas between them.
    Devices,
}

/// How a value is written in gpubind.toml.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TomlForm {
    /// `"text"`.
    Text,
    /// `10`.
    Number,
    /// `["text", "text"]`.
    List,
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Where it may stand.
    pub scope: Scope,
    /// What it takes.
    pub kind: ValueKind,
    /// The built-in value, as text.
    pub default: &'static str,
    /// What it is about, in a few words.
    pub what: &'static str,
}

/// NVML's library, by the name that every driver gives it.
pub const LIBRARY: &str = "libnvidia-ml.so.1";

/// Where the site file is, unless plugstack.conf's `config=PATH` says otherwise.
pub const SITE_FILE: &str = "/etc/gpubind.toml";

/// The longest time that a key of seconds takes: a week.
const MAX_SECONDS: u64 = 7 * 24 * 60 * 60;

const fn key(
    name: &'static str,
    scope: Scope,
    kind: ValueKind,
    default: &'static str,
    what: &'static str,
) -> Key {
    Key { name, scope, kind, default, what }
}

/// The key that an item of requests has.
const fn of_item(item: &'static Item) -> Key {
    key(item.name, Scope::PerJob, ValueKind::Item(item), item.default, item.what)
}

/// The key in front of the items'.
const DEFAULT: Key = key(
    "default",
    Scope::PerJob,
    ValueKind::Word(&["on-request", "always"]),
    "on-request",
    "whether steps are bound that nobody asked it for",
);

/// The keys after the items'.
const OF_THE_NODE: [Key; 8] = {
    use Scope::{PerNode, Plugstack};
    use ValueKind::{Devices, Library, Path, Preload, Seconds};
    [
        key("exclude", PerNode, Devices, "", "GPUs that no rank is ever given"),
        key(
            "snapshot-max-age",
            PerNode,
            Seconds,
            "86400",
            "how old a saved description of the node may be",
        ),
        key("probe-timeout", PerNode, Seconds, "10", "how long reading NVML may hold up a step"),
        key("nvml", PerNode, Library, LIBRARY, "the NVML library"),
        key("program", PerNode, Path, "/usr/bin/gpubind", "the program that reads NVML"),
        key(
            "worker",
            PerNode,
            Preload,
            "/usr/lib/gpubind/libgpubind_worker.so",
            "the worker shim, as tasks find it",
        ),
        key("config", Plugstack, Path, SITE_FILE, "the site file"),
        key("fsroot", Plugstack, Path, "/", "folder in front of /sys, /proc, /dev and /run"),
    ]
};

/// Every key, in the order of etc/gpubind.toml.
pub static KEYS: [Key; 1 + ITEMS.len() + OF_THE_NODE.len()] = {
    let mut keys = [DEFAULT; 1 + ITEMS.len() + OF_THE_NODE.len()];
    let mut at = 0;
    while at < ITEMS.len() {
        keys[1 + at] = of_item(&ITEMS[at]);
        at += 1;
    }
    let mut at = 0;
    while at < OF_THE_NODE.len() {
        keys[1 + ITEMS.len() + at] = OF_THE_NODE[at];
        at += 1;
    }
    keys
};

impl Key {
    /// The key of this name that a source accepts, or the nearest name that it does.
    ///
    /// # Errors
    /// [`NoKey`].
    pub(super) fn find(name: &str, accepts: impl Fn(&Key) -> bool) -> Result<&'static Key, NoKey> {
        match KEYS.iter().find(|key| key.name == name) {
            Some(key) if accepts(key) => Ok(key),
            Some(key) => Err(NoKey::Elsewhere(key)),
            None => Err(NoKey::Unknown {
                nearest: nearest(name, KEYS.iter().filter(|key| accepts(key)).map(|key| key.name)),
            }),
        }
    }

    /// The words that it takes, if it takes words.
    pub fn words(&self) -> Vec<&'static str> {
        match self.kind {
            ValueKind::Item(item) => item.for_the_site().map(|value| value.text).collect(),
            ValueKind::Word(words) => words.to_vec(),
            _ => Vec::new(),
        }
    }

    /// Whether it is on or off, and nothing else.
    pub(super) fn is_switch(&self) -> bool {
        self.words() == ["on", "off"]
    }

    /// The value in its one spelling, or `None` where the key does not take it.
    pub(super) fn canonical(&self, text: &str) -> Option<String> {
        let text = text.trim();
        let is_absolute = text.starts_with('/');
        match self.kind {
            ValueKind::Item(_) | ValueKind::Word(_) => {
                self.words().contains(&text).then(|| text.to_owned())
            }
            ValueKind::Seconds => {
                let seconds = text.parse().ok().filter(|n| (1..=MAX_SECONDS).contains(n));
                seconds.map(|seconds: u64| seconds.to_string())
            }
            ValueKind::Path => is_absolute.then(|| text.to_owned()),
            ValueKind::Preload => {
                (is_absolute && !text.contains([':', ' '])).then(|| text.to_owned())
            }
            ValueKind::Library => (is_absolute || text == LIBRARY).then(|| text.to_owned()),
            ValueKind::Devices => {
                let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
                let names: Option<Vec<String>> = names.map(device).collect();
                names.map(|names| names.join(","))
            }
        }
    }

    /// What it takes, in words.
    pub fn expected(&self) -> String {
        match self.kind {
            ValueKind::Item(_) | ValueKind::Word(_) => match self.words()[..] {
                [one, other] => format!("{one} or {other}"),
                ref words => format!("one of {}", words.join(", ")),
            },
            ValueKind::Seconds => format!("a number of seconds from 1 to {MAX_SECONDS} (a week)"),
            ValueKind::Path => "an absolute path".to_owned(),
            ValueKind::Preload => "an absolute path without colons and spaces".to_owned(),
            ValueKind::Library => format!("an absolute path, or {LIBRARY}"),
            ValueKind::Devices => "PCI addresses (0000:07:00.0) or UUIDs (GPU-…, MIG-…)".to_owned(),
        }
    }

    /// How its value is written in gpubind.toml.
    pub fn toml_form(&self) -> TomlForm {
        match self.kind {
            ValueKind::Seconds => TomlForm::Number,
            ValueKind::Devices => TomlForm::List,
            ValueKind::Item(_)
            | ValueKind::Word(_)
            | ValueKind::Path
            | ValueKind::Preload
            | ValueKind::Library => TomlForm::Text,
        }
    }

    /// The words for a value in a list of arguments: `words|like|these`, or what stands
    /// for it.
    pub fn placeholder(&self) -> String {
        match self.kind {
            ValueKind::Item(_) | ValueKind::Word(_) => self.words().join("|"),
            ValueKind::Seconds => "SECONDS".to_owned(),
            ValueKind::Path | ValueKind::Preload => "PATH".to_owned(),
            ValueKind::Library => "FILE".to_owned(),
            ValueKind::Devices => "GPU,…".to_owned(),
        }
    }
}

/// Why there is no key.
pub(super) enum NoKey {
    /// It exists, but not here.
    Elsewhere(&'static Key),
    /// It does not exist; the nearest that does, if any is near.
    Unknown { nearest: Option<&'static str> },
}

/// A device's name in its one spelling.
fn device(name: &str) -> Option<String> {
    if name.starts_with("GPU-") || name.starts_with("MIG-") {
        return Some(name.to_owned());
    }
    name.parse::<PciAddress>().ok().map(|pci| pci.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::written_items;

    #[test]
    fn every_default_is_a_value_that_its_key_takes() {
        for key in &KEYS {
            assert_eq!(key.canonical(key.default).as_deref(), Some(key.default), "{}", key.name);
        }
    }

    #[test]
    fn every_item_of_a_request_but_off_can_be_the_sites_too() {
        for (item, value, written) in written_items().filter(|(_, _, written)| written != "off") {
            let key = KEYS.iter().find(|key| key.name == item.name).unwrap();
            assert_eq!(key.canonical(value.text).as_deref(), Some(value.text), "{written}");
            assert_eq!(key.scope, Scope::PerJob, "{written}");
        }
        let mode = KEYS.iter().find(|key| key.name == "mode").unwrap();
        assert_eq!(mode.canonical("off"), None);
    }

    #[test]
    fn what_is_on_or_off_and_nothing_else_is_a_switch() {
        let switches = KEYS.iter().filter(|key| key.is_switch()).map(|key| key.name);
        assert_eq!(switches.collect::<Vec<_>>(), ["share", "workers", "omp", "verbose", "strict"]);
    }

    #[test]
    fn the_nearest_key_is_found_only_where_one_is_near() {
        let nearest = |name| nearest(name, KEYS.iter().map(|key| key.name));
        assert_eq!(nearest("snapshot-age"), Some("snapshot-max-age"));
        assert_eq!(nearest("local_rank"), Some("local-rank"));
        assert_eq!(nearest("defualt"), Some("default"));
        assert_eq!(nearest("xyz"), None);
    }

    #[test]
    fn devices_have_one_spelling() {
        let exclude = KEYS.iter().find(|key| key.name == "exclude").unwrap();
        let canonical = exclude.canonical(" 00000000:B7:00.0, GPU-1,");
        assert_eq!(canonical.as_deref(), Some("0000:b7:00.0,GPU-1"));
        assert_eq!(exclude.canonical("0"), None, "an index is not the same GPU after a repair");
    }
}
