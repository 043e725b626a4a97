//! `--check`: whether this process has what it should have, and nobody else has it too.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::exchange::exchange;
use super::gather::{self, Report, is_sharing_wanted};
use super::peers::{launcher, peer_group};
use gpubind_core::step::{RankInfo, RankSource, names};

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
    let own = own(report, env);
    let mut findings = Findings { wrong: alone(report, rank_info, &own, env), no_reply: vec![] };
    let uid = rustix::process::getuid().as_raw();
    let Some(group) = peer_group(rank_info, uid, || launcher(rank_info), env) else {
        eprintln!(
            "gpubind: {} does not tell how many ranks this node has; cannot tell whether they \
             share GPUs",
            rank_info.source
        );
        return Ok(findings);
    };
    let announcement = Announcement { rank: report.rank, local_rank: rank_info.local_rank, own };
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
    Ok(findings)
}

/// The devices that the process is to use, as it tells the others.
fn own(report: &Report, env: &dyn Fn(&str) -> Option<String>) -> Vec<Own> {
    let seen = report
        .devices
        .iter()
        .map(|device| Own { index: device.device.index, uuid: device.device.uuid.clone() });
    let seen: Vec<Own> = seen.collect();
    gather::own(&seen, |own| own.uuid.clone(), &facts(report, env))
}

fn facts(report: &Report, env: &dyn Fn(&str) -> Option<String>) -> String {
    gather::facts(report.given.as_deref(), report.visible.as_deref(), env)
}

fn is_as_given(report: &Report) -> bool {
    report.given.is_some() && report.given == report.visible
}

/// What is wrong with the process, whatever the others have.
fn alone(
    report: &Report,
    rank_info: &RankInfo,
    own: &[Own],
    env: &dyn Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let list = report.visible.as_deref();
    let text = list.map_or("unset".to_owned(), |list| format!("\"{list}\""));
    if let Some(given) = report.given.as_deref().filter(|_| !is_as_given(report)) {
        if !is_picked(list.unwrap_or_default(), given, rank_info) {
            wrong.push(format!(
                "CUDA_VISIBLE_DEVICES is {text}, but gpubind has set \"{given}\": something has \
                 changed it since, such as a TaskProlog or a script"
            ));
        }
    }
    if !report.is_known {
        wrong.push("the node's GPUs are unknown, so the rest cannot be checked".to_owned());
        return wrong;
    }
    let named = list.map_or(report.devices.len(), |list| names(list).count());
    if report.devices.is_empty() {
        wrong.push(match list {
            Some(_) => format!("CUDA_VISIBLE_DEVICES={text} names no GPU of this process's"),
            None => "this process can reach no GPU".to_owned(),
        });
    } else if report.devices.len() < named {
        let (first, all) = (report.devices.len(), named);
        wrong.push(format!(
            "CUDA_VISIBLE_DEVICES={text}: entry {} names no GPU that works, so CUDA shows {first} \
             of {all}",
            first + 1
        ));
    }
    for device in report.devices.iter().filter(|device| !device.reachable) {
        wrong.push(format!(
            "GPU {} is not reachable: its device file may not be opened (device cgroup, file mode)",
            device.device.index
        ));
    }
    let facts = facts(report, env);
    let is_seen = |uuid: &&str| own.iter().any(|own| own.uuid.as_deref() == Some(*uuid));
    if let Some(uuid) = names(&facts).find(|uuid| !is_seen(uuid)) {
        wrong.push(format!(
            "gpubind has given {uuid}, but CUDA_VISIBLE_DEVICES={text} is another GPU here"
        ));
    }
    wrong
}

/// Whether a launcher has picked these from the list that gpubind gave its task, as
/// torchrun --virtual-local-rank does.
fn is_picked(list: &str, given: &str, rank_info: &RankInfo) -> bool {
    matches!(rank_info.source, RankSource::Launcher(_))
        && names(list).count() > 0
        && names(list).all(|name| names(given).any(|given| given == name))
}

/// One sentence for each device that another rank has too.
fn shared(announcement: &Announcement, others: &[Announcement]) -> Vec<String> {
    let sentence = |own: &Own| {
        let have = others.iter().filter(|other| other.own.contains(own));
        let ranks: Vec<String> = have
            .map(|other| match other.rank {
                Some(rank) => format!("rank {rank}"),
                None => format!("local rank {}", other.local_rank),
            })
            .collect();
        let uuid = own.uuid.as_ref().map_or_else(String::new, |uuid| format!(" ({uuid})"));
        (!ranks.is_empty()).then(|| {
            format!(
                "GPU {}{uuid} is shared with {}, and nobody asked for `share`",
                own.index,
                ranks.join(", ")
            )
        })
    };
    announcement.own.iter().filter_map(sentence).collect()
}
