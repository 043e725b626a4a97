//! What the answer to each question about an NVLink is.

use gpubind_core::node::PciAddress;
use gpubind_machine::{FarEnd, NvLink};

use crate::code::{Answer, Code};
use crate::ffi::Target;
use crate::model::Model;

/// The highest number of links that any GPU has, in the newest nvml.h
/// (`NVML_NVLINK_MAX_LINKS`).
const MAX_LINKS: u32 = 36;

/// PCI vendors (pci.ids).
pub const NVIDIA: u32 = 0x10de;
const IBM: u32 = 0x1014;

/// A bridge of POWER9's NVLink unit, in the place where Linux shows them.
const NPU: PciAddress = PciAddress { domain: 4, bus: 0, device: 0, function: 0 };

/// What an NVLink field can tell (nvml.h, `NVML_FI_DEV_*`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// 91: links of the GPU.
    LinkCount,
    /// 146: the far end's link number.
    RemoteLink,
    /// 147: links that end in NVSwitches.
    SwitchLinkCount,
    /// 165: whether the link in `scopeId` is up; Hopper and later.
    LinkState,
    /// 170: coherent links to the CPU (Grace).
    C2cCount,
}

impl Field {
    pub fn new(number: u32) -> Option<Field> {
        Some(match number {
            91 => Field::LinkCount,
            146 => Field::RemoteLink,
            147 => Field::SwitchLinkCount,
            165 => Field::LinkState,
            170 => Field::C2cCount,
            _ => return None,
        })
    }
}

impl Model {
    /// A link that is there; a GPU without NVLink says so, one with NVLink
    /// refuses numbers beyond its last.
    pub fn link(&self, target: Target, link: u32) -> Answer<&NvLink> {
        let links = &self.gpu(target)?.nvlinks;
        if link >= MAX_LINKS {
            return Err(Code::INVALID_ARGUMENT);
        }
        if links.is_empty() {
            return Err(Code::NOT_SUPPORTED);
        }
        links.get(link as usize).ok_or(Code::INVALID_ARGUMENT)
    }

    fn connected(&self, target: Target, link: u32) -> Answer<&NvLink> {
        let link = self.link(target, link)?;
        match link.far {
            FarEnd::Nothing => Err(Code::NOT_SUPPORTED),
            _ => Ok(link),
        }
    }

    /// `nvmlNvLinkCapability_t`: 0 P2P, 1 system memory, 2 P2P atomics, 3
    /// system memory atomics, 4 SLI bridge, 5 valid.
    pub fn link_capability(&self, target: Target, link: u32, capability: u32) -> Answer<bool> {
        let link = self.connected(target, link)?;
        match capability {
            0 | 2 | 5 => Ok(true),
            1 | 3 => Ok(link.far == FarEnd::Cpu),
            4 => Ok(false),
            _ => Err(Code::INVALID_ARGUMENT),
        }
    }

    /// `nvmlNvlinkVersion_t`, which follows from the GPU's generation.
    pub fn link_version(&self, target: Target, link: u32) -> Answer<u32> {
        self.connected(target, link)?;
        Ok(match self.gpu(target)?.compute.ok_or(Code::NOT_SUPPORTED)? {
            (6, _) => 1,
            (7, _) => 2,
            (8, _) => 4,
            (9, _) => 6,
            _ => 7,
        })
    }

    /// `nvmlIntNvLinkDeviceType_t`.
    pub fn link_far_type(&self, target: Target, link: u32) -> Answer<u32> {
        match self.connected(target, link)?.far {
            FarEnd::Gpu { .. } => Ok(0),
            FarEnd::Cpu => Ok(1),
            FarEnd::Switch(_) => Ok(2),
            FarEnd::Nothing => Err(Code::NOT_SUPPORTED),
        }
    }

    /// The far end's PCI address, `None` where the machine shows all ones, as
    /// GB200 does for switches; and its PCI vendor.
    pub fn link_far_pci(&self, target: Target, link: u32) -> Answer<(Option<PciAddress>, u32)> {
        match self.connected(target, link)?.far {
            FarEnd::Gpu { gpu, .. } => Ok((self.machine.gpus.get(gpu).map(|gpu| gpu.pci), NVIDIA)),
            FarEnd::Switch(switch) => Ok((switch, NVIDIA)),
            FarEnd::Cpu => Ok((Some(NPU), IBM)),
            FarEnd::Nothing => Err(Code::NOT_SUPPORTED),
        }
    }

    pub fn field(&self, target: Target, field: Field, scope: u32) -> Answer<u32> {
        let gpu = self.gpu(target)?;
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let on_switch = |link: &&NvLink| matches!(link.far, FarEnd::Switch(_));
        match field {
            Field::LinkCount if gpu.nvlinks.is_empty() => Err(Code::NOT_SUPPORTED),
            Field::LinkCount => Ok(number(gpu.nvlinks.len())),
            Field::SwitchLinkCount if gpu.nvlinks.is_empty() => Err(Code::NOT_SUPPORTED),
            Field::SwitchLinkCount => Ok(number(gpu.nvlinks.iter().filter(on_switch).count())),
            Field::RemoteLink => match self.connected(target, scope)?.far {
                FarEnd::Gpu { link, .. } => Ok(number(link)),
                _ => Err(Code::NOT_SUPPORTED),
            },
            Field::LinkState if gpu.compute < Some((9, 0)) => Err(Code::NOT_SUPPORTED),
            Field::LinkState => Ok(u32::from(self.link(target, scope)?.up)),
            // Ten C2C links join each Hopper to its Grace (NVIDIA GH200 paper).
            Field::C2cCount => gpu.gpu_numa_id.map(|_| 10).ok_or(Code::NOT_SUPPORTED),
        }
    }
}
