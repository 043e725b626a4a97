//! Whether a node that came from a file is consistent.

use std::collections::HashSet;

use super::{Link, Node};

/// No machine has more GPUs, adapters or NUMA nodes; Linux itself stops at 1024
/// NUMA nodes (`CONFIG_NODES_SHIFT`).
const MOST: usize = 1024;

/// Why a node description contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// A list that is longer than any machine's.
    #[error("it lists {count} {what}, more than the {MOST} that a machine can have")]
    TooMany {
        /// What is listed.
        what: &'static str,
        /// How many.
        count: usize,
    },
    /// The link matrix has not one cell for each pair of GPUs.
    #[error("its link matrix is not {gpus} by {gpus}")]
    Matrix {
        /// How many GPUs there are.
        gpus: usize,
    },
    /// `X` off the diagonal, or something else on it.
    #[error("its link matrix says `{link}` between GPUs {a} and {b}")]
    Diagonal {
        /// Row.
        a: usize,
        /// Column.
        b: usize,
        /// What stands there.
        link: Link,
    },
    /// GPUs that are out of PCI order, or two at one address.
    #[error("its GPUs are not in PCI order, each once, at {0}")]
    Order(String),
    /// Two GPUs with one index.
    #[error("two of its GPUs have the index {0}")]
    Index(u32),
    /// MIG instances out of order, or twice.
    #[error("the MIG instances of GPU {0} are not in order, each once")]
    Mig(u32),
    /// A UUID that cannot stand in a comma-separated list.
    #[error("`{0}` is not a UUID like GPU-… or MIG-…")]
    Uuid(String),
    /// A network adapter without one link for each GPU.
    #[error("network adapter `{0}` has not one link for each GPU")]
    Nic(String),
    /// NUMA nodes out of order or twice, or distances that are not one for each node.
    #[error("NUMA node {0} is out of order or has not one distance for each node")]
    Numa(u32),
}

impl Node {
    /// Checks that the parts fit together: a square matrix, GPUs in PCI order
    /// without doubles, one link per GPU for each adapter, one distance per
    /// NUMA node, UUIDs that can be written into a list. For nodes from a file;
    /// a node that was read from the machine passes.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self) -> Result<(), NodeError> {
        let gpus = self.gpus.len();
        let lists = [
            ("GPUs", gpus),
            ("unusable GPUs", self.unusable.len()),
            ("network adapters", self.nics.len()),
            ("NUMA nodes", self.numa.len()),
        ];
        if let Some(&(what, count)) = lists.iter().find(|(_, count)| *count > MOST) {
            return Err(NodeError::TooMany { what, count });
        }
        self.check_links(gpus)?;
        self.check_gpus()?;
        if let Some(nic) = self.nics.iter().find(|nic| nic.links.len() != gpus) {
            return Err(NodeError::Nic(nic.name.clone()));
        }
        let mut last = None;
        for numa in &self.numa {
            let distances = numa.distance.len();
            if last.is_some_and(|last| last >= numa.id)
                || (distances != 0 && distances != self.numa.len())
            {
                return Err(NodeError::Numa(numa.id));
            }
            last = Some(numa.id);
        }
        Ok(())
    }

    fn check_links(&self, gpus: usize) -> Result<(), NodeError> {
        if self.links.len() != gpus || self.links.iter().any(|row| row.len() != gpus) {
            return Err(NodeError::Matrix { gpus });
        }
        for (a, row) in self.links.iter().enumerate() {
            for (b, &link) in row.iter().enumerate() {
                if (a == b) != (link == Link::Same) {
                    return Err(NodeError::Diagonal { a, b, link });
                }
            }
        }
        Ok(())
    }

    fn check_gpus(&self) -> Result<(), NodeError> {
        let mut last = None;
        let mut indices = HashSet::new();
        for gpu in &self.gpus {
            if last.is_some_and(|last| last >= gpu.pci) {
                return Err(NodeError::Order(gpu.pci.to_string()));
            }
            last = Some(gpu.pci);
            if !indices.insert(gpu.index) {
                return Err(NodeError::Index(gpu.index));
            }
            if !gpu.mig.is_sorted_by(|a, b| (a.gi, a.ci) < (b.gi, b.ci)) {
                return Err(NodeError::Mig(gpu.index));
            }
            let uuids = gpu.uuid.known().into_iter().chain(gpu.mig.iter().map(|mig| &mig.uuid));
            for uuid in uuids {
                if !is_uuid(uuid) {
                    return Err(NodeError::Uuid(uuid.escape_default().to_string()));
                }
            }
        }
        Ok(())
    }
}

/// NVML's longest UUID buffer is 96 bytes; old MIG UUIDs have slashes.
fn is_uuid(text: &str) -> bool {
    (text.starts_with("GPU-") || text.starts_with("MIG-"))
        && text.len() < 96
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'/'))
}
