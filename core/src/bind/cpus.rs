//! Which CPUs `cpus=local` leaves to each of several ranks.
//!
//! A rank wants those of its CPUs that are local to its devices. CPUs that one rank alone
//! wants are its own. CPUs that several want are shared out: whole cores, as many to the
//! one as to the other, in runs of neighbours. What is left over where the number of cores
//! cannot be divided is nobody's, since parts that differ make the ranks wait for the
//! slowest. Where there are fewer cores than ranks, these share all that they want.
//!
//! The result depends on the ranks' sets alone, so that each rank finds the same by itself.

use crate::node::IdSet;

/// What a rank wants.
#[derive(Debug, Clone, Default)]
pub struct Claim {
    /// The CPUs that it has; empty where unknown.
    pub allowed: IdSet,
    /// The CPUs that are local to its devices; `None` where that is not known.
    pub local: Option<IdSet>,
}

/// What a rank gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its CPUs: some of those that it had, and never none.
    pub cpus: IdSet,
    /// How many cores it has for itself; 1 where ranks share theirs.
    pub cores: usize,
}

/// Why a rank's CPUs stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is not known which CPUs it has, or which are local to its devices.
    Unknown,
    /// None of its CPUs is local to its devices.
    NoneLocal,
}

/// CPUs of one core that the same ranks want: they stay together.
struct Unit {
    /// What tells its core from others.
    core: usize,
    cpus: Vec<usize>,
    /// Positions of [`Group`]s.
    wanted_by: Vec<usize>,
}

/// Ranks that want the same CPUs.
struct Group {
    wanted: IdSet,
    ranks: Vec<usize>,
    /// Positions of units.
    got: Vec<usize>,
}

/// Shares out CPUs. `threads` tells the CPUs of the core that a CPU belongs to; where it
/// tells none, each CPU is a core.
pub fn local_parts(claims: &[Claim], threads: &dyn Fn(usize) -> IdSet) -> Vec<Result<Part, Kept>> {
    let mut parts: Vec<Result<Part, Kept>> = Vec::with_capacity(claims.len());
    let mut groups: Vec<Group> = Vec::new();
    for (rank, claim) in claims.iter().enumerate() {
        let wanted = match &claim.local {
            Some(local) => claim.allowed.intersection(local),
            None => IdSet::default(),
        };
        let is_known = claim.local.is_some() && !claim.allowed.is_empty();
        parts.push(Err(if is_known { Kept::NoneLocal } else { Kept::Unknown }));
        match groups.iter_mut().find(|group| group.wanted == wanted) {
            _ if wanted.is_empty() => {}
            Some(group) => group.ranks.push(rank),
            None => groups.push(Group { wanted, ranks: vec![rank], got: Vec::new() }),
        }
    }
    let units = units(&groups, threads);
    share_out(&units, &mut groups);
    let is_short = short(&units, &groups);
    for (group, is_short) in groups.iter().zip(is_short) {
        let each = (group.got.len() / group.ranks.len().max(1)).max(1);
        for (number, rank) in group.ranks.iter().enumerate() {
            let mine = group.got.get(number * each..(number + 1) * each);
            let part = match mine.filter(|_| !is_short) {
                Some(mine) => part(mine, &units),
                None => Part { cpus: group.wanted.clone(), cores: 1 },
            };
            if let Some(slot) = parts.get_mut(*rank) {
                *slot = Ok(part);
            }
        }
    }
    parts
}

fn part(positions: &[usize], units: &[Unit]) -> Part {
    let (mut cpus, mut cores) = (Vec::new(), 0);
    let mut last = None;
    for unit in positions.iter().filter_map(|at| units.get(*at)) {
        cpus.extend_from_slice(&unit.cpus);
        // Units of one core follow each other.
        cores += usize::from(last != Some(unit.core));
        last = Some(unit.core);
    }
    Part { cpus: cpus.into_iter().collect(), cores }
}

/// All that is wanted, core by core.
fn units(groups: &[Group], threads: &dyn Fn(usize) -> IdSet) -> Vec<Unit> {
    let mut left = Vec::new();
    groups.iter().for_each(|group| left.extend(group.wanted.iter()));
    left.sort_unstable();
    left.dedup();
    let mut units: Vec<Unit> = Vec::new();
    while let Some(core) = left.first().copied() {
        let threads = threads(core);
        let first = units.len();
        left.retain(|cpu| {
            let is_of_core = *cpu == core || threads.contains(*cpu);
            if is_of_core {
                add(&mut units, first, core, *cpu, groups);
            }
            !is_of_core
        });
    }
    units
}

/// Adds a CPU to a core's units, which begin with the `first`.
fn add(units: &mut Vec<Unit>, first: usize, core: usize, cpu: usize, groups: &[Group]) {
    let mut wanted_by = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        if group.wanted.contains(cpu) {
            wanted_by.push(at);
        }
    }
    match units.iter_mut().skip(first).find(|unit| unit.wanted_by == wanted_by) {
        Some(unit) => unit.cpus.push(cpu),
        None => units.push(Unit { core, cpus: vec![cpu], wanted_by }),
    }
}

/// Gives each unit to one of the groups that want it: first what few want.
fn share_out(units: &[Unit], groups: &mut [Group]) {
    for few in 1..=groups.len() {
        let mut left: Vec<usize> = Vec::new();
        for (at, unit) in units.iter().enumerate() {
            if unit.wanted_by.len() == few {
                left.push(at);
            }
        }
        while let Some(unit) = left.first().and_then(|at| units.get(*at)) {
            let mut alike = Vec::new();
            left.retain(|at| {
                let is_alike = units.get(*at).is_some_and(|it| it.wanted_by == unit.wanted_by);
                if is_alike {
                    alike.push(*at);
                }
                !is_alike
            });
            deal(&alike, &unit.wanted_by, groups);
        }
    }
    for group in groups {
        // By number, so that parts are runs of neighbours.
        group.got.sort_unstable();
    }
}

/// Deals units to these groups, each time to the one that has the fewest for each of its
/// ranks; of equals, to the one that can get least elsewhere.
fn deal(units: &[usize], wanted_by: &[usize], groups: &mut [Group]) {
    let mut given = vec![0; wanted_by.len()];
    for _ in units {
        let mut poorest = (usize::MAX, 1, usize::MAX, 0);
        for (place, (at, given)) in wanted_by.iter().zip(&given).enumerate() {
            let Some(group) = groups.get(*at) else { continue };
            let (has, ranks) = (group.got.len() + given, group.ranks.len());
            let wanted = group.wanted.count();
            // has / ranks, without fractions.
            let (own, least) = (has.saturating_mul(poorest.1), poorest.0.saturating_mul(ranks));
            if (own, wanted) < (least, poorest.2) {
                poorest = (has, ranks, wanted, place);
            }
        }
        if let Some(given) = given.get_mut(poorest.3) {
            *given += 1;
        }
    }
    let mut rest = units;
    for (at, given) in wanted_by.iter().zip(given) {
        let (own, others) = rest.split_at_checked(given).unwrap_or((rest, &[]));
        if let Some(group) = groups.get_mut(*at) {
            group.got.extend_from_slice(own);
        }
        rest = others;
    }
}

/// Of each group, whether it or one that it shares CPUs with, be it by others, has fewer
/// units than ranks.
fn short(units: &[Unit], groups: &[Group]) -> Vec<bool> {
    let mut short: Vec<bool> =
        groups.iter().map(|group| group.got.len() < group.ranks.len()).collect();
    // Once around for each group at most.
    for _ in groups {
        let mut is_changed = false;
        for unit in units {
            let is = |at: &usize| short.get(*at).copied().unwrap_or(false);
            if unit.wanted_by.iter().any(is) && !unit.wanted_by.iter().all(is) {
                for at in &unit.wanted_by {
                    if let Some(short) = short.get_mut(*at) {
                        *short = true;
                    }
                }
                is_changed = true;
            }
        }
        if !is_changed {
            break;
        }
    }
    short
}
