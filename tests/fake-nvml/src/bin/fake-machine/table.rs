//! What is printed: the GPUs, for scripts.

use gpubind_machine::Machine;
use serde_json::{Value, json};

/// A line for each GPU, separated by tabs.
pub fn lines(machine: &Machine) -> String {
    let mut text = String::new();
    for (index, gpu) in machine.gpus.iter().enumerate() {
        let numa = gpu.place.numa.as_ref().map(|ids| join(&machine.cpu_nodes(ids)));
        let cells = [
            index.to_string(),
            gpu.minor.to_string(),
            gpu.pci.to_string(),
            gpu.uuid.clone(),
            gpu.name.clone(),
            numa.unwrap_or_else(|| "-".to_owned()),
            gpu.cpus.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
        ];
        text.push_str(&cells.join("\t"));
        text.push('\n');
    }
    text
}

/// The same as JSON, with the MIG instances, and the code of a GPU that is not
/// usable.
pub fn json(machine: &Machine) -> serde_json::Result<String> {
    let gpus: Vec<Value> = machine
        .gpus
        .iter()
        .enumerate()
        .map(|(index, gpu)| {
            let instances = gpu.mig.iter().flat_map(|mig| mig.slots.iter().flatten());
            json!({
                "index": index,
                "minor": gpu.minor,
                "pci": gpu.pci,
                "uuid": gpu.uuid,
                "name": gpu.name,
                "numa": gpu.place.numa.as_ref().map(|ids| machine.cpu_nodes(ids)),
                "cpus": gpu.cpus,
                "mig": instances.collect::<Vec<_>>(),
                "fault": machine.faults.handle(index),
            })
        })
        .collect();
    Ok(serde_json::to_string_pretty(&gpus)? + "\n")
}

fn join(ids: &[u32]) -> String {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    ids.join(",")
}
