//! The effective settings, after all layers.

use std::path::PathBuf;
use std::time::Duration;

use crate::node::{Device, Node, PciAddress};

use super::keys::{KEYS, Key, LIBRARY};
use super::layer::{Layer, Origin, Setting};
use crate::request::{ITEMS, Request};

/// One key's value and where it comes from.
#[derive(Debug, Clone)]
pub struct Value {
    /// The key.
    pub key: &'static Key,
    /// The value as text, in its one spelling.
    pub text: String,
    /// Where it is set.
    pub origin: Origin,
}

/// A value for every key, in the order of [`KEYS`].
#[derive(Debug, Clone)]
pub struct EffectiveSettings(Vec<Value>);

impl EffectiveSettings {
    /// Puts layers over the built-in values, the weakest first.
    pub fn new<'l>(layers: impl IntoIterator<Item = &'l Layer>) -> EffectiveSettings {
        let layers: Vec<&Layer> = layers.into_iter().collect();
        let value = |key: &'static Key| {
            let set = layers.iter().rev().find_map(|layer| layer.get(key.name)).cloned();
            let built_in = || Setting { text: key.default.to_owned(), origin: Origin::BuiltIn };
            let Setting { text, origin } = set.unwrap_or_else(built_in);
            Value { key, text, origin }
        };
        EffectiveSettings(KEYS.iter().map(value).collect())
    }

    /// All values.
    pub fn values(&self) -> &[Value] {
        &self.0
    }

    /// The text of a key's value.
    pub fn text(&self, name: &str) -> &str {
        let value = self.0.iter().find(|value| value.key.name == name);
        value.map_or("", |value| value.text.as_str())
    }

    /// The same, typed.
    pub fn site(&self) -> Site {
        let seconds = |name: &str| Duration::from_secs(self.text(name).parse().unwrap_or(1));
        let path = |name: &str| PathBuf::from(self.text(name));
        Site {
            default: match self.text("default") {
                "always" => BindDefault::Always,
                _ => BindDefault::OnRequest,
            },
            request: self.request(),
            exclude: self.text("exclude").split(',').filter_map(DeviceName::new).collect(),
            snapshot_max_age: seconds("snapshot-max-age"),
            probe_timeout: seconds("probe-timeout"),
            nvml: Some(path("nvml")).filter(|nvml| nvml.as_os_str() != LIBRARY),
            program: path("program"),
            worker: path("worker"),
            config: path("config"),
            fsroot: path("fsroot"),
        }
    }

    /// The items' values as a request.
    fn request(&self) -> Request {
        let mut request = Request::default();
        ITEMS.iter().for_each(|item| item.set(&mut request, self.text(item.name)));
        request
    }
}

/// For which steps gpubind acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindDefault {
    /// Those that ask.
    OnRequest,
    /// All that do not ask for Slurm's own binding or for none.
    Always,
}

/// A device as an admin names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceName {
    /// The GPU with this address, and its MIG instances.
    Pci(PciAddress),
    /// The GPU or MIG instance with this UUID; a GPU's instances with it.
    Uuid(String),
}

impl DeviceName {
    fn new(text: &str) -> Option<DeviceName> {
        match text.parse() {
            Ok(pci) => Some(DeviceName::Pci(pci)),
            Err(_) if text.is_empty() => None,
            Err(_) => Some(DeviceName::Uuid(text.to_owned())),
        }
    }

    /// Whether this device is meant.
    pub fn names(&self, node: &Node, device: Device) -> bool {
        let Some(gpu) = node.gpu(device) else { return false };
        match self {
            DeviceName::Pci(pci) => gpu.pci.known() == Some(*pci),
            DeviceName::Uuid(uuid) => {
                gpu.uuid.known() == Some(uuid) || node.uuid(device) == Some(uuid.as_str())
            }
        }
    }
}

/// What the site sets for a step, after all layers but the user's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// For which steps gpubind acts.
    pub default: BindDefault,
    /// The items that a request leaves open.
    pub request: Request,
    /// Devices that no rank is given.
    pub exclude: Vec<DeviceName>,
    /// How old a saved node description may be.
    pub snapshot_max_age: Duration,
    /// How long reading NVML may hold up a step.
    pub probe_timeout: Duration,
    /// The NVML library; without it the loader's own search path.
    pub nvml: Option<PathBuf>,
    /// The gpubind program that reads NVML.
    pub program: PathBuf,
    /// The worker shim.
    pub worker: PathBuf,
    /// The site file.
    pub config: PathBuf,
    /// Folder in front of /sys, /proc, /dev and /run.
    pub fsroot: PathBuf,
}

impl Default for Site {
    /// The built-in values.
    fn default() -> Self {
        EffectiveSettings::new([]).site()
    }
}
