//! What /proc tells about GPUs without waking one: /proc/driver/nvidia.
//!
//! It is readable by everyone and, unlike NVML's list, not filtered by device
//! cgroups, which is how GPUs that are hidden from this process are found.

use std::path::Path;

use super::PciAddress;
use super::roots::{Roots, names, read_small};

/// A GPU that the driver is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcGpu {
    /// PCI address: the folder's name.
    pub pci: PciAddress,
    /// N of /dev/nvidiaN (`Device Minor`), where the driver writes it.
    pub minor: Option<u32>,
    /// `GPU Excluded: Yes`: the driver keeps it from everyone, and NVML's
    /// indices leave it out.
    pub excluded: bool,
}

/// The GPUs in /proc/driver/nvidia/gpus in PCI order; empty without the driver.
pub fn gpus(roots: &Roots) -> Vec<ProcGpu> {
    let folder = roots.proc().join("driver/nvidia/gpus");
    let mut gpus: Vec<ProcGpu> = names(&folder)
        .iter()
        .filter_map(|name| Some(gpu(name.parse().ok()?, &folder.join(name))))
        .collect();
    gpus.sort_by_key(|gpu| gpu.pci);
    gpus
}

fn gpu(pci: PciAddress, folder: &Path) -> ProcGpu {
    let text = read_small(&folder.join("information")).unwrap_or_default();
    let mut gpu = ProcGpu { pci, minor: None, excluded: false };
    for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
        match (name.trim(), value.trim()) {
            ("Device Minor", minor) => gpu.minor = minor.parse().ok(),
            ("GPU Excluded", flag) => gpu.excluded = flag.eq_ignore_ascii_case("yes"),
            _ => {}
        }
    }
    gpu
}

/// The first line of /proc/driver/nvidia/version: the kernel module's release.
pub fn driver(roots: &Roots) -> Option<String> {
    let text = read_small(&roots.proc().join("driver/nvidia/version")).ok()?;
    text.lines().next().map(str::to_owned)
}

/// The kernel's boot id, new at each boot (random(4)).
pub fn boot_id(roots: &Roots) -> Option<String> {
    read_small(&roots.proc().join("sys/kernel/random/boot_id")).ok()
}

/// The existing MIG instances as `gpu<minor>/gi<G>/ci<C>`, sorted, from
/// /proc/driver/nvidia/capabilities; a GPU instance without a compute instance
/// is `gpu<minor>/gi<G>`.
pub fn mig_layout(roots: &Roots) -> Vec<String> {
    let capabilities = roots.proc().join("driver/nvidia/capabilities");
    let mut layout = Vec::new();
    for gpu in names(&capabilities).iter().filter(|name| name.starts_with("gpu")) {
        let mig = capabilities.join(gpu).join("mig");
        for gi in names(&mig).iter().filter(|name| name.starts_with("gi")) {
            let before = layout.len();
            for ci in names(&mig.join(gi)).iter().filter(|name| name.starts_with("ci")) {
                layout.push(format!("{gpu}/{gi}/{ci}"));
            }
            if layout.len() == before {
                layout.push(format!("{gpu}/{gi}"));
            }
        }
    }
    layout
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn information_is_read_in_pci_order_with_minor_and_exclusion() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/driver/nvidia/gpus");
        for (pci, text) in [
            ("0000:47:00.0", "Model: \t\t NVIDIA A100\nDevice Minor: \t 3\nGPU Excluded:\t No\n"),
            ("0000:07:00.0", "Device Minor: 0\nGPU Excluded:  Yes\n"),
            ("10000:01:00.0", "IRQ:   7\n"),
            ("not-a-gpu", "Device Minor: 9\n"),
        ] {
            fs::create_dir_all(folder.join(pci)).unwrap();
            fs::write(folder.join(pci).join("information"), text).unwrap();
        }
        let found: Vec<_> = gpus(&Roots::new(root.path()))
            .into_iter()
            .map(|gpu| (gpu.pci.to_string(), gpu.minor, gpu.excluded))
            .collect();
        let expected = [
            ("0000:07:00.0", Some(0), true),
            ("0000:47:00.0", Some(3), false),
            ("10000:01:00.0", None, false),
        ];
        assert_eq!(found, expected.map(|(pci, minor, out)| (pci.to_owned(), minor, out)));
    }

    #[test]
    fn the_mig_layout_lists_instances_and_empty_gpu_instances() {
        let root = tempfile::tempdir().unwrap();
        let capabilities = root.path().join("proc/driver/nvidia/capabilities");
        for path in ["mig/config", "gpu1/mig/gi9/ci0", "gpu0/mig/gi1", "gpu1/mig/gi9/ci1"] {
            fs::create_dir_all(capabilities.join(path)).unwrap();
        }
        let layout = mig_layout(&Roots::new(root.path()));
        assert_eq!(layout, ["gpu0/gi1", "gpu1/gi9/ci0", "gpu1/gi9/ci1"]);
    }

    #[test]
    fn a_machine_without_the_driver_has_nothing() {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots::new(root.path());
        assert_eq!(gpus(&roots), []);
        assert_eq!((driver(&roots), boot_id(&roots)), (None, None));
        assert!(mig_layout(&roots).is_empty());
    }
}
