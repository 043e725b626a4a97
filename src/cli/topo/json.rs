//! A node as JSON for other programs: a form of its own, so that the model can
//! change without breaking them. What is not known is null.

use serde::Serialize;

use crate::cli::device_json::{DeviceJson, MigJson, known, pci};
use gpubind_core::node::{Gpu, Link, Nic, Node, NumaNode, UnusableGpu};

/// The version of the form: docs/json.md.
const SCHEMA: u32 = 1;

/// `gpubind topo --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopoJson {
    schema: u32,
    driver: Option<String>,
    gpus: Vec<GpuJson>,
    links: Vec<Vec<Option<String>>>,
    nics: Vec<NicJson>,
    numa: Vec<NumaJson>,
    unusable: Vec<UnusableJson>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct GpuJson {
    #[serde(flatten)]
    device: DeviceJson,
    gpu_numa_id: Option<u32>,
    mig_mode: Option<bool>,
    mig: Option<Vec<MigJson>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct NicJson {
    name: String,
    pci: Option<String>,
    links: Vec<Option<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct NumaJson {
    id: u32,
    cpus: String,
    distance: Option<Vec<u32>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct UnusableJson {
    index: u32,
    minor: Option<u32>,
    pci: Option<String>,
    code: u32,
}

impl From<&Node> for TopoJson {
    fn from(node: &Node) -> TopoJson {
        TopoJson {
            schema: SCHEMA,
            driver: node.driver.clone(),
            gpus: node.gpus.iter().map(GpuJson::from).collect(),
            links: node.links.iter().map(|row| links(row)).collect(),
            nics: node.nics.iter().map(NicJson::from).collect(),
            numa: node.numa.iter().map(NumaJson::from).collect(),
            unusable: node.unusable.iter().map(UnusableJson::from).collect(),
        }
    }
}

impl From<&Gpu> for GpuJson {
    fn from(gpu: &Gpu) -> GpuJson {
        let mig: Vec<MigJson> = gpu.mig.iter().map(MigJson::from).collect();
        GpuJson {
            device: DeviceJson::from(gpu),
            gpu_numa_id: known(&gpu.gpu_numa_id),
            mig_mode: known(&gpu.mig_mode),
            mig: (!mig.is_empty() || gpu.mig_mode.known().is_some()).then_some(mig),
        }
    }
}

impl From<&Nic> for NicJson {
    fn from(nic: &Nic) -> NicJson {
        NicJson { name: nic.name.clone(), pci: nic.pci.and_then(pci), links: links(&nic.links) }
    }
}

impl From<&NumaNode> for NumaJson {
    fn from(numa: &NumaNode) -> NumaJson {
        let distance = (!numa.distance.is_empty()).then(|| numa.distance.clone());
        NumaJson { id: numa.id, cpus: numa.cpus.to_string(), distance }
    }
}

impl From<&UnusableGpu> for UnusableJson {
    fn from(unusable: &UnusableGpu) -> UnusableJson {
        let UnusableGpu { index, minor, code, .. } = *unusable;
        UnusableJson { index, minor, pci: unusable.pci.and_then(pci), code }
    }
}

fn links(links: &[Link]) -> Vec<Option<String>> {
    let link = |link: &Link| (*link != Link::Unknown).then(|| link.to_string());
    links.iter().map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_any;

    #[test]
    fn what_text_does_not_tell_is_null() {
        let text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \t?\t0-3\nGPU1\t?\t X \t\n";
        let (node, _) = read_any(text).unwrap();
        let json = serde_json::to_value(TopoJson::from(&node)).unwrap();
        assert_eq!(json["links"], serde_json::json!([["X", null], [null, "X"]]));
        assert_eq!(json["gpus"][0]["cpus"], "0-3");
        for key in ["minor", "uuid", "pci", "name", "numa", "gpu_numa_id", "mig_mode", "mig"] {
            assert!(json["gpus"][1][key].is_null(), "{key}");
        }
        assert!(json["gpus"][1]["cpus"].is_null());
    }
}
