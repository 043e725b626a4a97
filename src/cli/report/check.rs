//! `--check`: whether this process has what it should have, and nobody else has it too.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::alone::Inspected;
use super::exchange::exchange;
use super::gather::{Report, is_sharing_wanted};
use super::peers::{self, peer_group};
use crate::cli::ending::warn;
use gpubind_core::node::IdSet;
use gpubind_core::step::{RankInfo, cpus_of};
use gpubind_core::variables;
use gpubind_core::words::count;

/// What is wrong, and who has not answered.
#[derive(Debug, Default, Serialize)]
pub struct Findings {
    /// Each a sentence; none where all is well.
    pub wrong: Vec<String>,
    /// Positions of ranks on this node that have not answered.
    pub no_reply: Vec<usize>,
}

/// What a rank tells the others.
#[derive(Debug, Serialize, Deserialize)]
struct Announcement {
    rank: Option<u32>,
    local_rank: usize,
    own: Vec<Own>,
    cpus: IdSet,
}

/// A device that a rank has for itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Own {
    index: u32,
    uuid: Option<String>,
}

/// Checks the process, and compares it with the other ranks of the node, for which it
/// waits at most `time`.
///
/// # Errors
/// The system refuses sockets.
pub fn check(
    report: &Report,
    rank_info: &RankInfo,
    time: Duration,
    env: &dyn Fn(&str) -> Option<String>,
) -> io::Result<Findings> {
    let inspected = Inspected { report, rank_info, is_in_step: peers::is_in_step(), env };
    let mut findings = Findings { wrong: inspected.findings(), no_reply: vec![] };
    let uid = rustix::process::getuid().as_raw();
    let Some(group) = peer_group(rank_info, uid, || peers::launcher(rank_info), env) else {
        warn(&format!(
            "{} does not tell how many ranks this node has; cannot tell whether they \
             share GPUs",
            rank_info.source
        ));
        return Ok(findings);
    };
    let own =
        report.own().map(|own| Own { index: own.device.index, uuid: own.device.uuid.clone() });
    let announcement = Announcement {
        rank: report.rank,
        local_rank: rank_info.local_rank,
        own: own.collect(),
        cpus: report.cpus.clone(),
    };
    let replies = exchange(&group, &serde_json::to_string(&announcement)?, time)?;
    let mut others: Vec<Announcement> = Vec::new();
    for (position, reply) in replies.iter().enumerate().filter(|(at, _)| *at != group.position) {
        match reply.as_deref().and_then(|reply| serde_json::from_str(reply).ok()) {
            Some(other) => others.push(other),
            None => findings.no_reply.push(position),
        }
    }
    if !is_sharing_wanted() {
        findings.wrong.extend(shared(&announcement, &others));
    }
    let available = available_cpus(rank_info, env);
    if group.size <= available {
        findings.wrong.extend(crowded(&announcement, &others, available));
    }
    Ok(findings)
}

/// How many CPUs the ranks of this node may use together: those of the process that has
/// started them, and no more than Slurm gives the job here.
fn available_cpus(rank_info: &RankInfo, env: &dyn Fn(&str) -> Option<String>) -> usize {
    let launcher = i32::try_from(peers::launcher(rank_info)).unwrap_or_default();
    let of_launcher = cpus_of(launcher).count();
    let of_job = env(variables::CPUS_ON_NODE).and_then(|count| count.parse().ok());
    of_job.unwrap_or(usize::MAX).min(of_launcher)
}

/// One sentence for the devices that the same other ranks have too.
fn shared(announcement: &Announcement, others: &[Announcement]) -> Vec<String> {
    let mut groups: Vec<(String, Vec<&Own>)> = Vec::new();
    for own in &announcement.own {
        let have = others.iter().filter(|other| other.own.contains(own));
        let Some(have) = names(have) else { continue };
        match groups.iter_mut().find(|(known, _)| *known == have) {
            Some((_, devices)) => devices.push(own),
            None => groups.push((have, vec![own])),
        }
    }
    let sentence = |(have, devices): (String, Vec<&Own>)| {
        let own = match devices.as_slice() {
            [Own { index, uuid: Some(uuid) }] => format!("GPU {index} ({uuid}) is"),
            [Own { index, uuid: None }] => format!("GPU {index} is"),
            several => format!("GPUs {} are", list(several.iter().map(|own| own.index as usize))),
        };
        format!("{own} shared with {have}, and nobody asked for `share`")
    };
    groups.into_iter().map(sentence).collect()
}

/// Ranks that have fewer CPUs between them than they are.
fn crowded(
    announcement: &Announcement,
    others: &[Announcement],
    available: usize,
) -> Option<String> {
    let cpus = &announcement.cpus;
    let have = others.iter().filter(|other| other.cpus == *cpus);
    let ranks = have.clone().count() + 1;
    let have = names(have).filter(|_| !cpus.is_empty() && ranks > cpus.count())?;
    Some(format!(
        "its CPUs {cpus} are those of {have}, too: {} on {}, though there are {available}: a script \
         or a tool has moved them, such as one that takes LOCAL_RANK for a CPU",
        count(ranks, "rank"),
        count(cpus.count(), "CPU")
    ))
}

/// `rank 3`, or `ranks 0-2,5`; local ranks where there are no others.
fn names<'a>(others: impl Iterator<Item = &'a Announcement> + Clone) -> Option<String> {
    let ranks: Option<Vec<usize>> = others.clone().map(|it| Some(it.rank? as usize)).collect();
    let (kind, ranks) = match ranks {
        Some(ranks) => ("rank", ranks),
        None => ("local rank", others.map(|other| other.local_rank).collect()),
    };
    let plural = match ranks.len() {
        0 => return None,
        1 => "",
        _ => "s",
    };
    Some(format!("{kind}{plural} {}", list(ranks.into_iter())))
}

fn list(numbers: impl Iterator<Item = usize>) -> String {
    numbers.collect::<IdSet>().to_string()
}
