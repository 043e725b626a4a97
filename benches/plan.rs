//! How long a plan takes, on one core: `cargo bench --bench plan`.
//!
//! | bench | aim |
//! |---|---|
//! | `eight_on_eight` | under 100 µs on the worst machine of tests/machines |
//! | `sixteen_on_sixteen` | under 1 ms |
//! | `tasks_128_on_eight` | under 5 ms |
//! | `tasks_512_on_eight` | under 5 ms |
//! | `mig_56_on_56` | under 20 ms |
#![allow(missing_docs, clippy::unwrap_used)]

use std::fmt;

use divan::{Bencher, black_box};
use gpubind_core::node::{Device, IdSet, MigInstance, Node};
use gpubind_core::plan::{Shape, plan};
use gpubind_machine::Machine;

fn main() {
    divan::main();
}

/// How the tasks of a step lie on the CPUs.
#[derive(Clone, Copy)]
enum Tasks {
    /// As many neighbouring CPUs for each.
    Block,
    /// The CPUs dealt out one by one.
    Cyclic,
    /// All CPUs for each.
    Whole,
    /// Neighbouring CPUs, a different number for each.
    Uneven,
}

const TASKS: [Tasks; 4] = [Tasks::Block, Tasks::Cyclic, Tasks::Whole, Tasks::Uneven];

impl Tasks {
    fn sets(self, node: &Node, tasks: usize) -> Vec<IdSet> {
        let cpus: Vec<usize> = node.numa.iter().flat_map(|numa| numa.cpus.iter()).collect();
        let part = |task: usize| match self {
            Tasks::Block => {
                let each = (cpus.len() / tasks).max(1);
                cpus.iter().copied().cycle().skip(task * each).take(each).collect()
            }
            Tasks::Cyclic => cpus.iter().copied().skip(task % cpus.len()).step_by(tasks).collect(),
            Tasks::Whole => cpus.iter().copied().collect(),
            Tasks::Uneven => {
                let first = task * 7 % cpus.len();
                cpus.iter().copied().cycle().skip(first).take(1 + task * 5 % 24).collect()
            }
        };
        (0..tasks).map(part).collect()
    }
}

struct Step {
    name: String,
    node: Node,
    devices: Vec<Device>,
    tasks: Vec<IdSet>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn machines() -> Vec<(String, Node)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/machines");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    let read = |file: &std::path::PathBuf| {
        let machine = Machine::parse(&std::fs::read_to_string(file).unwrap()).unwrap();
        (machine.name.clone(), machine.to_node())
    };
    files.iter().map(read).collect()
}

/// Two machines in one: twice the GPUs and NUMA nodes, nothing but SYS between.
fn doubled(node: &Node) -> Node {
    let mut double = node.clone();
    let (gpus, numas) = (node.gpus.len(), node.numa.len() as u32);
    let cpus = node.numa.iter().flat_map(|numa| numa.cpus.iter()).max().unwrap_or(0) + 1;
    let shift = |set: &IdSet| -> IdSet { set.iter().map(|cpu| cpu + cpus).collect() };
    for gpu in &node.gpus {
        let mut gpu = gpu.clone();
        gpu.index += gpus as u32;
        gpu.cpus = gpu.cpus.map(|set| shift(&set));
        gpu.numa = gpu.numa.map(|ids| ids.iter().map(|id| id + numas).collect());
        double.gpus.push(gpu);
    }
    let far = gpubind_core::node::Link::Sys;
    for row in &mut double.links {
        row.extend(std::iter::repeat_n(far, gpus));
    }
    for row in &node.links {
        double.links.push(std::iter::repeat_n(far, gpus).chain(row.iter().copied()).collect());
    }
    for numa in &node.numa {
        let mut numa = numa.clone();
        numa.id += numas;
        numa.cpus = shift(&numa.cpus);
        numa.distance = std::iter::repeat_n(32, numas as usize).chain(numa.distance).collect();
        double.numa.push(numa);
    }
    for numa in &mut double.numa[..numas as usize] {
        numa.distance.extend(std::iter::repeat_n(32, numas as usize));
    }
    double
}

/// Every kind of tasks on every machine that has so many GPUs.
fn steps(gpus: usize, tasks: usize, change: impl Fn(&Node) -> Node) -> Vec<Step> {
    let mut steps = Vec::new();
    for (name, node) in machines().iter().filter(|(_, node)| node.gpus.len() == gpus) {
        let node = change(node);
        for (kind, of) in ["block", "cyclic", "whole", "uneven"].iter().zip(TASKS) {
            let devices = node.gpus.iter().enumerate().flat_map(|(gpu, model)| {
                let instances = model.mig.len();
                let one = move |mig: usize| Device { gpu, mig: (instances > 0).then_some(mig) };
                (0..instances.max(1)).map(one)
            });
            steps.push(Step {
                name: format!("{name} {kind}"),
                devices: devices.collect(),
                tasks: of.sets(&node, tasks),
                node: node.clone(),
            });
        }
    }
    steps
}

fn bench(bencher: Bencher, step: &Step) {
    bencher
        .bench(|| plan(black_box(&step.node), &step.devices, &step.tasks, Shape::Single).unwrap());
}

#[divan::bench(args = steps(8, 8, Node::clone))]
fn eight_on_eight(bencher: Bencher, step: &Step) {
    bench(bencher, step);
}

#[divan::bench(args = steps(8, 16, doubled).into_iter().chain(steps(16, 16, Node::clone)))]
fn sixteen_on_sixteen(bencher: Bencher, step: &Step) {
    bench(bencher, step);
}

#[divan::bench(args = steps(8, 128, Node::clone))]
fn tasks_128_on_eight(bencher: Bencher, step: &Step) {
    bench(bencher, step);
}

#[divan::bench(args = steps(8, 512, Node::clone))]
fn tasks_512_on_eight(bencher: Bencher, step: &Step) {
    bench(bencher, step);
}

#[divan::bench(args = steps(8, 56, |node| {
    let mut node = node.clone();
    for gpu in &mut node.gpus {
        gpu.mig = (0..7)
            .map(|gi| MigInstance { gi, ci: 0, uuid: format!("MIG-{gi}"), profile: None })
            .collect();
    }
    node
}))]
fn mig_56_on_56(bencher: Bencher, step: &Step) {
    bench(bencher, step);
}
