//! The cost and the best plan by the letter of their definition.

use gpubind_core::node::{Device, IdSet, Node, Probed};
use gpubind_core::plan::{Cost, Shape};

/// The CPU set of each slot.
pub fn slots(tasks: &[IdSet], devices: usize, shape: Shape) -> Vec<IdSet> {
    let share = match shape {
        Shape::Auto if tasks.len() < devices => devices / tasks.len(),
        _ => 1,
    };
    tasks.iter().flat_map(|task| std::iter::repeat_n(task.clone(), share)).collect()
}

fn distance(node: &Node, devices: &[Device], device: usize, cpu: usize) -> u64 {
    if devices.iter().all(|device| node.gpus[device.gpu].cpus.known().is_none()) {
        return 10;
    }
    let gpu = &node.gpus[devices[device].gpu];
    match gpu.cpus.known() {
        None => return 20,
        Some(local) if local.contains(cpu) => return 10,
        Some(_) => {}
    }
    let Some(home) = node.numa_of_cpu(cpu) else { return 20 };
    let mut best = None;
    for (position, numa) in node.numa.iter().enumerate() {
        let near = gpu.numa.known().is_some_and(|ids| ids.contains(&numa.id));
        if near && !numa.cpus.is_empty() {
            if let Some(&there) = home.distance.get(position) {
                best = Some(best.unwrap_or(u64::MAX).min(u64::from(there)));
            }
        }
    }
    best.unwrap_or(20)
}

/// The `numa` cost of each slot on each device.
pub fn numa_table(node: &Node, devices: &[Device], slots: &[IdSet]) -> Vec<Vec<u64>> {
    let cell = |cpus: &IdSet, device: usize| {
        let sum: u64 = cpus.iter().map(|cpu| distance(node, devices, device, cpu) - 10).sum();
        (1000 * sum).checked_div(cpus.count() as u64).unwrap_or(0)
    };
    slots.iter().map(|cpus| (0..devices.len()).map(|device| cell(cpus, device)).collect()).collect()
}

fn hop(node: &Node, a: Device, b: Device) -> u64 {
    if a.gpu == b.gpu {
        return 0;
    }
    node.links[a.gpu][b.gpu].hop().max(node.links[b.gpu][a.gpu].hop())
}

/// The hop between each two devices.
pub fn hop_table(node: &Node, devices: &[Device]) -> Vec<Vec<u64>> {
    devices.iter().map(|&a| devices.iter().map(|&b| hop(node, a, b)).collect()).collect()
}

/// Both tables of a step.
pub struct Tables {
    pub numa: Vec<Vec<u64>>,
    pub hop: Vec<Vec<u64>>,
}

impl Tables {
    pub fn new(node: &Node, devices: &[Device], slots: &[IdSet]) -> Tables {
        Tables { numa: numa_table(node, devices, slots), hop: hop_table(node, devices) }
    }

    pub fn cost(&self, list: &[usize]) -> Cost {
        let numa = list.iter().enumerate().map(|(slot, &device)| self.numa[slot][device]).sum();
        let mut links = 0;
        for j in 0..list.len() {
            for i in 0..j {
                links += (5040 / (j - i)) as u64 * self.hop[list[i]][list[j]];
            }
        }
        Cost { numa, links }
    }

    pub fn naive(&self) -> Vec<usize> {
        (0..self.numa.len()).map(|slot| slot % self.hop.len()).collect()
    }

    /// The best list, by looking at all of them, the smallest first.
    pub fn best(&self) -> (Cost, Vec<usize>) {
        let mut load = vec![0; self.hop.len()];
        let mut best = None;
        self.look(&mut Vec::new(), Cost::default(), &mut load, &mut best);
        best.unwrap()
    }

    fn look(
        &self,
        list: &mut Vec<usize>,
        cost: Cost,
        load: &mut Vec<usize>,
        best: &mut Option<(Cost, Vec<usize>)>,
    ) {
        let (slots, devices) = (self.numa.len(), self.hop.len());
        if list.len() == slots {
            let balanced = load.iter().all(|&load| load >= slots / devices);
            if balanced && best.as_ref().is_none_or(|best| (cost, &*list) < (best.0, &best.1)) {
                *best = Some((cost, list.clone()));
            }
            return;
        }
        let slot = list.len();
        for device in 0..devices {
            if load[device] == slots.div_ceil(devices) {
                continue;
            }
            let mut next = cost;
            next.numa += self.numa[slot][device];
            for (other, &there) in list.iter().enumerate() {
                next.links += (5040 / (slot - other)) as u64 * self.hop[there][device];
            }
            // Costs only grow: what is already dearer than the best stays so.
            if best.as_ref().is_some_and(|best| next > best.0) {
                continue;
            }
            list.push(device);
            load[device] += 1;
            self.look(list, next, load, best);
            load[device] -= 1;
            list.pop();
        }
    }
}
