//! What a site sets: gpubind.toml, plugstack.conf's arguments, and how they combine.
//!
//! | file | what |
//! |---|---|
//! | `keys.rs` | the one table of keys: names, values, defaults, meaning |
//! | `layer.rs` | the values of one source, each with the place that it comes from |
//! | `file.rs` | gpubind.toml's text as layers |
//! | `load.rs` | the file itself: whether root may trust it |
//! | `plugstack_args.rs` | the plugin's arguments in plugstack.conf |
//! | `effective.rs` | the effective settings, after all layers; typed for the plugin |
//! | `settings.rs` | one step's settings: the request over the site's |
//!
//! The request's own grammar is in [`super::request`]; what a value does to a
//! task is in [`crate::bind`].

mod effective;
mod file;
mod keys;
mod layer;
mod load;
mod plugstack_args;
mod settings;

pub use crate::request::Settings;
pub use effective::{BindDefault, DeviceName, EffectiveSettings, Site, Value};
pub use file::{JobInfo, SiteFile, SiteFileError, SiteFileProblem};
pub use keys::{KEYS, Key, SITE_FILE, Scope, TomlForm, ValueKind};
pub use layer::{Layer, Origin, Setting};
pub use load::{LoadError, LoadProblem, load};
pub use plugstack_args::{PlugstackArgs, PlugstackError};
pub use settings::NotAsked;
