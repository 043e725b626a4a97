//! What can be wrong with a machine fixture.

use std::ops::Range;

use gpubind_core::node::{Link, PciAddress};

use super::pcie::PciePathError;

/// A problem and where in the text it is.
pub(super) type Found = (Range<usize>, MachineProblem);
pub(super) type Checked<T> = Result<T, Found>;

/// A problem in a machine fixture, with the line it is on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct MachineError {
    /// Line of the fixture, from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: MachineProblem,
}

/// What is wrong in a machine fixture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MachineProblem {
    /// No TOML, an unknown key, a missing key, or a value of the wrong form.
    #[error("{0}")]
    Toml(String),
    /// A version that is not two numbers.
    #[error("`{0}` is not a version like 12.4")]
    Version(String),
    /// A driver version without a number in front.
    #[error("`{0}` is not a driver version like 535.104.05")]
    Driver(String),
    /// `level` with a word that is no PCIe level.
    #[error("`{0}` is no PCIe level: PIX, PXB, PHB, NODE or SYS")]
    Level(Link),
    /// Two NUMA nodes with one id.
    #[error("NUMA node {0} is described twice")]
    NumaTwice(u32),
    /// One CPU in two NUMA nodes.
    #[error("CPU {0} is in two NUMA nodes")]
    CpuTwice(usize),
    /// A distance row of the wrong length, or missing while others are there.
    #[error(
        "NUMA node {id} needs {expected} distances, one for each NUMA node in id order, not {found}"
    )]
    Distances {
        /// The node's id.
        id: u32,
        /// How many there should be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A node whose distance to itself is not 10.
    #[error("the distance of NUMA node {0} to itself is 10 by definition")]
    SelfDistance(u32),
    /// A reference to a NUMA node that is not described.
    #[error("NUMA node {0} is not described in any [[numa]]")]
    NoSuchNuma(u32),
    /// A device whose NUMA nodes have no CPUs, or an empty list.
    #[error("none of these NUMA nodes has CPUs; leave `numa` out where the machine does not tell")]
    NoCpus,
    /// `gpu-numa-id` of a node with CPUs.
    #[error("NUMA node {0} has CPUs, so it cannot be a GPU's own memory")]
    NotGpuMemory(u32),
    /// GPUs out of order.
    #[error(
        "GPU {0} is out of order: list the GPUs by PCI address, which is how NVML numbers them"
    )]
    Order(PciAddress),
    /// One address for two devices.
    #[error("PCI address {0} is taken by another device")]
    PciTwice(PciAddress),
    /// One minor number for two GPUs.
    #[error("minor number {0} is taken by another GPU")]
    MinorTwice(u32),
    /// One UUID for two devices.
    #[error("UUID {0} is taken by another device")]
    UuidTwice(String),
    /// A UUID without its prefix.
    #[error("`{uuid}` does not begin with `{prefix}`")]
    UuidPrefix {
        /// What was written.
        uuid: String,
        /// What it should begin with.
        prefix: &'static str,
    },
    /// A GPU without a name.
    #[error("this GPU has no name: give it one, or all of them in [gpus]")]
    NoName,
    /// A bad PCIe path.
    #[error(transparent)]
    Pcie(#[from] PciePathError),
    /// A host bridge with devices of two PCI domains.
    #[error("`{0}` has devices of two PCI domains, but a host bridge has one")]
    RootDomain(String),
    /// A host bridge on two NUMA nodes.
    #[error("`{0}` has devices with different `numa`, but a host bridge sits in one place")]
    RootNuma(String),
    /// A GPU number beyond the GPUs.
    #[error("there is no GPU {gpu}; the machine has {count}, numbered from 0")]
    NoSuchGpu {
        /// The number given.
        gpu: usize,
        /// How many GPUs there are.
        count: usize,
    },
    /// A GPU linked to itself.
    #[error("GPU {0} cannot have an NVLink to itself")]
    SelfLink(usize),
    /// More links than the GPUs are said to have.
    #[error("GPU {gpu} has {links} NVLinks, more than nvlink-slots = {slots}")]
    TooManyLinks {
        /// GPU position.
        gpu: usize,
        /// Links described.
        links: usize,
        /// Links that the GPU is said to have.
        slots: usize,
    },
    /// A broken link that is not there.
    #[error("GPU {gpu} has no NVLink {link}")]
    NoSuchLink {
        /// GPU position.
        gpu: usize,
        /// Link number.
        link: usize,
    },
    /// Instances while MIG is off.
    #[error("a GPU has MIG instances only while its mode is \"on\"")]
    MigOff,
    /// Two instances in one slot, or a slot beyond the last.
    #[error("MIG slot {slot} is taken or beyond the last; there are {slots}, numbered from 0")]
    MigSlot {
        /// The slot.
        slot: usize,
        /// How many there are.
        slots: usize,
    },
    /// Two instances with one pair of ids.
    #[error("MIG instance gi {gi}, ci {ci} is described twice")]
    MigTwice {
        /// GPU instance id.
        gi: u32,
        /// Compute instance id.
        ci: u32,
    },
    /// A GPU with two different reasons to be unusable.
    #[error("GPU {0} has two faults of its handle; one is all that NVML can answer")]
    TwoHandleFaults(usize),
    /// A fault in a function that the fake library does not have.
    #[error("`{0}` is not an NVML function that the fake library answers")]
    NoSuchCall(String),
    /// A fault that does nothing.
    #[error("the fault of `{0}` does nothing: give it code, delay-ms, hang or crash")]
    EmptyFault(String),
}
