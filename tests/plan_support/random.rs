//! Steps on random machines.

use gpubind_core::node::{Device, IdSet, Link, Node, NumaNode, Probed};
use proptest::prelude::*;

use super::{all_devices, gpu};

/// A machine, devices of it, and tasks: mostly odd ones.
#[derive(Debug, Clone)]
pub struct Case {
    pub node: Node,
    pub devices: Vec<Device>,
    pub tasks: Vec<IdSet>,
}

fn any_link() -> impl Strategy<Value = Link> {
    prop_oneof![
        2 => Just(Link::Sys), 2 => Just(Link::Pix), 2 => Just(Link::NvLink(4)),
        1 => Just(Link::Node), 1 => Just(Link::Phb), 1 => Just(Link::Pxb),
        1 => Just(Link::NvLink(1)), 1 => Just(Link::NvLink(12)), 1 => Just(Link::Unknown),
    ]
}

/// CPUs of some whole NUMA nodes (4 CPUs each), or any CPUs, one of them nowhere.
fn any_cpus(nodes: usize) -> impl Strategy<Value = IdSet> {
    let whole = prop::collection::vec(0..nodes, 0..3);
    let whole = whole.prop_map(|nodes| nodes.iter().flat_map(|n| n * 4..n * 4 + 4).collect());
    let single = prop::collection::vec(0..nodes * 4 + 1, 0..6);
    prop_oneof![4 => whole, 1 => single.prop_map(|cpus| cpus.into_iter().collect())]
}

fn any_fact<T: Clone + std::fmt::Debug>(
    known: impl Strategy<Value = T>,
) -> impl Strategy<Value = Probed<T>> {
    (known, prop_oneof![6 => Just(true), 1 => Just(false)])
        .prop_map(|(value, known)| if known { Probed::Known(value) } else { Probed::Failed(999) })
}

fn any_numa(nodes: usize) -> impl Strategy<Value = Vec<NumaNode>> {
    let distances = prop_oneof![
        1 => Just(Vec::new()),
        4 => prop::collection::vec(prop_oneof![Just(12u32), Just(16), Just(32)], nodes * nodes),
    ];
    (distances, prop::collection::vec(prop::bool::weighted(0.2), nodes)).prop_map(
        move |(distances, memory)| {
            let row = |id: usize| -> Vec<u32> {
                let mut row: Vec<u32> =
                    distances.chunks(nodes).nth(id).map(<[u32]>::to_vec).unwrap_or_default();
                row.iter_mut().skip(id).take(1).for_each(|own| *own = 10);
                row
            };
            let one = |id: usize| NumaNode {
                id: 2 * id as u32,
                cpus: if memory[id] { IdSet::default() } else { (id * 4..id * 4 + 4).collect() },
                distance: row(id),
            };
            (0..nodes).map(one).collect()
        },
    )
}

/// Any step with so many tasks and devices. The affinities are known for no, some
/// or all GPUs; the link matrix may be asymmetric.
pub fn any_case(
    tasks: std::ops::RangeInclusive<usize>,
    devices: std::ops::RangeInclusive<usize>,
) -> impl Strategy<Value = Case> {
    let sizes = (1usize..=4, devices.clone(), 0u32..3, tasks, prop::bool::weighted(0.1));
    sizes.prop_flat_map(move |(nodes, gpus, instances, tasks, blind)| {
        let one_gpu = (
            any_fact(any_cpus(nodes)),
            any_fact(prop::collection::vec(0..nodes as u32, 0..3)),
            any_link(),
        );
        let links = prop::collection::vec(any_link(), gpus * gpus);
        let most = *devices.end();
        (
            any_numa(nodes),
            prop::collection::vec(one_gpu, gpus),
            links,
            prop::collection::vec(any_cpus(nodes), tasks),
            any::<prop::sample::Index>(),
            prop::bool::weighted(0.7),
        )
            .prop_map(move |(numa, gpus, links, tasks, skip, symmetric)| {
                let count = gpus.len();
                let mut node = Node { numa, ..Node::default() };
                for (index, (cpus, ids, _)) in gpus.into_iter().enumerate() {
                    let cpus = if blind { Probed::Unsupported } else { cpus };
                    let ids = ids.map(|ids| ids.into_iter().map(|id| 2 * id).collect());
                    let instances = if index % 2 == 0 { instances } else { 0 };
                    node.gpus.push(gpu(index, cpus, ids, instances));
                }
                node.links = (0..count)
                    .map(|a| {
                        let cell = |b: usize| match (a, b) {
                            _ if a == b => Link::Same,
                            _ if symmetric => links[a.min(b) * count + a.max(b)],
                            _ => links[a * count + b],
                        };
                        (0..count).map(cell).collect()
                    })
                    .collect();
                let mut devices = all_devices(&node);
                while devices.len() > most {
                    devices.remove(skip.index(devices.len()));
                }
                Case { node, devices, tasks }
            })
    })
}
