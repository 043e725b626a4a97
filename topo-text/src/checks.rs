//! Contradictions that the text itself shows, and a last row that its end may have cut.
//!
//! nvidia-smi prints CPU lists clipped to the cpuset of the shell it runs in,
//! and nothing in the text says so. Some clipped lists contradict the matrix or
//! the NUMA column, though.

use super::error::TextWarning;
use super::header::Header;
use super::row::ReadRow;
use super::tail::Affinity;
use gpubind_core::node::{Gpu, IdSet, Link, Node};

/// Compares every pair of GPUs, and names each kind of contradiction once for
/// the first pair that shows it.
pub(super) fn contradictions(node: &Node, rows: &[ReadRow], warnings: &mut Vec<TextWarning>) {
    let mut found: Vec<TextWarning> = Vec::new();
    for (at, a) in node.gpus.iter().enumerate() {
        for (offset, b) in node.gpus.iter().skip(at + 1).enumerate() {
            let link = node.link(at, at + 1 + offset);
            let Some(warning) = compare(a, b, link) else { continue };
            let kind = std::mem::discriminant(&warning);
            if found.iter().all(|known| std::mem::discriminant(known) != kind) {
                found.push(warning);
            }
        }
    }
    warnings.append(&mut found);
    let mut cut: Vec<(String, Vec<String>)> = Vec::new();
    for gpu in &node.gpus {
        let Some(cpus) = gpu.cpus.known().filter(|cpus| is_cut(cpus)) else { continue };
        let list = cpus.to_string();
        // Six single CPUs, printed as six, not as a range like 0-5.
        if !rows.iter().any(|row| row.affinity.cpu_list == list) {
            continue;
        }
        let name = format!("GPU{}", gpu.index);
        match cut.iter_mut().find(|(known, _)| *known == list) {
            Some((_, names)) => names.push(name),
            None => cut.push((list, vec![name])),
        }
    }
    let cut = cut.into_iter();
    warnings
        .extend(cut.map(|(cpus, gpus)| TextWarning::CpuListCut { gpus: gpus.join(", "), cpus }));
}

fn compare(a: &Gpu, b: &Gpu, link: Link) -> Option<TextWarning> {
    let (cpus_a, cpus_b) = (a.cpus.known()?, b.cpus.known()?);
    if cpus_a.is_empty() || cpus_b.is_empty() {
        return None;
    }
    let (name_a, name_b) = (format!("GPU{}", a.index), format!("GPU{}", b.index));
    let same = cpus_a == cpus_b;
    let common = cpus_a.common(cpus_b) > 0;
    let numa = match (a.numa.known().map(Vec::as_slice), b.numa.known().map(Vec::as_slice)) {
        (Some([a]), Some([b])) => Some((*a, *b)),
        _ => None,
    };
    match numa {
        Some((numa_a, numa_b)) if numa_a != numa_b && common => {
            Some(TextWarning::SameCpusOtherNuma {
                a: name_a,
                b: name_b,
                numa_a,
                numa_b,
                cpus: cpus_a.intersection(cpus_b).to_string(),
            })
        }
        Some((numa_a, numa_b)) if numa_a == numa_b && !same => {
            Some(TextWarning::OtherCpusSameNuma { a: name_a, b: name_b, numa: numa_a })
        }
        None if common && !same => Some(TextWarning::CpusOverlap { a: name_a, b: name_b }),
        None if same && link == Link::Sys => {
            Some(TextWarning::SameCpusSysApart { a: name_a, b: name_b, cpus: cpus_a.to_string() })
        }
        _ => None,
    }
}

/// Whether a set is six CPUs without two neighbours.
fn is_cut(cpus: &IdSet) -> bool {
    let cpus: Vec<usize> = cpus.iter().collect();
    let steps = cpus.iter().zip(cpus.iter().skip(1));
    cpus.len() == 6 && steps.into_iter().all(|(a, b)| *b > a + 1)
}

/// A text may have been cut in its last row: if that one has fewer cells than
/// the others (or, without others, than the header), the last of its cells may
/// be only the front of a list.
pub(super) fn distrust_cut_row(
    header: &Header,
    rows: &mut [ReadRow],
    warnings: &mut Vec<TextWarning>,
) {
    let gpus = header.gpus.len();
    let Some((last, before)) = rows.split_last_mut() else { return };
    let others = before.iter().filter(|row| row.device < gpus).map(|row| row.affinity.width);
    let widest = others.max().unwrap_or(header.affinity.len());
    if last.device < gpus && last.affinity.width > 0 && last.affinity.width < widest {
        last.affinity = Affinity::default();
        warnings.push(TextWarning::AffinityLeftOut {
            line: last.line,
            row: header.name(last.device).to_owned(),
            reason: "the text ends in this row, with fewer cells than it should have".to_owned(),
        });
    }
}
