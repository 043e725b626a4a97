//! What `cpus=local` leaves to ranks, by cases and by rules.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::cpus::{Claim, Kept, Part, local_parts};
use crate::node::IdSet;

fn set(list: &str) -> IdSet {
    list.parse().unwrap()
}

fn claim(allowed: &str, local: &str) -> Claim {
    Claim { allowed: set(allowed), local: Some(set(local)) }
}

/// As x86 numbers 8 cores of two threads.
fn two_threads(cpu: usize) -> IdSet {
    [cpu % 8, cpu % 8 + 8].into_iter().collect()
}

fn no_threads(_: usize) -> IdSet {
    IdSet::default()
}

/// `CPUS/CORES` of each rank, or why there is none.
fn parts(claims: &[Claim], threads: &dyn Fn(usize) -> IdSet) -> Vec<String> {
    let text = |part: Result<Part, Kept>| match part {
        Ok(part) => format!("{}/{}", part.cpus, part.cores),
        Err(why) => format!("{why:?}"),
    };
    local_parts(claims, threads).into_iter().map(text).collect()
}

#[test]
fn a_rank_keeps_what_is_local_and_leaves_the_rest() {
    let claims = [claim("0-7", "0-3"), claim("0-7", "4-7")];
    assert_eq!(parts(&claims, &no_threads), ["0-3/4", "4-7/4"]);
    // Bound by Slurm to its own CPUs, it keeps them all.
    let claims = [claim("0-1", "0-3"), claim("2-3", "0-3"), claim("4-5", "4-7")];
    assert_eq!(parts(&claims, &no_threads), ["0-1/2", "2-3/2", "4-5/2"]);
    assert_eq!(parts(&[], &no_threads), [""; 0]);
}

#[test]
fn ranks_of_one_locality_get_equal_parts_of_whole_cores() {
    let claims = vec![claim("0-15", "0-15"); 2];
    assert_eq!(parts(&claims, &no_threads), ["0-7/8", "8-15/8"]);
    assert_eq!(parts(&claims, &two_threads), ["0-3,8-11/4", "4-7,12-15/4"]);
    // What is left over is nobody's.
    let claims = vec![claim("0-15", "0-15"); 3];
    assert_eq!(parts(&claims, &two_threads), ["0-1,8-9/2", "2-3,10-11/2", "4-5,12-13/2"]);
}

#[test]
fn fewer_cores_than_ranks_are_shared() {
    let claims = vec![claim("0-15", "0,8"); 2];
    assert_eq!(parts(&claims, &two_threads), ["0,8/1", "0,8/1"]);
    assert_eq!(parts(&claims, &no_threads), ["0/1", "8/1"]);
    // Who has CPUs apart from them is not concerned.
    let claims = [claim("0-15", "0"), claim("0-15", "0"), claim("0-15", "4-7")];
    assert_eq!(parts(&claims, &no_threads), ["0/1", "0/1", "4-7/4"]);
}

#[test]
fn what_one_rank_alone_wants_is_its_own() {
    // The second has no others, and loses none of them.
    let claims = [claim("0-7", "0-7"), claim("0-1", "0-7")];
    assert_eq!(parts(&claims, &no_threads), ["2-7/6", "0-1/2"]);
    let claims = [claim("0-5", "0-7"), claim("4-7", "0-7"), claim("6-7", "0-7")];
    assert_eq!(parts(&claims, &no_threads), ["0-3/4", "4-5/2", "6-7/2"]);
}

#[test]
fn threads_of_one_core_that_slurm_has_dealt_to_two_ranks_stay_theirs() {
    let claims = [claim("0-3", "0-15"), claim("8-11", "0-15")];
    assert_eq!(parts(&claims, &two_threads), ["0-3/4", "8-11/4"]);
}

#[test]
fn nothing_local_and_nothing_known_are_told_apart() {
    let unknown = Claim { allowed: set("0-7"), local: None };
    let claims = [claim("4-7", "0-3"), unknown, claim("", "0-3"), claim("0-3", "0-3")];
    assert_eq!(parts(&claims, &no_threads), ["NoneLocal", "Unknown", "Unknown", "0-3/4"]);
}

/// Some of 16 CPUs.
fn cpus() -> impl Strategy<Value = IdSet> {
    any::<u16>().prop_map(|bits| IdSet::from_words([u64::from(bits)]))
}

/// Whole cores of two threads.
fn whole_cores() -> impl Strategy<Value = IdSet> {
    any::<u8>().prop_map(|bits| IdSet::from_words([u64::from(bits) << 8 | u64::from(bits)]))
}

proptest! {
    #[test]
    fn no_rank_gets_what_it_did_not_have_or_nothing(
        sets in prop::collection::vec((cpus(), cpus()), 0..12), is_smt: bool,
    ) {
        let claims: Vec<Claim> = sets
            .into_iter()
            .map(|(allowed, local)| Claim { allowed, local: Some(local) })
            .collect();
        let threads: &dyn Fn(usize) -> IdSet = if is_smt { &two_threads } else { &no_threads };
        let parts = local_parts(&claims, threads);
        prop_assert_eq!(parts.len(), claims.len());
        let wanted = |at: usize| claims[at].allowed.intersection(claims[at].local.as_ref().unwrap());
        for (at, part) in parts.iter().enumerate() {
            let Ok(part) = part else {
                prop_assert!(wanted(at).is_empty());
                continue;
            };
            prop_assert!(!part.cpus.is_empty());
            prop_assert_eq!(part.cpus.intersection(&wanted(at)), part.cpus.clone());
            prop_assert!((1..=part.cpus.count()).contains(&part.cores));
            // Who overlaps with nobody keeps all.
            let others = (0..claims.len()).filter(|other| *other != at);
            if others.clone().all(|other| wanted(other).common(&wanted(at)) == 0) {
                prop_assert_eq!(&part.cpus, &wanted(at));
            }
            // Parts overlap only where all that is wanted is shared.
            for other in others {
                if let Ok(other_part) = &parts[other] && other_part.cpus.common(&part.cpus) > 0 {
                    prop_assert_eq!(&part.cpus, &wanted(at));
                    prop_assert_eq!(&other_part.cpus, &wanted(other));
                }
                if wanted(other) == wanted(at) {
                    prop_assert_eq!(parts[other].as_ref().unwrap().cores, part.cores);
                }
            }
        }
        prop_assert_eq!(local_parts(&claims, threads), parts, "the same each time");
    }

    #[test]
    fn cores_that_suffice_are_shared_out_whole_and_apart(
        local in whole_cores(), ranks in 1..10_usize,
    ) {
        let claim = Claim { allowed: set("0-15"), local: Some(local.clone()) };
        let parts = local_parts(&vec![claim; ranks], &two_threads);
        let cores = local.count() / 2;
        for (at, part) in parts.iter().enumerate() {
            let Ok(part) = part else {
                prop_assert_eq!(cores, 0);
                continue;
            };
            let expected = if cores < ranks { cores } else { cores / ranks };
            prop_assert_eq!(part.cpus.count(), expected * 2);
            for cpu in part.cpus.iter() {
                prop_assert_eq!(two_threads(cpu).common(&part.cpus), 2);
            }
            let others = parts.iter().take(at).flatten();
            let common: usize = others.map(|other| other.cpus.common(&part.cpus)).sum();
            prop_assert!(cores < ranks || common == 0);
        }
    }
}
