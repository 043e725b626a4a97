//! `/sys`: CPUs, NUMA nodes, PCI devices, network adapters.

use std::error::Error;

use gpubind_core::node::{IdSet, PciAddress};
use gpubind_machine::{Machine, Place};

use crate::bridges;
use crate::root::Root;

/// PCI classes (pci.ids): 3D controller, InfiniBand controller, and the bridge
/// class that NVSwitches have.
const GPU: (&str, &str) = ("0x030200", "0x10de");
const NIC: (&str, &str) = ("0x020700", "0x15b3");
const NVSWITCH: (&str, &str) = ("0x068000", "0x10de");

pub fn lay_out(root: &Root, machine: &Machine) -> Result<(), Box<dyn Error>> {
    cpus(root, machine)?;
    pci_devices(root, machine)?;
    Ok(())
}

fn cpus(root: &Root, machine: &Machine) -> Result<(), Box<dyn Error>> {
    let all = machine.cpus().to_string();
    root.write("sys/devices/system/cpu/possible", &format!("{all}\n"))?;
    root.write("sys/devices/system/cpu/online", &format!("{all}\n"))?;
    let ids: IdSet = machine.numa.iter().map(|node| node.id as usize).collect();
    let with_cpus = machine.numa.iter().filter(|node| !node.cpus.is_empty());
    let with_cpus: IdSet = with_cpus.map(|node| node.id as usize).collect();
    root.write("sys/devices/system/node/online", &format!("{ids}\n"))?;
    root.write("sys/devices/system/node/has_cpu", &format!("{with_cpus}\n"))?;
    for node in &machine.numa {
        let folder = format!("sys/devices/system/node/node{}", node.id);
        root.write(&format!("{folder}/cpulist"), &format!("{}\n", node.cpus))?;
        if !node.distance.is_empty() {
            let row: Vec<String> = node.distance.iter().map(u32::to_string).collect();
            root.write(&format!("{folder}/distance"), &format!("{}\n", row.join(" ")))?;
        }
    }
    Ok(())
}

fn pci_devices(root: &Root, machine: &Machine) -> Result<(), Box<dyn Error>> {
    let located = bridges::locate(machine)?;
    let folder = |pci: PciAddress| {
        let found = located.iter().find(|located| located.pci == pci);
        found.map(|located| located.folder.as_str()).ok_or("a device without a place")
    };
    for gpu in &machine.gpus {
        let cpus = gpu.cpus.clone().unwrap_or_else(|| machine.cpus());
        let node = numa_node(machine, &gpu.place);
        device(root, folder(gpu.pci)?, gpu.pci, GPU, node, &cpus)?;
    }
    for nic in &machine.nics {
        let Some(pci) = nic.pci else { continue };
        let node = numa_node(machine, &nic.place);
        let of_node = |node: u32| {
            let mut nodes = machine.numa.iter();
            nodes.find(|other| other.id == node).map(|node| node.cpus.clone())
        };
        let cpus = node.and_then(of_node).unwrap_or_else(|| machine.cpus());
        device(root, folder(pci)?, pci, NIC, node, &cpus)?;
        let name = &nic.name;
        let target = format!("sys/devices/{}", folder(pci)?);
        // The class entry is a link into the device, which holds the way back.
        root.link(&format!("{target}/infiniband/{name}/device"), &target)?;
        root.link(&format!("sys/class/infiniband/{name}"), &format!("{target}/infiniband/{name}"))?;
    }
    for switch in &machine.nvswitches {
        device(root, folder(*switch)?, *switch, NVSWITCH, None, &machine.cpus())?;
    }
    Ok(())
}

/// The kernel has one node for each device: the first with CPUs.
fn numa_node(machine: &Machine, place: &Place) -> Option<u32> {
    let ids = place.numa.as_ref()?;
    machine.cpu_nodes(ids).first().copied()
}

/// A device whose node is unknown is local to all CPUs, says the kernel
/// (drivers/pci/pci-sysfs.c, `pci_dev_show_local_cpu`).
fn device(
    root: &Root,
    folder: &str,
    pci: PciAddress,
    (class, vendor): (&str, &str),
    node: Option<u32>,
    cpus: &IdSet,
) -> Result<(), Box<dyn Error>> {
    let folder = format!("sys/devices/{folder}");
    let node = node.map_or_else(|| "-1".to_owned(), |node| node.to_string());
    root.write(&format!("{folder}/class"), &format!("{class}\n"))?;
    root.write(&format!("{folder}/vendor"), &format!("{vendor}\n"))?;
    root.write(&format!("{folder}/numa_node"), &format!("{node}\n"))?;
    root.write(&format!("{folder}/local_cpulist"), &format!("{cpus}\n"))?;
    root.link(&format!("sys/bus/pci/devices/{pci}"), &folder)?;
    Ok(())
}
