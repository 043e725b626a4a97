//! Where each device lies below `/sys/devices`: addresses for the bridges that
//! the fixture names.
//!
//! A switch shows as a bridge for its upper port and one for each port below:
//! `pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:03:00.0` is a host
//! bridge, a root port, a switch's upper port, one of its lower ports, and the
//! device. Devices of one switch share all but their lower ports, which is what
//! readers of sysfs go by.

use std::collections::{BTreeMap, BTreeSet};

use gpubind_core::node::PciAddress;
use gpubind_machine::{Machine, Place};

/// A device and its folder below `/sys/devices`.
pub struct Located {
    pub pci: PciAddress,
    pub folder: String,
}

/// All PCI devices of the machine with a place, in the order given.
pub fn locate(machine: &Machine) -> Result<Vec<Located>, String> {
    let nowhere = Place::default();
    let gpus = machine.gpus.iter().map(|gpu| (gpu.pci, &gpu.place));
    let nics = machine.nics.iter().filter_map(|nic| Some((nic.pci?, &nic.place)));
    let switches = machine.nvswitches.iter().map(|pci| (*pci, &nowhere));
    let devices: Vec<(PciAddress, &Place)> = gpus.chain(nics).chain(switches).collect();
    let mut tree = Tree::default();
    for (pci, _) in &devices {
        tree.buses.insert((pci.domain, pci.bus));
    }
    let located = devices
        .iter()
        .map(|(pci, place)| Ok(Located { pci: *pci, folder: tree.folder(*pci, place)? }));
    located.collect()
}

#[derive(Default)]
struct Tree {
    /// Bus numbers in use, by domain.
    buses: BTreeSet<(u32, u8)>,
    /// Bridges by their path in the fixture.
    bridges: BTreeMap<String, Bridge>,
    /// The port that leads to each child, by the parent's path and the child's name.
    ports: BTreeMap<(String, String), String>,
}

#[derive(Clone)]
struct Bridge {
    folder: String,
    /// The bus on which its ports are.
    bus: u8,
    ports: u8,
}

impl Tree {
    fn folder(&mut self, pci: PciAddress, place: &Place) -> Result<String, String> {
        let Some(path) = &place.pcie else {
            // On the root bus itself, as in virtual machines.
            return Ok(format!("pci{:04x}:{:02x}/{pci}", pci.domain, pci.bus));
        };
        let mut key = path.root().to_owned();
        if !self.bridges.contains_key(&key) {
            let bus = self.free_bus(pci.domain)?;
            let folder = format!("pci{:04x}:{bus:02x}", pci.domain);
            self.bridges.insert(key.clone(), Bridge { folder, bus, ports: 0 });
        }
        for switch in path.switches() {
            let port = self.port(&key, switch, pci.domain)?;
            key = format!("{key}/{switch}");
            if !self.bridges.contains_key(&key) {
                let (upper, lower) = (self.free_bus(pci.domain)?, self.free_bus(pci.domain)?);
                let folder = format!("{port}/{:04x}:{upper:02x}:00.0", pci.domain);
                self.bridges.insert(key.clone(), Bridge { folder, bus: lower, ports: 0 });
            }
        }
        // Functions of one device share a port.
        let slot = format!("{:02x}:{:02x}", pci.bus, pci.device);
        let port = self.port(&key, &slot, pci.domain)?;
        Ok(format!("{port}/{pci}"))
    }

    fn port(&mut self, bridge: &str, child: &str, domain: u32) -> Result<String, String> {
        let key = (bridge.to_owned(), child.to_owned());
        if let Some(port) = self.ports.get(&key) {
            return Ok(port.clone());
        }
        let above = self.bridges.get_mut(bridge).ok_or("a bridge without a place")?;
        above.ports += 1;
        if above.ports > 31 {
            return Err(format!("`{bridge}` has more than 31 devices"));
        }
        let Bridge { folder, bus, ports } = above;
        let port = format!("{folder}/{domain:04x}:{bus:02x}:{ports:02x}.0");
        self.ports.insert(key, port.clone());
        Ok(port)
    }

    fn free_bus(&mut self, domain: u32) -> Result<u8, String> {
        let free = (0..=u8::MAX).find(|bus| self.buses.insert((domain, *bus)));
        free.ok_or_else(|| format!("PCI domain {domain:04x} has no bus number left"))
    }
}
