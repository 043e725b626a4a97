//! What is drawn inside what: sockets, NUMA nodes, PCIe switches, devices.
//!
//! The node model names no sockets and no switches. Sockets follow from the
//! NUMA distances, where those are known; switches from the links.

use crate::cli::topo::matrix::id_list;
use crate::slurm;
use gpubind_core::node::{Gpu, IdSet, Link, Nic, Node};

/// All that is drawn, from left to right. Devices are positions in the node's
/// lists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Groups {
    /// Sockets; one without a title where they are not known.
    pub sockets: Vec<Socket>,
    /// Network adapters that are in no place with GPUs.
    pub elsewhere: Vec<usize>,
    /// What to write above those.
    pub elsewhere_title: &'static str,
}

/// A CPU socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Socket {
    /// What to write above it, if it is to be drawn.
    pub title: Option<String>,
    /// Its NUMA nodes.
    pub places: Vec<Region>,
}

/// A NUMA node, or what GPUs have in common where that is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Region {
    /// What to write above it.
    pub title: String,
    /// Its NUMA node ids.
    pub numa: Vec<u32>,
    /// Its CPUs, where known.
    pub cpus: Option<IdSet>,
    /// PCIe link between those of its GPUs that share no switch.
    pub between: Option<Link>,
    /// Link from its GPUs to those of its adapters that share no switch with any.
    pub to_adapters: Option<Link>,
    /// Its devices.
    pub clusters: Vec<Cluster>,
}

/// Devices behind the same PCIe switch or switches, or behind none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Cluster {
    /// What to write on the switch; none where there is no switch.
    pub switch: Option<&'static str>,
    /// GPUs.
    pub gpus: Vec<usize>,
    /// Network adapters.
    pub nics: Vec<usize>,
}

impl Groups {
    /// Sorts a node's devices into the places where they are drawn.
    pub fn of(node: &Node) -> Groups {
        let mut places = gpu_places(node);
        let mut elsewhere = Vec::new();
        for nic in 0..node.nics.len() {
            match nic_place(node, nic, &places) {
                Some((place, cluster)) => put_nic(&mut places, nic, place, cluster),
                None => elsewhere.push(nic),
            }
        }
        for cluster in places.iter_mut().flat_map(|place| &mut place.clusters) {
            cluster.switch = switch_name(node, cluster);
        }
        for place in &mut places {
            place.between = between(node, place);
            place.to_adapters = to_adapters(node, place);
        }
        add_empty_nodes(node, &mut places);
        places.sort_by_key(|place| place.numa.first().copied());
        let elsewhere_title = elsewhere_title(node, &elsewhere);
        Groups { sockets: sockets(node, places), elsewhere, elsewhere_title }
    }
}

/// The places of the GPUs with their clusters, adapters not yet among them.
/// NUMA nodes tell the place; CPUs only where those are not known, and links then tell
/// which are apart.
fn gpu_places(node: &Node) -> Vec<Region> {
    let same = |a: &Gpu, b: &Gpu| a.numa == b.numa && a.cpus == b.cpus;
    let mut places: Vec<(&Gpu, Vec<usize>)> = Vec::new();
    for (at, gpu) in node.gpus.iter().enumerate() {
        let is_here = |(first, members): &&mut (&Gpu, Vec<usize>)| match gpu.numa.known() {
            Some(_) => first.numa == gpu.numa,
            None => same(first, gpu) && members.iter().all(|it| node.link(*it, at) != Link::Sys),
        };
        match places.iter_mut().find(is_here) {
            Some((_, members)) => members.push(at),
            None => places.push((gpu, vec![at])),
        }
    }
    let place = |(first, gpus): (&Gpu, Vec<usize>)| {
        let numa = first.numa.known().cloned().unwrap_or_default();
        Region {
            title: match numa.len() {
                0 => "NUMA node not known".to_owned(),
                1 => format!("NUMA node {}", id_list(&numa)),
                _ => format!("NUMA nodes {}", id_list(&numa)),
            },
            cpus: first.cpus.known().filter(|cpus| !cpus.is_empty()).cloned(),
            numa,
            between: None,
            to_adapters: None,
            clusters: clusters(node, &gpus),
        }
    };
    places.into_iter().map(place).collect()
}

/// Puts GPUs that meet at PCIe switches together; a common adapter shows that
/// too where NVLink hides the PCIe link between two GPUs.
fn clusters(node: &Node, gpus: &[usize]) -> Vec<Cluster> {
    let near = |link: Link| matches!(link, Link::Pix | Link::Pxb);
    let meet = |a: usize, b: usize| {
        let common = |nic: &Nic| {
            [a, b].iter().all(|gpu| nic.links.get(*gpu).is_some_and(|link| near(*link)))
        };
        near(node.link(a, b)) || node.nics.iter().any(common)
    };
    let mut clusters: Vec<Vec<usize>> = Vec::new();
    for gpu in gpus {
        let (mut own, others): (Vec<Vec<usize>>, Vec<Vec<usize>>) = clusters
            .into_iter()
            .partition(|cluster| cluster.iter().any(|other| meet(*gpu, *other)));
        own.push(vec![*gpu]);
        clusters = others;
        let mut merged = own.concat();
        merged.sort_unstable();
        clusters.push(merged);
    }
    clusters.sort();
    clusters.into_iter().map(|gpus| Cluster { gpus, ..Cluster::default() }).collect()
}

/// The place of an adapter's nearest GPUs, and their cluster if they share a
/// switch; none if it is near no GPU or if those are in several places.
fn nic_place(node: &Node, nic: usize, places: &[Region]) -> Option<(usize, Option<usize>)> {
    let links = &node.nics.get(nic)?.links;
    let best = links.iter().min_by_key(|link| link.hop())?;
    if best.hop() >= Link::Sys.hop() {
        return None;
    }
    let mut found: Vec<(usize, usize)> = Vec::new();
    for (p, place) in places.iter().enumerate() {
        for (c, cluster) in place.clusters.iter().enumerate() {
            if cluster.gpus.iter().any(|gpu| links.get(*gpu) == Some(best)) {
                found.push((p, c));
            }
        }
    }
    let (place, cluster) = found.first().copied()?;
    let shares_switch = matches!(best, Link::Pix | Link::Pxb);
    match found.as_slice() {
        [_] => Some((place, shares_switch.then_some(cluster))),
        several if several.iter().all(|(other, _)| *other == place) => Some((place, None)),
        _ => None,
    }
}

fn put_nic(places: &mut [Region], nic: usize, place: usize, cluster: Option<usize>) {
    let Some(place) = places.get_mut(place) else { return };
    let found = match cluster {
        Some(cluster) => place.clusters.get_mut(cluster),
        None => place.clusters.iter_mut().find(|cluster| cluster.gpus.is_empty()),
    };
    match found {
        Some(cluster) => cluster.nics.push(nic),
        None => place.clusters.push(Cluster { nics: vec![nic], ..Cluster::default() }),
    }
}

fn switch_name(node: &Node, cluster: &Cluster) -> Option<&'static str> {
    let pairs = cluster.gpus.iter().flat_map(|a| cluster.gpus.iter().map(|b| node.link(*a, *b)));
    let nics = cluster.nics.iter().filter_map(|nic| node.nics.get(*nic));
    let to_nics =
        nics.flat_map(|nic| cluster.gpus.iter().filter_map(|gpu| nic.links.get(*gpu).copied()));
    let links: Vec<Link> = pairs.chain(to_nics).collect();
    match (links.contains(&Link::Pxb), links.contains(&Link::Pix)) {
        (true, _) => Some("PCIe switches"),
        (false, true) => Some("PCIe switch"),
        (false, false) => None,
    }
}

/// The farthest PCIe link between GPUs of different clusters of a place.
fn between(node: &Node, place: &Region) -> Option<Link> {
    let mut links: Vec<Link> = Vec::new();
    for (at, a) in place.clusters.iter().enumerate() {
        for b in place.clusters.iter().skip(at + 1) {
            links.extend(a.gpus.iter().flat_map(|a| b.gpus.iter().map(|b| node.link(*a, *b))));
        }
    }
    links.retain(|link| matches!(link, Link::Pix | Link::Pxb | Link::Phb | Link::Node | Link::Sys));
    links.into_iter().max_by_key(|link| link.hop())
}

/// The nearest link from GPUs of a place to its adapters that are behind no switch of theirs.
fn to_adapters(node: &Node, place: &Region) -> Option<Link> {
    let apart = place.clusters.iter().filter(|cluster| cluster.gpus.is_empty());
    let nics = apart.flat_map(|cluster| &cluster.nics).filter_map(|nic| node.nics.get(*nic));
    nics.flat_map(|nic| nic.links.iter().copied()).min_by_key(|link| link.hop())
}

/// What adapters have in common that are in no place.
fn elsewhere_title(node: &Node, nics: &[usize]) -> &'static str {
    let links = |nic: &usize| node.nics.get(*nic).map_or(&[][..], |nic| nic.links.as_slice());
    let is_far = |nic: &usize| {
        let links = links(nic);
        !links.is_empty() && links.iter().all(|link| link.hop() >= Link::Sys.hop())
    };
    if nics.iter().all(is_far) {
        "near no GPU"
    } else if nics.iter().all(|nic| links(nic).is_empty()) {
        "place not known"
    } else {
        "other adapters"
    }
}

/// NUMA nodes with CPUs and no GPU are part of the picture.
fn add_empty_nodes(node: &Node, places: &mut Vec<Region>) {
    for numa in node.numa.iter().filter(|numa| !numa.cpus.is_empty()) {
        if places.iter().all(|place| !place.numa.contains(&numa.id)) {
            places.push(Region {
                title: format!("NUMA node {}", numa.id),
                numa: vec![numa.id],
                cpus: Some(numa.cpus.clone()),
                between: None,
                to_adapters: None,
                clusters: Vec::new(),
            });
        }
    }
}

/// Puts places into sockets, by the distances of their NUMA nodes.
fn sockets(node: &Node, places: Vec<Region>) -> Vec<Socket> {
    let mut with_cpus = node.numa.iter().filter(|numa| !numa.cpus.is_empty());
    if with_cpus.any(|numa| numa.distance.is_empty()) {
        return vec![Socket { title: None, places }];
    }
    let ids = |socket: Vec<usize>| -> Vec<u32> {
        socket.iter().filter_map(|at| node.numa.get(*at)).map(|numa| numa.id).collect()
    };
    let sockets: Vec<Vec<u32>> = slurm::sockets(node).into_iter().map(ids).collect();
    let home = |place: &Region| {
        sockets
            .iter()
            .position(|ids| !place.numa.is_empty() && place.numa.iter().all(|id| ids.contains(id)))
    };
    if sockets.is_empty() || places.iter().any(|place| home(place).is_none()) {
        return vec![Socket { title: None, places }];
    }
    let mut found: Vec<Socket> = (0..sockets.len())
        .map(|at| Socket { title: Some(format!("socket {at}")), places: Vec::new() })
        .collect();
    for place in places {
        if let Some(socket) = home(&place).and_then(|at| found.get_mut(at)) {
            socket.places.push(place);
        }
    }
    found.retain(|socket| !socket.places.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_any;

    fn groups(machine: &str) -> Groups {
        let path = format!("{}/tests/machines/{machine}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        Groups::of(&read_any(&text).unwrap().0)
    }

    /// The GPUs of every cluster that has some, from left to right.
    fn gpus(groups: &Groups) -> Vec<Vec<usize>> {
        let places = groups.sockets.iter().flat_map(|socket| &socket.places);
        let clusters = places.flat_map(|place| &place.clusters);
        clusters.map(|cluster| cluster.gpus.clone()).filter(|gpus| !gpus.is_empty()).collect()
    }

    #[test]
    fn dgx_a100_has_two_sockets_of_four_nodes_and_a_switch_pair_in_every_second_one() {
        let groups = groups("dgx-a100");
        let shape: Vec<Vec<&str>> = groups
            .sockets
            .iter()
            .map(|socket| socket.places.iter().map(|place| place.title.as_str()).collect())
            .collect();
        assert_eq!(
            shape,
            [
                ["NUMA node 0", "NUMA node 1", "NUMA node 2", "NUMA node 3"],
                ["NUMA node 4", "NUMA node 5", "NUMA node 6", "NUMA node 7"],
            ]
        );
        assert_eq!(gpus(&groups), [[2, 3], [0, 1], [6, 7], [4, 5]]);
        let third = &groups.sockets[0].places[3];
        let cluster = Cluster { switch: Some("PCIe switches"), gpus: vec![0, 1], nics: vec![0, 1] };
        assert_eq!(third.clusters, [cluster]);
        assert_eq!(groups.elsewhere, [4, 5, 10, 11]);
    }

    #[test]
    fn text_without_numa_is_parted_by_cpus_and_shows_no_socket() {
        let text = "\tGPU0\tGPU1\tGPU2\tCPU Affinity\nGPU0\t X \tPIX\tSYS\t0-3\n\
                    GPU1\tPIX\t X \tSYS\t0-3\nGPU2\tSYS\tSYS\t X \t4-7\n";
        let groups = Groups::of(&read_any(text).unwrap().0);
        assert_eq!(groups.sockets.len(), 1);
        assert_eq!(groups.sockets[0].title, None);
        assert_eq!(gpus(&groups), [vec![0, 1], vec![2]]);
        assert_eq!(groups.sockets[0].places[0].clusters[0].switch, Some("PCIe switch"));
        assert_eq!(groups.sockets[0].places[1].clusters[0].switch, None);
    }

    #[test]
    fn gpus_of_unknown_place_that_are_far_apart_are_not_in_one() {
        let text = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tPHB\tSYS\nGPU1\tPHB\t X \tSYS\n\
                    GPU2\tSYS\tSYS\t X \n";
        let groups = Groups::of(&read_any(text).unwrap().0);
        let places = groups.sockets.iter().flat_map(|socket| &socket.places);
        let gpus = |place: &Region| place.clusters.iter().flat_map(|it| it.gpus.clone()).collect();
        assert_eq!(places.map(gpus).collect::<Vec<Vec<usize>>>(), [vec![0, 1], vec![2]]);
    }

    #[test]
    fn links_to_adapters_behind_no_switch_are_told() {
        let text = "\tGPU0\tGPU1\tNIC0\tNIC1\tNIC2\tCPU Affinity\tNUMA Affinity\n\
                    GPU0\t X \tSYS\tPHB\tSYS\tPHB\t0-3\t0\n\
                    GPU1\tSYS\t X \tSYS\tSYS\tPHB\t4-7\t1\n\
                    NIC0\tPHB\tSYS\t X \tSYS\tSYS\nNIC1\tSYS\tSYS\tSYS\t X \tSYS\n\
                    NIC2\tPHB\tPHB\tSYS\tSYS\t X \n";
        let groups = Groups::of(&read_any(text).unwrap().0);
        let places: Vec<&Region> =
            groups.sockets.iter().flat_map(|socket| &socket.places).collect();
        let links: Vec<Option<Link>> = places.iter().map(|place| place.to_adapters).collect();
        assert_eq!(links, [Some(Link::Phb), None]);
        // One is far from all GPUs, one near those of two places.
        assert_eq!((groups.elsewhere, groups.elsewhere_title), (vec![1, 2], "other adapters"));
    }
}
