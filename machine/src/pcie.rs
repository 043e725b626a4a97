//! Places in the PCIe tree, and what lies between two of them.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use gpubind_core::node::Link;

/// A way down the PCIe tree: the host bridge, then the switches, such as
/// `root0/sw0/sw1`. The names are free; equal names at equal depth are one
/// bridge.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct PciePath(Vec<String>);

/// A text that is no PCIe path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a PCIe path like root0/sw0: a host bridge, then switches")]
pub struct PciePathError(String);

impl PciePath {
    /// The host bridge's name.
    pub fn root(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    /// The switches from the host bridge down.
    pub fn switches(&self) -> &[String] {
        self.0.get(1..).unwrap_or_default()
    }

    /// How many bridges both ways have in common, from the top.
    fn common(&self, other: &PciePath) -> usize {
        let pairs = self.0.iter().zip(&other.0);
        pairs.take_while(|(a, b)| a == b).count()
    }
}

impl FromStr for PciePath {
    type Err = PciePathError;

    fn from_str(text: &str) -> Result<Self, PciePathError> {
        let parts: Vec<String> = text.split('/').map(|part| part.trim().to_owned()).collect();
        if parts.iter().any(String::is_empty) {
            return Err(PciePathError(text.to_owned()));
        }
        Ok(PciePath(parts))
    }
}

impl TryFrom<String> for PciePath {
    type Error = PciePathError;

    fn try_from(text: String) -> Result<Self, PciePathError> {
        text.parse()
    }
}

impl fmt::Display for PciePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("/"))
    }
}

/// Where a device sits, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// Its way down the PCIe tree.
    pub pcie: Option<PciePath>,
    /// Its NUMA nodes, memory-only ones included, in rising order.
    pub numa: Option<Vec<u32>>,
}

impl Place {
    /// The PCIe level between two devices; `otherwise` where their places do
    /// not tell. The levels are those of nvml.h, `nvmlGpuTopologyLevel_t`.
    pub fn level(&self, other: &Place, otherwise: Link) -> Link {
        if let (Some(a), Some(b)) = (&self.pcie, &other.pcie) {
            let common = a.common(b);
            if common == 1 {
                return Link::Phb;
            }
            if common > 1 {
                return if a == b { Link::Pix } else { Link::Pxb };
            }
        }
        match (&self.numa, &other.numa) {
            (Some(a), Some(b)) if a.iter().any(|id| b.contains(id)) => Link::Node,
            (Some(_), Some(_)) => Link::Sys,
            _ => otherwise,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(pcie: &str, numa: &[u32]) -> Place {
        Place {
            pcie: (!pcie.is_empty()).then(|| pcie.parse().unwrap()),
            numa: (!numa.is_empty()).then(|| numa.to_vec()),
        }
    }

    fn level(a: (&str, &[u32]), b: (&str, &[u32])) -> Link {
        let (a, b) = (place(a.0, a.1), place(b.0, b.1));
        let there = a.level(&b, Link::Unknown);
        assert_eq!(there, b.level(&a, Link::Unknown), "levels are symmetric");
        there
    }

    #[test]
    fn levels_follow_from_the_deepest_common_bridge() {
        assert_eq!(level(("r0/s0/s1", &[0]), ("r0/s0/s1", &[0])), Link::Pix);
        assert_eq!(level(("r0/s0/s1", &[0]), ("r0/s0/s2", &[0])), Link::Pxb);
        assert_eq!(level(("r0/s0/s1", &[0]), ("r0/s0", &[0])), Link::Pxb);
        assert_eq!(level(("r0/s0", &[0]), ("r0/s1", &[0])), Link::Phb);
        assert_eq!(level(("r0", &[0]), ("r0", &[0])), Link::Phb);
        assert_eq!(level(("r0", &[0]), ("r1", &[0])), Link::Node);
        assert_eq!(level(("r0/s0", &[0]), ("r1/s0", &[1])), Link::Sys);
    }

    #[test]
    fn numa_nodes_decide_where_paths_do_not() {
        assert_eq!(level(("", &[0]), ("", &[0])), Link::Node);
        assert_eq!(level(("", &[0]), ("r0", &[1])), Link::Sys);
        assert_eq!(level(("", &[0, 1]), ("", &[1])), Link::Node);
        assert_eq!(level(("", &[0]), ("", &[])), Link::Unknown);
        assert_eq!(level(("r0", &[]), ("r1", &[])), Link::Unknown);
        assert_eq!(place("", &[]).level(&place("", &[]), Link::Phb), Link::Phb);
    }

    #[test]
    fn paths_without_a_name_are_refused() {
        for text in ["", "/", "root0/", "root0//sw0"] {
            assert!(text.parse::<PciePath>().is_err(), "{text}");
        }
        assert_eq!("root0/sw0".parse::<PciePath>().unwrap().to_string(), "root0/sw0");
    }
}
