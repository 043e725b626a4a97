//! The plan as JSON for other programs: a form of its own, so that the model can
//! change without breaking them. What is not known is null.

use serde::Serialize;

use super::scenario::{Mapping, Scenario};
use crate::cli::device_json::{DeviceJson, MigJson};
use gpubind_core::node::Device;
use gpubind_core::plan::Cost;

/// The version of the form: docs/json.md.
const SCHEMA: u32 = 1;

/// `gpubind plan --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct PlanJson {
    schema: u32,
    devices: Vec<StepDeviceJson>,
    tasks: Vec<TaskJson>,
    cost: CostJson,
    naive: CostJson,
    /// Only with `--compare`.
    #[serde(skip_serializing_if = "Option::is_none")]
    compare: Option<Vec<MappingJson>>,
}

/// A device of the step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct StepDeviceJson {
    #[serde(flatten)]
    device: DeviceJson,
    mig: Option<MigJson>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct TaskJson {
    local_rank: usize,
    /// NVML indices of its own devices, in slot order.
    devices: Vec<u32>,
    visible: Option<String>,
    cpus: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct CostJson {
    numa: u64,
    links: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct MappingJson {
    name: &'static str,
    /// For each task, its device's position in the list `devices`.
    positions: Vec<usize>,
    cost: CostJson,
}

impl PlanJson {
    pub fn new(scenario: &Scenario, compared: Option<&[Mapping]>) -> PlanJson {
        let Scenario { node, plan, .. } = scenario;
        let index = |device: &Device| node.gpu(*device).map(|gpu| gpu.index);
        let tasks = scenario.planned().into_iter().enumerate();
        let tasks = tasks.zip(&scenario.in_effect).zip(&scenario.visible);
        let mapping = |mapping: &Mapping| MappingJson {
            name: mapping.name,
            positions: mapping.list.clone(),
            cost: mapping.cost.into(),
        };
        PlanJson {
            schema: SCHEMA,
            devices: scenario
                .devices
                .iter()
                .filter_map(|device| DeviceJson::of(node, *device))
                .map(|(device, mig)| StepDeviceJson { device, mig })
                .collect(),
            tasks: tasks
                .map(|(((local_rank, devices), cpus), visible)| TaskJson {
                    local_rank,
                    devices: devices.iter().filter_map(index).collect(),
                    visible: visible.clone(),
                    cpus: (!cpus.is_empty()).then(|| cpus.to_string()),
                })
                .collect(),
            cost: plan.cost.into(),
            naive: plan.naive.into(),
            compare: compared.map(|compared| compared.iter().map(mapping).collect()),
        }
    }
}

impl From<Cost> for CostJson {
    fn from(Cost { numa, links }: Cost) -> CostJson {
        CostJson { numa, links }
    }
}
