//! Each rank of a step finds its devices by itself: together they must make the
//! one plan of the step.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use gpubind_core::bind::{Outcome, Rank, edits, shape};
use gpubind_core::node::IdSet;
use gpubind_core::plan::{TaskSets, plan};
use gpubind_core::request::Request;
use gpubind_core::site::Settings;
use gpubind_core::step::{Allocation, Reach};
use proptest::prelude::*;

mod plan_support;
use plan_support::{Case, any_case};

/// What a rank does that knows of the others only what the step shows to all.
fn of_rank(
    case: &Case,
    allocation: &Allocation,
    request: &str,
    rank: usize,
    own: &IdSet,
) -> Outcome {
    // Its own environment is its own: nothing there may sway the plan.
    let env = |name: &str| match name {
        "SLURM_LOCALID" => Some(rank.to_string()),
        "CUDA_VISIBLE_DEVICES" => (rank % 2 == 0).then(|| rank.to_string()),
        _ => None,
    };
    edits(&Rank {
        node: Ok(&case.node),
        allocation,
        tasks: &TaskSets::from(&case.tasks),
        cpus: own,
        most_tasks: case.tasks.len(),
        settings: &Settings::from(&request.parse::<Request>().unwrap()),
        local_rank: rank,
        ranks: None,
        worker: None,
        is_before_container: false,
        users_local_rank: None,
        threads: &|_| IdSet::default(),
        preload: None,
        env: &env,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn all_ranks_of_a_step_make_the_same_plan(
        case in any_case(1..=9, 1..=9),
        owns in prop::collection::vec(prop::collection::vec(0_usize..40, 0..4), 9),
    ) {
        let allocation = Allocation::of(&case.node, &Reach::default(), case.devices.clone());
        let devices = allocation.devices();
        for request in ["auto", "single", "share,ids=uuid"] {
            let settings = Settings::from(&request.parse::<Request>().unwrap());
            let plan = plan(&case.node, &devices, &case.tasks, shape(settings.mode, case.tasks.len(), devices.len())).unwrap();
            let mut warnings = BTreeSet::new();
            for (rank, own) in owns.iter().enumerate().take(case.tasks.len()) {
                let own: IdSet = own.iter().copied().collect();
                let outcome = of_rank(&case, &allocation, request, rank, &own);
                let edits = outcome.edits.unwrap();
                let uuids = edits.set.iter().find(|(name, _)| *name == "GPUBIND_GPU_UUID");
                let own: Vec<&str> =
                    plan.shares.get(rank).unwrap().iter().map(|at| case.node.uuid(devices[*at]).unwrap()).collect();
                prop_assert_eq!(&uuids.unwrap().1, &own.join(","), "rank {} of {:?}", rank, &case);
                warnings.insert(format!("{:?}", outcome.warnings));
            }
            prop_assert_eq!(warnings.len(), 1, "all find the same warnings");
        }
    }
}
