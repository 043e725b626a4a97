//! From rows to a node.

use std::collections::HashMap;

use super::error::{TextWarning, TopoTextError};
use super::header::{Column, Header};
use super::row::ReadRow;
use gpubind_core::node::{Gpu, IdSet, Link, Nic, Node, NumaNode, PciAddress, Probed};

/// Puts the rows together. Every GPU column must have its row.
pub(super) fn node(
    header: &Header,
    rows: &[ReadRow],
    nic_names: HashMap<String, String>,
    warnings: &mut Vec<TextWarning>,
) -> Result<Node, TopoTextError> {
    let mut by_number: Vec<(u32, usize)> = header.gpus.iter().copied().zip(0..).collect();
    by_number.sort_unstable();
    let order: Vec<usize> = by_number.iter().map(|(_, column)| *column).collect();
    let mut gpu_rows = Vec::new();
    for column in &order {
        let row = rows.iter().find(|row| row.device == *column);
        gpu_rows.push(row.ok_or_else(|| TopoTextError::MissingRow {
            line: header.line,
            row: header.name(*column).to_owned(),
        })?);
    }
    let link =
        |row: &ReadRow, column: usize| row.links.get(column).copied().unwrap_or(Link::Unknown);
    let links: Vec<Vec<Link>> = gpu_rows
        .iter()
        .map(|row| order.iter().map(|column| link(row, *column)).collect())
        .collect();
    compare_directions(header, rows, warnings);
    let nics = (header.gpus.len()..header.devices.len()).map(|column| {
        let name = header.name(column);
        let own_row = rows.iter().find(|row| row.device == column);
        let to_gpu = |(row, gpu_column): (&&ReadRow, &usize)| {
            let back = own_row.map(|own| link(own, *gpu_column));
            worse(link(row, column), back.unwrap_or(Link::Same))
        };
        Nic {
            name: nic_names.get(name).cloned().unwrap_or_else(|| name.to_owned()),
            pci: None,
            links: gpu_rows.iter().zip(&order).map(to_gpu).collect(),
        }
    });
    let nics = nics.collect();
    let gpus: Vec<Gpu> = by_number
        .iter()
        .zip(&gpu_rows)
        .zip(0..)
        .map(|(((number, _), row), position)| gpu(*number, position, row))
        .collect();
    let mut node = Node { gpus, links, nics, ..Node::default() };
    drop_gpu_memory_nodes(&mut node, warnings);
    node.numa = numa_nodes(&node, warnings);
    missing_cells(header, &node, warnings);
    Ok(node)
}

fn gpu(index: u32, position: u32, row: &ReadRow) -> Gpu {
    Gpu {
        index,
        minor: Probed::Unsupported,
        uuid: Probed::Unsupported,
        pci: PciAddress::placeholder(position),
        name: Probed::Unsupported,
        cpus: row.affinity.cpus.clone().into(),
        numa: row.affinity.numa.clone().into(),
        gpu_numa_id: row.affinity.gpu_numa.into(),
        mig_mode: Probed::Unsupported,
        mig: Vec::new(),
        persistence: Probed::Unsupported,
    }
}

fn worse(a: Link, b: Link) -> Link {
    if a.hop() >= b.hop() { a } else { b }
}

/// Warns of pairs whose two cells differ.
fn compare_directions(header: &Header, rows: &[ReadRow], warnings: &mut Vec<TextWarning>) {
    for (nth, a) in rows.iter().enumerate() {
        for b in rows.iter().skip(nth + 1) {
            let both_nics = a.device.min(b.device) >= header.gpus.len();
            let cells = a.links.get(b.device).zip(b.links.get(a.device));
            let Some((there, back)) = cells.filter(|_| !both_nics) else { continue };
            if there != back {
                warnings.push(TextWarning::Asymmetric {
                    a: header.name(a.device).to_owned(),
                    b: header.name(b.device).to_owned(),
                    there: *there,
                    back: *back,
                });
            }
        }
    }
}

/// On Grace machines the NUMA cell also lists the nodes of GPU memory, which
/// have no CPUs. They come after all CPU nodes, from the lowest GPU NUMA ID on.
fn drop_gpu_memory_nodes(node: &mut Node, warnings: &mut Vec<TextWarning>) {
    let ids = node.gpus.iter().filter_map(|gpu| gpu.gpu_numa_id.known());
    let Some(first) = ids.min().copied() else { return };
    for gpu in &mut node.gpus {
        let Probed::Known(numa) = &mut gpu.numa else { continue };
        let (near, memory): (Vec<u32>, Vec<u32>) = numa.iter().partition(|id| **id < first);
        if near.is_empty() || memory.is_empty() {
            continue;
        }
        *numa = near;
        let gpus = format!("GPU{}", gpu.index);
        let numa = list(&memory);
        match warnings.iter_mut().find_map(|known| match known {
            TextWarning::GpuMemoryNodes { gpus, numa: same, .. } if *same == numa => Some(gpus),
            _ => None,
        }) {
            Some(others) => *others += &format!(", {gpus}"),
            None => warnings.push(TextWarning::GpuMemoryNodes { gpus, numa, first }),
        }
    }
}

/// The NUMA nodes whose CPUs the text shows: those of GPUs with one NUMA node.
/// Nodes with contradicting CPUs are left out, and so are nodes of unknown
/// CPUs (an empty set would say that they have none). The GPUs' own memory
/// nodes have none.
fn numa_nodes(node: &Node, warnings: &mut Vec<TextWarning>) -> Vec<NumaNode> {
    let mut found: Vec<(u32, Vec<usize>)> = Vec::new();
    let mut several: Vec<(String, Vec<String>)> = Vec::new();
    for gpu in &node.gpus {
        let name = format!("GPU{}", gpu.index);
        match (gpu.numa.known().map(Vec::as_slice), gpu.cpus.known()) {
            (Some([id]), Some(cpus)) => match found.iter_mut().find(|(known, _)| known == id) {
                Some((_, all)) => all.extend(cpus.iter()),
                None => found.push((*id, cpus.iter().collect())),
            },
            (Some(ids), _) if ids.len() > 1 => {
                let ids = list(ids);
                match several.iter_mut().find(|(known, _)| *known == ids) {
                    Some((_, names)) => names.push(name),
                    None => several.push((ids, vec![name])),
                }
            }
            _ => {}
        }
    }
    let several = several.into_iter();
    warnings.extend(
        several.map(|(numa, gpus)| TextWarning::SeveralNuma { gpus: gpus.join(", "), numa }),
    );
    let sets: Vec<(u32, IdSet)> =
        found.into_iter().map(|(id, cpus)| (id, cpus.into_iter().collect())).collect();
    let is_alone = |(id, cpus): &&(u32, IdSet)| {
        sets.iter().all(|(other, others)| other == id || cpus.common(others) == 0)
    };
    let numa = |id: u32, cpus: IdSet| NumaNode { id, cpus, distance: Vec::new() };
    let mut nodes: Vec<NumaNode> =
        sets.iter().filter(is_alone).map(|(id, cpus)| numa(*id, cpus.clone())).collect();
    for id in node.gpus.iter().filter_map(|gpu| gpu.gpu_numa_id.known()) {
        if nodes.iter().all(|known| known.id != *id) {
            nodes.push(numa(*id, IdSet::default()));
        }
    }
    nodes.sort_by_key(|numa| numa.id);
    nodes
}

/// Warns of cells that are empty, unless the row was left out with a reason.
fn missing_cells(header: &Header, node: &Node, warnings: &mut Vec<TextWarning>) {
    let left_out = |name: &str| {
        warnings
            .iter()
            .any(|w| matches!(w, TextWarning::AffinityLeftOut { row, .. } if row == name))
    };
    let names = |is_missing: &dyn Fn(&Gpu) -> bool| -> Option<String> {
        let gpus = node.gpus.iter().filter(|gpu| is_missing(gpu));
        let names = gpus.map(|gpu| format!("GPU{}", gpu.index)).filter(|name| !left_out(name));
        let names: Vec<String> = names.collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let has_cpus = |gpu: &Gpu| gpu.cpus.known().is_some_and(|cpus| !cpus.is_empty());
    let mut found = Vec::new();
    if !header.affinity.contains(&Column::Cpu) {
        found.push(TextWarning::NoCpuColumn);
    } else if let Some(gpus) = names(&|gpu| !has_cpus(gpu)) {
        found.push(TextWarning::NoCpus { gpus });
    }
    if header.affinity.contains(&Column::Numa) {
        let gpus = names(&|gpu| has_cpus(gpu) && gpu.numa.known().is_none());
        found.extend(gpus.map(|gpus| TextWarning::NoNuma { gpus }));
    }
    warnings.append(&mut found);
}

fn list(ids: &[u32]) -> String {
    ids.iter().filter_map(|id| usize::try_from(*id).ok()).collect::<IdSet>().to_string()
}
