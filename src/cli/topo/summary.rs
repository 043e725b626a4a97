//! A node in one paragraph.

use super::matrix::{id_list, why_unusable};
use gpubind_core::node::{Gpu, Link, Node};
use gpubind_core::words::count;

/// One paragraph: how many GPUs, where, how they are joined, and what an admin
/// should know.
pub(super) fn text(node: &Node) -> String {
    let mut sentences = vec![gpus(node)];
    sentences.extend(empty_numa(node));
    sentences.extend(own_memory(node));
    sentences.extend(nics(node));
    sentences.extend(mig(node));
    sentences.extend(unusable(node));
    sentences.join(". ") + "."
}

fn gpus(node: &Node) -> String {
    let mut text = match node.gpus.len() {
        0 => return "no usable GPU".to_owned(),
        number => count(number, "GPU"),
    };
    let mut models: Vec<(&str, usize)> = Vec::new();
    for name in node.gpus.iter().filter_map(|gpu| gpu.name.known()) {
        match models.iter_mut().find(|(model, _)| model == name) {
            Some((_, count)) => *count += 1,
            None => models.push((name, 1)),
        }
    }
    match models.as_slice() {
        [] => {}
        [(model, _)] => text += &format!(" ({model})"),
        several => {
            let list: Vec<String> =
                several.iter().map(|(model, count)| format!("{count}x {model}")).collect();
            text += &format!(" ({})", list.join(", "));
        }
    }
    text += &format!(" {}", places(node));
    if node.gpus.len() > 1 {
        text += &format!(", {}", links(node));
    }
    text + order(node)
}

/// GPUs with the same NUMA nodes, in the order of their first GPU.
fn groups(node: &Node) -> Option<Vec<(Vec<u32>, Vec<&Gpu>)>> {
    let mut groups: Vec<(Vec<u32>, Vec<&Gpu>)> = Vec::new();
    for gpu in &node.gpus {
        let numa = gpu.numa.known()?;
        match groups.iter_mut().find(|(known, _)| known == numa) {
            Some((_, members)) => members.push(gpu),
            None => groups.push((numa.clone(), vec![gpu])),
        }
    }
    Some(groups)
}

fn places(node: &Node) -> String {
    let Some(groups) = groups(node) else { return "on unknown NUMA nodes".to_owned() };
    let sizes: Vec<usize> = groups.iter().map(|(_, members)| members.len()).collect();
    match (groups.as_slice(), sizes.first()) {
        ([(numa, _)], _) if numa.len() == 1 => format!("on NUMA node {}", id_list(numa)),
        ([(numa, _)], _) => format!("near NUMA nodes {} alike", id_list(numa)),
        (_, Some(first)) if sizes.iter().all(|size| size == first) => match first {
            1 => format!("on {} NUMA nodes, one each", sizes.len()),
            2 => format!("in {} NUMA pairs", sizes.len()),
            size => format!("in {} NUMA groups of {size}", sizes.len()),
        },
        _ => {
            let list: Vec<String> = groups
                .iter()
                .map(|(numa, members)| format!("{} on {}", members.len(), id_list(numa)))
                .collect();
            format!("spread unevenly over NUMA nodes ({})", list.join(", "))
        }
    }
}

fn links(node: &Node) -> String {
    let count = node.gpus.len();
    let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
    let pairs: Vec<(usize, usize, Link)> = pairs.map(|(a, b)| (a, b, node.link(a, b))).collect();
    let mut nvlinks: Vec<u32> = Vec::new();
    let mut joined: Vec<(usize, usize)> = Vec::new();
    for (a, b, link) in &pairs {
        if let Link::NvLink(links) = link {
            nvlinks.push(*links);
            joined.push((*a, *b));
        }
    }
    let (least, most) = match (nvlinks.iter().min(), nvlinks.iter().max()) {
        (Some(least), Some(most)) => (*least, *most),
        _ => return pcie(&pairs),
    };
    let number = match least == most {
        true => format!("NVLink {least}"),
        false => format!("NVLink {least} to {most}"),
    };
    if joined.len() == pairs.len() {
        return format!("all-to-all {number}");
    }
    let partners = |gpu: usize| joined.iter().filter(|(a, b)| *a == gpu || *b == gpu).count();
    let name = |gpu: &usize| node.gpus.get(*gpu).map_or(0, |gpu| gpu.index);
    match (0..count).all(|gpu| partners(gpu) <= 1) {
        true => {
            let list: Vec<String> =
                joined.iter().map(|(a, b)| format!("{}-{}", name(a), name(b))).collect();
            format!("{number} between pairs {} only", list.join(", "))
        }
        false => format!("{number} between {} of {} pairs", joined.len(), pairs.len()),
    }
}

fn pcie(pairs: &[(usize, usize, Link)]) -> String {
    let mut levels: Vec<Link> = pairs.iter().map(|(_, _, link)| *link).collect();
    levels.sort_by_key(|level| level.hop());
    levels.dedup();
    let words: Vec<String> = levels
        .iter()
        .map(|level| match level {
            Link::Unknown => "unknown".to_owned(),
            level => level.to_string(),
        })
        .collect();
    format!("no NVLink (PCIe {})", words.join(", "))
}

fn order(node: &Node) -> &'static str {
    let first = |gpu: &Gpu| gpu.numa.known().and_then(|numa| numa.first().copied());
    let Some(nodes) = node.gpus.iter().map(first).collect::<Option<Vec<u32>>>() else {
        return "";
    };
    let is_single = nodes.iter().all(|node| Some(node) == nodes.first());
    match (is_single, nodes.is_sorted(), nodes.iter().rev().is_sorted()) {
        (true, ..) => "",
        (_, true, _) => "; GPU order is NUMA order",
        (_, _, true) => "; GPU order is NUMA order backwards",
        _ => "; GPU order is not NUMA order",
    }
}

/// NUMA nodes with CPUs and without a GPU, where some node has one.
fn empty_numa(node: &Node) -> Option<String> {
    let used = groups(node)?;
    let is_free = |id: &u32| used.iter().all(|(numa, _)| !numa.contains(id));
    let with_cpus = node.numa.iter().filter(|numa| !numa.cpus.is_empty());
    let free: Vec<u32> = with_cpus.map(|numa| numa.id).filter(is_free).collect();
    match free.as_slice() {
        [] => None,
        [one] => Some(format!("NUMA node {one} has none")),
        several => Some(format!("NUMA nodes {} have none", id_list(several))),
    }
}

fn own_memory(node: &Node) -> Option<String> {
    let ids: Vec<u32> =
        node.gpus.iter().filter_map(|gpu| gpu.gpu_numa_id.known()).copied().collect();
    match ids.as_slice() {
        [] => None,
        [one] => Some(format!("NUMA node {one} is the GPU's own memory")),
        several => Some(format!("NUMA nodes {} are the GPUs' own memory", id_list(several))),
    }
}

fn nics(node: &Node) -> Option<String> {
    let near = node
        .nics
        .iter()
        .filter(|nic| nic.links.iter().any(|link| matches!(link, Link::Pix | Link::Pxb)));
    let near = near.count();
    let adapters = match node.nics.len() {
        0 => return None,
        1 if near == 1 => {
            return Some("1 network adapter, behind a PCIe switch with a GPU".to_owned());
        }
        number => count(number, "network adapter"),
    };
    let near = match near {
        0 => "none".to_owned(),
        near if near == node.nics.len() => "all".to_owned(),
        near => near.to_string(),
    };
    Some(format!("{adapters}, {near} behind a PCIe switch with a GPU"))
}

fn mig(node: &Node) -> Option<String> {
    let on = node.gpus.iter().filter(|gpu| gpu.mig_mode.known() == Some(&true));
    let list: Vec<String> =
        on.map(|gpu| format!("GPU{} ({})", gpu.index, instances(gpu.mig.len()))).collect();
    (!list.is_empty()).then(|| format!("MIG is on: {}", list.join(", ")))
}

fn instances(number: usize) -> String {
    match number {
        0 => "no instance".to_owned(),
        number => count(number, "instance"),
    }
}

fn unusable(node: &Node) -> Option<String> {
    let list: Vec<String> = node
        .unusable
        .iter()
        .map(|unusable| {
            format!("GPU{} cannot be used: {}", unusable.index, why_unusable(unusable.code))
        })
        .collect();
    (!list.is_empty()).then(|| list.join("; "))
}
