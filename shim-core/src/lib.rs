//! What the plugin and the worker shim share: the names of variables, the table of
//! launchers, and the record by which the plugin tells the shim of a task.
//!
//! The shim is loaded into programs of all kinds, so this crate uses `core` only,
//! allocates nothing and has nothing that could panic: no indexing, no unchecked
//! slices. Everything here is pure.
#![no_std]

pub mod cpus;
mod launcher;
pub mod record;
mod text;
pub mod variables;
pub mod worker;

pub use launcher::{LAUNCHERS, Launcher};
pub use text::Put;
