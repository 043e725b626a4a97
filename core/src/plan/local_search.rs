//! A list of devices with small `links`, for any number of ranks.
//!
//! Several starts, each improved until no exchange of two ranks and no move of a
//! rank to a device with a place makes it better. Every list on the way has the
//! smallest `numa`.

use super::cost::Problem;
use super::exchange::Exchange;
use super::numa_optimal::NumaOptimal;

/// Work (squared ranks times GPUs) beyond which lists are compared but not
/// improved: 1024 ranks on 16 GPUs still are. A larger plan is no worse than the
/// allocation's own order, if that is as near, but exchanges may make it better.
const WORK: usize = 1 << 24;

/// How many squared ranks the starts from different GPUs may amount to: all GPUs
/// of a node with 56 MIG instances, two with 128 ranks.
const START_WORK: usize = 1 << 15;
const STARTS: usize = 16;

/// The best list found from few starts: enough to begin an exact search with.
pub(super) fn quick(problem: &Problem, near: &NumaOptimal) -> Vec<usize> {
    best(problem, near, vec![greedy(problem, near, None)])
}

/// The best list found.
pub(super) fn search(problem: &Problem, near: &NumaOptimal) -> Vec<usize> {
    let count = STARTS.min(START_WORK / problem.ranks().pow(2).max(1));
    let mut starts = vec![greedy(problem, near, None)];
    for gpu in (0..problem.hop.len()).take(count) {
        starts.push(greedy(problem, near, Some(gpu)));
    }
    best(problem, near, starts)
}

/// The best of what becomes of some starts, or of the allocation's own order if
/// that is as near and not beaten anyway.
fn best(problem: &Problem, near: &NumaOptimal, mut starts: Vec<Vec<usize>>) -> Vec<usize> {
    starts.sort_unstable();
    starts.dedup();
    let improve = |start: Vec<usize>| {
        let small = problem.ranks().pow(2) * problem.hop.len() <= WORK;
        if small {
            Exchange::new(problem, near, start).run()
        } else {
            (problem.links(&start), start)
        }
    };
    let best = starts.into_iter().map(improve).min();
    // There is always a start.
    let best = best.unwrap_or((u64::MAX, Vec::new()));
    let naive = problem.naive();
    if is_nearest(problem, near, &naive) && (problem.links(&naive), &naive) < (best.0, &best.1) {
        return improve(naive).1;
    }
    best.1
}

/// Whether a list has the smallest `numa`.
fn is_nearest(problem: &Problem, near: &NumaOptimal, list: &[usize]) -> bool {
    let mut load = vec![0; problem.classes()];
    for (&row, &device) in problem.row_of.iter().zip(list) {
        let class = problem.class_of[device];
        load[class] += 1;
        if !near.allowed[row][class] {
            return false;
        }
    }
    load.iter().zip(&near.load).all(|(load, (least, most))| (least..=most).contains(&load))
}

/// A list made rank by rank, with the numbers of seats that `near` has. With a
/// GPU for the first rank, if that may have it, each rank takes the free device
/// that is nearest to the ranks before it. Without one, each takes the first free
/// device, so that neighbours share a device or have devices next to each other.
fn greedy(problem: &Problem, near: &NumaOptimal, gpu: Option<usize>) -> Vec<usize> {
    let (least, most) = problem.load;
    let mut seats = near.seats.clone();
    // Ranks of a class beyond the least load of its devices.
    let mut extra: Vec<usize> =
        (0..problem.classes()).map(|class| seats.iter().map(|row| row[class]).sum()).collect();
    for &class in &problem.class_of {
        extra[class] -= least;
    }
    let mut load = vec![0; problem.devices()];
    let mut list: Vec<usize> = Vec::with_capacity(problem.ranks());
    let mut pull = vec![0; problem.hop.len()];
    for (rank, &row) in problem.row_of.iter().enumerate() {
        if let Some(gpu) = gpu {
            pull.fill(1);
            pull[gpu] = u64::from(rank > 0);
            for (&there, weight) in list.iter().rev().zip(&problem.weight[1..]) {
                add(&mut pull, *weight, &problem.hop[problem.gpu_of[there]]);
            }
        }
        let has_place = |device: &usize| {
            let class = problem.class_of[*device];
            let place = load[*device] < least || load[*device] < most && extra[class] > 0;
            place && seats[row][class] > 0
        };
        let free = (0..problem.devices()).filter(has_place);
        // There is a seat for every rank, so that none is left out.
        let Some(device) = free.min_by_key(|&device| pull[problem.gpu_of[device]]) else { break };
        let class = problem.class_of[device];
        extra[class] -= usize::from(load[device] >= least);
        load[device] += 1;
        seats[row][class] -= 1;
        list.push(device);
    }
    list
}

/// Adds weighted hops.
fn add(sums: &mut [u64], weight: u64, hops: &[u64]) {
    for (sum, hop) in sums.iter_mut().zip(hops) {
        *sum += weight * hop;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Device, Gpu, IdSet, Link, Node, PciAddress, Probed};
    use crate::plan::{exact, numa_optimal};

    /// NVLinks of a DGX-1 with V100 GPUs: two GPUs, and how many there are between them.
    const DGX1: [(usize, usize, u32); 16] = [
        (0, 1, 1),
        (0, 2, 1),
        (0, 3, 2),
        (0, 4, 2),
        (1, 2, 2),
        (1, 3, 1),
        (1, 5, 2),
        (2, 3, 2),
        (2, 6, 1),
        (3, 7, 1),
        (4, 5, 1),
        (4, 6, 1),
        (4, 7, 2),
        (5, 6, 2),
        (5, 7, 1),
        (6, 7, 2),
    ];

    /// Eight GPUs of which nothing is known but these links.
    fn dgx1() -> Node {
        let gpu = |index: u32| Gpu {
            index,
            minor: Probed::Known(index),
            uuid: Probed::Unsupported,
            pci: PciAddress::placeholder(index),
            name: Probed::Unsupported,
            cpus: Probed::Unsupported,
            numa: Probed::Unsupported,
            gpu_numa_id: Probed::Unsupported,
            mig_mode: Probed::Unsupported,
            mig: vec![],
            persistence: Probed::Unsupported,
        };
        let link = |a: usize, b: usize| match DGX1
            .iter()
            .find(|link| (link.0, link.1) == (a, b) || (link.0, link.1) == (b, a))
        {
            Some((_, _, count)) => Link::NvLink(*count),
            None if a == b => Link::Same,
            None => Link::Sys,
        };
        let links = (0..8).map(|a| (0..8).map(|b| link(a, b)).collect()).collect();
        Node { gpus: (0..8).map(gpu).collect(), links, ..Node::default() }
    }

    #[test]
    fn the_own_order_is_taken_where_starts_lead_to_nothing_better() {
        let node = dgx1();
        let devices: Vec<Device> = (0..8).map(|gpu| Device { gpu, mig: None }).collect();
        let tasks = vec![IdSet::default(); 8];
        let problem = Problem::new(&node, &devices, &tasks, 1);
        let near = numa_optimal::nearest(&problem).unwrap();
        // The best list becomes the allocation's own order.
        let order = exact::search(&problem, &near, problem.naive());
        let devices: Vec<Device> = order.into_iter().map(|device| devices[device]).collect();
        let problem = Problem::new(&node, &devices, &tasks, 1);
        let naive = problem.links(&problem.naive());

        let mut stuck = 0;
        for (first, step) in (0..8).flat_map(|first| [(first, 1), (first, 3), (first, 5)]) {
            let start: Vec<usize> = (0..8).map(|rank| (first + step * rank) % 8).collect();
            let improved = Exchange::new(&problem, &near, start.clone()).run();
            assert_eq!(improved.0, problem.links(&improved.1));
            stuck += usize::from(improved.0 > naive);
            assert_eq!(problem.links(&best(&problem, &near, vec![start])), naive);
        }
        assert!(stuck > 0, "no start that would show the difference");
    }
}
