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
    #[error("{0}")]
    Toml(String),
    #[error("`{0}` is not a version like 12.4")]
    Version(String),
    #[error("`{0}` is not a driver version like 535.104.05")]
    Driver(String),
    #[error("`{0}` is no PCIe level: PIX, PXB, PHB, NODE or SYS")]
    Level(Link),
    #[error("NUMA node {0} is described twice")]
    NumaTwice(u32),
    #[error("CPU {0} is in two NUMA nodes")]
    CpuTwice(usize),
    #[error(
        "NUMA node {id} needs {expected} distances, one for each NUMA node in id order, not {found}"
    )]
    Distances { id: u32, expected: usize, found: usize },
    #[error("the distance of NUMA node {0} to itself is 10 by definition")]
    SelfDistance(u32),
    #[error("NUMA node {0} is not described in any [[numa]]")]
    NoSuchNuma(u32),
    #[error("none of these NUMA nodes has CPUs; leave `numa` out where the machine does not tell")]
    NoCpus,
    #[error("NUMA node {0} has CPUs, so it cannot be a GPU's own memory")]
    NotGpuMemory(u32),
    #[error(
        "GPU {0} is out of order: list the GPUs by PCI address, which is how NVML numbers them"
    )]
    Order(PciAddress),
    #[error("PCI address {0} is taken by another device")]
    PciTwice(PciAddress),
    #[error("minor number {0} is taken by another GPU")]
    MinorTwice(u32),
    #[error("UUID {0} is taken by another device")]
    UuidTwice(String),
    #[error("`{uuid}` does not begin with `{prefix}`")]
    UuidPrefix { uuid: String, prefix: &'static str },
    #[error("this GPU has no name: give it one, or all of them in [gpus]")]
    NoName,
    #[error(transparent)]
    Pcie(#[from] PciePathError),
    #[error("`{0}` has devices of two PCI domains, but a host bridge has one")]
    RootDomain(String),
    #[error("`{0}` has devices with different `numa`, but a host bridge sits in one place")]
    RootNuma(String),
    #[error("there is no GPU {gpu}; the machine has {count}, numbered from 0")]
    NoSuchGpu { gpu: usize, count: usize },
    #[error("GPU {0} cannot have an NVLink to itself")]
    SelfLink(usize),
    #[error("GPU {gpu} has {links} NVLinks, more than nvlink-slots = {slots}")]
    TooManyLinks { gpu: usize, links: usize, slots: usize },
    #[error("GPU {gpu} has no NVLink {link}")]
    NoSuchLink { gpu: usize, link: usize },
    #[error("a GPU has MIG instances only while its mode is \"on\"")]
    MigOff,
    #[error("MIG slot {slot} is taken or beyond the last; there are {slots}, numbered from 0")]
    MigSlot { slot: usize, slots: usize },
    #[error("MIG instance gi {gi}, ci {ci} is described twice")]
    MigTwice { gi: u32, ci: u32 },
    #[error("GPU {0} has two faults of its handle; one is all that NVML can answer")]
    TwoHandleFaults(usize),
    #[error("`{0}` is not an NVML function that the fake library answers")]
    NoSuchCall(String),
    #[error("the fault of `{0}` does nothing: give it code, delay-ms, hang or crash")]
    EmptyFault(String),
}
