//! Beyond 8 tasks on 8 devices a plan is still as near as can be, and no small
//! change makes it better.
#![allow(clippy::unwrap_used)]

use gpubind_core::node::{Device, MigInstance, Node};
use gpubind_core::plan::{Shape, plan};
use pathfinding::prelude::{Matrix, kuhn_munkres_min};
use proptest::prelude::*;

mod plan_support;
use plan_support::{Case, Tables, all_devices, any_case, block, cyclic, machines, slots};

/// The smallest `numa` of all lists, by the Hungarian algorithm: a row for each
/// slot and a column for each place on a device. Rows of nobody take the places
/// that are left, but not those which each device must fill.
fn smallest_numa(tables: &Tables) -> u64 {
    let (slots, devices) = (tables.numa.len(), tables.hop.len());
    let (least, most) = (slots / devices, slots.div_ceil(devices));
    let never = 1 << 40;
    let cell = |row: usize, column: usize| -> i64 {
        let (device, place) = (column / most, column % most);
        match tables.numa.get(row) {
            Some(numa) => numa[device] as i64,
            None if place < least => never,
            None => 0,
        }
    };
    let size = devices * most;
    let cells = (0..size).map(|row| (0..size).map(|column| cell(row, column)).collect::<Vec<_>>());
    let matrix = Matrix::from_rows(cells).unwrap();
    u64::try_from(kuhn_munkres_min(&matrix).0).unwrap()
}

/// Links of one rank to all others, if it has this device.
fn links_of(tables: &Tables, list: &[usize], rank: usize, device: usize) -> u64 {
    let others = list.iter().enumerate().filter(|(other, _)| *other != rank);
    others
        .map(|(other, &there)| (5040 / rank.abs_diff(other)) as u64 * tables.hop[device][there])
        .sum()
}

/// Both costs of two ranks, the pair's own counted twice before and after.
fn cost_of(tables: &Tables, list: &[usize], a: usize, b: usize) -> (u64, u64) {
    let numa = |rank: usize| tables.numa[rank][list[rank]];
    let links = |rank: usize| links_of(tables, list, rank, list[rank]);
    (numa(a) + numa(b), links(a) + links(b))
}

fn check(case: &Case, shape: Shape) {
    let Case { node, devices, tasks } = case;
    let plan = plan(node, devices, tasks, shape).unwrap();
    let again = gpubind_core::plan::plan(node, devices, tasks, shape).unwrap();
    assert_eq!(plan, again);

    let tables = Tables::new(node, devices, &slots(tasks, devices.len(), shape));
    let mut list = plan.shares.list().to_vec();
    let mut load = vec![0; devices.len()];
    for &device in &list {
        load[device] += 1;
    }
    let (least, most) = (list.len() / devices.len(), list.len().div_ceil(devices.len()));
    assert!(load.iter().all(|load| (least..=most).contains(load)), "{load:?}");

    assert_eq!(plan.cost, tables.cost(&list));
    assert_eq!(plan.naive, tables.cost(&tables.naive()));
    assert_eq!(plan.cost.numa, smallest_numa(&tables));
    assert!(plan.cost <= plan.naive);

    for a in 0..list.len() {
        for b in a + 1..list.len() {
            let before = cost_of(&tables, &list, a, b);
            list.swap(a, b);
            assert!(cost_of(&tables, &list, a, b) >= before, "exchange {a} and {b}");
            list.swap(a, b);
        }
        for to in 0..devices.len() {
            let from = list[a];
            if load[to] < most && load[from] > least {
                let cost =
                    |device: usize| (tables.numa[a][device], links_of(&tables, &list, a, device));
                assert!(cost(to) >= cost(from), "move {a} to {to}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, ..ProptestConfig::default() })]

    #[test]
    fn no_small_change_makes_a_plan_better(case in any_case(9..=24, 3..=20)) {
        check(&case, Shape::Single);
    }

    #[test]
    fn no_small_change_makes_shares_better(case in any_case(1..=8, 9..=24)) {
        check(&case, Shape::Auto);
        check(&case, Shape::Single);
    }
}

/// Every GPU cut into seven MIG instances.
fn with_mig(mut node: Node) -> Node {
    for gpu in &mut node.gpus {
        gpu.mig = (0..7)
            .map(|gi| MigInstance { gi, ci: 0, uuid: format!("MIG-{gi}"), profile: None })
            .collect();
    }
    node
}

#[test]
fn real_machines_with_many_tasks_or_instances() {
    for (_, node) in machines() {
        let whole: Vec<Device> =
            (0..node.gpus.len()).map(|gpu| Device { gpu, mig: None }).collect();
        let tasks = cyclic(&node, 16);
        check(&Case { node: node.clone(), devices: whole.clone(), tasks }, Shape::Single);
        let tasks = block(&node, 128);
        check(&Case { node: node.clone(), devices: whole, tasks }, Shape::Single);

        let node = with_mig(node);
        let devices = all_devices(&node);
        let tasks = cyclic(&node, devices.len());
        check(&Case { node: node.clone(), devices: devices.clone(), tasks }, Shape::Single);
        let tasks = block(&node, 4);
        check(&Case { node, devices, tasks }, Shape::Auto);
    }
}

#[test]
fn the_largest_steps_end() {
    let cpus = |task: usize| [task % 512, task * 7 % 512].into_iter().collect();
    for gpus in [1, 16, 1024] {
        let case = Case {
            node: Node {
                gpus: (0..gpus)
                    .map(|gpu| {
                        let local = (gpu..gpu + 3).collect();
                        let numa = gpubind_core::node::Probed::Known(vec![]);
                        plan_support::gpu(gpu, gpubind_core::node::Probed::Known(local), numa, 0)
                    })
                    .collect(),
                ..Node::default()
            },
            devices: (0..gpus).map(|gpu| Device { gpu, mig: None }).collect(),
            tasks: (0..4096).map(cpus).collect(),
        };
        let plan = plan(&case.node, &case.devices, &case.tasks, Shape::Single).unwrap();
        assert_eq!(plan.shares.tasks(), 4096);
        assert!(plan.cost <= plan.naive);
    }
}
