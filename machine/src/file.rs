//! The text form of a machine fixture, key by key, as written.

use serde::Deserialize;
use toml::Spanned;

use gpubind_core::node::{IdSet, Link, PciAddress};

/// How GPUs that the device cgroup denies are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hidden {
    /// The list is shorter and numbered anew from 0, which is what nvidia-smi
    /// shows inside a Slurm step (NVIDIA/deepops#1102).
    #[default]
    Renumber,
    /// The count stays, and the handle answers `NVML_ERROR_NO_PERMISSION`,
    /// which is what nvml.h says.
    Holes,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    pub name: String,
    pub description: String,
    pub source: String,
    pub driver: Spanned<String>,
    pub cuda: Spanned<String>,
    #[serde(default)]
    pub vm: bool,
    #[serde(default)]
    pub hidden: Hidden,
    pub level: Option<Spanned<Link>>,
    /// NVLinks of each GPU that end in NVSwitches.
    #[serde(default)]
    pub nvswitch: usize,
    /// PCI addresses of the NVSwitches, where the host sees them.
    #[serde(default)]
    pub nvswitches: Vec<Spanned<PciAddress>>,
    /// NVLinks between two GPUs: first, second, count.
    #[serde(default)]
    pub nvlink: Vec<Spanned<(usize, usize, usize)>>,
    /// NVLinks of each GPU that end in its CPU (POWER9).
    #[serde(default)]
    pub nvlink_cpu: usize,
    /// NVLinks that each GPU has, connected or not.
    pub nvlink_slots: Option<Spanned<usize>>,
    #[serde(default)]
    pub numa: Vec<Spanned<NumaEntry>>,
    #[serde(default)]
    pub gpus: GpuDefaults,
    #[serde(default)]
    pub gpu: Vec<Spanned<GpuEntry>>,
    #[serde(default)]
    pub nic: Vec<Spanned<NicEntry>>,
    #[serde(default)]
    pub faults: FaultsEntry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct NumaEntry {
    pub id: Spanned<u32>,
    /// Absent or empty for memory-only nodes.
    #[serde(default)]
    pub cpus: IdSet,
    pub distance: Option<Spanned<Vec<u32>>>,
}

/// What all GPUs have in common; each `[[gpu]]` may say otherwise.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct GpuDefaults {
    pub name: Option<String>,
    pub persistence: Option<bool>,
    pub compute: Option<Spanned<String>>,
    pub mig: Option<Spanned<MigEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct GpuEntry {
    pub pci: Spanned<PciAddress>,
    pub minor: Option<Spanned<u32>>,
    pub uuid: Option<Spanned<String>>,
    pub name: Option<String>,
    pub numa: Option<Spanned<Vec<u32>>>,
    pub cpus: Option<IdSet>,
    pub pcie: Option<Spanned<String>>,
    pub gpu_numa_id: Option<Spanned<u32>>,
    pub persistence: Option<bool>,
    pub compute: Option<Spanned<String>>,
    pub mig: Option<Spanned<MigEntry>>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Switch {
    On,
    Off,
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct MigEntry {
    pub mode: Switch,
    /// How many instances there can be.
    #[serde(default = "seven")]
    pub slots: usize,
    #[serde(default)]
    pub instances: Vec<Spanned<InstanceEntry>>,
}

/// All MIG GPUs but the A30 can be cut into seven (MIG user guide).
fn seven() -> usize {
    7
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct InstanceEntry {
    /// NVML's number; the one after the instance above where absent.
    pub slot: Option<usize>,
    pub gi: u32,
    pub ci: u32,
    pub profile: Option<String>,
    pub uuid: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct NicEntry {
    pub name: String,
    pub pci: Option<Spanned<PciAddress>>,
    pub pcie: Option<Spanned<String>>,
    pub numa: Option<Spanned<Vec<u32>>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FaultsEntry {
    /// The kernel module and the library are of different versions.
    #[serde(default)]
    pub mismatch: bool,
    #[serde(default)]
    pub lost: Vec<Spanned<usize>>,
    #[serde(default)]
    pub reset_required: Vec<Spanned<usize>>,
    #[serde(default)]
    pub forbidden: Vec<Spanned<usize>>,
    /// Functions that this driver's library does not have.
    #[serde(default)]
    pub absent: Vec<Spanned<String>>,
    #[serde(default)]
    pub call: Vec<Spanned<CallEntry>>,
    #[serde(default)]
    pub link: Vec<Spanned<LinkEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct CallEntry {
    pub name: String,
    pub gpu: Option<usize>,
    pub code: Option<u32>,
    #[serde(default)]
    pub delay_ms: u64,
    #[serde(default)]
    pub hang: bool,
    #[serde(default)]
    pub crash: bool,
}

/// An NVLink that is down.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct LinkEntry {
    pub gpu: usize,
    pub link: usize,
}
