//! Up to 8 tasks on 8 devices the plan is the best of all plans, ties included.
#![allow(clippy::unwrap_used)]

use gpubind_core::node::Device;
use gpubind_core::plan::{Plan, Shape, plan};
use proptest::prelude::*;

mod plan_support;
use plan_support::{Case, Tables, all_devices, any_case, block, cyclic, machines, slots};

/// The plan as one list, after checking its costs against their definition.
fn solve(case: &Case, shape: Shape) -> (Plan, Vec<usize>, Tables) {
    let slots = slots(&case.tasks, case.devices.len(), shape);
    let tables = Tables::new(&case.node, &case.devices, &slots);
    let plan = plan(&case.node, &case.devices, &case.tasks, shape).unwrap();
    let list = plan.shares.list().to_vec();
    assert_eq!(list.len(), slots.len());
    assert_eq!(plan.shares.tasks(), case.tasks.len());
    assert!(plan.shares.each() == slots.len() / case.tasks.len());
    assert_eq!(plan.cost, tables.cost(&list));
    assert_eq!(plan.naive, tables.cost(&tables.naive()));
    (plan, list, tables)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn small_plans_are_the_best_of_all(case in any_case(1..=6, 1..=6)) {
        for shape in [Shape::Single, Shape::Auto] {
            let (plan, list, tables) = solve(&case, shape);
            prop_assert_eq!((plan.cost, list), tables.best());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn plans_at_the_limit_are_the_best_of_all(case in any_case(7..=8, 7..=8)) {
        let (plan, list, tables) = solve(&case, Shape::Single);
        prop_assert_eq!((plan.cost, list), tables.best());
    }

    #[test]
    fn shares_at_the_limit_are_the_best_of_all(case in any_case(2..=8, 1..=8)) {
        let (plan, list, tables) = solve(&case, Shape::Auto);
        prop_assert_eq!((plan.cost, list), tables.best());
    }
}

#[test]
fn plans_on_real_machines_are_the_best_of_all() {
    for (name, node) in machines() {
        let all: Vec<Device> = all_devices(&node);
        let half = all[..all.len().div_ceil(2)].to_vec();
        let odd = all.iter().copied().skip(1).step_by(2).collect();
        for devices in [all, half, odd] {
            if devices.is_empty() || devices.len() > 8 {
                continue;
            }
            for tasks in [2, devices.len(), 8] {
                let mut kinds = [block(&node, tasks), cyclic(&node, tasks), block(&node, tasks)];
                kinds[2].reverse();
                for tasks in kinds {
                    let case = Case { node: node.clone(), devices: devices.clone(), tasks };
                    for shape in [Shape::Single, Shape::Auto] {
                        let (plan, list, tables) = solve(&case, shape);
                        assert_eq!((plan.cost, list), tables.best(), "{name} {:?}", case.tasks);
                    }
                }
            }
        }
    }
}
