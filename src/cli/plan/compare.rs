//! Naive, Slurm's greedy `single:1` and the plan, side by side.

use comfy_table::Cell;
use gpubind_core::variables;

use super::nearness::Nearness;
use super::scenario::{Mapping, Scenario};
use super::table::{cost_table, cpu_list, names, table};
use crate::cli::output::Form;
use gpubind_core::words::count;

/// The whole output.
pub(super) fn text(scenario: &Scenario, compared: &[Mapping], form: Form) -> String {
    let (tasks, devices) = (scenario.tasks.len(), scenario.devices.len());
    let heading = format!(
        "{} on {}, one for each task in every column",
        count(tasks, "task"),
        count(devices, "device")
    );
    let line = |text: &str| form.text(text, "  ");
    let mut text = format!("{}\n{}\n\n", line(&heading), line(&scenario.source));
    text += &form.table(ranks(scenario, compared, form.colour));
    let costs: Vec<_> = compared.iter().map(|mapping| (mapping.name, mapping.cost)).collect();
    text += &format!("\n{}\n", form.table(cost_table(&costs, form.colour)));
    for mapping in compared {
        let away = (0..tasks).filter(|task| near(scenario, mapping, *task).is_away()).count();
        let sum = format!("{}: {away} of {tasks} ranks not local to their GPU", mapping.name);
        text += &format!("{}\n", line(&sum));
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
