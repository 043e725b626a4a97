//! A machine described in one file, for people and for tests.
//!
//! A machine fixture (TOML, see `tests/machines/`) states each fact once: NUMA
//! nodes with their CPUs, GPUs with their place in the PCIe tree, NVLinks, MIG
//! instances, network adapters, and faults. Everything else follows, so that a
//! description cannot contradict itself. [`Machine::to_node`] gives what a
//! perfect reader of that machine would report; the fake NVML answers from the
//! same [`Machine`].
//!
//! | file | what lives there |
//! |---|---|
//! | `file` | the text form, as written |
//! | `build` | checking the text form and filling in what follows from it |
//! | `pcie` | places in the PCIe tree and the levels between them |
//! | `mig` | MIG instances and their UUIDs |
//! | `identity` | made-up UUIDs |
//! | `nvlink` | each GPU's NVLinks and where they end |
//! | `faults` | what does not work, and how |
//! | `calls` | the NVML functions that a fault can name |
//! | `report` | from a machine to the node model |
//!
//! What does *not* live here: C, NVML's data structures, and the file system.

mod build;
mod calls;
mod error;
mod faults;
mod file;
mod identity;
mod mig;
mod nvlink;
mod pcie;
mod report;
#[cfg(test)]
mod tests;

use gpubind_core::node::{IdSet, Link, MigInstance, NumaNode, PciAddress};

pub use calls::CALLS;
pub use error::{MachineError, MachineProblem};
pub use faults::{CallFault, Faults};
pub use file::Hidden;
pub use nvlink::{FarEnd, NvLink};
pub use pcie::{PciePath, PciePathError, Place};

/// A machine, checked and complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Short name, unique among the fixtures.
    pub name: String,
    /// One line on what kind of machine this is.
    pub description: String,
    /// Where the description comes from.
    pub source: String,
    /// NVIDIA driver version.
    pub driver: String,
    /// Highest CUDA version of the driver, major and minor.
    pub cuda: (u32, u32),
    /// Whether this is a virtual machine with GPUs passed through.
    pub vm: bool,
    /// How GPUs that the device cgroup denies are shown.
    pub hidden: Hidden,
    /// What lies between two devices where their places do not tell.
    pub level: Link,
    /// NUMA nodes in id order.
    pub numa: Vec<NumaNode>,
    /// All GPUs in PCI order; the position is the NVML index.
    pub gpus: Vec<MachineGpu>,
    /// Network adapters, as listed.
    pub nics: Vec<MachineNic>,
    /// NVSwitches that the host sees as PCI devices.
    pub nvswitches: Vec<PciAddress>,
    /// What does not work.
    pub faults: Faults,
}

/// One GPU of a [`Machine`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineGpu {
    /// PCI address.
    pub pci: PciAddress,
    /// N of /dev/nvidiaN.
    pub minor: u32,
    /// `GPU-` and the UUID.
    pub uuid: String,
    /// Product name.
    pub name: String,
    /// Where it sits: its NUMA nodes, memory-only ones included, and its PCIe path.
    pub place: Place,
    /// Local CPUs; `None` where the machine does not tell.
    pub cpus: Option<IdSet>,
    /// The NUMA node that is the GPU's own memory.
    pub gpu_numa_id: Option<u32>,
    /// Persistence mode.
    pub persistence: bool,
    /// CUDA compute capability, where described.
    pub compute: Option<(u32, u32)>,
    /// MIG; `None` where the GPU cannot do it.
    pub mig: Option<MachineMig>,
    /// NVLinks by link number.
    pub nvlinks: Vec<NvLink>,
}

/// MIG of one GPU.
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
    /// Device name.
    pub name: String,
    /// PCI address.
    pub pci: Option<PciAddress>,
    /// Where it sits.
    pub place: Place,
}

impl Machine {
    /// Reads a machine fixture.
    ///
    /// # Errors
    /// The first problem found, with its line.
    ///
    /// ```
    /// use gpubind::node::Machine;
    /// let machine = Machine::parse(r#"
    /// name = "desk"
    /// description = "one GPU"
    /// source = "example"
    /// driver = "580.82.07"
    /// cuda = "13.0"
    /// numa = [{ id = 0, cpus = "0-7" }]
    /// gpu = [{ pci = "0000:01:00.0", name = "NVIDIA RTX A4000", numa = [0] }]
    /// "#).unwrap();
    /// assert_eq!(machine.to_node().gpus[0].cpus.known().unwrap().to_string(), "0-7");
    /// ```
    pub fn parse(text: &str) -> Result<Machine, MachineError> {
        build::build(text)
    }

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
