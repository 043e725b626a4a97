//! The plan as a picture: the machine of `gpubind topo --svg` with the ranks at their GPUs.

use super::nearness::Nearness;
use super::scenario::Scenario;
use super::table;
use crate::cli::topo::svg::{self, Tag, TagWords};
use gpubind_core::node::{Device, IdSet};
use gpubind_core::words::count;

/// Ranks and CPUs below a GPU are cut beyond so many lines; `--json` has them whole.
const MOST_LINES: usize = 2;

/// What the colours below the GPUs mean.
const WORDS: TagWords = TagWords { plain: "its ranks", marked: "ranks that are not all local" };

/// A rank that has a device of a GPU.
struct Holder<'s> {
    rank: usize,
    cpus: &'s IdSet,
    nearness: Nearness,
}

/// The picture.
pub(super) fn draw(scenario: &Scenario) -> String {
    let planned = scenario.planned();
    let holders = |gpu: usize| -> Vec<Holder> {
        let ranks = planned.iter().zip(&scenario.in_effect).enumerate();
        let holder = |(rank, (devices, cpus))| {
            let devices: &Vec<Device> = devices;
            let own: Vec<Device> = devices.iter().copied().filter(|it| it.gpu == gpu).collect();
            let nearness = Nearness::of(scenario.node, &own, cpus);
            (!own.is_empty()).then_some(Holder { rank, cpus, nearness })
        };
        ranks.filter_map(holder).collect()
    };
    let tags: Vec<Option<Tag>> =
        (0..scenario.node.gpus.len()).map(|gpu| tag(&holders(gpu))).collect();
    svg::draw(scenario.node, &title(scenario), &tags, Some(WORDS))
}

fn title(scenario: &Scenario) -> String {
    let planned = scenario.planned();
    let ranks = planned.iter().zip(&scenario.in_effect);
    let nearness: Vec<Nearness> =
        ranks.map(|(devices, cpus)| Nearness::of(scenario.node, devices, cpus)).collect();
    let local = nearness.iter().filter(|it| **it == Nearness::Local).count();
    let is_known = nearness.iter().all(|it| *it != Nearness::Unknown);
    let local = match is_known {
        true => format!("{local} of {} local", count(nearness.len(), "rank")),
        false => "which ranks are local is not known".to_owned(),
    };
    format!("{}; {local}", table::heading(scenario))
}

fn tag(holders: &[Holder]) -> Option<Tag> {
    let (first, others) = holders.split_first()?;
    let is_marked = holders.iter().any(|holder| holder.nearness.is_away());
    if others.is_empty() {
        let cpus = Some(first.cpus).filter(|cpus| !cpus.is_empty());
        let mut lines = cpus.map_or_else(Vec::new, |cpus| cut(&format!("CPUs {cpus}")));
        lines.extend(match first.nearness {
            Nearness::Local => Some("local".to_owned()),
            Nearness::Partly(_) => Some("partly local".to_owned()),
            Nearness::Far(_) => Some(format!("distance {}", first.nearness)),
            Nearness::Unknown => None,
        });
        return Some(Tag { title: format!("rank {}", first.rank), lines, is_marked });
    }
    let ranks: IdSet = holders.iter().map(|holder| holder.rank).collect();
    let mut lines = cut(&ranks.to_string());
    if holders.iter().all(|holder| holder.nearness != Nearness::Unknown) {
        let local = holders.iter().filter(|holder| holder.nearness == Nearness::Local).count();
        lines.push(format!("{local} of {} local", holders.len()));
    }
    Some(Tag { title: count(holders.len(), "rank"), lines, is_marked })
}

/// A text in lines, of which there are not too many.
fn cut(text: &str) -> Vec<String> {
    let mut lines = svg::tag_lines(text);
    let is_long = lines.len() > MOST_LINES;
    lines.truncate(MOST_LINES);
    if let Some(last) = lines.last_mut().filter(|_| is_long) {
        last.push('…');
    }
    lines
}
