//! A machine as it is: what its text form says, and what follows from that.

use gpubind_core::node::{IdSet, Link, MigInstance, NumaNode, PciAddress};

use super::faults::Faults;
use super::file::Hidden;
use super::nvlink::NvLink;
use super::pcie::Place;

/// A machine, checked and complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Short name, unique among the fixtures.
    pub name: String,
    /// One line on what kind of machine this is.
    pub description: String,
    /// Where the description comes from.
    pub source: String,
    pub driver: String,
    /// Highest CUDA version of the driver, major and minor.
    pub cuda: (u32, u32),
    /// Whether this is a virtual machine with GPUs passed through.
    pub vm: bool,
    /// How GPUs that the device cgroup denies are shown.
    pub hidden: Hidden,
    /// What lies between two devices where their places do not determine it.
    pub level: Link,
    /// NUMA nodes in id order.
    pub numa: Vec<NumaNode>,
    /// All GPUs in PCI order; the position is the NVML index.
    pub gpus: Vec<MachineGpu>,
    /// Network adapters, as listed.
    pub nics: Vec<MachineNic>,
    /// NVSwitches that the host sees as PCI devices.
    pub nvswitches: Vec<PciAddress>,
    pub faults: Faults,
}

/// One GPU of a [`Machine`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineGpu {
    pub pci: PciAddress,
    /// N of /dev/nvidiaN.
    pub minor: u32,
    /// `GPU-` and the UUID.
    pub uuid: String,
    pub name: String,
    /// Where it sits: its NUMA nodes, memory-only ones included, and its PCIe path.
    pub place: Place,
    /// Local CPUs; `None` where unknown.
    pub cpus: Option<IdSet>,
    /// The NUMA node that is the GPU's own memory.
    pub gpu_numa_id: Option<u32>,
    pub persistence: bool,
    /// CUDA compute capability, where described.
    pub compute: Option<(u32, u32)>,
    /// MIG; `None` where the GPU cannot do it.
    pub mig: Option<MachineMig>,
    pub nvlinks: Vec<NvLink>,
}
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineMig {
    /// Whether MIG mode is on.
    pub on: bool,
    /// Instances by slot, as NVML numbers them; `None` is a hole.
    pub slots: Vec<Option<MigInstance>>,
}

/// One network adapter of a [`Machine`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineNic {
    pub name: String,
    pub pci: Option<PciAddress>,
    pub place: Place,
}

impl Machine {
    /// The PCIe level between two GPUs, by position; NVLinks do not count here.
    pub fn pcie_level(&self, a: usize, b: usize) -> Link {
        match (self.gpus.get(a), self.gpus.get(b)) {
            (Some(_), Some(_)) if a == b => Link::Same,
            (Some(first), Some(second)) => first.place.level(&second.place, self.level),
            _ => Link::Unknown,
        }
    }

    /// The NUMA nodes of the list that have CPUs.
    pub fn cpu_nodes(&self, ids: &[u32]) -> Vec<u32> {
        let with_cpus = self.numa.iter().filter(|numa| !numa.cpus.is_empty());
        let ids = with_cpus.filter(|numa| ids.contains(&numa.id));
        ids.map(|numa| numa.id).collect()
    }

    /// All CPUs of the machine.
    pub fn cpus(&self) -> IdSet {
        self.numa.iter().flat_map(|numa| numa.cpus.iter()).collect()
    }
}
