//! GPUs and MIG instances as JSON for other programs: a form of its own, so that the model
//! can change without breaking them. What is not known is null.

use serde::{Deserialize, Serialize};

use gpubind_core::node::{Device, Gpu, MigInstance, Node, PciAddress, Probed};

/// A GPU, or an instance of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DeviceJson {
    pub index: u32,
    pub minor: Option<u32>,
    /// The instance's, where it is one.
    pub uuid: Option<String>,
    pub pci: Option<String>,
    pub name: Option<String>,
    pub numa: Option<Vec<u32>>,
    pub cpus: Option<String>,
}

/// An instance of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MigJson {
    pub gi: u32,
    pub ci: u32,
    pub uuid: String,
    pub profile: Option<String>,
}

impl DeviceJson {
    /// What is given to a rank, and which instance it is.
    pub fn of(node: &Node, device: Device) -> Option<(DeviceJson, Option<MigJson>)> {
        let gpu = node.gpu(device)?;
        let mig = device.mig.and_then(|mig| gpu.mig.get(mig)).map(MigJson::from);
        let uuid = node.uuid(device).map(str::to_owned);
        Some((DeviceJson { uuid, ..DeviceJson::from(gpu) }, mig))
    }
}

impl From<&Gpu> for DeviceJson {
    fn from(gpu: &Gpu) -> DeviceJson {
        DeviceJson {
            index: gpu.index,
            minor: known(&gpu.minor),
            uuid: known(&gpu.uuid),
            pci: pci(gpu.pci),
            name: known(&gpu.name),
            numa: known(&gpu.numa),
            cpus: gpu.cpus.known().map(ToString::to_string),
        }
    }
}

impl From<&MigInstance> for MigJson {
    fn from(mig: &MigInstance) -> MigJson {
        let MigInstance { gi, ci, uuid, profile } = mig.clone();
        MigJson { gi, ci, uuid, profile }
    }
}

pub(super) fn known<T: Clone>(value: &Probed<T>) -> Option<T> {
    value.known().cloned()
}

pub(super) fn pci(address: PciAddress) -> Option<String> {
    address.known().map(|address| address.to_string())
}
