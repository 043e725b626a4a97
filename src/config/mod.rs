//! What the user and the site asked for: the request grammar, Slurm's command
//! lines, gpubind.toml, plugstack.conf's arguments, and how they combine.
//!
//! Everything here is text in, data out. What a request *does* to a task is in
//! [`crate::plan`] and [`crate::bind`].

mod command_line;
mod plugstack;
#[cfg(feature = "cli")]
mod plugstack_file;
mod request;
mod settings;
mod site;
mod slurm_options;
mod slurm_release;
mod travel;

pub use command_line::{Command, CommandLine, Component, Wish, read_command_line};
pub use plugstack::{PlugstackArgs, PlugstackError};
#[cfg(feature = "cli")]
pub use plugstack_file::{PluginLine, PlugstackFile, PlugstackProblem, plugstack_path};
pub use request::{BindText, ITEMS, Ids, Item, LocalRank, Mode, Request, RequestError, bind_text};
pub use settings::{RANK_ENV_SET, REQUEST_VARIABLE, Settings};
pub use site::{
    Acts, DeviceName, Effective, JobFacts, KEYS, Key, Layer, LoadError, Origin, Place, SITE_FILE,
    Said, Site, SiteFile, SiteFileError, SiteFileProblem, Takes, TomlForm, Value, load,
};
pub use slurm_release::{plugin_version, release, release_version};
pub use travel::{
    COMPONENTS_VARIABLE, Change, STEP_BIND_VARIABLE, TRES_BIND_VARIABLE, travel_as, tres_bind_text,
    variables,
};
