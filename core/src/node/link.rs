//! What lies between two devices of a node.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The connection of two devices: a cell of `nvidia-smi topo -m`.
///
/// The PCIe words are NVML's common-ancestor levels (nvml.h,
/// `nvmlGpuTopologyLevel_t`); their legend is at the end of `nvidia-smi topo -m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Link {
    /// The device itself (`X`).
    Same,
    /// A bonded set of this many NVLinks, direct or through NVSwitches (`NV#`).
    NvLink(u32),
    /// At most one PCIe switch (`PIX`; NVML's INTERNAL, two GPUs of one board, counts here).
    Pix,
    /// Several PCIe switches, no host bridge (`PXB`).
    Pxb,
    /// Through one PCIe host bridge (`PHB`).
    Phb,
    /// Through several host bridges of one NUMA node (`NODE`).
    Node,
    /// Between NUMA nodes (`SYS`; old drivers wrote `SOC`).
    Sys,
    /// Not known; ranked like [`Link::Sys`].
    Unknown,
}

impl Link {
    /// How far apart the two devices are, for the plan's `links` cost: 0 for
    /// the same GPU, 1000/n for n NVLinks, then the PCIe levels in thousands.
    pub fn hop(self) -> u64 {
        match self {
            Link::Same => 0,
            Link::NvLink(count) => 1000 / u64::from(count.max(1)),
            Link::Pix => 2000,
            Link::Pxb => 3000,
            Link::Phb => 4000,
            Link::Node => 5000,
            Link::Sys | Link::Unknown => 8000,
        }
    }
}

/// A text that names no [`Link`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not one of X, NV#, PIX, PXB, PHB, NODE, SYS")]
pub struct LinkError(String);

impl FromStr for Link {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Self, LinkError> {
        Ok(match text {
            "X" => Link::Same,
            "PIX" | "PSB" => Link::Pix,
            "PXB" => Link::Pxb,
            "PHB" => Link::Phb,
            "NODE" => Link::Node,
            "SYS" | "SOC" => Link::Sys,
            "?" => Link::Unknown,
            _ => text
                .strip_prefix("NV")
                .and_then(|count| count.parse().ok())
                .filter(|count| *count > 0)
                .map(Link::NvLink)
                .ok_or_else(|| LinkError(text.to_owned()))?,
        })
    }
}

impl TryFrom<String> for Link {
    type Error = LinkError;

    fn try_from(text: String) -> Result<Self, LinkError> {
        text.parse()
    }
}

impl From<Link> for String {
    fn from(link: Link) -> String {
        link.to_string()
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Link::Same => f.pad("X"),
            Link::NvLink(count) => f.pad(&format!("NV{count}")),
            Link::Pix => f.pad("PIX"),
            Link::Pxb => f.pad("PXB"),
            Link::Phb => f.pad("PHB"),
            Link::Node => f.pad("NODE"),
            Link::Sys => f.pad("SYS"),
            Link::Unknown => f.pad("?"),
        }
    }
}
