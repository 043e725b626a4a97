//! The plan for people: a line for each rank, then what it costs and why.

use comfy_table::{Attribute, Cell, CellAlignment, Color, Table};
use gpubind_core::variables;

use crate::cli::output::Form;

use super::devices::ranges;
use super::nearness::Nearness;
use super::scenario::Scenario;
use super::sentence;
use gpubind_core::node::{Device, IdSet, Link, Node};
use gpubind_core::plan::{Cost, Why};
use gpubind_core::request::{Ids, Mode};
use gpubind_core::words::count;

/// Lists longer than this are cut; `--json` has them whole.
const LONGEST_LIST: usize = 44;

/// The whole output.
pub(super) fn text(scenario: &Scenario, form: Form) -> String {
    let costs = [("plan", scenario.plan.cost), ("naive", scenario.plan.naive)];
    let line = |text: &str| form.text(text, "  ");
    let mut text = format!("{}\n{}\n\n", line(&heading(scenario)), line(&scenario.source));
    text += &form.table(ranks(scenario, form.colour));
    text += &format!("\n{}", form.table(cost_table(&costs, form.colour)));
    text += &format!("\n{}\n", line(&sentence::text(scenario)));
    for reason in reasons(scenario) {
        text += &format!("{}\n", form.text(&reason, "    "));
    }
    if scenario.is_renumbered && scenario.settings.ids == Ids::Index {
        let renumbered =
            "With ConstrainDevices=yes in cgroup.conf the numbers are others: add --constrained.";
        text += &format!("{}\n", line(renumbered));
    }
    text
}

/// How many, on what, and what a task sees of it.
pub(super) fn heading(scenario: &Scenario) -> String {
    let (tasks, devices) = (scenario.tasks.len(), scenario.devices.len());
    let share = scenario.plan.shares.each();
    let mode = match scenario.settings.mode {
        Mode::Auto => "auto",
        Mode::Single => "single",
        Mode::Ordered => "ordered",
        Mode::First => "first",
        Mode::Off => "off",
    };
    let effect = match scenario.settings.mode {
        Mode::Ordered => "each sees all, entry SLURM_LOCALID is its own".to_owned(),
        Mode::First => "each sees all, its own first".to_owned(),
        _ if share > 1 => format!("each keeps {share}, for the processes that it starts"),
        _ if tasks > devices => format!("up to {} on one", tasks.div_ceil(devices)),
        _ => "one for each".to_owned(),
    };
    let rest = scenario.at(&scenario.plan.rest(devices));
    let rest = match scenario.settings.mode {
        Mode::Auto | Mode::Single if !rest.is_empty() => {
            format!("; unused: {}", names(scenario.node, &rest))
        }
        _ => String::new(),
    };
    let what = match scenario.devices.iter().any(|device| device.mig.is_some()) {
        true => "device",
        false => "GPU",
    };
    let (tasks, devices) = (count(tasks, "task"), count(devices, what));
    let names = names(scenario.node, &scenario.devices);
    format!("{tasks} on {devices} ({names}), mode {mode}: {effect}{rest}")
}

fn ranks(scenario: &Scenario, colour: bool) -> Table {
    let node = scenario.node;
    let is_mig = scenario.devices.iter().any(|device| device.mig.is_some());
    let mut table = table(
        [
            variables::RANK,
            "CPUS",
            if is_mig { "GPU:GI/CI" } else { "GPU" },
            "NUMA",
            "DISTANCE",
            "LINK",
            variables::CUDA_VISIBLE_DEVICES,
        ],
        colour,
    );
    let mut previous: Option<Device> = None;
    let planned = scenario.planned();
    for (rank, (devices, cpus)) in planned.iter().zip(&scenario.in_effect).enumerate() {
        let link = previous.zip(devices.first()).map(|(a, b)| link(node, a, *b));
        previous = devices.last().copied();
        let visible = scenario.visible.get(rank).cloned().flatten();
        table.add_row([
            Cell::new(rank),
            Cell::new(cpu_list(cpus)),
            Cell::new(names(node, devices)),
            Cell::new(numa(node, devices)),
            near_cell(Nearness::of(node, devices, cpus)),
            Cell::new(link.unwrap_or_else(|| "-".to_owned())),
            Cell::new(visible.map_or_else(|| "(as Slurm sets it)".to_owned(), |list| cut(&list))),
        ]);
    }
    table
}

/// An empty table with these headers.
pub(super) fn table<const N: usize>(headers: [&str; N], colour: bool) -> Table {
    let mut table = Table::new();
    table.set_header(headers.map(|header| match colour {
        true => Cell::new(header).add_attribute(Attribute::Bold),
        false => Cell::new(header),
    }));
    table
}

/// Costs by name.
pub(super) fn cost_table(costs: &[(&str, Cost)], colour: bool) -> Table {
    let mut table = table(["COST", "numa", "links"], colour);
    let number = |number: u64| Cell::new(number).set_alignment(CellAlignment::Right);
    for (name, cost) in costs {
        table.add_row([Cell::new(name), number(cost.numa), number(cost.links)]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Nearness; colours only show where the table has styles.
pub(super) fn near_cell(near: Nearness) -> Cell {
    let cell = Cell::new(near);
    match near {
        Nearness::Local => cell.fg(Color::Green),
        Nearness::Partly(_) | Nearness::Far(_) => cell.fg(Color::Yellow),
        Nearness::Unknown => cell,
    }
}

/// A task's CPUs.
pub(super) fn cpu_list(cpus: &IdSet) -> String {
    let list = cpus.to_string();
    match cpus.count() {
        0 => "?".to_owned(),
        _ if list.len() <= LONGEST_LIST => list,
        count => {
            let start: String = list.chars().take(LONGEST_LIST / 2).collect();
            let start = start.rsplit_once(',').map_or(start.as_str(), |(start, _)| start);
            format!("{start},… ({count} CPUs)")
        }
    }
}

/// A list of devices, cut after the first if it is long.
fn cut(list: &str) -> String {
    let entries = list.split(',').count();
    match list.split_once(',') {
        Some((first, _)) if list.len() > LONGEST_LIST => format!("{first},… ({entries})"),
        _ => list.to_owned(),
    }
}

/// Devices by NVML index, MIG instances with their GPU and compute instance.
/// Whole GPUs in a row become a range only where the order says nothing.
pub(super) fn names(node: &Node, devices: &[Device]) -> String {
    let name = |device: &Device| {
        let gpu = node.gpu(*device)?;
        Some(match device.mig.and_then(|mig| gpu.mig.get(mig)) {
            Some(instance) => format!("{}:{}/{}", gpu.index, instance.gi, instance.ci),
            None => gpu.index.to_string(),
        })
    };
    let whole: Option<Vec<usize>> = devices
        .iter()
        .map(|device| match device.mig {
            None => node.gpu(*device).map(|gpu| gpu.index as usize),
            Some(_) => None,
        })
        .collect();
    match whole {
        Some(indices) if indices.is_sorted() => ranges(indices.into_iter()),
        _ => cut(&devices.iter().filter_map(name).collect::<Vec<_>>().join(",")),
    }
}

/// The NUMA nodes of devices, each once.
fn numa(node: &Node, devices: &[Device]) -> String {
    let mut all = Vec::new();
    for gpu in devices.iter().filter_map(|device| node.gpu(*device)) {
        match gpu.numa.known() {
            Some(ids) if !ids.is_empty() => all.extend(ids.iter().map(|id| *id as usize)),
            _ => return "?".to_owned(),
        }
    }
    ranges(all.into_iter())
}

fn link(node: &Node, a: Device, b: Device) -> String {
    match node.link(a.gpu, b.gpu) {
        _ if a.gpu == b.gpu => "same".to_owned(),
        Link::Same => "same".to_owned(),
        link => link.to_string(),
    }
}

/// Why each rank has what it has, the ranks of one reason together.
fn reasons(scenario: &Scenario) -> Vec<String> {
    let mut groups: Vec<(Why, Vec<usize>)> = Vec::new();
    for rank in 0..scenario.tasks.len() {
        let why = scenario.plan.why(rank);
        match groups.iter_mut().find(|(known, _)| *known == why) {
            Some((_, ranks)) => ranks.push(rank),
            None => groups.push((why, vec![rank])),
        }
    }
    let line = |(why, ranks): (Why, Vec<usize>)| {
        let plural = if ranks.len() == 1 { "" } else { "s" };
        format!("  rank{plural} {}: {why}", ranges(ranks.into_iter()))
    };
    groups.into_iter().map(line).collect()
}
