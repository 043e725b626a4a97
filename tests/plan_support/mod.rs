//! What the tests of the plan share: machines built by hand (here) or at random
//! (`random`), and the cost and the best plan by the letter of their definition,
//! CPU by CPU and list by list (`definition`).
#![allow(dead_code, missing_docs, unused_imports, clippy::unwrap_used)]

use gpubind_core::node::{Device, Gpu, IdSet, MigInstance, Node, NumaNode, PciAddress, Probed};
use gpubind_machine::Machine;

mod definition;
mod random;

pub use definition::{Tables, slots};
pub use random::{Case, any_case};

/// A machine from what `nvidia-smi topo -m` shows: a row of links, the local
/// CPUs and the NUMA node of each GPU; and the CPUs of each NUMA node.
pub fn machine(numa: &[&str], gpus: &[(&str, &str, u32)]) -> Node {
    let nodes = numa.len();
    Node {
        gpus: gpus
            .iter()
            .enumerate()
            .map(|(index, (_, cpus, numa))| {
                gpu(index, Probed::Known(cpus.parse().unwrap()), Probed::Known(vec![*numa]), 0)
            })
            .collect(),
        links: gpus
            .iter()
            .map(|(links, ..)| links.split_whitespace().map(|cell| cell.parse().unwrap()).collect())
            .collect(),
        numa: (0..nodes)
            .map(|id| NumaNode {
                id: id as u32,
                cpus: numa[id].parse().unwrap(),
                distance: (0..nodes).map(|to| if to == id { 10 } else { 12 }).collect(),
            })
            .collect(),
        ..Node::default()
    }
}

pub fn gpu(index: usize, cpus: Probed<IdSet>, numa: Probed<Vec<u32>>, instances: u32) -> Gpu {
    Gpu {
        index: index as u32,
        minor: Probed::Known(index as u32),
        uuid: Probed::Known(format!("GPU-{index}")),
        pci: PciAddress { domain: 0, bus: index as u8, device: 0, function: 0 },
        name: Probed::Unsupported,
        cpus,
        numa,
        gpu_numa_id: Probed::Unsupported,
        mig_mode: Probed::Known(instances > 0),
        mig: (0..instances)
            .map(|gi| MigInstance { gi, ci: 0, uuid: format!("MIG-{index}-{gi}"), profile: None })
            .collect(),
        persistence: Probed::Unsupported,
    }
}

/// All that a step can own on a machine: MIG instances, and GPUs without any.
pub fn all_devices(node: &Node) -> Vec<Device> {
    let one = |(gpu, model): (usize, &Gpu)| -> Vec<Device> {
        match model.mig.len() {
            0 => vec![Device { gpu, mig: None }],
            count => (0..count).map(|mig| Device { gpu, mig: Some(mig) }).collect(),
        }
    };
    node.gpus.iter().enumerate().flat_map(one).collect()
}

/// The machines of tests/machines, by name.
pub fn machines() -> Vec<(String, Node)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/machines");
    let mut machines: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| Machine::parse(&std::fs::read_to_string(path).unwrap()).unwrap())
        .map(|machine| (machine.name.clone(), machine.to_node()))
        .collect();
    machines.sort_by(|a, b| a.0.cmp(&b.0));
    machines
}

/// The machine's CPUs in as many equal parts, NUMA node by NUMA node, as
/// `--distribution=block:block` deals them out.
pub fn block(node: &Node, tasks: usize) -> Vec<IdSet> {
    let cpus: Vec<usize> = node.numa.iter().flat_map(|numa| numa.cpus.iter()).collect();
    let each = (cpus.len() / tasks).max(1);
    let part = |task| cpus.iter().copied().cycle().skip(task * each).take(each).collect();
    (0..tasks).map(part).collect()
}

/// As [`block`], but the parts go to the NUMA nodes in turn, as
/// `--distribution=block:cyclic` deals them out.
pub fn cyclic(node: &Node, tasks: usize) -> Vec<IdSet> {
    let nodes: Vec<Vec<usize>> = node.numa.iter().map(|numa| numa.cpus.iter().collect()).collect();
    let nodes: Vec<&Vec<usize>> = nodes.iter().filter(|cpus| !cpus.is_empty()).collect();
    let part = |task: usize| -> IdSet {
        let cpus = nodes[task % nodes.len()];
        let each = (cpus.len() / tasks.div_ceil(nodes.len())).max(1);
        cpus.iter().copied().cycle().skip(task / nodes.len() * each).take(each).collect()
    };
    (0..tasks).map(part).collect()
}

pub fn cpus(sets: &[&str]) -> Vec<IdSet> {
    sets.iter().map(|set| set.parse().unwrap()).collect()
}
