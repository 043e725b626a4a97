//! The values that one source gives, each with the place that it comes from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use crate::request::{ITEMS, Request};

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// gpubind itself.
    BuiltIn,
    /// A line of gpubind.toml.
    File {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
    },
    /// The plugin's arguments in plugstack.conf; the place where it is known.
    Plugstack(Option<(PathBuf, usize)>),
    /// The user's variable SLURM_GPUBIND.
    Variable,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::BuiltIn => f.write_str("built-in"),
            Origin::File { path, line } | Origin::Plugstack(Some((path, line))) => {
                write!(f, "{}:{line}", path.display())
            }
            Origin::Plugstack(None) => f.write_str("plugstack.conf"),
            Origin::Variable => f.write_str(crate::variables::REQUEST),
        }
    }
}

/// One value, as text in its one spelling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The value.
    pub text: String,
    /// Who says so.
    pub origin: Origin,
}

/// The values of one source, by key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layer(BTreeMap<&'static str, Setting>);

impl Layer {
    /// What a request says.
    pub fn of_request(request: &Request, origin: &Origin) -> Layer {
        let mut layer = Layer::default();
        for item in ITEMS {
            if let Some(text) = item.get(request) {
                layer.set(item.name, text.to_owned(), origin.clone());
            }
        }
        layer
    }

    /// The value of a key, where this source gives one.
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.0.get(name)
    }

    pub(super) fn set(&mut self, name: &'static str, text: String, origin: Origin) {
        self.0.insert(name, Setting { text, origin });
    }
}
