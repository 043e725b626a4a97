//! A value that a machine may refuse to tell.

use serde::{Deserialize, Serialize};

/// One value read from the machine: known, unsupported there, or failed with a
/// code. Nothing is ever guessed silently in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Probed<T> {
    /// The machine gave it.
    Known(T),
    /// The machine has no such thing, or this driver cannot tell
    /// (`NVML_ERROR_NOT_SUPPORTED`, a missing symbol, no such sysfs file).
    #[default]
    Unsupported,
    /// Asking failed; the number is the `nvmlReturn_t` code (nvml.h).
    Failed(u32),
}

impl<T> Probed<T> {
    /// The value, where it is known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Probed::Known(value) => Some(value),
            Probed::Unsupported | Probed::Failed(_) => None,
        }
    }

    /// Turns a known value into another one.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Probed<U> {
        match self {
            Probed::Known(value) => Probed::Known(f(value)),
            Probed::Unsupported => Probed::Unsupported,
            Probed::Failed(code) => Probed::Failed(code),
        }
    }
}

impl<T> From<Option<T>> for Probed<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Probed::Unsupported, Probed::Known)
    }
}
