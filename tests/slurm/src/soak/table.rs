//! What a soak has found, as a short table.

use std::collections::BTreeMap;
use std::time::Duration;

use super::step::Way;

/// Counts of a soak, of one cluster or of several.
#[derive(Debug, Default)]
pub struct Found {
    pub steps: usize,
    pub tasks: usize,
    pub refused: usize,
    pub restarts: usize,
    pub killed: usize,
    pub late: usize,
    pub ways: BTreeMap<usize, usize>,
    pub faults: BTreeMap<&'static str, usize>,
    pub wrong: Vec<String>,
    pub drained: Vec<String>,
    pub left: BTreeMap<&'static str, Vec<String>>,
    /// slurmd's memory in KiB, by step, since it was last started.
    pub memory: Vec<(usize, u64)>,
    /// What it has grown by in its second half, in KiB.
    pub growth: i64,
    pub time: Duration,
}

/// What slurmd may gain between the middle and the end of a run, in KiB. It grows a little
/// in its first hundreds of steps, with the plugin and without.
pub const GROWTH: i64 = 512;

impl Found {
    /// Everything that must be nothing.
    pub fn problems(&self) -> Vec<String> {
        let mut all = self.wrong.clone();
        all.extend(self.drained.iter().map(|text| format!("drained: {text}")));
        for (what, found) in &self.left {
            all.extend(found.iter().map(|text| format!("leaked {what}: {text}")));
        }
        if self.growth > GROWTH {
            let series = &self.memory;
            all.push(format!("slurmd has grown by {} KiB: {series:?}", self.growth));
        }
        all
    }

    pub fn print(&self, name: &str) {
        let left = |what: &str| self.left.get(what).map_or(0, Vec::len);
        let ends = |at: Option<&(usize, u64)>| at.map_or(0, |(_, memory)| *memory);
        println!("{name}: {} steps in {} s", self.steps, self.time.as_secs());
        let per_way = Way::NAMES.iter().enumerate();
        for (at, (_, way)) in per_way {
            println!("  {:7} {way}", self.ways.get(&at).unwrap_or(&0));
        }
        for (fault, steps) in &self.faults {
            println!("  {steps:7} steps with: {fault}");
        }
        let (first, last) = (ends(self.memory.first()), ends(self.memory.last()));
        for (what, number) in [
            ("tasks that have checked themselves", self.tasks),
            ("steps that strict has refused, as it must", self.refused),
            ("restarts of slurmd", self.restarts),
            ("processes killed that read NVML", self.killed),
            ("readings of NVML that came late", self.late),
            ("wrong bindings", self.wrong.len()),
            ("drained nodes", self.drained.len()),
            ("leaked processes", left("processes")),
            ("leaked descriptors", left("descriptors")),
            ("leaked files", left("files")),
        ] {
            println!("  {number:7} {what}");
        }
        println!("  {first:7} KiB of slurmd after its last start, {last} KiB at the end");
    }
}
