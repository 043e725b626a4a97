//! NVLinks: how many each GPU has, and where each one ends.

use gpubind_core::node::PciAddress;

/// One NVLink of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvLink {
    pub far: FarEnd,
    /// Whether it works; a link that ends nowhere does not.
    pub up: bool,
}

/// Where an NVLink ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FarEnd {
    /// At link `link` of another GPU, by position.
    Gpu {
        gpu: usize,
        /// The other GPU's link number.
        link: usize,
    },
    /// At an NVSwitch; its PCI address where the host sees it.
    Switch(Option<PciAddress>),
    /// At the CPU.
    Cpu,
    /// Nowhere: the GPU has the link, but nothing is plugged in.
    Nothing,
}

/// What a fixture says about NVLinks.
pub(super) struct Wiring<'a> {
    pub gpus: usize,
    /// Direct links: first GPU, second GPU, count. Positions are valid.
    pub direct: &'a [(usize, usize, usize)],
    /// Links of each GPU to its CPU.
    pub cpu: usize,
    /// Links of each GPU to switches.
    pub switch: usize,
    /// The switches, where the host sees them.
    pub switches: &'a [PciAddress],
    /// Links that each GPU has at least, connected or not.
    pub slots: usize,
}

/// Every GPU's links. Numbers go up in the order of the fixture: direct links,
/// links to the CPU, links to switches, unconnected ones.
pub(super) fn wire(wiring: &Wiring) -> Vec<Vec<NvLink>> {
    let up = |far| NvLink { far, up: true };
    let mut links: Vec<Vec<NvLink>> = vec![Vec::new(); wiring.gpus];
    for &(a, b, count) in wiring.direct {
        for _ in 0..count {
            let ends = (links.get(a).map(Vec::len), links.get(b).map(Vec::len));
            let (Some(link_a), Some(link_b)) = ends else {
                continue;
            };
            if let Some(own) = links.get_mut(a) {
                own.push(up(FarEnd::Gpu { gpu: b, link: link_b }));
            }
            if let Some(own) = links.get_mut(b) {
                own.push(up(FarEnd::Gpu { gpu: a, link: link_a }));
            }
        }
    }
    for own in &mut links {
        own.extend((0..wiring.cpu).map(|_| up(FarEnd::Cpu)));
        own.extend((0..wiring.switch).map(|link| {
            let switch = link.checked_rem(wiring.switches.len());
            let switch = switch.and_then(|at| wiring.switches.get(at));
            up(FarEnd::Switch(switch.copied()))
        }));
        let rest = wiring.slots.saturating_sub(own.len());
        let nothing = NvLink { far: FarEnd::Nothing, up: false };
        own.extend((0..rest).map(|_| nothing.clone()));
    }
    links
}

/// How many working links two GPUs have to each other: those that end at the
/// other, and for GPUs on switches as many as both have there. Counting from
/// both sides and taking the smaller number is the reader's rule for links
/// that are up on one side only.
pub(super) fn count(own: &[NvLink], at: usize, other: &[NvLink], other_at: usize) -> u32 {
    let direct = |links: &[NvLink], to: usize| {
        let ends_there = |link: &&NvLink| matches!(link.far, FarEnd::Gpu { gpu, .. } if gpu == to);
        links.iter().filter(|link| link.up).filter(ends_there).count()
    };
    let switch = |links: &[NvLink]| {
        let on_switch = |link: &&NvLink| matches!(link.far, FarEnd::Switch(_));
        links.iter().filter(|link| link.up).filter(on_switch).count()
    };
    let total = direct(own, other_at).min(direct(other, at)) + switch(own).min(switch(other));
    u32::try_from(total).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wiring<'a>(direct: &'a [(usize, usize, usize)], switch: usize) -> Wiring<'a> {
        Wiring { gpus: 3, direct, cpu: 1, switch, switches: &[], slots: 6 }
    }

    fn pair(links: &[Vec<NvLink>], a: usize, b: usize) -> u32 {
        count(&links[a], a, &links[b], b)
    }

    #[test]
    fn both_ends_of_a_direct_link_name_each_other() {
        let links = wire(&wiring(&[(0, 1, 2), (1, 2, 1)], 0));
        for (gpu, own) in links.iter().enumerate() {
            assert_eq!(own.len(), 6, "unconnected links fill the slots");
            for (number, link) in own.iter().enumerate() {
                if let FarEnd::Gpu { gpu: far, link: back } = link.far {
                    let home = FarEnd::Gpu { gpu, link: number };
                    assert_eq!(links[far][back].far, home);
                }
            }
        }
        assert_eq!(pair(&links, 0, 1), 2);
        assert_eq!(pair(&links, 2, 1), 1);
        assert_eq!(pair(&links, 0, 2), 0);
    }

    #[test]
    fn a_link_that_is_down_does_not_count() {
        let mut links = wire(&wiring(&[], 4));
        assert_eq!(pair(&links, 0, 2), 4);
        let down = links[2].iter_mut().find(|link| matches!(link.far, FarEnd::Switch(_)));
        down.unwrap().up = false;
        assert_eq!(pair(&links, 0, 2), 3);
        assert_eq!(pair(&links, 0, 1), 4);
    }
}
