//! The bound of the exchange search against the search without it.

use proptest::collection::vec;
use proptest::prelude::*;

use super::cost::Problem;
use super::exchange::Exchange;
use super::numa_optimal::{self, NumaOptimal};

/// Ranks and devices with random distances; few GPUs, and devices that share one.
fn any_problem() -> impl Strategy<Value = Problem> {
    (1..=5_usize, 1..=2_usize, 2..=40_usize).prop_flat_map(|(gpus, each, ranks)| {
        let devices = gpus * each;
        (vec(0..2_usize, ranks), vec(0..4_u64, 2 * gpus), vec(1..4_u64, gpus * gpus)).prop_map(
            move |(row_of, numa, hops)| Problem {
                row_of,
                numa: numa.chunks(gpus).map(<[u64]>::to_vec).collect(),
                class_of: (0..devices).map(|device| device / each).collect(),
                gpu_of: (0..devices).map(|device| device / each).collect(),
                hop: (0..gpus)
                    .map(|a| {
                        let hop = |b: usize| hops[a.min(b) * gpus + a.max(b)];
                        (0..gpus).map(|b| if a == b { 0 } else { 500 * hop(b) }).collect()
                    })
                    .collect(),
                weight: (0..ranks)
                    .map(|apart| 5040_u64.checked_div(apart as u64).unwrap_or(0))
                    .collect(),
                known: vec![true; devices],
                placed: vec![true; ranks],
                load: (ranks / devices, ranks.div_ceil(devices)),
            },
        )
    })
}

/// A list with the smallest `numa`, in which those of its ranks that are in one class
/// have its devices in turn.
fn start(problem: &Problem, near: &NumaOptimal) -> Vec<usize> {
    let mut seats = near.seats.clone();
    let mut next = vec![0; problem.classes()];
    let list = problem.row_of.iter().map(|&row| {
        let class = seats[row].iter().position(|seats| *seats > 0).unwrap();
        seats[row][class] -= 1;
        let devices = problem.class_of.iter().enumerate().filter(|(_, of)| **of == class);
        let devices: Vec<usize> = devices.map(|(device, _)| device).collect();
        next[class] += 1;
        devices[next[class] % devices.len()]
    });
    list.collect()
}

proptest! {
    #[test]
    fn the_bound_changes_no_list(problem in any_problem()) {
        let near = numa_optimal::nearest(&problem).unwrap();
        let start = start(&problem, &near);
        let bounded = Exchange::new(&problem, &near, start.clone());
        let unbounded = Exchange::new(&problem, &near, start).unbounded();
        let (links, list) = bounded.run();
        prop_assert_eq!(links, problem.links(&list));
        prop_assert_eq!((links, list), unbounded.run());
    }
}
