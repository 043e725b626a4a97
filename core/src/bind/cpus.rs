//! Which CPUs `cpus=local` leaves to each of several ranks.
//!
//! A rank wants those of its CPUs that are local to its devices. CPUs that one rank alone
//! wants are its own. CPUs that several want are shared out: whole cores, as many to the
//! one as to the other, in runs of neighbours. What is left over where the number of cores
//! cannot be divided is nobody's, since parts that differ make the ranks wait for the
//! slowest. Where there are fewer cores than ranks, these share all that they want.
//!
//! The result depends on the ranks' sets alone, so that each rank finds the same by itself.

use std::collections::BTreeMap;

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
        let each = group.got.len() / group.ranks.len().max(1);
        let mine = group.got.chunks(each.max(1));
        for (rank, mine) in group.ranks.iter().zip(mine.map(Some).chain(std::iter::repeat(None))) {
            let mine = mine.filter(|_| !is_short).map(|mine| part(mine, &units));
            let part = mine.unwrap_or_else(|| Part { cpus: group.wanted.clone(), cores: 1 });
            if let Some(slot) = parts.get_mut(*rank) {
                *slot = Ok(part);
            }
        }
    }
    parts
}

fn part(positions: &[usize], units: &[Unit]) -> Part {
    let mine = || positions.iter().filter_map(|at| units.get(*at));
    let cores: IdSet = mine().map(|unit| unit.core).collect();
    Part { cpus: mine().flat_map(|unit| unit.cpus.iter().copied()).collect(), cores: cores.count() }
}

/// All that is wanted, by the first CPU.
fn units(groups: &[Group], threads: &dyn Fn(usize) -> IdSet) -> Vec<Unit> {
    let all: IdSet = groups.iter().flat_map(|group| group.wanted.iter()).collect();
    let wanted_by = |cpu: usize| -> Vec<usize> {
        let wanting = groups.iter().enumerate().filter(|(_, group)| group.wanted.contains(cpu));
        wanting.map(|(at, _)| at).collect()
    };
    let mut units: Vec<Unit> = Vec::new();
    let mut core_of: BTreeMap<usize, usize> = BTreeMap::new();
    for cpu in all.iter() {
        let core = *core_of.entry(cpu).or_insert(cpu);
        if core == cpu {
            // The first of its core: the others follow, and need not be asked.
            for sibling in threads(cpu).iter().filter(|sibling| *sibling > cpu) {
                core_of.entry(sibling).or_insert(cpu);
            }
        }
        let wanted_by = wanted_by(cpu);
        let known = units.iter_mut().find(|it| it.core == core && it.wanted_by == wanted_by);
        match known.filter(|_| core != cpu) {
            Some(unit) => unit.cpus.push(cpu),
            None => units.push(Unit { core, cpus: vec![cpu], wanted_by }),
        }
    }
    units
}

/// Gives each unit to one of the groups that want it: first what few want, each time to
/// the group that has the fewest for each of its ranks.
fn share_out(units: &[Unit], groups: &mut [Group]) {
    let mut alike: BTreeMap<(usize, &[usize]), Vec<usize>> = BTreeMap::new();
    for (at, unit) in units.iter().enumerate() {
        let key = (unit.wanted_by.len(), unit.wanted_by.as_slice());
        alike.entry(key).or_default().push(at);
    }
    for ((_, wanting), units) in alike {
        let mut given = vec![0_usize; wanting.len()];
        for _ in &units {
            let poorest = wanting.iter().zip(&mut given).min_by(|(a, given_a), (b, given_b)| {
                let has = |at: usize, given: usize| {
                    groups.get(at).map_or((0, 1), |it| (it.got.len() + given, it.ranks.len()))
                };
                let ((a_has, a_ranks), (b_has, b_ranks)) =
                    (has(**a, **given_a), has(**b, **given_b));
                // Who can get little elsewhere comes first.
                let wanted = |at: usize| groups.get(at).map_or(0, |group| group.wanted.count());
                (a_has * b_ranks).cmp(&(b_has * a_ranks)).then(wanted(**a).cmp(&wanted(**b)))
            });
            if let Some((_, given)) = poorest {
                *given += 1;
            }
        }
        let mut rest = units.as_slice();
        for (at, given) in wanting.iter().zip(given) {
            let (own, others) = rest.split_at_checked(given).unwrap_or((rest, &[]));
            if let Some(group) = groups.get_mut(*at) {
                group.got.extend(own);
            }
            rest = others;
        }
    }
    for group in groups {
        // By number, so that parts are runs of neighbours.
        group.got.sort_unstable();
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
