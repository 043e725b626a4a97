//! What sysfs tells about the machine around the GPUs.

use crate::sysfs;
use gpubind_core::node::{NumaNode, Roots};

/// What sysfs tells about the machine around the GPUs.
pub(super) struct HostInfo<'a> {
    pub roots: &'a Roots,
    pub numa: Vec<NumaNode>,
    /// Length of a CPU mask, in words of `unsigned long`.
    pub cpu_words: usize,
}

impl HostInfo<'_> {
    pub fn new(roots: &Roots) -> HostInfo<'_> {
        let highest = sysfs::possible_cpus(roots).and_then(|cpus| cpus.iter().last());
        // A mask that is too small is cut off silently.
        let cpu_words = (highest.unwrap_or(0) / (std::ffi::c_ulong::BITS as usize) + 1).max(16);
        HostInfo { roots, numa: sysfs::numa_nodes(roots), cpu_words }
    }

    /// Whether there is but one NUMA node with CPUs, or none known.
    pub fn single(&self) -> bool {
        self.numa.iter().filter(|numa| !numa.cpus.is_empty()).count() <= 1
    }

    /// Whether a NUMA node has CPUs; without sysfs, any might.
    pub fn has_cpus(&self, id: u32) -> bool {
        match self.numa.iter().find(|numa| numa.id == id) {
            Some(numa) => !numa.cpus.is_empty(),
            None => self.numa.is_empty(),
        }
    }
}
