//! What a site sets: gpubind.toml, plugstack.conf's arguments, and how they combine.
//!
//! | file | what |
//! |---|---|
//! | `keys.rs` | the one table of keys: names, values, defaults, meaning |
//! | `layer.rs` | the values of one source, each with the place that it comes from |
//! | `file.rs` | gpubind.toml's text as layers |
//! | `load.rs` | the file itself: whether root may believe it |
//! | `effective.rs` | what holds, after all layers; typed for the plugin |
//!
//! The request's own grammar is in [`super::request`]; what a value does to a
//! task is in [`crate::bind`].

mod effective;
mod file;
mod keys;
mod layer;
mod load;

pub use effective::{Acts, DeviceName, Effective, Site, Value};
pub use file::{JobFacts, SiteFile, SiteFileError, SiteFileProblem};
pub use keys::{KEYS, Key, Place, Takes, TomlForm};
pub use layer::{Layer, Origin, Said};
pub use load::{LoadError, SITE_FILE, load};
