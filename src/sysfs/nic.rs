//! Network adapters: /sys/class/infiniband, else /sys/class/net.

use std::path::PathBuf;

use super::pci::{PciDevice, level};
use gpubind_core::node::{Link, Nic};
use gpubind_core::node::{Roots, names};

/// Mellanox; the adapters that `nvidia-smi topo -m` lists.
const MELLANOX: u32 = 0x15b3;

/// The machine's RDMA adapters by name, with their PCIe level to each of `gpus`
/// (`None` where sysfs does not know the GPU). Where the RDMA driver is not
/// loaded, the network interfaces of such adapters, without virtual functions.
pub fn nics(roots: &Roots, gpus: &[Option<PciDevice>], single: bool) -> Vec<Nic> {
    let class = roots.sys().join("class");
    let mut nics = list(class.join("infiniband"), |_, _| true);
    if nics.is_empty() {
        nics = list(class.join("net"), |folder, device| {
            device.vendor == Some(MELLANOX) && !folder.join("device/physfn").exists()
        });
    }
    nics.sort_by_cached_key(|(name, _)| natural(name));
    nics.into_iter()
        .map(|(name, device)| {
            let link = |gpu: &Option<PciDevice>| match (gpu, &device) {
                (Some(gpu), Some(device)) => level(gpu, device, single),
                _ => Link::Unknown,
            };
            Nic { links: gpus.iter().map(link).collect(), pci: device.map(|d| d.address), name }
        })
        .collect()
}

fn list(
    class: PathBuf,
    wanted: impl Fn(&PathBuf, &PciDevice) -> bool,
) -> Vec<(String, Option<PciDevice>)> {
    names(&class)
        .into_iter()
        .filter_map(|name| {
            let folder = class.join(&name);
            // A software adapter (rxe, siw, bond, lo) has no PCI device.
            let device = PciDevice::read(&folder.join("device"))?;
            wanted(&folder, &device).then_some((name, Some(device)))
        })
        .collect()
}

/// Orders `mlx5_2` before `mlx5_10`.
fn natural(name: &str) -> (String, u64, String) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name.get(stem.len()..).and_then(|digits| digits.parse().ok());
    (stem.to_owned(), number.unwrap_or(0), name.to_owned())
}
