//! How near a task's CPUs are to its devices.

use std::fmt;

use crate::slurm::socket_cpus;
use gpubind_core::bind::Locality;
use gpubind_core::node::{Device, IdSet, Node};
use gpubind_core::plan::mapping_cost;

/// The nearness of a task to its devices; of several devices, the farthest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Nearness {
    /// All its CPUs are local.
    Local,
    /// Some of its CPUs are local; mean distance beyond the local one, in thousandths.
    Partly(u64),
    /// None of its CPUs is local.
    Far(u64),
    /// The machine does not tell, or the task's CPUs are unknown.
    Unknown,
}

impl Nearness {
    /// Of one task to its devices.
    pub fn of(node: &Node, devices: &[Device], cpus: &IdSet) -> Nearness {
        let one = |device: &Device| {
            let gpu = node.gpu(*device)?;
            let cost = mapping_cost(node, &[*device], std::slice::from_ref(cpus), &[0]).ok()?;
            Some(match Locality::of(cpus, gpu) {
                Locality::Local => Nearness::Local,
                Locality::Partly => Nearness::Partly(cost.numa),
                Locality::Remote => Nearness::Far(cost.numa),
                Locality::Unknown => Nearness::Unknown,
            })
        };
        devices
            .iter()
            .map(|device| one(device).unwrap_or(Nearness::Unknown))
            .max()
            .unwrap_or(Nearness::Unknown)
    }

    /// Known not to be local.
    pub fn is_away(self) -> bool {
        matches!(self, Nearness::Partly(_) | Nearness::Far(_))
    }
}

impl fmt::Display for Nearness {
    /// The distance as Linux counts it, where 10 is local.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Nearness::Local => f.write_str("local"),
            Nearness::Partly(beyond) => write!(f, "partly, {}", Distance(beyond)),
            Nearness::Far(beyond) => write!(f, "{}", Distance(beyond)),
            Nearness::Unknown => f.write_str("?"),
        }
    }
}

/// A mean distance, from its thousandths beyond the local one.
pub(super) struct Distance(pub u64);

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, hundredths) = (10 + self.0 / 1000, self.0 % 1000 / 10);
        match (hundredths / 10, hundredths % 10) {
            (0, 0) => write!(f, "{whole}"),
            (tenths, 0) => write!(f, "{whole}.{tenths}"),
            (tenths, rest) => write!(f, "{whole}.{tenths}{rest}"),
        }
    }
}

/// The sockets of a node, to tell a far one.
pub(super) struct Sockets(Vec<IdSet>);

impl Sockets {
    pub fn of(node: &Node) -> Sockets {
        Sockets(socket_cpus(node))
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether one of the devices is on no socket where the task has a CPU.
    pub fn is_far(&self, node: &Node, devices: &[Device], cpus: &IdSet) -> bool {
        devices.iter().filter_map(|device| node.gpu(*device)?.cpus.known()).any(|local| {
            let shared = |socket: &IdSet| socket.common(cpus) > 0 && socket.common(local) > 0;
            let is_somewhere = |set: &IdSet| self.0.iter().any(|socket| socket.common(set) > 0);
            is_somewhere(cpus) && is_somewhere(local) && !self.0.iter().any(shared)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_written_as_linux_counts_them() {
        for (beyond, text) in
            [(0, "10"), (2000, "12"), (22_000, "32"), (1500, "11.5"), (333, "10.33"), (50, "10.05")]
        {
            assert_eq!(Distance(beyond).to_string(), text);
        }
    }

    #[test]
    fn the_farthest_device_of_several_counts() {
        assert!(Nearness::Local < Nearness::Partly(0) && Nearness::Partly(5) < Nearness::Far(1));
        assert!(Nearness::Far(1) < Nearness::Far(2) && Nearness::Far(u64::MAX) < Nearness::Unknown);
    }
}
