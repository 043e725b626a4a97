//! The node model: plain data, immutable once read.

use serde::{Deserialize, Serialize};

use super::{IdSet, Link, PciAddress, Probed};

/// A machine: its usable GPUs in PCI order, their links, and its NUMA nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Node {
    /// Usable GPUs, ordered by PCI address.
    pub gpus: Vec<Gpu>,
    /// `links[a][b]` is what lies between `gpus[a]` and `gpus[b]`; square, `Same` on the diagonal.
    pub links: Vec<Vec<Link>>,
    /// GPUs that are there but cannot be used, and why.
    pub unusable: Vec<UnusableGpu>,
    /// Network adapters with their distance to each GPU.
    pub nics: Vec<Nic>,
    /// NUMA nodes in id order. CPU-less ones (memory of a GPU, CXL) are listed with an empty CPU set.
    pub numa: Vec<NumaNode>,
    /// NVIDIA driver version, as `nvmlSystemGetDriverVersion` tells it.
    pub driver: Option<String>,
    /// N of /dev/nvidiaN of each of Slurm's GPUs, by gres index, where gres.conf says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gres_minors: Option<Vec<u32>>,
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// NVML index on the whole node.
    pub index: u32,
    /// N of /dev/nvidiaN.
    pub minor: Probed<u32>,
    /// `GPU-` and the UUID.
    pub uuid: Probed<String>,
    /// PCI address.
    pub pci: PciAddress,
    /// Product name.
    pub name: Probed<String>,
    /// CPUs local to the GPU.
    pub cpus: Probed<IdSet>,
    /// NUMA nodes with CPUs that are local to the GPU.
    pub numa: Probed<Vec<u32>>,
    /// The NUMA node that *is* the GPU's own memory, on coherent platforms (Grace).
    pub gpu_numa_id: Probed<u32>,
    /// Whether MIG mode is on.
    pub mig_mode: Probed<bool>,
    /// MIG instances in (gi, ci) order; empty where MIG is off.
    pub mig: Vec<MigInstance>,
    /// Whether persistence mode is on.
    pub persistence: Probed<bool>,
}

/// One MIG instance (a compute instance of a GPU instance).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigInstance {
    /// GPU instance id.
    pub gi: u32,
    /// Compute instance id within the GPU instance.
    pub ci: u32,
    /// `MIG-` and the UUID, as this driver spells it.
    pub uuid: String,
    /// Profile, such as `1g.5gb`, where it is known.
    pub profile: Option<String>,
}

/// A GPU that is in the machine but cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnusableGpu {
    /// NVML index.
    pub index: u32,
    /// PCI address, where something still tells it.
    pub pci: Option<PciAddress>,
    /// N of /dev/nvidiaN, where something still tells it.
    pub minor: Option<u32>,
    /// The `nvmlReturn_t` code that its handle answered (15 lost, 16 reset
    /// required, 4 no permission).
    pub code: u32,
}

/// A network adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Device name, such as `mlx5_0`.
    pub name: String,
    /// PCI address, where known.
    pub pci: Option<PciAddress>,
    /// PCIe level to each GPU, in the order of [`Node::gpus`].
    pub links: Vec<Link>,
}

/// A NUMA node of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// The kernel's id; ids may have gaps.
    pub id: u32,
    /// Its CPUs; empty for memory-only nodes.
    pub cpus: IdSet,
    /// Distance to each NUMA node, in the order of [`Node::numa`]; 10 is local
    /// (ACPI SLIT, /sys/devices/system/node/nodeN/distance). Empty if unknown.
    pub distance: Vec<u32>,
}

/// What one rank can be given: a whole GPU, or a MIG instance of one. Both
/// numbers are positions in the node's lists, not ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Device {
    /// Position in [`Node::gpus`].
    pub gpu: usize,
    /// Position in [`Gpu::mig`]; `None` for the whole GPU.
    pub mig: Option<usize>,
}

impl Gpu {
    /// Whether only instances of it can be used, even if there is none.
    pub fn is_in_mig_mode(&self) -> bool {
        self.mig_mode.known() == Some(&true) || !self.mig.is_empty()
    }
}

impl Node {
    /// Everything that ranks can be given: whole GPUs, and of those in MIG mode the
    /// instances.
    pub fn devices(&self) -> Vec<Device> {
        let of_gpu = |(gpu, known): (usize, &Gpu)| -> Vec<Device> {
            match known.is_in_mig_mode() {
                true => (0..known.mig.len()).map(|mig| Device { gpu, mig: Some(mig) }).collect(),
                false => vec![Device { gpu, mig: None }],
            }
        };
        self.gpus.iter().enumerate().flat_map(of_gpu).collect()
    }

    /// The GPU that a device is, or is a part of.
    pub fn gpu(&self, device: Device) -> Option<&Gpu> {
        self.gpus.get(device.gpu)
    }

    /// The UUID to write for a device: the instance's for MIG, else the GPU's.
    pub fn uuid(&self, device: Device) -> Option<&str> {
        let gpu = self.gpu(device)?;
        match device.mig {
            Some(instance) => gpu.mig.get(instance).map(|mig| mig.uuid.as_str()),
            None => gpu.uuid.known().map(String::as_str),
        }
    }

    /// What lies between two GPUs, the worse of both directions; unknown where
    /// the matrix does not tell.
    pub fn link(&self, a: usize, b: usize) -> Link {
        let cell = |a: usize, b: usize| self.links.get(a).and_then(|row| row.get(b)).copied();
        let there = cell(a, b).unwrap_or(Link::Unknown);
        let back = cell(b, a).unwrap_or(Link::Unknown);
        if there.hop() >= back.hop() { there } else { back }
    }

    /// The NUMA node that a CPU belongs to.
    pub fn numa_of_cpu(&self, cpu: usize) -> Option<&NumaNode> {
        self.numa.iter().find(|numa| numa.cpus.contains(cpu))
    }
}
