//! `report --table`: the reports of all ranks on one node, at the first of them.

use std::env;
use std::io;
use std::time::Duration;

use super::CheckedReport;
use crate::cli::ending::warn;
use crate::cli::peers::{self, exchange, peer_group};
use gpubind_core::step::RankInfo;

/// The reports of this node's ranks, where this is the first of those that have answered;
/// `None` elsewhere.
///
/// # Errors
/// The system refuses sockets.
pub fn gather(
    own: &CheckedReport,
    rank_info: &RankInfo,
    time: Duration,
) -> io::Result<Option<Vec<CheckedReport>>> {
    let env = |name: &str| env::var(name).ok();
    let uid = rustix::process::getuid().as_raw();
    let Some(mut group) = peer_group(rank_info, uid, || peers::launcher(rank_info), &env) else {
        return Ok(Some(vec![own.clone()]));
    };
    // The ranks that check have met before, under the other name.
    group.name.push_str("-table");
    let replies = exchange(&group, &serde_json::to_string(own)?, time)?;
    if replies.iter().position(Option::is_some) != Some(group.position) {
        return Ok(None);
    }
    let missing = replies.iter().filter(|reply| reply.is_none()).count();
    if missing > 0 {
        let host = &own.report.host;
        warn(&format!("{host}: {missing} of {} ranks have not answered", replies.len()));
    }
    let reports = replies.iter().flatten().filter_map(|reply| serde_json::from_str(reply).ok());
    Ok(Some(reports.collect()))
}
