//! Which devices the step owns on this node.
//!
//! Four numbering systems meet here: Slurm's gres index, the N of /dev/nvidiaN,
//! NVML's index in PCI order, and CUDA's index among the devices that a process
//! can reach. One rule is right with ConstrainDevices on and off, for partial
//! nodes and for gaps: the step-level CUDA_VISIBLE_DEVICES holds integers that
//! count the reachable GPUs in PCI order, or UUIDs.

use crate::node::{Device, MigInstance, Node};
use crate::site::DeviceName;

use super::Reach;

/// The lists that Slurm set for the whole step, before any task binding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuLists {
    /// Step-level CUDA_VISIBLE_DEVICES.
    pub visible: Option<String>,
    /// SLURM_STEP_GPUS: gres indices, whatever the constraint.
    pub step_gpus: Option<String>,
}

/// One device of the step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What the device is, where the node is known.
    pub device: Option<Device>,
    /// Its number among the reachable GPUs in PCI order: what CUDA counts with
    /// CUDA_DEVICE_ORDER=PCI_BUS_ID. None for a MIG instance, beside a sick
    /// GPU or one in MIG mode, and for a GPU of an unknown node that is named by UUID.
    pub ordinal: Option<u32>,
    /// Its UUID, where known.
    pub uuid: Option<String>,
}

/// The devices that the step owns on this node, in PCI order where the node is
/// known, else in Slurm's order; or those that a task was given, in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allocation {
    /// The devices, each once.
    pub entries: Vec<Entry>,
    /// Where Slurm lets the process reach only some of the step's GPUs: how many
    /// it reaches, and how many the step has.
    pub narrowed: Option<(usize, usize)>,
    /// How many of the step's devices the site keeps from all ranks.
    pub excluded: usize,
    /// What did not fit together, for the debug log.
    pub notes: Vec<String>,
}

impl Allocation {
    /// Finds the step's devices on a known node.
    pub fn find(node: &Node, reach: &Reach, lists: &GpuLists) -> Allocation {
        let reachable = reachable(node, reach);
        let mut notes = Vec::new();
        let mut devices = Vec::new();
        if let Some(visible) = &lists.visible {
            match from_visible(node, &reachable, visible) {
                Ok(found) => devices = found,
                Err(note) => notes.push(note),
            }
        }
        if devices.is_empty() {
            devices = fall_back(node, &reachable, lists, &mut notes);
        }
        // gres counts MIG instances one by one.
        let step = lists.step_gpus.as_deref().map_or(0, |list| names(list).count());
        let narrowed =
            (entries_are_gpus(lists) && reachable.len() < step).then_some((reachable.len(), step));
        Allocation { narrowed, notes, ..Allocation::of(node, reach, devices) }
    }

    /// An allocation of these devices, each once.
    pub fn of(node: &Node, reach: &Reach, mut devices: Vec<Device>) -> Allocation {
        devices.sort_unstable();
        devices.dedup();
        Allocation::listed(node, reach, devices)
    }

    /// An allocation of these devices in this very order, each once.
    pub fn listed(node: &Node, reach: &Reach, devices: Vec<Device>) -> Allocation {
        let reachable = reachable(node, reach);
        // Whether CUDA counts a sick GPU is not known, and with MIG it counts
        // instances; beside either there are no numbers that can be trusted.
        let counts = |slot: &Slot| match slot {
            Slot::Gpu(gpu) => {
                node.gpus.get(*gpu).is_some_and(|gpu| gpu.mig_mode.known() != Some(&true))
            }
            Slot::Unusable => false,
        };
        let countable = reachable.iter().all(counts);
        let entries = devices
            .into_iter()
            .map(|device| Entry {
                device: Some(device),
                ordinal: match device.mig {
                    None if countable => position(&reachable, device.gpu),
                    _ => None,
                },
                uuid: node.uuid(device).map(str::to_owned),
            })
            .collect();
        Allocation { entries, ..Allocation::default() }
    }

    /// What a process sees with this CUDA_VISIBLE_DEVICES, in its order: all that
    /// it can reach where the variable is unset; an entry that names nothing
    /// hides itself and all after it, as in CUDA.
    pub fn seen(node: &Node, reach: &Reach, visible: Option<&str>) -> Vec<Device> {
        let reachable = reachable(node, reach);
        match visible {
            Some(visible) => names(visible)
                .map_while(|name| match named(node, &reachable, name) {
                    Some(Named::Device(device)) => Some(device),
                    Some(Named::Unusable) | None => None,
                })
                .collect(),
            None => healthy(&reachable).collect(),
        }
    }

    /// The step's devices where the node cannot be read: Slurm's list as it is.
    pub fn unknown(lists: &GpuLists) -> Allocation {
        let text = lists.visible.as_ref().or(lists.step_gpus.as_ref());
        let mut entries: Vec<Entry> = Vec::new();
        for name in names(text.map_or("", String::as_str)) {
            let entry = match name.parse() {
                Ok(ordinal) => Entry { device: None, ordinal: Some(ordinal), uuid: None },
                Err(_) => Entry { device: None, ordinal: None, uuid: Some(name.to_owned()) },
            };
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        Allocation { entries, ..Allocation::default() }
    }

    /// The allocation without the devices that the site keeps from all ranks. On a node
    /// that is not known, only those can be told that both sides name by UUID.
    pub fn without(mut self, names: &[DeviceName], node: Option<&Node>) -> Allocation {
        let before = self.entries.len();
        self.entries.retain(|entry| {
            !names.iter().any(|name| match (node, entry.device) {
                (Some(node), Some(device)) => name.names(node, device),
                _ => matches!(name, DeviceName::Uuid(uuid) if entry.uuid.as_ref() == Some(uuid)),
            })
        });
        self.excluded = before - self.entries.len();
        self
    }

    /// The devices of a known node, in order.
    pub fn devices(&self) -> Vec<Device> {
        self.entries.iter().filter_map(|entry| entry.device).collect()
    }
}

/// Whether Slurm's list is one of whole GPUs, as far as its text tells.
fn entries_are_gpus(lists: &GpuLists) -> bool {
    let visible = lists.visible.as_deref().unwrap_or_default();
    names(visible).all(|name| !name.starts_with("MIG-"))
}

/// The entries of a comma list.
pub fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// A GPU that the process can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// One that works, by its position in the node's list.
    Gpu(usize),
    /// One that does not. Slurm knows nothing of that and counts it.
    Unusable,
}

/// What the process can reach, in PCI order, which is the order of NVML's indices.
fn reachable(node: &Node, reach: &Reach) -> Vec<Slot> {
    let may = |list: &[bool], at: usize| list.get(at).copied().unwrap_or(true);
    let gpus = node.gpus.iter().enumerate().filter(|(at, _)| may(&reach.gpus, *at));
    let unusable = node.unusable.iter().enumerate().filter(|(at, _)| may(&reach.unusable, *at));
    let mut slots: Vec<(u32, Slot)> = gpus
        .map(|(at, gpu)| (gpu.index, Slot::Gpu(at)))
        .chain(unusable.map(|(_, unusable)| (unusable.index, Slot::Unusable)))
        .collect();
    slots.sort_by_key(|(index, _)| *index);
    slots.into_iter().map(|(_, slot)| slot).collect()
}

/// The devices among the slots that work.
fn healthy(slots: &[Slot]) -> impl Iterator<Item = Device> + '_ {
    slots.iter().filter_map(|slot| match slot {
        Slot::Gpu(gpu) => Some(Device { gpu: *gpu, mig: None }),
        Slot::Unusable => None,
    })
}

fn position(reachable: &[Slot], gpu: usize) -> Option<u32> {
    let at = reachable.iter().position(|slot| *slot == Slot::Gpu(gpu));
    at.and_then(|at| u32::try_from(at).ok())
}

/// The devices that a CUDA_VISIBLE_DEVICES names, or a note why it does not fit.
fn from_visible(node: &Node, reachable: &[Slot], visible: &str) -> Result<Vec<Device>, String> {
    let mut devices = Vec::new();
    for name in names(visible) {
        match named(node, reachable, name) {
            Some(Named::Device(device)) => devices.push(device),
            Some(Named::Unusable) => {}
            None => {
                let count = reachable.len();
                return Err(format!(
                    "CUDA_VISIBLE_DEVICES={visible}: no device `{name}` among {count} reachable GPUs"
                ));
            }
        }
    }
    Ok(devices)
}

/// What one entry of CUDA_VISIBLE_DEVICES names.
enum Named {
    Device(Device),
    Unusable,
}

fn named(node: &Node, reachable: &[Slot], name: &str) -> Option<Named> {
    match name.parse::<usize>() {
        Ok(ordinal) => reachable.get(ordinal).map(|slot| match slot {
            Slot::Gpu(gpu) => Named::Device(Device { gpu: *gpu, mig: None }),
            Slot::Unusable => Named::Unusable,
        }),
        Err(_) => by_uuid(node, name).map(Named::Device),
    }
}

/// The device with this UUID. A MIG instance may be spelled `MIG-<uuid>`, or as
/// older drivers and Slurm do, `MIG-GPU-<parent>/<gi>/<ci>` with or without the
/// inner `GPU-`.
fn by_uuid(node: &Node, name: &str) -> Option<Device> {
    let named = slashed(name);
    for (gpu, known) in node.gpus.iter().enumerate() {
        let uuid = known.uuid.known().map(String::as_str);
        if uuid == Some(name) {
            return Some(Device { gpu, mig: None });
        }
        let parent = uuid.and_then(|uuid| uuid.strip_prefix("GPU-"));
        let is_named = |(parent_of_named, gi, ci), instance: &MigInstance| {
            parent == Some(parent_of_named) && instance.gi == gi && instance.ci == ci
        };
        let mig = known.mig.iter().position(|instance| {
            instance.uuid == name || named.is_some_and(|named| is_named(named, instance))
        });
        if mig.is_some() {
            return Some(Device { gpu, mig });
        }
    }
    None
}

/// Parent UUID (without `GPU-`), GPU instance and compute instance of an old-style MIG name.
fn slashed(name: &str) -> Option<(&str, u32, u32)> {
    let mut parts = name.strip_prefix("MIG-")?.split('/');
    let parent = parts.next()?;
    let (gi, ci) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let parent = parent.strip_prefix("GPU-").unwrap_or(parent);
    parts.next().is_none().then_some((parent, gi, ci))
}

/// What the step owns where CUDA_VISIBLE_DEVICES is unset or does not fit: the
/// gres indices as numbers of the node's GPUs, if they are reachable; else every
/// reachable GPU, which is the step's set where Slurm constrains devices.
fn fall_back(
    node: &Node,
    reachable: &[Slot],
    lists: &GpuLists,
    notes: &mut Vec<String>,
) -> Vec<Device> {
    let indices: Option<Vec<u32>> = lists
        .step_gpus
        .as_deref()
        .map(|list| names(list).map(|name| name.parse().ok()).collect())
        .unwrap_or_default();
    let constrained = reachable.len() < node.gpus.len() + node.unusable.len();
    if let Some(indices) = indices.filter(|indices| !indices.is_empty()) {
        if constrained && indices.len() == reachable.len() {
            notes.push("the step's devices: all reachable GPUs".to_owned());
            return healthy(reachable).collect();
        }
        let index = |device: &Device| node.gpu(*device).map(|gpu| gpu.index);
        let named = |device: &Device| index(device).is_some_and(|index| indices.contains(&index));
        let found: Vec<Device> = healthy(reachable).filter(named).collect();
        let unusable =
            node.unusable.iter().filter(|unusable| indices.contains(&unusable.index)).count();
        if found.len() + unusable == indices.len() {
            notes.push(
                "the step's devices: SLURM_STEP_GPUS as numbers of the node's GPUs".to_owned(),
            );
            return found;
        }
    }
    notes.push("the step's devices: all reachable GPUs, for want of a list that fits".to_owned());
    healthy(reachable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Gpu, Probed, UnusableGpu};

    fn node(gpus: usize) -> Node {
        let gpu = |index: usize| Gpu {
            index: index as u32,
            minor: Probed::Known(index as u32),
            uuid: Probed::Known(format!("GPU-{index}")),
            pci: format!("0000:{:02x}:00.0", index + 1).parse().unwrap(),
            name: Probed::Unsupported,
            cpus: Probed::Unsupported,
            numa: Probed::Unsupported,
            gpu_numa_id: Probed::Unsupported,
            mig_mode: Probed::Known(false),
            mig: vec![],
            persistence: Probed::Unsupported,
        };
        Node { gpus: (0..gpus).map(gpu).collect(), ..Node::default() }
    }

    fn lists(visible: Option<&str>, step_gpus: Option<&str>) -> GpuLists {
        GpuLists { visible: visible.map(str::to_owned), step_gpus: step_gpus.map(str::to_owned) }
    }

    fn reach(reachable: &[usize]) -> Reach {
        Reach { gpus: (0..8).map(|gpu| reachable.contains(&gpu)).collect(), unusable: vec![] }
    }

    /// (GPU, ordinal) of each device.
    fn find(
        reachable: &[usize],
        visible: Option<&str>,
        step_gpus: Option<&str>,
    ) -> Vec<(usize, u32)> {
        let found = Allocation::find(&node(8), &reach(reachable), &lists(visible, step_gpus));
        found
            .entries
            .iter()
            .map(|entry| (entry.device.unwrap().gpu, entry.ordinal.unwrap()))
            .collect()
    }

    const ALL: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

    #[test]
    fn half_a_node_is_found_with_and_without_constraint() {
        let constrained = find(&[4, 5, 6, 7], Some("0,1,2,3"), Some("4,5,6,7"));
        assert_eq!(constrained, [(4, 0), (5, 1), (6, 2), (7, 3)]);
        let open = find(&ALL, Some("4,5,6,7"), Some("4,5,6,7"));
        assert_eq!(open, [(4, 4), (5, 5), (6, 6), (7, 7)]);
    }

    #[test]
    fn gaps_are_found_with_and_without_constraint() {
        assert_eq!(find(&[0, 2, 3], Some("0,1,2"), Some("0,2,3")), [(0, 0), (2, 1), (3, 2)]);
        assert_eq!(find(&ALL, Some("0,2,3"), Some("0,2,3")), [(0, 0), (2, 2), (3, 3)]);
    }

    #[test]
    fn uuids_name_the_device_whatever_is_reachable() {
        assert_eq!(find(&[4, 6], Some("GPU-6,GPU-4"), None), [(4, 0), (6, 1)]);
    }

    #[test]
    fn without_a_fitting_list_the_fallbacks_follow_and_are_told() {
        assert_eq!(find(&[4, 5], None, Some("4,5")), [(4, 0), (5, 1)]);
        assert_eq!(find(&ALL, None, Some("4,5")), [(4, 4), (5, 5)]);
        assert_eq!(find(&[4, 5], Some("7"), Some("0")), [(4, 0), (5, 1)]);
        let found = Allocation::find(&node(8), &reach(&[4, 5]), &lists(Some("7"), Some("0")));
        assert!(
            found.notes[0].contains("no device `7` among 2 reachable GPUs"),
            "{:?}",
            found.notes
        );
        assert_eq!(find(&ALL, None, None).len(), 8);
        assert_eq!(find(&ALL, None, Some("")).len(), 8);
    }

    #[test]
    fn a_task_that_slurm_has_narrowed_is_told_from_a_partial_node() {
        let narrowed = |reachable: &[usize], visible, step_gpus| {
            let lists = lists(Some(visible), Some(step_gpus));
            Allocation::find(&node(8), &reach(reachable), &lists).narrowed
        };
        assert_eq!(narrowed(&[5], "0,1,2,3", "4,5,6,7"), Some((1, 4)));
        assert_eq!(narrowed(&[4, 5, 6, 7], "0,1,2,3", "4,5,6,7"), None);
        assert_eq!(narrowed(&[5], "MIG-a,MIG-b", "5,6"), None, "instances of one GPU");
        assert_eq!(narrowed(&ALL, "4,5,6,7", "4,5,6,7"), None);
    }

    #[test]
    fn a_device_that_is_named_twice_counts_once_and_order_is_pci_order() {
        assert_eq!(find(&ALL, Some("5,3,5"), None), [(3, 3), (5, 5)]);
    }

    #[test]
    fn mig_instances_are_found_in_each_spelling() {
        let mut node = node(2);
        let instance =
            |gi, ci| MigInstance { gi, ci, uuid: format!("MIG-{gi}{ci}"), profile: None };
        node.gpus[1].mig = vec![instance(1, 0), instance(2, 0)];
        for name in ["MIG-20", "MIG-GPU-1/2/0", "MIG-1/2/0"] {
            let found = Allocation::find(&node, &Reach::default(), &lists(Some(name), None));
            assert_eq!(found.devices(), [Device { gpu: 1, mig: Some(1) }], "{name}");
            assert_eq!(found.entries[0].ordinal, None);
            assert_eq!(found.entries[0].uuid.as_deref(), Some("MIG-20"));
        }
    }

    #[test]
    fn devices_that_the_site_keeps_back_are_taken_out_by_address_or_uuid() {
        let mut machine = node(4);
        let instance = |gi| MigInstance { gi, ci: 0, uuid: format!("MIG-{gi}"), profile: None };
        machine.gpus[3].mig = vec![instance(1), instance(2)];
        let pci = |text: &str| DeviceName::Pci(text.parse().unwrap());
        let uuid = |text: &str| DeviceName::Uuid(text.to_owned());
        let left = |visible, names: &[DeviceName]| {
            let found = Allocation::find(&machine, &reach(&ALL), &lists(Some(visible), None));
            let found = found.without(names, Some(&machine));
            let uuids = found.entries.iter().map(|entry| entry.uuid.clone().unwrap());
            (uuids.collect::<Vec<_>>().join(" "), found.excluded)
        };
        let left_of = |names: &[DeviceName]| left("0,1,2", names);
        assert_eq!(left_of(&[]), ("GPU-0 GPU-1 GPU-2".to_owned(), 0));
        // The first GPU's bus is 1.
        assert_eq!(left_of(&[pci("0000:02:00.0")]), ("GPU-0 GPU-2".to_owned(), 1));
        assert_eq!(left_of(&[uuid("GPU-2"), pci("9:00.0")]), ("GPU-0 GPU-1".to_owned(), 1));
        assert_eq!(left("MIG-1,MIG-2", &[uuid("MIG-2")]), ("MIG-1".to_owned(), 1));
        for whole in [uuid("GPU-3"), pci("4:00.0")] {
            assert_eq!(left("MIG-1,MIG-2", &[whole]), (String::new(), 2), "its instances, too");
        }
        // On an unknown node only a name can be compared.
        let unknown = Allocation::unknown(&lists(Some("0,GPU-1"), None));
        let unknown = unknown.without(&[uuid("GPU-1"), pci("1:00.0")], None);
        assert_eq!((unknown.entries.len(), unknown.excluded), (1, 1));
        assert_eq!(unknown.entries[0].ordinal, Some(0));
    }

    #[test]
    fn a_sick_gpu_keeps_its_number_and_takes_the_others_away() {
        let mut node = node(8);
        node.gpus.remove(2);
        node.unusable = vec![UnusableGpu { index: 2, pci: None, minor: Some(2), code: 15 }];
        let find = |visible, step_gpus, may: &dyn Fn(u32) -> bool| {
            let reach = Reach {
                gpus: node.gpus.iter().map(|gpu| may(gpu.index)).collect(),
                unusable: vec![may(2)],
            };
            let found = Allocation::find(&node, &reach, &lists(visible, step_gpus));
            assert_eq!(found.narrowed, None);
            let index = |entry: &Entry| node.gpu(entry.device.unwrap()).unwrap().index;
            let named = |entry: &Entry| (index(entry), entry.ordinal);
            found.entries.iter().map(named).collect::<Vec<_>>()
        };
        let all = |_| true;
        let upper = Some("4,5,6,7");
        assert_eq!(find(upper, upper, &all), [(4, None), (5, None), (6, None), (7, None)]);
        assert_eq!(find(Some("1,2,3"), Some("1,2,3"), &all), [(1, None), (3, None)]);
        assert_eq!(find(None, Some("1,2,3"), &all), [(1, None), (3, None)]);
        // Out of reach, it is not counted by anyone.
        let lower = Some("0,1,2,3");
        let only_upper = |index| index >= 4;
        let found = find(lower, upper, &only_upper);
        assert_eq!(found, [(4, Some(0)), (5, Some(1)), (6, Some(2)), (7, Some(3))]);
    }

    #[test]
    fn an_unknown_node_keeps_slurms_own_list() {
        let found = Allocation::unknown(&lists(Some("4,5,4"), Some("0,1")));
        let ordinals: Vec<_> = found.entries.iter().map(|entry| entry.ordinal).collect();
        assert_eq!(ordinals, [Some(4), Some(5)]);
        let found = Allocation::unknown(&lists(Some("GPU-a"), None));
        assert_eq!(found.entries[0].uuid.as_deref(), Some("GPU-a"));
    }
}
