//! Whether CPUs are local to a GPU.

use std::fmt;

use crate::node::{Gpu, IdSet};

/// Whether a task's CPUs are local to its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locality {
    /// All of them.
    Local,
    /// Some of them.
    Partly,
    /// None of them.
    Remote,
    /// The CPUs or the device's affinity are unknown.
    Unknown,
}

impl Locality {
    /// Compares a task's CPUs with a device's.
    pub fn of(cpus: &IdSet, gpu: &Gpu) -> Locality {
        match gpu.cpus.known() {
            Some(local) if !cpus.is_empty() => match cpus.common(local) {
                0 => Locality::Remote,
                common if common == cpus.count() => Locality::Local,
                _ => Locality::Partly,
            },
            _ => Locality::Unknown,
        }
    }
}

impl fmt::Display for Locality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Locality::Local => "local",
            Locality::Partly => "partly local",
            Locality::Remote => "remote",
            Locality::Unknown => "affinity unknown",
        })
    }
}

/// NUMA node ids as a comma list.
pub(super) fn numa_list(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}
