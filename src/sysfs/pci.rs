//! PCI devices: /sys/bus/pci/devices, and the bridges above them.

use std::fs;
use std::path::Path;

use gpubind_core::node::{IdSet, Link, PciAddress};
use gpubind_core::node::{Roots, read_small};

/// A PCI device as sysfs shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciDevice {
    /// Its address.
    pub address: PciAddress,
    /// The host bridge that it hangs from, such as `pci0000:40`.
    root: String,
    /// The bridges between the host bridge and the device, from the top.
    bridges: Vec<PciAddress>,
    /// `numa_node`; `None` where the kernel says -1, which means unknown.
    pub numa: Option<u32>,
    /// `local_cpulist`. Where `numa` is unknown the kernel lists all CPUs.
    pub cpus: Option<IdSet>,
    /// PCI class, such as 0x0680xx for an NVSwitch.
    pub class: Option<u32>,
    /// PCI vendor, such as 0x10de.
    pub vendor: Option<u32>,
}

impl PciDevice {
    /// Looks a device up by its address.
    pub fn find(roots: &Roots, address: PciAddress) -> Option<PciDevice> {
        let link = roots.sys().join("bus/pci/devices").join(address.to_string());
        PciDevice::read(&link)
    }

    /// Reads the device that a sysfs folder, or a link to one, stands for.
    pub fn read(folder: &Path) -> Option<PciDevice> {
        // The resolved path spells the bridges out:
        // …/pci0000:00/0000:00:01.0/0000:01:00.0
        let folder = fs::canonicalize(folder).ok()?;
        let mut root = None;
        let mut chain: Vec<PciAddress> = Vec::new();
        for part in folder.components().filter_map(|part| part.as_os_str().to_str()) {
            if is_host_bridge(part) {
                // A bridge of an inner domain (VMD) starts anew.
                root = Some(part.to_owned());
                chain.clear();
            } else if let Ok(address) = part.parse() {
                chain.push(address);
            }
        }
        let hex = |name: &str| {
            let text = read_small(&folder.join(name)).ok()?;
            u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
        };
        Some(PciDevice {
            address: chain.pop()?,
            root: root?,
            bridges: chain,
            numa: read_small(&folder.join("numa_node")).ok().and_then(|id| id.parse().ok()),
            cpus: read_small(&folder.join("local_cpulist")).ok().and_then(|list| list.parse().ok()),
            class: hex("class"),
            vendor: hex("vendor"),
        })
    }
}

fn is_host_bridge(part: &str) -> bool {
    part.strip_prefix("pci").and_then(|rest| rest.split_once(':')).is_some_and(|(domain, bus)| {
        u32::from_str_radix(domain, 16).is_ok() && u8::from_str_radix(bus, 16).is_ok()
    })
}

/// The PCIe level between two devices, from the bridges that they share: what
/// NVML's common ancestor says, for devices that NVML does not know and for
/// machines where it refuses. `single` says that the machine has only one NUMA
/// node with CPUs, so that an unknown node is that one.
pub fn level(a: &PciDevice, b: &PciDevice, single: bool) -> Link {
    if a.address == b.address {
        return Link::Same;
    }
    if a.root != b.root {
        return match (a.numa, b.numa) {
            (Some(a), Some(b)) if a == b => Link::Node,
            (None, _) | (_, None) if single => Link::Node,
            // With an unknown node too: so `nvidia-smi topo -m` has it, and
            // nothing nearer is known of devices that share no host bridge.
            _ => Link::Sys,
        };
    }
    let shared = a.bridges.iter().zip(&b.bridges).take_while(|(a, b)| a == b).count();
    if shared == 0 {
        return Link::Phb;
    }
    // Below the last shared bridge, a switch has one more bridge (its
    // downstream port) on each side; more than that is a second switch.
    let below = |device: &PciDevice| device.bridges.len() - shared;
    if below(a) <= 1 && below(b) <= 1 { Link::Pix } else { Link::Pxb }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(root: &str, chain: &[&str], numa: Option<u32>) -> PciDevice {
        let mut chain: Vec<PciAddress> = chain.iter().map(|part| part.parse().unwrap()).collect();
        PciDevice {
            address: chain.pop().unwrap(),
            root: root.to_owned(),
            bridges: chain,
            numa,
            cpus: None,
            class: None,
            vendor: None,
        }
    }

    #[test]
    fn levels_follow_the_shared_bridges() {
        let root = "pci0000:00";
        let a = device(root, &["00:01.0", "01:00.0", "02:00.0", "03:00.0"], Some(0));
        let sibling = device(root, &["00:01.0", "01:00.0", "02:01.0", "04:00.0"], Some(0));
        let far = ["00:01.0", "01:00.0", "02:02.0", "05:00.0", "06:00.0", "07:00.0"];
        let cousin = device(root, &far, Some(0));
        let bridge = device(root, &["00:02.0", "08:00.0"], Some(0));
        let node = device("pci0000:40", &["40:01.0", "41:00.0"], Some(0));
        let socket = device("pci0000:80", &["80:01.0", "81:00.0"], Some(1));
        let unknown = device("pci0000:c0", &["c0:01.0", "c1:00.0"], None);
        let expected = [
            (&a, Link::Same),
            (&sibling, Link::Pix),
            (&cousin, Link::Pxb),
            (&bridge, Link::Phb),
            (&node, Link::Node),
            (&socket, Link::Sys),
            (&unknown, Link::Sys),
        ];
        for (other, link) in expected {
            assert_eq!(level(&a, other, false), link, "{}", other.address);
            assert_eq!(level(other, &a, false), link, "{} turned round", other.address);
        }
        assert_eq!(level(&a, &unknown, true), Link::Node);
    }

    #[test]
    fn an_inner_domain_starts_a_chain_of_its_own() {
        let root = tempfile::tempdir().unwrap();
        let folder =
            root.path().join("pci0000:60/0000:60:05.5/pci10000:80/10000:80:02.0/10000:81:00.0");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("numa_node"), "-1\n").unwrap();
        fs::write(folder.join("class"), "0x020700\n").unwrap();
        let found = PciDevice::read(&folder).unwrap();
        assert_eq!(found.address, "10000:81:00.0".parse().unwrap());
        assert_eq!(found.root, "pci10000:80");
        assert_eq!(found.bridges, ["10000:80:02.0".parse().unwrap()]);
        assert_eq!((found.numa, found.class), (None, Some(0x020700)));
    }
}
