//! gres.conf against the machine.

use super::gres::{GresGpu, NodeGres};
use crate::slurm::{cores, socket_cpus};
use gpubind_core::node::{Gpu, IdSet, Link, Node, PciAddress};

/// A GPU whose line says something else than the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misplaced {
    /// NVML's index of the GPU.
    pub gpu: u32,
    /// The number of the line in gres.conf.
    pub line: usize,
    /// What the line says.
    pub said: String,
    /// What it would say if it were right.
    pub right: String,
}

/// What gres.conf says of a machine's GPUs, compared with what is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GresComparison {
    /// GPUs that gres.conf lists with device files.
    pub listed: usize,
    /// GPUs that the machine has, the unusable ones included.
    pub present: usize,
    /// Device files that are listed and belong to no GPU.
    pub unknown: Vec<String>,
    /// Device files that are listed twice.
    pub repeated: Vec<String>,
    /// N of /dev/nvidiaN of the GPUs that are not listed.
    pub unlisted: Vec<u32>,
    /// The files in PCI order, where they are listed in another one.
    pub in_pci_order: Option<Vec<String>>,
    /// Whether any line has `Cores=`, and whether they can be compared: Slurm
    /// numbers cores, and this library must count them as Slurm does.
    pub has_cores: bool,
    /// See [`GresComparison::has_cores`].
    pub cores_known: bool,
    /// GPUs whose `Cores=` are not the cores next to them.
    pub cores: Vec<Misplaced>,
    /// Whether any line has `Links=`.
    pub has_links: bool,
    /// GPUs whose `Links=` is not their NVLinks.
    pub links: Vec<Misplaced>,
    /// Numbers of the lines whose `Links=` is no such list, and it.
    pub malformed_links: Vec<(usize, String)>,
    /// N of /dev/nvidiaN of all GPUs, in PCI order.
    pub minors: Vec<u32>,
}

/// A GPU's place in PCI order, usable or not.
struct Seat<'a> {
    pci: Option<PciAddress>,
    minor: Option<u32>,
    /// Its position in [`Node::gpus`] and itself; `None` where it is unusable.
    gpu: Option<(usize, &'a Gpu)>,
}

/// Compares. `slurm_cores` is how many cores slurm.conf gives the node, where it
/// says so: with another number than the machine's, `Cores=` cannot be understood.
pub fn compare_gres(gres: &NodeGres, node: &Node, slurm_cores: Option<usize>) -> GresComparison {
    let seats = seats(node);
    let listed: Vec<&GresGpu> = gres.gpus.iter().filter(|gpu| !gpu.files.is_empty()).collect();
    let mut comparison =
        GresComparison { listed: listed.len(), present: seats.len(), ..GresComparison::default() };
    let mut places: Vec<(usize, &GresGpu)> = Vec::new();
    for gpu in &listed {
        let name = gpu.files.join(",");
        let at = gpu.minor().and_then(|n| seats.iter().position(|seat| seat.minor == Some(n)));
        match at {
            None => comparison.unknown.push(name),
            Some(at) if places.iter().any(|(other, _)| *other == at) => {
                comparison.repeated.push(name)
            }
            Some(at) => places.push((at, gpu)),
        }
    }
    let is_listed = |at: usize| places.iter().any(|(other, _)| *other == at);
    let rest = seats.iter().enumerate().filter(|(at, _)| !is_listed(*at));
    comparison.unlisted = rest.filter_map(|(_, seat)| seat.minor).collect();
    if !places.is_sorted_by_key(|(at, _)| *at) {
        let mut sorted = places.clone();
        sorted.sort_by_key(|(at, _)| *at);
        comparison.in_pci_order = Some(sorted.iter().map(|(_, gpu)| gpu.files.join(",")).collect());
    }
    // Slurm's own count tells threads from cores where the numbering of CPUs does not.
    let cpus: usize = node.numa.iter().map(|numa| numa.cpus.count()).sum();
    let siblings =
        [2, 4, 8].into_iter().find(|threads| Some(cpus) == slurm_cores.map(|it| it * threads));
    let machine_cores = cores(node, siblings);
    let sockets = socket_cpus(node);
    comparison.has_cores = listed.iter().any(|gpu| gpu.cores.is_some());
    comparison.cores_known =
        !machine_cores.is_empty() && slurm_cores.is_none_or(|count| count == machine_cores.len());
    comparison.has_links = listed.iter().any(|gpu| gpu.links.is_some());
    comparison.minors = seats.iter().filter_map(|seat| seat.minor).collect();
    let malformed = listed.iter().filter_map(|gpu| {
        let links = gpu.links.as_ref().filter(|links| links.counts.is_none())?;
        Some((gpu.line, links.text.clone()))
    });
    comparison.malformed_links = malformed.collect();
    let uniform = uniform_links(&listed, node);
    for (at, listed) in &places {
        let Some(Seat { gpu: Some((position, gpu)), .. }) = seats.get(*at) else { continue };
        if comparison.cores_known {
            comparison.cores.extend(wrong_cores(listed, gpu, (&machine_cores, &sockets)));
        }
        comparison.links.extend(wrong_links(listed, (*position, gpu), &seats, (node, uniform)));
    }
    comparison
}

fn seats(node: &Node) -> Vec<Seat<'_>> {
    let usable = node.gpus.iter().enumerate().map(|(at, gpu)| Seat {
        pci: gpu.pci.known(),
        minor: gpu.minor.known().copied(),
        gpu: Some((at, gpu)),
    });
    let unusable =
        node.unusable.iter().map(|gpu| Seat { pci: gpu.pci, minor: gpu.minor, gpu: None });
    let mut seats: Vec<Seat> = usable.chain(unusable).collect();
    // One without an address cannot be placed: it comes last.
    seats.sort_by_key(|seat| (seat.pci.is_none(), seat.pci));
    seats
}

/// `Cores=` may be those of the GPU's NUMA node or all of its socket: Slurm 24.11 drains a
/// node where they are a part of a socket.
fn wrong_cores(
    listed: &GresGpu,
    gpu: &Gpu,
    (machine, sockets): (&[IdSet], &[IdSet]),
) -> Option<Misplaced> {
    let (said, local) = (listed.cores.as_ref()?, gpu.cpus.known()?);
    if local.is_empty() {
        return None;
    }
    let numbers = |near: &dyn Fn(&IdSet) -> bool| -> IdSet {
        machine.iter().enumerate().filter(|(_, cpus)| near(cpus)).map(|(core, _)| core).collect()
    };
    let right = numbers(&|cpus| cpus.common(local) > 0);
    let is_near = |socket: &&IdSet| socket.common(local) > 0;
    let whole = numbers(&|cpus| sockets.iter().filter(is_near).any(|it| it.common(cpus) > 0));
    if whole == *said {
        return None;
    }
    (right != *said).then(|| Misplaced {
        gpu: gpu.index,
        line: listed.line,
        said: said.to_string(),
        right: right.to_string(),
    })
}

/// `Links=` counts by PCI order (gres.conf(5)), 0 where there is no NVLink.
fn wrong_links(
    listed: &GresGpu,
    (position, gpu): (usize, &Gpu),
    seats: &[Seat],
    (node, uniform): (&Node, Option<i64>),
) -> Option<Misplaced> {
    let said = listed.links.as_ref()?.counts.as_ref()?;
    let right: Vec<Option<i64>> = seats
        .iter()
        .map(|seat| match node.link(position, seat.gpu?.0) {
            Link::Same => Some(-1),
            Link::NvLink(_) if uniform.is_some() => uniform,
            Link::NvLink(count) => Some(i64::from(count)),
            Link::Unknown => None,
            _ => Some(0),
        })
        .collect();
    let agrees = |(said, right): (&i64, &Option<i64>)| right.is_none_or(|right| right == *said);
    let is_right = said.len() == right.len() && said.iter().zip(&right).all(agrees);
    (!is_right).then(|| Misplaced {
        gpu: gpu.index,
        line: listed.line,
        said: list(said.iter().copied()),
        right: list(right.into_iter().map(|count| count.unwrap_or(0))),
    })
}

/// The number that all lines give for all other GPUs, where the machine joins all GPUs
/// alike: to Slurm, which looks for the GPUs with most links, any number is as good there.
fn uniform_links(listed: &[&GresGpu], node: &Node) -> Option<i64> {
    let count = node.gpus.len();
    let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
    let mut links = pairs.map(|(a, b)| node.link(a, b));
    let first = links.next().filter(|link| matches!(link, Link::NvLink(_)))?;
    if links.any(|link| link != first) {
        return None;
    }
    let counts = listed.iter().filter_map(|gpu| gpu.links.as_ref()?.counts.as_ref());
    let mut others = counts.flatten().filter(|count| **count != -1);
    let number = *others.next()?;
    others.all(|other| *other == number).then_some(number)
}

fn list(numbers: impl Iterator<Item = i64>) -> String {
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::super::gres::{GresLinks, expand};
    use super::*;
    use gpubind_machine::Machine;

    fn node(name: &str, end: &str) -> Node {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/machines");
        let text = std::fs::read_to_string(format!("{folder}/{name}.toml")).unwrap();
        Machine::parse(&format!("{text}\n{end}")).unwrap().to_node()
    }

    fn gres(files: &str) -> NodeGres {
        let gpu = |file| GresGpu { line: 1, files: vec![file], cores: None, links: None };
        NodeGres { gpus: expand(files).into_iter().map(gpu).collect(), ..NodeGres::default() }
    }

    #[test]
    fn files_are_found_by_their_numbers_and_ordered_by_pci_address() {
        let node = node("minors-reordered", "");
        let right = compare_gres(&gres("/dev/nvidia[2,3,0,1]"), &node, None);
        assert_eq!((right.listed, right.present), (4, 4));
        let minors = vec![2, 3, 0, 1];
        let clean = GresComparison {
            minors,
            listed: 4,
            present: 4,
            cores_known: true,
            ..GresComparison::default()
        };
        assert_eq!(right, clean);
        let by_number = compare_gres(&gres("/x/dev/nvidia[0-3]"), &node, None);
        let files = ["/x/dev/nvidia2", "/x/dev/nvidia3", "/x/dev/nvidia0", "/x/dev/nvidia1"];
        assert_eq!(by_number.in_pci_order.unwrap(), files);
    }

    #[test]
    fn what_is_missing_unknown_or_twice_is_named() {
        let found = compare_gres(&gres("/dev/nvidia[0-2,2,9]"), &node("two-cpu", ""), None);
        assert_eq!((found.listed, found.present), (5, 8));
        assert_eq!(found.unknown, ["/dev/nvidia9"]);
        assert_eq!(found.repeated, ["/dev/nvidia2"]);
        assert_eq!(found.unlisted, [3, 4, 5, 6, 7]);
    }

    #[test]
    fn an_unusable_gpu_is_there_all_the_same() {
        let lost =
            compare_gres(&gres("/dev/nvidia[0-7]"), &node("two-cpu", "[faults]\nlost = [2]"), None);
        assert_eq!((lost.present, lost.unknown.len(), lost.unlisted.len()), (8, 0, 0));
    }

    #[test]
    fn cores_are_numbered_as_slurm_does() {
        let node = node("minors-reordered", "");
        let mut gres = gres("/dev/nvidia[2,3,0,1]");
        // Two sockets of 24 cores with two threads each.
        for (gpu, cores) in gres.gpus.iter_mut().zip(["0-23", "24-47", "24-47", "24-71"]) {
            gpu.cores = Some(cores.parse().unwrap());
        }
        let found = compare_gres(&gres, &node, Some(48));
        let wrong: Vec<_> = found
            .cores
            .iter()
            .map(|gpu| (gpu.gpu, gpu.said.as_str(), gpu.right.as_str()))
            .collect();
        assert_eq!(wrong, [(1, "24-47", "0-23"), (3, "24-71", "24-47")]);
        let other = compare_gres(&gres, &node, Some(16));
        assert!(other.has_cores && !other.cores_known && other.cores.is_empty());
    }

    #[test]
    fn cores_may_be_those_of_a_numa_node_or_of_its_socket() {
        // Eight NUMA nodes of 16 cores, the first two GPUs at the fourth.
        let node = node("dgx-a100", "");
        let mut gres = gres("/dev/nvidia[0-7]");
        for (gpu, cores) in gres.gpus.iter_mut().zip(["48-63", "0-63", "0-31"]) {
            gpu.cores = Some(cores.parse().unwrap());
        }
        let found = compare_gres(&gres, &node, Some(128));
        let wrong: Vec<_> = found.cores.iter().map(|gpu| gpu.said.as_str()).collect();
        assert_eq!(wrong, ["0-31"]);
    }

    fn links_of(counts: &[i64]) -> GresLinks {
        GresLinks { text: list(counts.iter().copied()), counts: Some(counts.to_vec()) }
    }

    #[test]
    fn where_all_gpus_are_joined_alike_any_one_number_is_right() {
        let node = node("hgx-h100", "");
        let with = |number: &dyn Fn(usize) -> i64| {
            let mut gres = gres("/dev/nvidia[0-7]");
            for (at, gpu) in gres.gpus.iter_mut().enumerate() {
                let counts = (0..8).map(|other| if other == at { -1 } else { number(at) });
                gpu.links = Some(links_of(&counts.collect::<Vec<_>>()));
            }
            compare_gres(&gres, &node, None).links.len()
        };
        assert_eq!([with(&|_| 1), with(&|_| 0), with(&|_| 18)], [0, 0, 0]);
        assert_eq!(with(&|at| if at < 4 { 18 } else { 1 }), 4, "unlike for Slurm");
    }

    #[test]
    fn links_are_compared_by_pci_order() {
        let node = node("minors-reordered", "");
        let mut gres = gres("/dev/nvidia[2,3,0,1]");
        let links = [[-1, 4, 0, 0], [4, -1, 0, 0], [0, 0, -1, 2], [0, 4, 0, -1]];
        for (gpu, links) in gres.gpus.iter_mut().zip(links) {
            gpu.links = Some(links_of(&links));
        }
        let found = compare_gres(&gres, &node, None);
        let wrong: Vec<_> = found.links.iter().map(|gpu| (gpu.gpu, gpu.right.as_str())).collect();
        assert_eq!(wrong, [(2, "0,0,-1,4"), (3, "0,0,4,-1")]);
        gres.gpus[0].links = Some(links_of(&[-1, 4]));
        assert_eq!(compare_gres(&gres, &node, None).links.len(), 3, "a short list is wrong");
    }
}
