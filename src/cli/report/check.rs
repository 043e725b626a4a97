//! `--check`: whether this process has what it should have, and nobody else has it too.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::alone::Inspected;
use super::gather::Report;
use crate::cli::ending::warn;
use crate::cli::peers::{self, exchange, peer_group};
use gpubind_core::node::IdSet;
use gpubind_core::step::{RankInfo, cpus_of};
use gpubind_core::variables;
use gpubind_core::words::count;

/// What is wrong, and who has not answered.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Findings {
    /// Each a sentence; none where all is well.
    pub wrong: Vec<String>,
    /// Positions of ranks on this node that have not answered.
    pub no_reply: Vec<usize>,
    /// What this rank says on stderr for all ranks of which it is true: only the first of
    /// them says it.
    #[serde(skip)]
    pub said: Vec<Said>,
    /// Whether it is the first of those that have answered.
    #[serde(skip)]
    pub is_first: bool,
}

/// Sentences that are true for the same ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// `rank 3`, `ranks 0-2,5`.
    pub ranks: Option<String>,
    pub sentences: Vec<String>,
}

/// What a rank tells the others.
#[derive(Debug, Serialize, Deserialize)]
struct Announcement {
    rank: Option<u32>,
    local_rank: usize,
    own: Vec<Own>,
    cpus: IdSet,
    /// Whether `cpus=local` has been in effect.
    #[serde(default)]
    has_local_cpus: bool,
    /// What is wrong with it, whatever the others have.
    wrong: Vec<String>,
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
    let wrong = inspected.findings();
    let uid = rustix::process::getuid().as_raw();
    let Some(group) = peer_group(rank_info, uid, || peers::launcher(rank_info), env) else {
        warn(&format!(
            "{} does not tell how many ranks this node has; cannot tell whether they \
             share GPUs",
            rank_info.source
        ));
        return Ok(Findings::alone(wrong, report.rank));
    };
    let own =
        report.own().map(|own| Own { index: own.device.index, uuid: own.device.uuid.clone() });
    let announcement = Announcement {
        rank: report.rank,
        local_rank: rank_info.local_rank,
        own: own.collect(),
        cpus: report.cpus.clone(),
        has_local_cpus: env(variables::CPUS).is_some(),
        wrong,
    };
    let replies = exchange(&group, &serde_json::to_string(&announcement)?, time)?;
    let mut all: Vec<Announcement> = Vec::new();
    let mut findings = Findings::default();
    let mut own_place = 0;
    for (position, reply) in replies.iter().enumerate() {
        if position == group.position {
            own_place = all.len();
        }
        match reply.as_deref().and_then(|reply| serde_json::from_str(reply).ok()) {
            Some(other) => all.push(other),
            None => findings.no_reply.push(position),
        }
    }
    let Some(own) = all.get(own_place) else { return Ok(findings) };
    let mut found: Vec<(String, Vec<usize>)> = Vec::new();
    for text in &own.wrong {
        found.push((text.clone(), places(&all, |other| other.wrong.contains(text))));
    }
    if !report.share {
        found.extend(shared(own, &all));
    }
    found.extend(overlapping(own, &all));
    let available = available_cpus(rank_info, env);
    if group.size <= available {
        found.extend(crowded(own, &all, available));
    }
    findings.is_first = own_place == 0;
    for (text, places) in found {
        // The first rank of which it is true says it for all.
        if places.first() == Some(&own_place) {
            findings.say(names(&all, &places), text.clone());
        }
        findings.wrong.push(text);
    }
    Ok(findings)
}

impl Findings {
    fn alone(wrong: Vec<String>, rank: Option<u32>) -> Findings {
        let ranks = rank.map(|rank| format!("rank {rank}"));
        let said = Some(Said { ranks, sentences: wrong.clone() }).filter(|_| !wrong.is_empty());
        Findings { wrong, no_reply: vec![], said: said.into_iter().collect(), is_first: true }
    }

    fn say(&mut self, ranks: Option<String>, sentence: String) {
        match self.said.iter_mut().find(|said| said.ranks == ranks) {
            Some(said) => said.sentences.push(sentence),
            None => self.said.push(Said { ranks, sentences: vec![sentence] }),
        }
    }
}

/// Where in the list those ranks are of which something is true.
fn places(all: &[Announcement], is: impl Fn(&Announcement) -> bool) -> Vec<usize> {
    all.iter().enumerate().filter(|(_, it)| is(it)).map(|(place, _)| place).collect()
}

/// How many CPUs the ranks of this node may use together: those of the process that has
/// started them, and no more than Slurm gives the job here.
fn available_cpus(rank_info: &RankInfo, env: &dyn Fn(&str) -> Option<String>) -> usize {
    let launcher = i32::try_from(peers::launcher(rank_info)).unwrap_or_default();
    let of_launcher = cpus_of(launcher).count();
    let of_job = env(variables::CPUS_ON_NODE).and_then(|count| count.parse().ok());
    of_job.unwrap_or(usize::MAX).min(of_launcher)
}

/// One sentence for the devices that the same ranks have, and which these are.
fn shared(own: &Announcement, all: &[Announcement]) -> Vec<(String, Vec<usize>)> {
    let mut groups: Vec<(Vec<usize>, Vec<&Own>)> = Vec::new();
    for device in &own.own {
        let have = places(all, |other| other.own.contains(device));
        match groups.iter_mut().find(|(known, _)| *known == have) {
            Some((_, devices)) => devices.push(device),
            None => groups.push((have, vec![device])),
        }
    }
    groups.retain(|(have, _)| have.len() > 1);
    let sentence = |(have, devices): (Vec<usize>, Vec<&Own>)| {
        let gpus = match devices.as_slice() {
            [Own { index, uuid: Some(uuid) }] => format!("GPU {index} ({uuid}) is"),
            [Own { index, uuid: None }] => format!("GPU {index} is"),
            several => format!("GPUs {} are", list(several.iter().map(|own| own.index as usize))),
        };
        let ranks = names(all, &have).unwrap_or_default();
        (format!("{gpus} shared by {ranks}, and nobody asked for `share`"), have)
    };
    groups.into_iter().map(sentence).collect()
}

/// Ranks that have CPUs in common with this one, though `cpus=local` is to part them.
fn overlapping(own: &Announcement, all: &[Announcement]) -> Option<(String, Vec<usize>)> {
    let have = places(all, |it| it.has_local_cpus && it.cpus.common(&own.cpus) > 0);
    if !own.has_local_cpus || have.len() < 2 {
        return None;
    }
    let ranks = names(all, &have).unwrap_or_default();
    let text = format!(
        "{ranks} have CPUs in common, though cpus=local is in effect: they have fewer cores \
         than they are, or something has changed their CPUs since"
    );
    Some((text, have))
}

/// Ranks that have fewer CPUs between them than they are.
fn crowded(
    own: &Announcement,
    all: &[Announcement],
    available: usize,
) -> Option<(String, Vec<usize>)> {
    let cpus = &own.cpus;
    let have = places(all, |other| other.cpus == *cpus);
    if cpus.is_empty() || have.len() <= cpus.count() {
        return None;
    }
    let text = format!(
        "{} are on {} ({cpus}), though there are {available}: a script or a tool has moved them, \
         such as one that takes LOCAL_RANK for a CPU",
        count(have.len(), "rank"),
        count(cpus.count(), "CPU")
    );
    Some((text, have))
}

/// `rank 3`, or `ranks 0-2,5`; local ranks where there are no others.
fn names(all: &[Announcement], places: &[usize]) -> Option<String> {
    let those = || places.iter().filter_map(|place| all.get(*place));
    let ranks: Option<Vec<usize>> = those().map(|it| Some(it.rank? as usize)).collect();
    let (kind, ranks) = match ranks {
        Some(ranks) => ("rank", ranks),
        None => ("local rank", those().map(|other| other.local_rank).collect()),
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
