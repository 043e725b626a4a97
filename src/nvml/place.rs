//! Which GPU is meant by an index that does not answer, and which GPUs are not
//! in NVML's list at all.
//!
//! NVML lists GPUs in PCI order, and /proc/driver/nvidia/gpus lists all of
//! them, so what /proc shows between two GPUs that answered is what did not
//! answer, or what a device cgroup hides.

use gpubind_core::node::procfs::ProcGpu;
use gpubind_core::node::{PciAddress, UnusableGpu};

use super::raw::{NO_PERMISSION, UNKNOWN};

/// Why a GPU is not usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The `nvmlReturn_t` code.
    pub code: u32,
    /// Its address, where it still answered that.
    pub pci: Option<PciAddress>,
}

/// What an index of NVML's list answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    Healthy { index: u32, pci: PciAddress },
    Refused { index: u32, refusal: Refusal },
}

impl Seen {
    fn pci(&self) -> Option<PciAddress> {
        match self {
            Seen::Healthy { pci, .. } => Some(*pci),
            Seen::Refused { refusal, .. } => refusal.pci,
        }
    }
}

/// Where an entry of NVML's list belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spot {
    /// At this address.
    At(PciAddress),
    /// At one of several addresses that only /proc shows.
    Somewhere,
    /// At none that /proc shows: it fell off the bus, or there is no /proc.
    Nowhere,
}

/// The result: unusable GPUs, and new indices where NVML's list was shortened.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// In index order.
    pub unusable: Vec<UnusableGpu>,
    /// All GPUs of the node in PCI order, if NVML's list is shorter.
    ranks: Vec<PciAddress>,
}

impl Placed {
    /// The index on the whole node, where it is not NVML's.
    pub(super) fn index_of(&self, pci: PciAddress) -> Option<u32> {
        let rank = self.ranks.iter().position(|ranked| *ranked == pci)?;
        u32::try_from(rank).ok()
    }
}

/// Matches NVML's list with /proc's.
pub(super) fn place(seen: &[Seen], proc: &[ProcGpu]) -> Placed {
    // NVML does not count GPUs that the driver excludes.
    let all: Vec<ProcGpu> = proc.iter().filter(|gpu| !gpu.excluded).cloned().collect();
    let spots = spots(seen, &all);
    let shortened = seen.len() < all.len();
    let ranks = if shortened { all.iter().map(|gpu| gpu.pci).collect() } else { Vec::new() };
    let mut placed = Placed { unusable: Vec::new(), ranks };
    for (one, spot) in seen.iter().zip(&spots) {
        let Seen::Refused { index, refusal } = one else { continue };
        let pci = match spot {
            Spot::At(pci) => Some(*pci),
            // Listed below, with the GPUs that are hidden.
            Spot::Somewhere if shortened => continue,
            Spot::Somewhere | Spot::Nowhere => None,
        };
        placed.unusable.push(UnusableGpu {
            index: pci.and_then(|pci| placed.index_of(pci)).unwrap_or(*index),
            pci,
            minor: pci.and_then(|pci| all.iter().find(|gpu| gpu.pci == pci)?.minor),
            code: refusal.code,
        });
    }
    if shortened {
        // NVML documents "no permission" for GPUs that a cgroup denies. Not so
        // if one of them may be an index that refused for another reason.
        let sure = !spots.contains(&Spot::Somewhere);
        let code = if sure { NO_PERMISSION } else { UNKNOWN };
        for gpu in all.iter().filter(|gpu| !spots.contains(&Spot::At(gpu.pci))) {
            let index = placed.index_of(gpu.pci).unwrap_or_default();
            placed.unusable.push(UnusableGpu { index, pci: Some(gpu.pci), minor: gpu.minor, code });
        }
    }
    placed.unusable.sort_by_key(|unusable| unusable.index);
    placed
}

/// The spot of each entry: what it answered, else by elimination between the
/// entries before and after it that answered theirs.
fn spots(seen: &[Seen], all: &[ProcGpu]) -> Vec<Spot> {
    let answered: Vec<PciAddress> = seen.iter().filter_map(Seen::pci).collect();
    let mut spots: Vec<Spot> = Vec::new();
    for run in seen.chunk_by(|a, b| a.pci().is_none() && b.pci().is_none()) {
        if let Some(pci) = run.first().and_then(Seen::pci) {
            spots.push(Spot::At(pci));
            continue;
        }
        let after = seen.iter().take(spots.len()).rev().find_map(Seen::pci);
        let before = seen.iter().skip(spots.len()).find_map(Seen::pci);
        let gap: Vec<PciAddress> = all
            .iter()
            .map(|gpu| gpu.pci)
            .filter(|pci| !answered.contains(pci))
            .filter(|pci| after.is_none_or(|after| after < *pci))
            .filter(|pci| before.is_none_or(|before| *pci < before))
            .collect();
        // An index order that is not the PCI order tells nothing about gaps.
        let exact = gap.len() == run.len() && answered.is_sorted();
        let other = if gap.is_empty() { Spot::Nowhere } else { Spot::Somewhere };
        spots.extend(run.iter().enumerate().map(|(at, _)| match gap.get(at) {
            Some(pci) if exact => Spot::At(*pci),
            _ => other,
        }));
    }
    spots
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pci(bus: u8) -> PciAddress {
        PciAddress { domain: 0, bus, device: 0, function: 0 }
    }

    fn proc(buses: &[u8]) -> Vec<ProcGpu> {
        let gpu = |(minor, bus): (usize, &u8)| ProcGpu {
            pci: pci(*bus),
            minor: Some(minor as u32),
            excluded: false,
        };
        buses.iter().enumerate().map(gpu).collect()
    }

    /// A list of what each index answers: its bus, or a code.
    fn seen(list: &[Result<u8, u32>]) -> Vec<Seen> {
        let one = |(index, answer): (usize, &Result<u8, u32>)| match *answer {
            Ok(bus) => Seen::Healthy { index: index as u32, pci: pci(bus) },
            Err(code) => {
                Seen::Refused { index: index as u32, refusal: Refusal { code, pci: None } }
            }
        };
        list.iter().enumerate().map(one).collect()
    }

    /// (index, bus, minor, code) of each unusable GPU.
    fn unusable(placed: &Placed) -> Vec<(u32, Option<u8>, Option<u32>, u32)> {
        let row = |unusable: &UnusableGpu| {
            (unusable.index, unusable.pci.map(|p| p.bus), unusable.minor, unusable.code)
        };
        placed.unusable.iter().map(row).collect()
    }

    #[test]
    fn a_refusing_index_is_what_proc_has_in_its_place() {
        let placed = place(&seen(&[Ok(1), Err(15), Err(4), Ok(4)]), &proc(&[1, 2, 3, 4]));
        assert_eq!(unusable(&placed), [(1, Some(2), Some(1), 15), (2, Some(3), Some(2), 4)]);
        assert_eq!(placed.index_of(pci(4)), None, "NVML's own index holds");
    }

    #[test]
    fn a_gpu_that_left_the_bus_has_no_address() {
        let placed = place(&seen(&[Ok(1), Err(15), Ok(3)]), &proc(&[1, 3]));
        assert_eq!(unusable(&placed), [(1, None, None, 15)]);
        let placed = place(&seen(&[Err(15), Err(999), Ok(3)]), &proc(&[2, 3]));
        assert_eq!(unusable(&placed), [(0, None, None, 15), (1, None, None, 999)]);
    }

    #[test]
    fn a_shortened_list_is_renumbered_and_what_it_lacks_is_listed() {
        let placed = place(&seen(&[Ok(2), Ok(4)]), &proc(&[1, 2, 3, 4]));
        assert_eq!(unusable(&placed), [(0, Some(1), Some(0), 4), (2, Some(3), Some(2), 4)]);
        assert_eq!((placed.index_of(pci(2)), placed.index_of(pci(4))), (Some(1), Some(3)));
    }

    #[test]
    fn a_refusal_that_may_be_any_hidden_gpu_makes_their_code_unknown() {
        let placed = place(&seen(&[Ok(1), Err(15), Ok(4)]), &proc(&[1, 2, 3, 4]));
        assert_eq!(unusable(&placed), [(1, Some(2), Some(1), 999), (2, Some(3), Some(2), 999)]);
        assert_eq!(placed.index_of(pci(4)), Some(3));
    }

    #[test]
    fn excluded_gpus_are_in_no_list() {
        let mut all = proc(&[1, 2, 3]);
        all.iter_mut().filter(|gpu| gpu.pci == pci(2)).for_each(|gpu| gpu.excluded = true);
        let placed = place(&seen(&[Ok(1), Ok(3)]), &all);
        assert_eq!((unusable(&placed), placed.index_of(pci(3))), (vec![], None));
    }

    #[test]
    fn without_proc_nothing_is_placed() {
        let placed = place(&seen(&[Ok(1), Err(4)]), &[]);
        assert_eq!(unusable(&placed), [(1, None, None, 4)]);
    }
}
