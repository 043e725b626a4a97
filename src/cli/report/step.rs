//! The reports of all ranks of a step: sorted, counted, and as one JSON document.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::CheckedReport;
use super::gather::{DeviceReport, Report, SCHEMA};
use gpubind_core::bind::Locality;
use gpubind_core::node::IdSet;
use gpubind_core::words::count;

/// All ranks of a step whose reports are there.
#[derive(Serialize)]
pub struct Step {
    /// The version of this form: docs/json.md.
    schema: u32,
    pub summary: Summary,
    /// By rank.
    pub ranks: Vec<CheckedReport>,
}

/// What the ranks use, counted.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub ranks: usize,
    pub nodes: usize,
    /// The least and the most GPUs that the ranks of one node use.
    pub gpus_per_node: [usize; 2],
    /// Ranks all of whose CPUs are local to all GPUs that they use.
    pub local: usize,
    /// Ranks of which it is not known.
    pub unknown: usize,
    /// Ranks that use a GPU that another rank uses, too, though nobody asked for `share`.
    pub shared: usize,
    /// Ranks that nobody asked for gpubind, or that it has not bound.
    pub unbound: usize,
}

/// A device of the step, by the node and what tells it apart there.
type Name<'a> = (&'a str, &'a str, u32);

impl Step {
    pub fn new(mut ranks: Vec<CheckedReport>) -> Step {
        // Ranks by number; what has none by node.
        let key = |rank: &CheckedReport| {
            let report = &rank.report;
            (report.rank.unwrap_or(u32::MAX), report.host.clone(), report.local_rank)
        };
        ranks.sort_by_cached_key(key);
        Step { schema: SCHEMA, summary: summary(&ranks), ranks }
    }

    /// What is wrong with the step, and which ranks it is true for: what the ranks have found
    /// by themselves, and GPUs that they share.
    pub fn findings(&self) -> Vec<String> {
        let mut by_text: Vec<(String, Vec<usize>)> = Vec::new();
        let mut at: HashMap<String, usize> = HashMap::new();
        for rank in &self.ranks {
            for text in rank.check.iter().flat_map(|check| &check.wrong) {
                let position = *at.entry(text.clone()).or_insert_with(|| {
                    by_text.push((text.clone(), Vec::new()));
                    by_text.len() - 1
                });
                if let Some((_, ranks)) = by_text.get_mut(position) {
                    ranks.extend(rank.report.rank.map(|rank| rank as usize));
                }
            }
        }
        let found = by_text.into_iter().map(|(text, ranks)| match ranks.is_empty() {
            true => text,
            false => format!("{}: {text}", numbered(ranks)),
        });
        let mut found: Vec<String> = found.collect();
        let is_said = self.ranks.iter().any(|rank| rank.check.is_some());
        if self.summary.shared > 0 && !is_said {
            let shared = count(self.summary.shared, "rank");
            found.push(format!("{shared} share GPUs, and nobody asked for `share`"));
        }
        found
    }
}

/// `rank 3`, or `ranks 0-2,5`.
pub fn numbered(ranks: Vec<usize>) -> String {
    let plural = if ranks.len() == 1 { "" } else { "s" };
    format!("rank{plural} {}", ranks.into_iter().collect::<IdSet>())
}

fn name<'a>(report: &'a Report, device: &'a DeviceReport) -> Name<'a> {
    (&report.host, device.device.uuid.as_deref().unwrap_or_default(), device.device.index)
}

fn summary(ranks: &[CheckedReport]) -> Summary {
    let reports = || ranks.iter().map(|rank| &rank.report);
    let mut users: HashMap<Name, usize> = HashMap::new();
    let mut nodes: BTreeMap<&str, usize> = BTreeMap::new();
    for report in reports() {
        let used = nodes.entry(&report.host).or_default();
        for device in report.used() {
            let users = users.entry(name(report, device)).or_default();
            *used += usize::from(*users == 0);
            *users += 1;
        }
    }
    let all = |report: &Report, is: &dyn Fn(Locality) -> bool| {
        let used = report.used();
        !used.is_empty() && used.iter().all(|device| is(device.locality))
    };
    let is_unknown = |report: &&Report| {
        let used = report.used();
        used.is_empty() || used.iter().any(|device| device.locality == Locality::Unknown)
    };
    let is_shared = |report: &&Report| {
        let others = |device: &&DeviceReport| users.get(&name(report, device)) > Some(&1);
        !report.share && report.used().iter().any(others)
    };
    Summary {
        ranks: ranks.len(),
        nodes: nodes.len(),
        gpus_per_node: [nodes.values().min(), nodes.values().max()]
            .map(|number| number.copied().unwrap_or_default()),
        local: reports().filter(|report| all(report, &|it| it == Locality::Local)).count(),
        unknown: reports().filter(is_unknown).count(),
        shared: reports().filter(is_shared).count(),
        unbound: reports().filter(|report| report.assigned.is_none()).count(),
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [least, most] = self.gpus_per_node;
        let verb = if self.ranks == 1 { "uses" } else { "use" };
        write!(f, "{} on {} {verb} ", count(self.ranks, "rank"), count(self.nodes, "node"))?;
        match least == most {
            true => write!(f, "{}", count(most, "GPU"))?,
            false => write!(f, "{least} to {most} GPUs")?,
        }
        if self.nodes > 1 {
            write!(f, " on each")?;
        }
        let are = if self.local == 1 { "is" } else { "are" };
        write!(f, "; {} of {} {are} local to theirs", self.local, self.ranks)?;
        if self.unknown > 0 {
            write!(f, ", of {} it is not known", self.unknown)?;
        }
        if self.shared > 0 {
            write!(f, "; {} share a GPU with another rank", self.shared)?;
        }
        Ok(())
    }
}
