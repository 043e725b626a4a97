//! Naive, Slurm's greedy `single:1` and the plan, side by side.

use comfy_table::Cell;
use gpubind_core::variables;

use super::nearness::Nearness;
use super::scenario::{Mapping, Scenario};
use super::table::{cost_table, cpu_list, names, table};
use crate::cli::output::lines;
use gpubind_core::words::count;

/// The whole output.
pub(super) fn text(scenario: &Scenario, compared: &[Mapping], colour: bool) -> String {
    let (tasks, devices) = (scenario.tasks.len(), scenario.devices.len());
    let mut text = format!(
        "{} on {}, one for each task in every column\n{}\n\n",
        count(tasks, "task"),
        count(devices, "device"),
        scenario.source
    );
    text += &lines(ranks(scenario, compared, colour), colour);
    let costs: Vec<_> = compared.iter().map(|mapping| (mapping.name, mapping.cost)).collect();
    text += &format!("\n{}\n", lines(cost_table(&costs, colour), colour));
    for mapping in compared {
        let away = (0..tasks).filter(|task| near(scenario, mapping, *task).is_away()).count();
        text += &format!("{}: {away} of {tasks} ranks not local to their GPU\n", mapping.name);
    }
    text
}

fn ranks(scenario: &Scenario, compared: &[Mapping], colour: bool) -> comfy_table::Table {
    let mut table = table([variables::RANK, "CPUS", "NAIVE", "SINGLE:1", "PLAN"], colour);
    for (task, cpus) in scenario.tasks.iter().enumerate() {
        let cells = compared.iter().map(|mapping| {
            let position = mapping.list.get(task).copied();
            let name = names(scenario.node, &scenario.at(position.as_slice()));
            Cell::new(format!("{name} ({})", near(scenario, mapping, task)))
        });
        table.add_row([Cell::new(task), Cell::new(cpu_list(cpus))].into_iter().chain(cells));
    }
    table
}

fn near(scenario: &Scenario, mapping: &Mapping, task: usize) -> Nearness {
    let devices = scenario.at(mapping.list.get(task).copied().as_slice());
    match scenario.tasks.get(task) {
        Some(cpus) => Nearness::of(scenario.node, &devices, cpus),
        None => Nearness::Unknown,
    }
}
