//! A node's GPUs as a process finds them, in PCI order, which is the order of NVML's
//! indices and of CUDA's.

use crate::node::{Device, MigInstance, Node};

use super::{Access, Reach};

/// A GPU with the process's access to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    kind: Kind,
    access: Access,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One that works, by its position in the node's list.
    Gpu(usize),
    /// One that does not, by its position. Slurm knows nothing of that and counts it.
    Unusable(usize),
}

/// What an entry of a list names.
pub(super) enum Named {
    Device(Device, Slot),
    /// A GPU that cannot be used, in words.
    Unusable(String),
    /// Something that is not in the node's description, in words.
    Unknown(String),
    /// A GPU whose device file is not there.
    NotInContainer,
}

impl Slot {
    pub fn is_open(&self) -> bool {
        self.access == Access::Open
    }

    pub fn is_denied(&self) -> bool {
        self.access == Access::Denied
    }

    pub fn is_missing(&self) -> bool {
        self.access == Access::Missing
    }

    /// The whole GPU, if it works.
    pub fn device(&self) -> Option<Device> {
        match self.kind {
            Kind::Gpu(gpu) => Some(Device { gpu, mig: None }),
            Kind::Unusable(_) => None,
        }
    }

    /// N of /dev/nvidiaN, where known.
    pub fn minor(&self, node: &Node) -> Option<u32> {
        match self.kind {
            Kind::Gpu(gpu) => node.gpus.get(gpu)?.minor.known().copied(),
            Kind::Unusable(at) => node.unusable.get(at)?.minor,
        }
    }

    pub fn named(&self, node: &Node) -> Named {
        match self.kind {
            Kind::Gpu(gpu) => Named::Device(Device { gpu, mig: None }, *self),
            Kind::Unusable(at) => {
                let name = node.unusable.get(at).map(|unusable| {
                    let pci = unusable.pci.map_or_else(String::new, |pci| format!(" ({pci})"));
                    format!("GPU {}{pci}", unusable.index)
                });
                Named::Unusable(name.unwrap_or_default())
            }
        }
    }

    /// Whether CUDA counts the GPU's MIG instances instead of the GPU.
    pub fn counts_instances(&self, node: &Node) -> bool {
        let Kind::Gpu(gpu) = self.kind else { return false };
        node.gpus.get(gpu).is_some_and(|gpu| gpu.mig_mode.known() == Some(&true))
    }

    pub fn is_whole_gpu(&self, node: &Node) -> bool {
        matches!(self.kind, Kind::Gpu(_)) && !self.counts_instances(node)
    }
}

/// All of a node's GPUs.
pub(super) fn slots(node: &Node, reach: &Reach) -> Vec<Slot> {
    let access = |list: &[Access], at: usize| list.get(at).copied().unwrap_or(Access::Open);
    let gpus = node.gpus.iter().enumerate().map(|(at, gpu)| {
        (gpu.index, Slot { kind: Kind::Gpu(at), access: access(&reach.gpus, at) })
    });
    let unusable = node.unusable.iter().enumerate().map(|(at, unusable)| {
        let access = access(&reach.unusable, at);
        (unusable.index, Slot { kind: Kind::Unusable(at), access })
    });
    let mut slots: Vec<(u32, Slot)> = gpus.chain(unusable).collect();
    slots.sort_by_key(|(index, _)| *index);
    slots.into_iter().map(|(_, slot)| slot).collect()
}

/// Those that the process may open.
pub(super) fn open(slots: &[Slot]) -> impl Iterator<Item = &Slot> {
    slots.iter().filter(|slot| slot.is_open())
}

/// The number of a GPU among slots.
pub(super) fn position(slots: &[Slot], gpu: usize) -> Option<u32> {
    let at = slots.iter().position(|slot| slot.kind == Kind::Gpu(gpu))?;
    u32::try_from(at).ok()
}

/// The entries of a comma list.
pub fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// The device with this UUID. A MIG instance may be spelled `MIG-<uuid>`, or as
/// older drivers and Slurm do, `MIG-GPU-<parent>/<gi>/<ci>` with or without the
/// inner `GPU-`.
pub(super) fn by_uuid(node: &Node, slots: &[Slot], name: &str) -> Named {
    let slashed = slashed(name);
    for slot in slots {
        let Kind::Gpu(gpu) = slot.kind else { continue };
        let Some(known) = node.gpus.get(gpu) else { continue };
        let uuid = known.uuid.known().map(String::as_str);
        if uuid == Some(name) {
            return Named::Device(Device { gpu, mig: None }, *slot);
        }
        let parent = uuid.and_then(|uuid| uuid.strip_prefix("GPU-"));
        let is_named = |(parent_of_named, gi, ci), instance: &MigInstance| {
            parent == Some(parent_of_named) && instance.gi == gi && instance.ci == ci
        };
        let mig = known.mig.iter().position(|instance| {
            instance.uuid == name || slashed.is_some_and(|named| is_named(named, instance))
        });
        if mig.is_some() {
            return Named::Device(Device { gpu, mig }, *slot);
        }
    }
    Named::Unknown(name.to_owned())
}

/// The device that an entry names in a list of UUIDs. Where Slurm knows UUIDs of MIG
/// instances only (up to 25.05 with AutoDetect=nvml), a whole GPU beside them is a gres
/// index, and that counts instances.
pub(super) fn by_name(node: &Node, slots: &[Slot], name: &str) -> Named {
    let Ok(index) = name.parse::<usize>() else { return by_uuid(node, slots, name) };
    let count = |slot: &Slot| match slot.device().and_then(|device| node.gpus.get(device.gpu)) {
        Some(gpu) if slot.counts_instances(node) => gpu.mig.len(),
        _ => 1,
    };
    let mut first = 0;
    let slot = slots.iter().find(|slot| {
        let is_it = first == index && !slot.counts_instances(node);
        first += count(slot);
        is_it
    });
    slot.map_or_else(
        || Named::Unknown(format!("number {index} of Slurm's list")),
        |slot| slot.named(node),
    )
}

/// Parent UUID (without `GPU-`), GPU instance and compute instance of an old-style MIG name.
fn slashed(name: &str) -> Option<(&str, u32, u32)> {
    let mut pieces = name.strip_prefix("MIG-")?.split('/');
    let parent = pieces.next()?;
    let (gi, ci) = (pieces.next()?.parse().ok()?, pieces.next()?.parse().ok()?);
    let parent = parent.strip_prefix("GPU-").unwrap_or(parent);
    pieces.next().is_none().then_some((parent, gi, ci))
}
