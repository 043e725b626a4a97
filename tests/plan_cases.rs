//! Plans that a reader can check by hand, and what the plan says about them.
#![allow(clippy::unwrap_used)]

use gpubind_core::node::{Device, IdSet, Link, Node, NumaNode, Probed};
use gpubind_core::plan::{Cost, Plan, PlanError, Shape, Undecided, Why, plan};
use proptest::prelude::*;

mod plan_support;
use plan_support::{all_devices, any_case, cpus, gpu, machine};

/// Four NUMA nodes with two GPUs each, in an order of their own, and links that
/// do not matter.
fn lumi_like() -> Node {
    let numa = ["0-15", "16-31", "32-47", "48-63"];
    let flat: Vec<String> =
        (0..8).map(|a| (0..8).map(|b| if a == b { "X " } else { "SYS " }).collect()).collect();
    let gpus: Vec<(&str, &str, u32)> = [3, 3, 1, 1, 0, 0, 2, 2]
        .iter()
        .zip(&flat)
        .map(|(&home, links)| (links.as_str(), numa[home as usize], home))
        .collect();
    machine(&numa, &gpus)
}

/// Two NUMA nodes with two GPUs each; NVLinks across.
fn four() -> Node {
    machine(
        &["0-7", "8-15"],
        &[
            ("X NODE NV4 SYS", "0-7", 0),
            ("NODE X SYS NV4", "0-7", 0),
            ("NV4 SYS X NODE", "8-15", 1),
            ("SYS NV4 NODE X", "8-15", 1),
        ],
    )
}

fn solve(node: &Node, tasks: &[IdSet], shape: Shape) -> Plan {
    plan(node, &all_devices(node), tasks, shape).unwrap()
}

/// The one device of each task.
fn list(node: &Node, tasks: &[&str]) -> Vec<usize> {
    solve(node, &cpus(tasks), Shape::Single).shares.list().to_vec()
}

fn whys(plan: &Plan) -> Vec<String> {
    (0..plan.shares.tasks()).map(|task| plan.why(task).to_string()).collect()
}

#[test]
fn gpus_out_of_numa_order_are_put_in_it() {
    let tasks = ["0-7", "8-15", "16-23", "24-31", "32-39", "40-47", "48-55", "56-63"];
    assert_eq!(list(&lumi_like(), &tasks), [4, 5, 2, 3, 6, 7, 0, 1]);
}

#[test]
fn gpus_in_reverse_numa_order_are_put_right() {
    let node = machine(
        &["0-3", "4-7", "8-11", "12-15"],
        &[
            ("X NV4 NV4 NV4", "12-15", 3),
            ("NV4 X NV4 NV4", "8-11", 2),
            ("NV4 NV4 X NV4", "4-7", 1),
            ("NV4 NV4 NV4 X", "0-3", 0),
        ],
    );
    let plan = solve(&node, &cpus(&["0-3", "4-7", "8-11", "12-15"]), Shape::Single);
    assert_eq!(plan.shares, [[3], [2], [1], [0]]);
    assert_eq!(plan.cost.numa, 0);
    // Every CPU is two units beyond local: 2 * 1000 for each task.
    assert_eq!(plan.naive, Cost { numa: 8000, links: plan.cost.links });
    assert_eq!(whys(&plan), ["local to its CPUs"; 4]);
}

#[test]
fn costs_are_those_of_the_definition() {
    let plan = solve(&four(), &cpus(&["0-7", "7-9"]), Shape::Single);
    // Of the second task's CPUs one is local to GPUs 0 and 1, two to 2 and 3:
    // floor(1000 * 1 * 2 / 3). NVLink of rank 0's GPU 0 to 2: 5040 * 250.
    assert_eq!(plan.shares, [[0], [2]]);
    assert_eq!(plan.cost, Cost { numa: 666, links: 5040 * 250 });
    assert_eq!(plan.naive, Cost { numa: 1333, links: 5040 * 5000 });
}

#[test]
fn neighbours_are_linked_where_cpus_do_not_decide() {
    assert_eq!(list(&four(), &["", "", "", ""]), [0, 2, 3, 1]);
    assert_eq!(list(&four(), &["0-15", "0-15"]), [0, 2]);
    // Where the CPUs decide, they come first.
    assert_eq!(list(&four(), &["0-7", "0-7", "8-15", "8-15"]), [0, 1, 3, 2]);
    assert_eq!(list(&four(), &["8-15", "8-15", "0-7", "0-7"]), [2, 3, 1, 0]);
}

#[test]
fn fewer_tasks_than_devices() {
    let tasks = cpus(&["8-15", "0-7"]);
    let single = solve(&four(), &tasks, Shape::Single);
    assert_eq!(single.shares, [[2], [0]]);
    assert_eq!(single.rest(4), [1, 3]);
    let shares = solve(&four(), &tasks, Shape::Auto);
    assert_eq!(shares.shares, [[2, 3], [1, 0]]);
    assert!(shares.rest(4).is_empty());
    // What does not divide stays unused.
    let three = solve(&four(), &cpus(&["0-7", "0-7", "8-15"]), Shape::Auto);
    assert_eq!((three.shares.tasks(), three.shares.each()), (3, 1));
}

#[test]
fn more_tasks_than_devices_share_evenly() {
    let tasks = cpus(&["0-7", "0-7", "0-7", "8-15", "8-15", "8-15"]);
    let plan = solve(&four(), &tasks, Shape::Auto);
    let mut loads = [0; 4];
    for share in plan.shares.iter() {
        assert_eq!(share.len(), 1);
        loads[share[0]] += 1;
    }
    loads.sort_unstable();
    assert_eq!((loads, plan.cost.numa), ([1, 1, 2, 2], 0));
    // All but the two tasks that fit on GPUs 2 and 3 would rather be elsewhere;
    // the one that is far away gets there because loads must be even.
    let crowded = solve(&four(), &cpus(&["0-7"; 7]), Shape::Single);
    assert_eq!(crowded.cost.numa, 3 * 2000);
}

#[test]
fn instances_of_one_gpu_are_no_hop_apart() {
    let mut node = four();
    for model in &mut node.gpus {
        *model = gpu(model.index as usize, model.cpus.clone(), model.numa.clone(), 2);
    }
    let plan = solve(&node, &cpus(&["", ""]), Shape::Single);
    assert_eq!((plan.shares.list(), plan.cost.links), (&[0, 1][..], 0));
    // That takes no matrix; between GPUs, an unknown hop is like the longest.
    node.links.clear();
    let plan = solve(&node, &cpus(&["", "", ""]), Shape::Single);
    assert_eq!(plan.shares, [[0], [1], [2]]);
    assert_eq!(plan.cost.links, (5040 + 2520) * 8000);
}

#[test]
fn each_task_learns_why() {
    // One of the first three must go to the other NUMA node: the first, because
    // that puts it next to the second by NVLink.
    let crowd = solve(&four(), &cpus(&["0-7", "0-7", "0-3", "8-15"]), Shape::Single);
    assert_eq!(crowd.shares, [[2], [0], [1], [3]]);
    assert_eq!(crowd.why(0), Why::Taken { local: true, tasks: vec![1, 2] });
    assert_eq!(
        whys(&crowd),
        [
            "nearest free: the local GPUs went to ranks 1 and 2",
            "local to its CPUs",
            "local to its CPUs",
            "local to its CPUs"
        ]
    );
    // The third has least to lose.
    let uneven = solve(&four(), &cpus(&["0-7", "0-7", "0-8"]), Shape::Single);
    assert_eq!(uneven.why(2), Why::Taken { local: false, tasks: vec![0, 1] });
    let spread = solve(&four(), &cpus(&["0-15", "", "15-16"]), Shape::Single);
    assert_eq!(
        whys(&spread),
        [
            "not local to all its CPUs, but no other GPU is nearer",
            "its CPUs are unknown",
            "not local to all its CPUs, but no other GPU is nearer"
        ]
    );
    assert_eq!(spread.why(3), Why::NoSuchTask);
    let crowd = solve(&four(), &cpus(&["0-7"; 9]), Shape::Single);
    let far = (0..9).find(|&task| crowd.shares.list()[task] > 1).unwrap();
    assert!(matches!(crowd.why(far), Why::Taken { local: true, .. }), "{:?}", crowd.why(far));
}

#[test]
fn lists_of_tasks_read_well() {
    let text = |tasks: &[usize]| Why::Taken { local: false, tasks: tasks.to_vec() }.to_string();
    assert_eq!(text(&[3]), "nearest free: the nearer GPUs went to rank 3");
    assert_eq!(text(&[3, 4]), "nearest free: the nearer GPUs went to ranks 3 and 4");
    assert_eq!(text(&[0, 1, 2, 3]), "nearest free: the nearer GPUs went to ranks 0-3");
    assert_eq!(text(&[0, 2, 3, 4, 9]), "nearest free: the nearer GPUs went to ranks 0, 2-4 and 9");
}

#[test]
fn unknown_affinity_leaves_the_links() {
    let mut node = four();
    for gpu in &mut node.gpus {
        gpu.cpus = Probed::Unsupported;
    }
    let plan = solve(&node, &cpus(&["8-15", "8-15", "0-7", "0-7"]), Shape::Single);
    assert_eq!(plan.shares, [[0], [2], [3], [1]]);
    assert_eq!(plan.why(0), Why::AffinityUnknown(Some(Undecided::Order)));
    assert_eq!(plan.why(1), Why::AffinityUnknown(Some(Undecided::Links)));
    assert_eq!(plan.cost.numa, 0);
    // Known for some: the others count as remote.
    node.gpus[3].cpus = Probed::Known("0-15".parse().unwrap());
    let plan = solve(&node, &cpus(&["0-7"]), Shape::Single);
    assert_eq!(plan.shares, [[3]]);
    let plan = solve(&node, &cpus(&["0-7", "", "0-7"]), Shape::Single);
    assert_eq!(plan.cost.numa, 10_000);
    // Neither local nor remote is known, but a local one is taken.
    let far = if plan.shares.list()[0] == 3 { 2 } else { 0 };
    assert_eq!(plan.why(far), Why::Taken { local: true, tasks: vec![2 - far] });
    node.gpus[3].cpus = Probed::Known("8-15".parse().unwrap());
    node.gpus[3].numa = Probed::Unsupported;
    node.links = vec![vec![Link::Sys; 4]; 4];
    let plan = solve(&node, &cpus(&["0-7"]), Shape::Single);
    assert_eq!((plan.shares.list().to_vec(), plan.why(0)), (vec![0], Why::AffinityUnknown(None)));
}

#[test]
fn nothing_known_at_all_keeps_the_order() {
    let plan = Plan::in_order(2, 5, Shape::Auto).unwrap();
    assert_eq!(plan.shares, [[0, 1], [2, 3]]);
    assert_eq!(plan.rest(5), [4]);
    assert_eq!(plan.why(1).to_string(), "affinity unknown: kept Slurm's order");
    assert_eq!(Plan::in_order(3, 2, Shape::Single).unwrap().shares, [[0], [1], [0]]);
    assert_eq!(Plan::in_order(0, 2, Shape::Single), Err(PlanError::NoTasks));
    assert_eq!(Plan::in_order(2, 0, Shape::Single), Err(PlanError::NoDevices));
}

#[test]
fn impossible_steps_are_refused() {
    let node = four();
    let device = |gpu| Device { gpu, mig: None };
    let refuse = |devices: &[Device], tasks| {
        plan(&node, devices, &vec![IdSet::default(); tasks], Shape::Auto).unwrap_err()
    };
    assert_eq!(refuse(&[device(0)], 0), PlanError::NoTasks);
    assert_eq!(refuse(&[], 1), PlanError::NoDevices);
    assert_eq!(refuse(&[device(0), device(4)], 1), PlanError::NotInNode(1));
    assert_eq!(refuse(&[Device { gpu: 0, mig: Some(0) }], 1), PlanError::NotInNode(0));
    assert_eq!(refuse(&[device(0), device(1), device(0)], 1), PlanError::Repeated(2));
    assert_eq!(refuse(&[device(0)], 4097), PlanError::TooMany { tasks: 4097, devices: 1 });
}

/// The same machine with a NUMA node without CPUs after each one, near to
/// everything, that GPUs count as theirs.
fn with_memory(mut node: Node) -> Node {
    let near: Vec<u32> = node.numa.iter().map(|numa| numa.id + 1).collect();
    for numa in &mut node.numa {
        numa.distance = numa.distance.iter().flat_map(|&distance| [distance, 11]).collect();
    }
    let count = node.numa.len();
    let memory = |numa: &NumaNode| NumaNode {
        id: numa.id + 1,
        cpus: IdSet::default(),
        distance: vec![11; 2 * count],
    };
    node.numa = node.numa.into_iter().flat_map(|numa| [numa.clone(), memory(&numa)]).collect();
    for gpu in &mut node.gpus {
        if let Probed::Known(ids) = &mut gpu.numa {
            ids.extend(&near);
        }
    }
    node
}

proptest! {
    #[test]
    fn numa_nodes_without_cpus_change_nothing(case in any_case(1..=10, 1..=10)) {
        let with = with_memory(case.node.clone());
        prop_assert_eq!(
            plan(&with, &case.devices, &case.tasks, Shape::Auto),
            plan(&case.node, &case.devices, &case.tasks, Shape::Auto)
        );
    }
}
