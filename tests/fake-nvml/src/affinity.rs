//! Which CPUs and NUMA nodes are near a GPU, as masks.

use crate::code::{Answer, Code};
use crate::ffi::Target;
use crate::model::Model;

/// Bits of an `unsigned long`, NVML's mask word.
const WORD: usize = u64::BITS as usize;

/// Which part of the machine an affinity question is about (nvml.h,
/// `NVML_AFFINITY_SCOPE_*`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Node,
    Socket,
}

impl Scope {
    pub fn new(number: u32) -> Answer<Scope> {
        match number {
            0 => Ok(Scope::Node),
            1 => Ok(Scope::Socket),
            _ => Err(Code::INVALID_ARGUMENT),
        }
    }
}

impl Model {
    /// A mask of the GPU's CPUs, cut to `words`.
    pub fn cpu_mask(&self, target: Target, words: usize, scope: Scope) -> Answer<Vec<u64>> {
        let gpu = self.gpu(target)?;
        let cpus = match (&gpu.place.numa, scope) {
            (Some(ids), Scope::Socket) => {
                let ids = self.socket(ids);
                let nodes = self.machine.numa.iter().filter(|node| ids.contains(&node.id));
                nodes.flat_map(|node| node.cpus.iter()).collect()
            }
            _ => gpu.cpus.clone().ok_or(Code::NOT_SUPPORTED)?,
        };
        mask(cpus.iter(), words)
    }

    /// A mask of the GPU's NUMA nodes, cut to `words`.
    pub fn memory_mask(&self, target: Target, words: usize, scope: Scope) -> Answer<Vec<u64>> {
        let ids = self.gpu(target)?.place.numa.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        let ids = match scope {
            Scope::Node => ids.clone(),
            Scope::Socket => self.socket(ids),
        };
        mask(ids.iter().map(|id| *id as usize), words)
    }

    /// The NUMA nodes of one socket: those nearer than 20, which is where ACPI
    /// tables put the next socket or beyond it.
    fn socket(&self, ids: &[u32]) -> Vec<u32> {
        let all = &self.machine.numa;
        let near = |at: usize| {
            let own = all.iter().filter(|node| ids.contains(&node.id));
            own.filter_map(|node| node.distance.get(at)).any(|distance| *distance < 20)
        };
        let inside = all.iter().enumerate();
        let inside = inside.filter(|(at, node)| ids.contains(&node.id) || near(*at));
        inside.map(|(_, node)| node.id).collect()
    }
}

/// A bit mask in words; bits beyond the last word are lost, as in NVML.
fn mask(bits: impl Iterator<Item = usize>, words: usize) -> Answer<Vec<u64>> {
    if words == 0 {
        return Err(Code::INVALID_ARGUMENT);
    }
    let mut mask = vec![0; words];
    for bit in bits {
        if let Some(word) = mask.get_mut(bit / WORD) {
            *word |= 1 << (bit % WORD);
        }
    }
    Ok(mask)
}
