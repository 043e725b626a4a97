//! Which devices the step owns on this node.
//!
//! Four numbering systems meet here: Slurm's gres index, the N of /dev/nvidiaN,
//! NVML's index in PCI order, and CUDA's index among the devices that a process
//! can reach. Where the snapshot knows which device file has which gres index,
//! SLURM_STEP_GPUS names the devices. Elsewhere one rule is right with
//! ConstrainDevices on and off, for partial nodes and for gaps: the step-level
//! CUDA_VISIBLE_DEVICES holds integers that count the reachable GPUs in PCI order,
//! or UUIDs.

use crate::node::{Device, Node};
use crate::site::DeviceName;

use super::Reach;
use super::slots::{Named, Slot, by_name, by_uuid, names, open, position, slots};

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
    /// CUDA_DEVICE_ORDER=PCI_BUS_ID. None for a MIG instance, beside an unusable
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
    /// Devices of the step that no rank can be given, in words: NVML cannot use or
    /// does not list them.
    pub lost: Vec<String>,
    /// How many of the step's devices have no device file where the process runs.
    pub not_in_container: usize,
    /// How many of the step's devices the site keeps from all ranks.
    pub excluded: usize,
    /// Why the entries are those of Slurm's list, whatever devices they are.
    pub list_only: Option<String>,
    /// Why Slurm's list cannot be shared out at all.
    pub uncountable: Option<String>,
}

impl Allocation {
    /// Finds the step's devices on a known node. `slurm_binds` is whether Slurm itself
    /// may have given the task some of them only.
    pub fn find(node: &Node, reach: &Reach, lists: &GpuLists, slurm_binds: bool) -> Allocation {
        let slots = slots(node, reach);
        let visible: Vec<&str> = names(lists.visible.as_deref().unwrap_or_default()).collect();
        let numbers: Option<Vec<usize>> = visible.iter().map(|name| name.parse().ok()).collect();
        let step = lists.step_gpus.as_deref().map_or(visible.len(), |list| names(list).count());
        let reachable = open(&slots).count();
        let is_denied = slots.iter().any(Slot::is_denied);
        if slurm_binds && is_denied && reachable < step && !names_mig(&visible) {
            let devices = open(&slots).filter_map(Slot::device).collect();
            let narrowed = Some((reachable, step));
            return Allocation { narrowed, ..Allocation::of(node, reach, devices) };
        }
        let found = match numbers {
            Some(numbers) if open(&slots).any(|slot| slot.counts_instances(node)) => {
                return Allocation::uncountable(&numbers);
            }
            Some(numbers) => {
                let by_gres = by_gres_index(node, &slots, lists);
                by_gres.unwrap_or_else(|| by_number(node, &slots, &numbers, lists))
            }
            None => visible.iter().map(|name| by_name(node, &slots, name)).collect(),
        };
        Allocation::from_named(node, reach, lists, &slots, found)
    }

    fn from_named(
        node: &Node,
        reach: &Reach,
        lists: &GpuLists,
        slots: &[Slot],
        found: Vec<Named>,
    ) -> Allocation {
        let mut devices = Vec::new();
        let mut lost = Vec::new();
        let mut not_in_container = 0;
        for named in found {
            match named {
                Named::Device(device, slot) if slot.is_open() => devices.push(device),
                Named::Device(_, slot) if slot.is_missing() => not_in_container += 1,
                Named::NotInContainer => not_in_container += 1,
                // It belongs to another step, whatever the list says.
                Named::Device(..) => {}
                Named::Unusable(name) | Named::Unknown(name) => lost.push(name),
            }
        }
        lost.sort_unstable();
        lost.dedup();
        if devices.is_empty() && not_in_container == 0 {
            let reason = list_only_reason(lists, slots, &lost);
            return Allocation { lost, list_only: Some(reason), ..Allocation::unknown(lists) };
        }
        Allocation { lost, not_in_container, ..Allocation::of(node, reach, devices) }
    }

    fn uncountable(numbers: &[usize]) -> Allocation {
        let list: Vec<String> = numbers.iter().map(usize::to_string).collect();
        let reason = format!(
            "CUDA_VISIBLE_DEVICES={} does not say which MIG instances the step has; gres.conf \
             with AutoDetect=nvml makes Slurm name them by UUID",
            list.join(",")
        );
        Allocation { uncountable: Some(reason), ..Allocation::default() }
    }

    /// An allocation of these devices, each once.
    pub fn of(node: &Node, reach: &Reach, mut devices: Vec<Device>) -> Allocation {
        devices.sort_unstable();
        devices.dedup();
        Allocation::listed(node, reach, devices)
    }

    /// An allocation of these devices in this very order, each once.
    pub fn listed(node: &Node, reach: &Reach, devices: Vec<Device>) -> Allocation {
        let slots: Vec<Slot> = open(&slots(node, reach)).copied().collect();
        // Whether CUDA counts an unusable GPU is not known, and with MIG it counts
        // instances; beside either there are no numbers that can be trusted.
        let countable = slots.iter().all(|slot| slot.is_whole_gpu(node));
        let entries = devices
            .into_iter()
            .map(|device| Entry {
                device: Some(device),
                ordinal: match device.mig {
                    None if countable => position(&slots, device.gpu),
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
        let all = slots(node, reach);
        let slots: Vec<Slot> = open(&all).copied().collect();
        let Some(visible) = visible else {
            return slots.iter().filter_map(Slot::device).collect();
        };
        let named = |name: &str| match name.parse::<usize>() {
            Ok(ordinal) => slots.get(ordinal)?.device(),
            Err(_) => match by_uuid(node, &all, name) {
                Named::Device(device, _) => Some(device),
                Named::Unusable(_) | Named::Unknown(_) | Named::NotInContainer => None,
            },
        };
        names(visible).map_while(named).collect()
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
    /// that is not known, only those can be recognised that both sides name by UUID.
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

/// Whether any entry is a MIG instance, as far as its text says. gres counts instances
/// one by one.
fn names_mig(visible: &[&str]) -> bool {
    visible.iter().any(|name| name.starts_with("MIG-"))
}

/// The devices by SLURM_STEP_GPUS, where the order of Slurm's GPUs is known; `None`
/// where the two do not fit together.
fn by_gres_index(node: &Node, slots: &[Slot], lists: &GpuLists) -> Option<Vec<Named>> {
    let minors = node.gres_minors.as_ref()?;
    let indices = names(lists.step_gpus.as_deref()?).map(|name| name.parse::<usize>().ok());
    let minor = |index: Option<usize>| minors.get(index?).copied();
    let step: Option<Vec<u32>> = indices.map(minor).collect();
    let named = |minor: &u32| {
        let slot = slots.iter().find(|slot| slot.minor(node) == Some(*minor));
        slot.map_or_else(|| Named::Unknown(format!("/dev/nvidia{minor}")), |slot| slot.named(node))
    };
    let named: Vec<Named> = step?.iter().map(named).collect();
    let is_open = |named: &Named| matches!(named, Named::Device(_, slot) if slot.is_open());
    // A description of another gres.conf would name other steps' devices.
    let fits = named.iter().any(is_open) || !slots.iter().any(Slot::is_open);
    fits.then_some(named)
}

/// The devices by the integers of CUDA_VISIBLE_DEVICES.
fn by_number(node: &Node, slots: &[Slot], numbers: &[usize], lists: &GpuLists) -> Vec<Named> {
    let indices: Option<Vec<usize>> =
        lists.step_gpus.as_deref().map(|list| names(list).filter_map(|n| n.parse().ok()).collect());
    // Where devices are constrained the integers count the step's own from 0 and
    // differ from SLURM_STEP_GPUS, but for a step that has the first ones.
    let is_constrained = slots.iter().any(Slot::is_denied)
        || indices.is_some_and(|indices| !indices.is_empty() && indices != numbers);
    if is_constrained {
        let mut reachable: Vec<Named> = open(slots).map(|slot| slot.named(node)).collect();
        // A GPU that gres.conf does not list is open to all steps.
        reachable.truncate(numbers.len());
        let others = numbers.len().saturating_sub(reachable.len());
        let is_container = slots.iter().any(Slot::is_missing);
        let other = |_| match is_container {
            true => Named::NotInContainer,
            false => Named::Unknown("a GPU that NVML does not list".to_owned()),
        };
        return reachable.into_iter().chain((0..others).map(other)).collect();
    }
    let named = |number: &usize| match slots.get(*number) {
        Some(slot) => slot.named(node),
        None => Named::Unknown(format!("number {number} of Slurm's list")),
    };
    numbers.iter().map(named).collect()
}

fn list_only_reason(lists: &GpuLists, slots: &[Slot], lost: &[String]) -> String {
    if !slots.is_empty() && !lost.is_empty() && lost.iter().all(|name| name.starts_with("GPU ")) {
        return format!("none of the step's GPUs can be used: {}", lost.join(", "));
    }
    let list = lists.visible.as_deref().unwrap_or_default();
    let count = crate::words::count(slots.len(), "GPU");
    format!("CUDA_VISIBLE_DEVICES={list} names none of the {count} that NVML lists")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Gpu, MigInstance, Probed, UnusableGpu};
    use crate::step::Access;

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

    fn access(open: bool) -> Access {
        if open { Access::Open } else { Access::Denied }
    }

    fn reach(reachable: &[usize]) -> Reach {
        Reach {
            gpus: (0..8).map(|gpu| access(reachable.contains(&gpu))).collect(),
            unusable: vec![],
        }
    }

    /// (GPU, ordinal) of each device.
    fn find(
        reachable: &[usize],
        visible: Option<&str>,
        step_gpus: Option<&str>,
    ) -> Vec<(usize, u32)> {
        let found =
            Allocation::find(&node(8), &reach(reachable), &lists(visible, step_gpus), false);
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
    fn a_list_that_names_no_gpu_of_the_node_is_kept_as_it_is() {
        let found = |visible, step_gpus, reachable: &[usize]| {
            let lists = lists(Some(visible), Some(step_gpus));
            Allocation::find(&node(8), &reach(reachable), &lists, false)
        };
        // A ninth device file, whose GPU NVML does not know; no other step's may be given.
        let kept = found("8", "8", &ALL);
        assert_eq!((kept.entries.len(), kept.entries[0].ordinal), (1, Some(8)));
        assert_eq!((kept.entries[0].device, kept.lost.len()), (None, 1));
        let reason = kept.list_only.unwrap();
        assert!(reason.contains("CUDA_VISIBLE_DEVICES=8 names none of the 8 GPUs"), "{reason}");
        // What fits is given, and the rest is named.
        let some = found("7,8", "7,8", &ALL);
        assert_eq!((some.devices().len(), some.list_only), (1, None));
        assert_eq!(some.lost, ["number 8 of Slurm's list"]);
        // Where devices are constrained, what can be reached is the step's.
        let constrained = found("0,1,2", "5,6,8", &[5, 6]);
        assert_eq!((constrained.devices().len(), constrained.list_only), (2, None));
        assert_eq!(constrained.lost, ["a GPU that NVML does not list"]);
    }

    #[test]
    fn a_container_gives_what_it_has_in_its_own_numbers() {
        let reach = |there: &[usize], open: &[usize]| Reach {
            gpus: (0..8)
                .map(|gpu| match (there.contains(&gpu), open.contains(&gpu)) {
                    (false, _) => Access::Missing,
                    (true, open) => access(open),
                })
                .collect(),
            unusable: vec![],
        };
        let find = |visible, step_gpus, reach: &Reach| {
            let lists = lists(Some(visible), Some(step_gpus));
            let found = Allocation::find(&node(8), reach, &lists, false);
            let entries = found.entries.iter().map(|it| (it.device.unwrap().gpu, it.ordinal));
            (entries.collect::<Vec<_>>(), found.not_in_container)
        };
        let there = reach(&[5, 6], &ALL);
        assert_eq!(find("4,5,6,7", "4,5,6,7", &there), (vec![(5, Some(0)), (6, Some(1))], 2));
        // Another step's device is in the container, too.
        let more = reach(&[2, 5, 6], &ALL);
        assert_eq!(find("4,5,6,7", "4,5,6,7", &more).0, [(5, Some(1)), (6, Some(2))]);
        let constrained = reach(&[2, 5, 6], &[4, 5, 6, 7]);
        let found = find("0,1,2,3", "4,5,6,7", &constrained);
        assert_eq!(found, (vec![(5, Some(0)), (6, Some(1))], 2));
        assert_eq!(find("0,1", "0,1", &reach(&[], &ALL)), (vec![], 2));
    }

    #[test]
    fn slurms_order_counts_where_it_is_known() {
        let mut machine = node(4);
        let find = |machine: &Node, visible, step_gpus, reachable: &[usize]| {
            let lists = lists(Some(visible), Some(step_gpus));
            let found = Allocation::find(machine, &reach(reachable), &lists, false);
            (found.devices().iter().map(|device| device.gpu).collect::<Vec<_>>(), found.lost)
        };
        // GPU 0 is left out of gres.conf.
        machine.gres_minors = Some(vec![1, 2, 3]);
        assert_eq!(find(&machine, "0,1", "0,1", &ALL).0, [1, 2]);
        assert_eq!(find(&machine, "0", "2", &[0, 3]).0, [3]);
        // gres.conf lists the files backwards, and one that is gone.
        machine.gres_minors = Some(vec![4, 3, 2, 1, 0]);
        let (devices, lost) = find(&machine, "0,1", "0,1", &ALL);
        assert_eq!((devices, lost), (vec![3], vec!["/dev/nvidia4".to_owned()]));
    }

    #[test]
    fn numbers_say_nothing_where_cuda_counts_instances() {
        let mut machine = node(2);
        machine.gpus[1].mig_mode = Probed::Known(true);
        let find = |visible, reachable: &[usize]| {
            let lists = lists(Some(visible), Some(visible));
            Allocation::find(&machine, &reach(reachable), &lists, false)
        };
        assert!(find("0", &[0, 1]).uncountable.is_some());
        assert_eq!(find("0", &[0]).devices().len(), 1, "the other GPU is out of reach");
    }

    #[test]
    fn a_task_that_slurm_has_narrowed_is_told_from_a_partial_node() {
        let narrowed = |reachable: &[usize], visible, step_gpus| {
            let lists = lists(Some(visible), Some(step_gpus));
            Allocation::find(&node(8), &reach(reachable), &lists, true).narrowed
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
            let found = Allocation::find(&node, &Reach::default(), &lists(Some(name), None), false);
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
            let found =
                Allocation::find(&machine, &reach(&ALL), &lists(Some(visible), None), false);
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
                gpus: node.gpus.iter().map(|gpu| access(may(gpu.index))).collect(),
                unusable: vec![access(may(2))],
            };
            let found = Allocation::find(&node, &reach, &lists(visible, step_gpus), false);
            assert_eq!(found.narrowed, None);
            let index = |entry: &Entry| node.gpu(entry.device.unwrap()).unwrap().index;
            let named = |entry: &Entry| (index(entry), entry.ordinal);
            found.entries.iter().map(named).collect::<Vec<_>>()
        };
        let all = |_| true;
        let upper = Some("4,5,6,7");
        assert_eq!(find(upper, upper, &all), [(4, None), (5, None), (6, None), (7, None)]);
        assert_eq!(find(Some("1,2,3"), Some("1,2,3"), &all), [(1, None), (3, None)]);
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
