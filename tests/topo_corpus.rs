//! Reads every real `nvidia-smi topo -m` paste of a folder beside the
//! repository (or of $GPUBIND_TOPOLOGIES), where there is one, and compares
//! with what a person read in it.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::PathBuf;

use gpubind_core::node::{Gpu, Link, Node, Probed};
use gpubind_topo_text as topo_text;

/// File, network adapters, warnings, and the GPUs in order as
/// `count x NUMA nodes[/GPU NUMA ID]:CPUs`, `?` where the text does not tell.
#[rustfmt::skip]
const EXPECTED: &[(&str, usize, usize, &str)] = &[
    ("a100-pcie-evenodd-4-1", 1, 2, "2x0:0,2,4,6,8,10 2x1:1,3,5,7,9,11"),
    ("a100-pcie-nvbridge-4-1", 0, 0, "2x0:0-51,104-155 2x1:52-103,156-207"),
    ("a100-pcie-nvbridge-6-1", 1, 0, "3x0:0-27,56-83 3x1:28-55,84-111"),
    ("a100-sxm-2of4-nps4-1", 0, 0, "1x3:24-31 1x5:40-47"),
    ("a100-sxm-4of8-1", 0, 0, "1x0:0-31,64-95 3x1:32-63,96-127"),
    ("aws-p4d-1", 0, 0, "4x0:0-23,48-71 4x1:24-47,72-95"),
    ("azure-nc96-a100-1", 0, 0, "1x0:0-23 1x1:24-47 1x2:48-71 1x3:72-95"),
    ("azure-nc96-a100-2", 0, 0, "1x0:0-23 1x1:24-47 1x2:48-71 1x3:72-95"),
    ("cloud-h100-8-1", 1, 0, "4x0:0-103 4x1:104-207"),
    ("cloud-h100-8-2", 0, 0, "4x0:0-47,96-143 4x1:48-95,144-191"),
    ("cloud-h100-8-3", 0, 0, "4x0:0-51,104-155 4x1:52-103,156-207"),
    ("cloud-h100-8-4", 0, 0, "4x0:0-51 4x1:52-103"),
    ("cloud-v100-8-1", 0, 1, "8x?:0-95"),
    ("cloud-v100-8-2", 0, 1, "8x0,1:0-63"),
    ("delta-a100-4-1", 1, 0, "1x3:48-63 1x2:32-47 1x1:16-31 1x0:0-15"),
    ("dgx-a100-1", 12, 0, "2x3:48-63,176-191 2x1:16-31,144-159 2x7:112-127,240-255 2x5:80-95,208-223"),
    ("dgx-a100-2", 10, 0, "2x3:48-63,176-191 2x1:16-31,144-159 2x7:112-127,240-255 2x5:80-95,208-223"),
    ("dgx1-p100-1", 4, 1, "8x?:1"),
    ("dgx1-v100-1", 4, 0, "4x?:0-19,40-59 4x?:20-39,60-79"),
    ("dgx1-v100-2", 4, 1, "8x?:0-19,40-59"),
    ("gb10-1-1", 4, 0, "1x0:0-19"),
    ("gb200-4-1", 8, 2, "1x0/2:0-71 1x0/10:0-71 1x1/18:72-143 1x1/26:72-143"),
    ("gh200-1-1", 4, 0, "1x0/1:0-71"),
    ("gh200-4-alps-1", 0, 0, "1x0/4:0-71 1x1/12:72-143 1x2/20:144-215 1x3/28:216-287"),
    ("h100-pcie-nvbridge-8-1", 0, 1, "3x0:? 5x1:?"),
    ("h100-sxm-4of8-1", 0, 1, "1x0:44-51,148-155 3x1:?"),
    ("h200-nvl-4-1", 0, 1, "4x?:?"),
    ("hgx-a100-4-cpuset-1", 1, 1, "4x0,1,2,3:0,64"),
    ("hgx-a100-4-cpuset-2", 3, 1, "2x0:0 2x1:?"),
    ("hgx-a100-8-2", 0, 0, "4x0:0-23 4x1:24-47"),
    ("hgx-b300-8-1", 9, 0, "4x0:0-63,128-191 4x1:64-127,192-255"),
    ("hgx-h20-8-1", 36, 0, "4x0:0-55,112-167 4x1:70-99,102-107"),
    ("hgx-h200-8-1", 8, 0, "4x0:0-63,128-191 4x1:64-127,192-255"),
    ("igx-single-1", 2, 1, "1x0:0-11"),
    ("juwels-booster-a100-4-1", 4, 1, "1x3:18-23,66-71 1x1:6-11,54-59 1x7:42-47,90-95 1x5:30-35,78-83"),
    ("pcie-6-uneven-1", 0, 0, "4x0:0-23,48-71 2x1:24-47,72-95"),
    ("pcie-8-noaffinity-1", 0, 1, "8x?:?"),
    ("pcie-8-reflowed-1", 0, 0, "4x0:0-191 4x1:192-383"),
    ("pcie-8-wrapped80-1", 0, 0, "4x0:0-17,36-53 4x1:18-35,54-71"),
    ("pcie-a30-9-1", 0, 1, "4x0:? 5x2:?"),
    ("pcie-a40-4-1", 2, 0, "2x0:0-23,48-71 2x1:24-47,72-95"),
    ("pcie-cmp-4-1", 0, 0, "4x0:0-111"),
    ("pcie-k80-4-1", 1, 0, "4x?:0-11"),
    ("pcie-k80-4-2", 1, 1, "4x?:0-3"),
    ("pcie-l4-2-reversed-1", 0, 0, "1x1:16-31 1x0:0-15"),
    ("pcie-l40-4-1", 2, 0, "2x0:0-127,256-383 2x1:128-255,384-511"),
    ("pcie-l40s-4-1", 0, 0, "4x0:0-15,32-47"),
    ("pcie-l40s-4-2", 0, 0, "2x0:0-63 2x1:64-127"),
    ("pcie-node-8-1", 0, 0, "4x0:0-63,128-191 4x1:64-127,192-255"),
    ("pcie-old-4-1", 1, 0, "2x?:0-5 2x?:6-11"),
    ("pcie-p40-8-1", 1, 0, "8x?:0-13"),
    ("pcie-pxb-8-1", 2, 0, "4x0:0-15 4x1:16-31"),
    ("pcie-rtx4090-4-1", 0, 0, "2x0:0-27,56-83 2x1:28-55,84-111"),
    ("pcie-sys-8-1", 0, 0, "4x0:0-15,32-47 4x1:16-31,48-63"),
    ("pcie-titanx-4-1", 2, 0, "2x0:0-5 2x1:6-11"),
    ("pcie-v100-5-1", 0, 0, "5x0:0-15"),
    ("polaris-a100-4-mdtable-1", 2, 0, "1x3:24-31,56-63 1x2:16-23,48-55 1x1:8-15,40-47 1x0:0-7,32-39"),
    ("power9-kvm-3-1", 0, 0, "3x?:0"),
    ("power9-traverse-1core-1", 4, 1, "1x0,8,252,253,254,255:0-3"),
    ("power9-traverse-4-1", 4, 0, "2x0:0-63 2x8:64-127"),
    ("v100-pcie-evenodd-2-1", 0, 2, "1x0:0,2,4,6,8,10 1x1:1,3,5,7,9,11"),
    ("v100-sxm2-2-1", 4, 0, "1x0:0-13,28-41 1x1:14-27,42-55"),
    ("v100-sxm2-4of8-1", 0, 0, "2x0:0-19,40-59 2x1:20-39,60-79"),
    ("v100-sxm2-8-1", 1, 0, "4x0:0-19,40-59 4x1:20-39,60-79"),
    ("vm-h100-8-1", 0, 0, "8x0:0-63"),
    ("vm-k80-4-1", 0, 0, "4x?:0-11"),
    ("vm-mp-8-1", 10, 1, "4x0:0-53 4x1:54-107"),
    ("ws-a6000-nvlink-3-1", 0, 0, "3x0:0-31,64-95"),
    ("ws-rtx3060ti-3-1", 0, 2, "3x0,1:0-31"),
    ("ws-rtx6000ada-4-1", 4, 0, "2x0:0-31 2x1:32-63"),
    ("ws-rtxpro6000-2-1", 0, 0, "2x0:0-31"),
    ("wsl-single-1", 0, 1, "1x?:?"),
];

/// Every how many characters a text is hurt; 1 takes minutes.
const STEP: usize = 29;

fn folder() -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/topologies");
    let folder = env::var_os("GPUBIND_TOPOLOGIES").map_or_else(|| beside.into(), PathBuf::from);
    if !folder.is_dir() {
        eprintln!("skipped: no folder {} (set GPUBIND_TOPOLOGIES)", folder.display());
        return None;
    }
    Some(folder)
}

fn texts() -> BTreeMap<String, String> {
    let Some(folder) = folder() else { return BTreeMap::new() };
    let mut texts = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            texts.insert(name, String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned());
        }
    }
    texts
}

fn affinity(gpu: &Gpu) -> String {
    let list = |ids: &Vec<u32>| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let own = gpu.gpu_numa_id.known().map(|id| format!("/{id}")).unwrap_or_default();
    let numa = gpu.numa.known().map_or_else(|| "?".to_owned(), list);
    let cpus = gpu.cpus.known().map_or_else(|| "?".to_owned(), |cpus| cpus.to_string());
    format!("{numa}{own}:{cpus}")
}

fn affinities(node: &Node) -> String {
    let mut runs: Vec<(usize, String)> = Vec::new();
    for gpu in &node.gpus {
        let text = affinity(gpu);
        match runs.last_mut() {
            Some((count, last)) if *last == text => *count += 1,
            _ => runs.push((1, text)),
        }
    }
    runs.iter().map(|(count, text)| format!("{count}x{text}")).collect::<Vec<_>>().join(" ")
}

/// The links of one GPU, found by a much simpler reader: the words that follow
/// the first `GPUn X` or `GPUn NV4` or … in the text.
fn naive_links(text: &str, gpu: u32, count: usize) -> Vec<Link> {
    let skip = |word: &&str| !["|", "//"].contains(word);
    let words: Vec<&str> = text.split_whitespace().filter(skip).collect();
    let label = format!("GPU{gpu}");
    let mut starts = words
        .windows(2)
        .enumerate()
        .filter(|(_, pair)| pair[0] == label && pair[1].parse::<Link>().is_ok());
    let (at, _) = starts.next().unwrap_or_else(|| panic!("no row {label}"));
    assert!(starts.next().is_none(), "two rows {label}");
    words[at + 1..at + 1 + count].iter().map(|word| word.parse().unwrap()).collect()
}

#[test]
fn every_paste_is_read_right() {
    let texts = texts();
    for (name, text) in &texts {
        let (node, warnings) = topo_text::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let Some((_, nics, warned, gpus)) = EXPECTED.iter().find(|line| line.0 == name) else {
            panic!("{name}: no expectation for this file");
        };
        assert_eq!(affinities(&node), *gpus, "{name}");
        assert_eq!(node.nics.len(), *nics, "{name}");
        assert_eq!(warnings.len(), *warned, "{name}: {warnings:#?}");
        for (gpu, links) in node.gpus.iter().zip(&node.links) {
            assert_eq!(*links, naive_links(text, gpu.index, node.gpus.len()), "{name}");
        }
        for (a, b) in (0..node.gpus.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
            assert_eq!(node.links[a][b], node.links[b][a], "{name}: all of these are symmetric");
        }
        assert!(node.gpus.iter().all(|gpu| gpu.pci.known().is_none()));
        assert!(node.gpus.iter().all(|gpu| gpu.uuid == Probed::Unsupported));
    }
    if !texts.is_empty() {
        assert_eq!(texts.len(), EXPECTED.len(), "a file of the list is missing");
    }
}

#[test]
fn a_paste_that_was_cut_off_is_never_read_wrong() {
    for (name, text) in texts() {
        let (whole, _) = topo_text::parse(&text).unwrap();
        for (cut, _) in text.char_indices().skip(name.len() % STEP).step_by(STEP) {
            let Ok((node, warnings)) = topo_text::parse(&text[..cut]) else { continue };
            assert_eq!(node.links, whole.links, "{name} cut at {cut}");
            // A list of the old format, without a NUMA cell behind it, may be
            // cut in its middle and still be a list.
            let old = whole.gpus.iter().all(|gpu| gpu.numa.known().is_none());
            for (gpu, known) in node.gpus.iter().zip(&whole.gpus) {
                let same = gpu.cpus == known.cpus && gpu.numa == known.numa;
                assert!(same || old || !warnings.is_empty(), "{name} cut at {cut}: {gpu:?}");
            }
        }
    }
}

#[test]
fn a_paste_that_lost_one_character_is_never_read_wrong_in_silence() {
    for (name, text) in texts() {
        let (whole, _) = topo_text::parse(&text).unwrap();
        let end = text.find("Legend").unwrap_or(text.len());
        for (at, lost) in text[..end].char_indices().skip(name.len() % STEP).step_by(STEP) {
            let mut hurt = text.clone();
            hurt.remove(at);
            let Ok((node, warnings)) = topo_text::parse(&hurt) else { continue };
            let same = node.links == whole.links;
            assert!(same || !warnings.is_empty(), "{name}: {lost:?} at {at}\n{hurt}");
        }
    }
}
