//! What lies between two GPUs: NVLinks if there are any, else the PCIe level.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::nv_link::Capability;

use super::host_info::HostInfo;
use super::raw::remote_pci;
use super::raw::{
    FarPci, INVALID_ARGUMENT, Session, common_ancestor, field, probed, remote_device_type,
};
use crate::sysfs::{PciDevice, level};
use gpubind_core::node::{Link, PciAddress, Probed, Roots};

/// `NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT`.
const SWITCH_LINK_COUNT: u32 = 147;
/// `NVML_FI_DEV_NVLINK_GET_STATE`, a value of each link.
const LINK_STATE: u32 = 165;
/// PCI vendors (pci.ids).
const NVIDIA: u32 = 0x10de;
const IBM: u32 = 0x1014;
/// The end of the links is the driver's INVALID_ARGUMENT (18 links on Hopper,
/// 36 in the newest header); this only ends a walk that a driver never ends.
const MOST_LINKS: u32 = 128;

/// What is at the far end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// A GPU in the list, by its position.
    Gpu(usize),
    /// An NVSwitch: every GPU behind it is reached with all links.
    Switch,
    /// The CPU (POWER), or a GPU that this process may not see: no way to
    /// another GPU of the list.
    Elsewhere,
}

/// One GPU's active links.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GpuLinks {
    /// How many lead straight to each GPU of the list.
    direct: Vec<u32>,
    /// How many lead into a switch.
    switched: u32,
    /// Whether the library could be asked at all.
    answered: bool,
}

/// The square link matrix of the GPUs in `addresses`, which `devices` are the
/// handles and `pci` the sysfs sides of. `hidden` are GPUs that are there but
/// not in the list.
pub(super) fn matrix(
    session: &Session,
    devices: &[Device],
    addresses: &[PciAddress],
    hidden: Vec<PciAddress>,
    pci: &[Option<PciDevice>],
    reader: &HostInfo,
) -> Vec<Vec<Link>> {
    let far = FarEnds { addresses, hidden, roots: reader.roots };
    let links: Vec<GpuLinks> = devices.iter().map(|device| walk(session, device, &far)).collect();
    let mut matrix = vec![vec![Link::Same; devices.len()]; devices.len()];
    for (a, device) in devices.iter().enumerate() {
        for (b, other) in devices.iter().enumerate().skip(a + 1) {
            let link = match nvlinks(&links, a, b) {
                0 => pcie(session, (device, other), (pci.get(a), pci.get(b)), reader),
                count => Link::NvLink(count),
            };
            for (row, column) in [(a, b), (b, a)] {
                if let Some(cell) = matrix.get_mut(row).and_then(|row| row.get_mut(column)) {
                    *cell = link;
                }
            }
        }
    }
    matrix
}

/// How many NVLinks join two GPUs: the direct ones, of which both ends should
/// count the same (the smaller number holds if a link is down at one end), and
/// those that both have into a switch, which is not divided among the peers.
fn nvlinks(links: &[GpuLinks], a: usize, b: usize) -> u32 {
    let (Some(from), Some(to)) = (links.get(a), links.get(b)) else { return 0 };
    let there = from.direct.get(b).copied().unwrap_or(0);
    let back = to.direct.get(a).copied().unwrap_or(0);
    let direct = match (from.answered, to.answered) {
        (true, true) => there.min(back),
        // The end that could be asked is the only one that knows.
        _ => there.max(back),
    };
    direct + from.switched.min(to.switched)
}

/// The PCIe level, from NVML or from sysfs's bridges.
fn pcie(
    session: &Session,
    (a, b): (&Device, &Device),
    (a_pci, b_pci): (Option<&Option<PciDevice>>, Option<&Option<PciDevice>>),
    reader: &HostInfo,
) -> Link {
    match common_ancestor(session, a, b) {
        Probed::Known(level) => word(level),
        Probed::Unsupported | Probed::Failed(_) => match (a_pci, b_pci) {
            (Some(Some(a)), Some(Some(b))) => level(a, b, reader.single()),
            _ => Link::Unknown,
        },
    }
}

/// The word for a `nvmlGpuTopologyLevel_t`. INTERNAL (0, two GPUs of one board)
/// is shown as PIX; a level that this program does not know is taken as the
/// farthest.
fn word(level: u32) -> Link {
    match level {
        0 | 10 => Link::Pix,
        20 => Link::Pxb,
        30 => Link::Phb,
        40 => Link::Node,
        _ => Link::Sys,
    }
}

/// Goes through a GPU's links until the driver says that there are no more.
fn walk(session: &Session, device: &Device, far: &FarEnds) -> GpuLinks {
    let mut links = GpuLinks { direct: vec![0; far.addresses.len()], switched: 0, answered: false };
    for number in 0..MOST_LINKS {
        let link = device.link_wrapper_for(number);
        match probed(link.has_capability(Capability::P2p)) {
            Probed::Failed(INVALID_ARGUMENT) => break,
            Probed::Known(false) => {
                links.answered = true;
                continue;
            }
            Probed::Known(true) | Probed::Unsupported | Probed::Failed(_) => {}
        }
        // Hopper and later tell the state in a field; older GPUs in a call only.
        let state = match field(session, device, LINK_STATE, number) {
            // 2 is asleep (nvml.h): such a link wakes when it is used.
            Probed::Known(state) => Probed::Known(state != 0),
            Probed::Unsupported | Probed::Failed(_) => probed(link.is_active()),
        };
        match state {
            Probed::Failed(INVALID_ARGUMENT) => break,
            Probed::Unsupported | Probed::Failed(_) => continue,
            Probed::Known(active) => {
                links.answered = true;
                if !active {
                    continue;
                }
            }
        }
        let pci = remote_pci(session, device, number);
        match far.end(pci, || remote_device_type(session, device, number)) {
            End::Gpu(peer) => {
                if let Some(count) = links.direct.get_mut(peer) {
                    *count += 1;
                }
            }
            End::Switch => links.switched += 1,
            End::Elsewhere => {}
        }
    }
    if !links.answered {
        // Libraries that cannot tell single links may still count those into switches.
        links.switched = *field(session, device, SWITCH_LINK_COUNT, 0).known().unwrap_or(&0);
    }
    links
}

/// What is needed to tell what an address at the end of a link is.
struct FarEnds<'a> {
    addresses: &'a [PciAddress],
    hidden: Vec<PciAddress>,
    roots: &'a Roots,
}

impl FarEnds<'_> {
    fn end(&self, far: Probed<FarPci>, kind: impl Fn() -> Probed<u32>) -> End {
        let address = far.known().and_then(|far| far.address);
        if let Some(pci) = address {
            if let Some(peer) = self.addresses.iter().position(|known| *known == pci) {
                return End::Gpu(peer);
            }
            if self.hidden.contains(&pci) {
                return End::Elsewhere;
            }
        }
        if far.known().is_some_and(|far| far.vendor == IBM) {
            return End::Elsewhere;
        }
        match (kind(), address) {
            (Probed::Known(2), _) => End::Switch,
            (Probed::Known(1), _) => End::Elsewhere,
            // A GPU that has an address is one that cannot be seen. Without a
            // usable address it is a switch: GB200 gives none for any link.
            (Probed::Known(0), Some(_)) => End::Elsewhere,
            (_, Some(pci)) => self.by_class(pci),
            (_, None) => End::Switch,
        }
    }

    /// By what sysfs says; what a virtual machine does not see is a switch.
    fn by_class(&self, pci: PciAddress) -> End {
        let Some(device) = PciDevice::find(self.roots, pci) else { return End::Switch };
        match (device.vendor, device.class.map(|class| class >> 8)) {
            (Some(NVIDIA), Some(0x0680)) => End::Switch,
            _ => End::Elsewhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(direct: &[u32], switched: u32) -> GpuLinks {
        GpuLinks { direct: direct.to_vec(), switched, answered: true }
    }

    #[test]
    fn a_pair_has_what_both_ends_have() {
        let pair = [links(&[0, 4], 0), links(&[3, 0], 0)];
        assert_eq!(nvlinks(&pair, 0, 1), 3, "one link is down at one end");
        let switched = [links(&[0, 0], 18), links(&[0, 0], 17)];
        assert_eq!(nvlinks(&switched, 0, 1), 17);
        let mut silent = [links(&[0, 4], 0), links(&[0, 0], 0)];
        assert_eq!(nvlinks(&silent, 0, 1), 0);
        silent[1].answered = false;
        assert_eq!(nvlinks(&silent, 0, 1), 4, "the other end could not be asked");
    }

    #[test]
    fn levels_have_words_and_unknown_ones_are_far() {
        let words = [0, 10, 20, 30, 40, 50, 45, 60, 999].map(|level| word(level).to_string());
        assert_eq!(words, ["PIX", "PIX", "PXB", "PHB", "NODE", "SYS", "SYS", "SYS", "SYS"]);
    }

    #[test]
    fn far_ends_are_told_apart() {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots::new(root.path());
        let pci = |bus: u8| PciAddress { domain: 0, bus, device: 0, function: 0 };
        let folder = root.path().join("sys/bus/pci/devices");
        for (bus, vendor, class) in [(0x50, "0x10de", "0x068000"), (0x51, "0x1014", "0x068000")] {
            let device = root.path().join(format!("sys/devices/pci0000:00/{}", pci(bus)));
            std::fs::create_dir_all(&device).unwrap();
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(device.join("vendor"), vendor).unwrap();
            std::fs::write(device.join("class"), class).unwrap();
            std::os::unix::fs::symlink(&device, folder.join(pci(bus).to_string())).unwrap();
        }
        let addresses = [pci(1), pci(2)];
        let far = FarEnds { addresses: &addresses, hidden: vec![pci(3)], roots: &roots };
        let answered = |address, vendor| Probed::Known(FarPci { address, vendor });
        let known = |bus| answered(Some(pci(bus)), 0x10de);
        let cases = [
            (known(2), Probed::Known(0), End::Gpu(1)),
            (known(2), Probed::Unsupported, End::Gpu(1)),
            (known(3), Probed::Known(2), End::Elsewhere),
            (known(9), Probed::Known(0), End::Elsewhere),
            (known(9), Probed::Known(1), End::Elsewhere),
            (known(9), Probed::Known(2), End::Switch),
            (known(9), Probed::Known(255), End::Switch),
            (known(0x50), Probed::Unsupported, End::Switch),
            (known(0x51), Probed::Unsupported, End::Elsewhere),
            (answered(Some(pci(9)), 0x1014), Probed::Unsupported, End::Elsewhere),
            (answered(None, 0xffff), Probed::Known(0), End::Switch),
            (answered(None, 0xffff), Probed::Known(1), End::Elsewhere),
            (Probed::Failed(999), Probed::Failed(999), End::Switch),
        ];
        for (address, kind, end) in cases {
            assert_eq!(far.end(address, || kind), end, "{address:?} {kind:?}");
        }
    }
}
