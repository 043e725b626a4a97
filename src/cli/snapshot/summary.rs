//! A node in one line.

use gpubind_core::node::Node;
use gpubind_core::words::count;

/// One line: what is there, and what cannot be used.
pub(super) fn summary(node: &Node) -> String {
    let mut models: Vec<(&str, usize)> = Vec::new();
    for gpu in &node.gpus {
        let name = gpu.name.known().map_or("unknown model", String::as_str);
        match models.iter_mut().find(|(model, _)| *model == name) {
            Some((_, count)) => *count += 1,
            None => models.push((name, 1)),
        }
    }
    let models: Vec<String> =
        models.iter().map(|(model, count)| format!("{count}x {model}")).collect();
    let mut line = count(node.gpus.len(), "GPU");
    if !models.is_empty() {
        line += &format!(" ({})", models.join(", "));
    }
    let instances: usize = node.gpus.iter().map(|gpu| gpu.mig.len()).sum();
    if instances > 0 {
        line += &format!(", {}", count(instances, "MIG instance"));
    }
    if let Some(driver) = &node.driver {
        line += &format!(", driver {driver}");
    }
    let with_cpus = node.numa.iter().filter(|numa| !numa.cpus.is_empty()).count();
    line += &format!(", {} with CPUs", count(with_cpus, "NUMA node"));
    for unusable in &node.unusable {
        let pci = unusable.pci.map_or_else(String::new, |pci| format!(" at {pci}"));
        line +=
            &format!("; GPU {}{pci} cannot be used (NVML code {})", unusable.index, unusable.code);
    }
    line
}
