//! Machine, devices and CPU sets as numbers, and what a list of devices costs.
//!
//! Ranks with the same distances share a row, devices with the same distances a
//! class: a node has hundreds of CPUs and up to a hundred MIG instances, but only
//! a handful of either.

use std::collections::HashMap;
use std::hash::Hash;

use crate::node::{Device, Gpu, IdSet, Node, Probed};

/// ACPI's distance of a NUMA node to itself.
const LOCAL: u64 = 10;

/// The distance that counts where the machine does not tell one.
const REMOTE: u64 = 20;

/// Weight of two ranks with neighbouring numbers; for others it is divided by
/// how far apart their numbers are. It is a multiple of all numbers up to 10, so
/// that for up to 11 ranks nothing is rounded.
const WEIGHT: usize = 5040;

/// What a plan costs; smaller is better, and `numa` comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cost {
    /// Over all ranks, the mean distance of their CPUs to their device beyond
    /// the local one, in thousandths of the unit of ACPI's SLIT.
    pub numa: u64,
    /// Over all pairs of ranks, the hop between their devices, weighted by how
    /// close the ranks' numbers are.
    pub links: u64,
}

/// Everything that the solver needs to know of a step.
#[derive(Debug)]
pub(super) struct Problem {
    /// For each rank, its row of `numa`.
    pub row_of: Vec<usize>,
    /// For each row, the cost of a rank on a device of each class.
    pub numa: Vec<Vec<u64>>,
    /// For each device, its column of `numa`.
    pub class_of: Vec<usize>,
    /// For each device, its row and column of `hop`.
    pub gpu_of: Vec<usize>,
    /// The hop between each two physical GPUs.
    pub hop: Vec<Vec<u64>>,
    /// The weight of two ranks' hop, by how far apart their numbers are.
    pub weight: Vec<u64>,
    /// For each device, whether its affinity is known.
    pub known: Vec<bool>,
    /// For each rank, whether its CPUs are known.
    pub placed: Vec<bool>,
    /// Least and greatest number of ranks on one device.
    pub load: (usize, usize),
}

impl Problem {
    /// Describes a step. Every device must be in the node.
    pub fn new(node: &Node, devices: &[Device], tasks: &[IdSet], share: usize) -> Problem {
        let ranks = tasks.len() * share;
        let gpus = devices.iter().filter_map(|device| node.gpu(*device));
        let known: Vec<bool> = gpus.clone().map(|gpu| gpu.cpus.known().is_some()).collect();
        let (affinities, affinity_of) = distinct(gpus.map(|gpu| Affinity::of(node, gpu)));

        let (sets, set_of) = distinct(tasks.iter());
        let regions = Region::of(node, &affinities);
        let rows = sets.into_iter().map(|cpus| {
            if known.contains(&true) {
                row(&regions, cpus, affinities.len())
            } else {
                vec![0; affinities.len()]
            }
        });
        // Different CPU sets of one NUMA node, say, make the same row; the same
        // goes for columns.
        let (rows, row_of) = distinct(rows);
        let columns = (0..affinities.len())
            .map(|affinity| rows.iter().map(|row| row[affinity]).collect::<Vec<u64>>());
        let (columns, class_of) = distinct(columns);

        let (gpus, gpu_of) = distinct(devices.iter().map(|device| device.gpu));
        let hop = |a: usize, b: usize| if a == b { 0 } else { node.link(a, b).hop() };
        Problem {
            row_of: (0..ranks).map(|rank| row_of[set_of[rank / share]]).collect(),
            numa: (0..rows.len())
                .map(|row| columns.iter().map(|column| column[row]).collect())
                .collect(),
            class_of: affinity_of.iter().map(|&affinity| class_of[affinity]).collect(),
            hop: gpus.iter().map(|&a| gpus.iter().map(|&b| hop(a, b)).collect()).collect(),
            gpu_of,
            weight: (0..ranks.max(1))
                .map(|apart| WEIGHT.checked_div(apart).unwrap_or(0) as u64)
                .collect(),
            known,
            placed: (0..ranks).map(|rank| !tasks[rank / share].is_empty()).collect(),
            load: (ranks / devices.len(), ranks.div_ceil(devices.len())),
        }
    }

    pub fn ranks(&self) -> usize {
        self.row_of.len()
    }

    pub fn devices(&self) -> usize {
        self.class_of.len()
    }

    pub fn classes(&self) -> usize {
        self.numa.first().map_or(0, Vec::len)
    }

    /// The list of the allocation's own order.
    pub fn naive(&self) -> Vec<usize> {
        (0..self.ranks()).map(|rank| rank % self.devices()).collect()
    }

    /// Distance of a rank to a device.
    pub fn numa(&self, rank: usize, device: usize) -> u64 {
        self.numa[self.row_of[rank]][self.class_of[device]]
    }

    /// Hop between two devices.
    pub fn hop(&self, a: usize, b: usize) -> u64 {
        self.hop[self.gpu_of[a]][self.gpu_of[b]]
    }

    /// What it costs to give each rank its entry of the list.
    pub fn cost(&self, list: &[usize]) -> Cost {
        let numa = list.iter().enumerate().map(|(rank, &device)| self.numa(rank, device)).sum();
        Cost { numa, links: self.links(list) }
    }

    /// The second part of [`Problem::cost`]. No overflow: 4096 ranks are 2^23
    /// pairs, and a pair costs less than 2^26.
    pub fn links(&self, list: &[usize]) -> u64 {
        let gpus: Vec<usize> = list.iter().map(|&device| self.gpu_of[device]).collect();
        (1..gpus.len())
            .map(|apart| {
                let pairs = gpus.iter().zip(&gpus[apart..]);
                self.weight[apart] * pairs.map(|(&a, &b)| self.hop[a][b]).sum::<u64>()
            })
            .sum()
    }
}

/// The different values, and for each value its position among those.
fn distinct<T: Eq + Hash + Clone>(values: impl Iterator<Item = T>) -> (Vec<T>, Vec<usize>) {
    let mut position = HashMap::new();
    let mut all = Vec::new();
    let of = values
        .map(|value| {
            *position.entry(value).or_insert_with_key(|value| {
                all.push(value.clone());
                all.len() - 1
            })
        })
        .collect();
    (all, of)
}

/// Where a device is.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Affinity<'n> {
    Unknown,
    Known {
        cpus: &'n IdSet,
        /// Positions in the node's list. Memory-only NUMA nodes are left out: no
        /// CPU is near just because it is near to a GPU's own memory.
        numa: Vec<usize>,
    },
}

impl<'n> Affinity<'n> {
    fn of(node: &'n Node, gpu: &'n Gpu) -> Affinity<'n> {
        let Probed::Known(cpus) = &gpu.cpus else { return Affinity::Unknown };
        let ids = gpu.numa.known().map_or(&[][..], Vec::as_slice);
        let near = |numa: &&(usize, &crate::node::NumaNode)| {
            !numa.1.cpus.is_empty() && ids.contains(&numa.1.id)
        };
        let numa = node.numa.iter().enumerate();
        Affinity::Known { cpus, numa: numa.filter(|n| near(&n)).map(|(at, _)| at).collect() }
    }
}

/// CPUs that no device can tell apart.
struct Region {
    cpus: IdSet,
    numa: Option<usize>,
    /// Distance to a device of each affinity, beyond the local one.
    beyond: Vec<u64>,
}

impl Region {
    /// Cuts the machine's CPUs into regions: its NUMA nodes first, then by what
    /// is local to each affinity, which seldom cuts anything further.
    fn of(node: &Node, affinities: &[Affinity]) -> Vec<Region> {
        let mut regions: Vec<Region> = Vec::new();
        for (at, numa) in node.numa.iter().enumerate() {
            push_rest(&mut regions, &numa.cpus, Some(at));
        }
        for affinity in affinities {
            let Affinity::Known { cpus, .. } = affinity else { continue };
            for at in 0..regions.len() {
                let inside = regions[at].cpus.intersection(cpus);
                if !inside.is_empty() && inside != regions[at].cpus {
                    let outside = regions[at].cpus.iter().filter(|&cpu| !cpus.contains(cpu));
                    let outside = outside.collect();
                    let numa = regions[at].numa;
                    regions[at].cpus = inside;
                    regions.push(Region { cpus: outside, numa, beyond: Vec::new() });
                }
            }
            push_rest(&mut regions, cpus, None);
        }
        for region in &mut regions {
            region.beyond =
                affinities.iter().map(|affinity| region.distance(node, affinity) - LOCAL).collect();
        }
        regions
    }

    /// Distance of the region's CPUs to a device, at least [`LOCAL`].
    fn distance(&self, node: &Node, affinity: &Affinity) -> u64 {
        let Affinity::Known { cpus, numa } = affinity else { return REMOTE };
        if self.cpus.common(cpus) > 0 {
            return LOCAL;
        }
        let row = self.numa.and_then(|at| node.numa.get(at)).map(|numa| &numa.distance);
        let told = row.into_iter().flat_map(|row| numa.iter().filter_map(|&to| row.get(to)));
        told.min().map_or(REMOTE, |&distance| u64::from(distance).max(LOCAL))
    }
}

/// Adds the CPUs that no region has yet.
fn push_rest(regions: &mut Vec<Region>, cpus: &IdSet, numa: Option<usize>) {
    let taken: usize = regions.iter().map(|region| region.cpus.common(cpus)).sum();
    let rest: IdSet = match taken {
        0 => cpus.clone(),
        _ if taken == cpus.count() => return,
        _ => {
            let free = |cpu: &usize| !regions.iter().any(|region| region.cpus.contains(*cpu));
            cpus.iter().filter(free).collect()
        }
    };
    if !rest.is_empty() {
        regions.push(Region { cpus: rest, numa, beyond: Vec::new() });
    }
}

/// Mean distance of a task's CPUs to a device of each affinity, beyond the
/// local one, in thousandths.
fn row(regions: &[Region], cpus: &IdSet, affinities: usize) -> Vec<u64> {
    let count = cpus.count();
    if count == 0 {
        return vec![0; affinities];
    }
    let mut elsewhere = count;
    let mut sums = vec![0; affinities];
    for region in regions {
        let share = region.cpus.common(cpus);
        elsewhere -= share;
        for (sum, beyond) in sums.iter_mut().zip(&region.beyond) {
            *sum += share as u64 * beyond;
        }
    }
    let far = elsewhere as u64 * (REMOTE - LOCAL);
    sums.iter().map(|sum| 1000 * (sum + far) / count as u64).collect()
}
