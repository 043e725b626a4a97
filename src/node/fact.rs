//! A value that a machine may refuse to tell.

use serde::{Deserialize, Serialize};

/// One value read from the machine: known, unsupported there, or failed with a
/// code. Nothing is ever guessed silently in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fact<T> {
    /// The machine told it.
    Known(T),
    /// The machine has no such thing, or this driver cannot tell
    /// (`NVML_ERROR_NOT_SUPPORTED`, a missing symbol, no such sysfs file).
    #[default]
    Unsupported,
    /// Asking failed; the number is the `nvmlReturn_t` code (nvml.h).
    Failed(u32),
}

impl<T> Fact<T> {
    /// The value, where it is known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Fact::Known(value) => Some(value),
            Fact::Unsupported | Fact::Failed(_) => None,
        }
    }

    /// Turns a known value into another one.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Fact<U> {
        match self {
            Fact::Known(value) => Fact::Known(f(value)),
            Fact::Unsupported => Fact::Unsupported,
            Fact::Failed(code) => Fact::Failed(code),
        }
    }
}

impl<T> From<Option<T>> for Fact<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Fact::Unsupported, Fact::Known)
    }
}
