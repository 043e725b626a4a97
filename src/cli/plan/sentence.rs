//! The plan's gain over the naive order, in one sentence.

use super::nearness::{Distance, Nearness, Sockets};
use super::scenario::Scenario;
use gpubind_core::node::{Device, Node};

/// What naive would do worse, or that it would not.
pub(super) fn text(scenario: &Scenario) -> String {
    let (plan, naive) = (scenario.plan.cost, scenario.plan.naive);
    let intro = unknown(scenario).map_or_else(String::new, |unknown| format!("{unknown}; "));
    let comparison = if plan.numa < naive.numa {
        nearer(scenario)
    } else if plan.links < naive.links {
        let percent = (naive.links - plan.links) * 100 / naive.links;
        let how_much = if percent == 0 { "a little".to_owned() } else { format!("{percent} %") };
        format!(
            "naive would be as near, but neighbouring ranks' links would cost more; the plan saves {how_much}"
        )
    } else if scenario.planned() == scenario.naive() {
        "the plan is the naive one: rank i on the i-th GPU".to_owned()
    } else {
        "naive would cost the same".to_owned()
    };
    format!("{intro}{comparison}.")
}

/// What keeps CPUs from counting.
fn unknown(scenario: &Scenario) -> Option<&'static str> {
    let node = scenario.node;
    let is_known =
        |device: &Device| node.gpu(*device).is_some_and(|gpu| gpu.cpus.known().is_some());
    if !scenario.devices.iter().any(is_known) {
        return Some("which CPUs are near a GPU is not known here, so only links count");
    }
    let no_cpus = scenario.tasks.iter().all(|cpus| cpus.is_empty());
    no_cpus.then_some("the tasks' CPUs are not known, so only links count")
}

/// In what way the plan is nearer to the CPUs: the coarsest that shows.
fn nearer(scenario: &Scenario) -> String {
    let node = scenario.node;
    let ranks = scenario.tasks.len();
    let (planned, naive) = (scenario.planned(), scenario.naive());
    let sockets = Sockets::of(node);
    let far = |devices: &[Vec<Device>]| {
        let tasks = devices.iter().zip(&scenario.tasks);
        tasks.filter(|(devices, cpus)| sockets.is_far(node, devices, cpus)).count()
    };
    let (far_plan, far_naive) = (far(&planned), far(&naive));
    if far_plan < far_naive {
        let socket = if sockets.count() == 2 { "the far socket" } else { "another socket" };
        let rest = match far_plan {
            0 => "none there".to_owned(),
            some => format!("{some} there, for want of nearer GPUs"),
        };
        return format!(
            "naive would put {far_naive} of {ranks} ranks on {socket}; the plan puts {rest}"
        );
    }
    let away = |devices: &[Vec<Device>]| away(node, devices, scenario);
    let (away_plan, away_naive) = (away(&planned), away(&naive));
    if away_plan < away_naive {
        let rest = if away_plan == 0 { "none".to_owned() } else { away_plan.to_string() };
        return format!(
            "naive would give {away_naive} of {ranks} ranks a GPU that is not local to their CPUs; the plan {rest}"
        );
    }
    let slots: usize = planned.iter().map(Vec::len).sum();
    let mean = |cost: u64| Distance(cost / slots.max(1) as u64);
    format!(
        "naive's GPUs would be farther from the ranks' CPUs: mean distance {}; the plan's {}",
        mean(scenario.plan.naive.numa),
        mean(scenario.plan.cost.numa)
    )
}

fn away(node: &Node, devices: &[Vec<Device>], scenario: &Scenario) -> usize {
    let tasks = devices.iter().zip(&scenario.tasks);
    tasks.filter(|(devices, cpus)| Nearness::of(node, devices, cpus).is_away()).count()
}
