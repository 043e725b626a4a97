//! The sockets and cores of a node, which Slurm knows and a [`Node`] does not tell:
//!
//! * **sockets**: NUMA nodes that are nearer to each other than Linux's
//!   REMOTE_DISTANCE of 20 (include/linux/topology.h) are on one socket. AMD's NPS
//!   and Intel's SNC modes show 11 to 16 there, two sockets 20 or more. Without a
//!   distance table each NUMA node is a socket, and without NUMA nodes each place that
//!   the GPUs' CPU lists tell.
//! * **cores**: where the CPUs of each NUMA node are k equal ranges (k = 2, 4, 8)
//!   with gaps between, equally far apart on all nodes, the ranges are the cores'
//!   first threads, second threads and so on, as x86 numbers them. Elsewhere each CPU
//!   is a core, unless the caller knows how many CPUs that follow each other are one;
//!   whole cores give the same sets either way.

use gpubind_core::node::{IdSet, Node};

/// From this distance on, two NUMA nodes are on different sockets.
const REMOTE_DISTANCE: u32 = 20;

/// The node's NUMA nodes that have CPUs, by socket: positions in [`Node::numa`].
pub fn sockets(node: &Node) -> Vec<Vec<usize>> {
    let mut sockets: Vec<Vec<usize>> = Vec::new();
    for (at, numa) in node.numa.iter().enumerate().filter(|(_, numa)| !numa.cpus.is_empty()) {
        let is_near = |other: &usize| {
            numa.distance.get(*other).is_some_and(|distance| *distance < REMOTE_DISTANCE)
        };
        match sockets.iter_mut().find(|socket| socket.iter().any(is_near)) {
            Some(socket) => socket.push(at),
            None => sockets.push(vec![at]),
        }
    }
    sockets
}

/// The CPUs of each socket; none where the node's CPUs are unknown.
///
/// Pasted text may have no NUMA column, or one that names several nodes in a row, or
/// contradicts itself. What it then tells of places are the GPUs' own CPU lists: lists
/// with a CPU in common are one place, each place a socket.
pub fn socket_cpus(node: &Node) -> Vec<IdSet> {
    places(node).into_iter().map(|numa| numa.concat().into_iter().collect()).collect()
}

/// The CPUs of each socket, NUMA node by NUMA node.
fn places(node: &Node) -> Vec<Vec<Vec<usize>>> {
    let cpus = |at: &usize| node.numa.get(*at).map(|numa| numa.cpus.iter().collect());
    let known: Vec<Vec<Vec<usize>>> =
        sockets(node).iter().map(|socket| socket.iter().filter_map(cpus).collect()).collect();
    if !known.is_empty() {
        return known;
    }
    cpu_lists(node).iter().map(|list| vec![list.iter().collect()]).collect()
}

/// The GPUs' CPU lists, those that overlap as one, by their first CPU.
fn cpu_lists(node: &Node) -> Vec<IdSet> {
    let mut lists: Vec<IdSet> = Vec::new();
    for cpus in node.gpus.iter().filter_map(|gpu| gpu.cpus.known()) {
        let (near, apart): (Vec<IdSet>, Vec<IdSet>) =
            lists.into_iter().partition(|list| list.common(cpus) > 0);
        lists = apart;
        let merged: IdSet = near.iter().chain([cpus]).flat_map(IdSet::iter).collect();
        lists.extend(Some(merged).filter(|merged| !merged.is_empty()));
    }
    lists.sort_by_key(|list| list.iter().next());
    lists
}

/// The CPUs of each core in the order in which Slurm numbers cores: socket by socket
/// (gres.conf(5), Cores). Empty where the node's CPUs are unknown.
pub fn cores(node: &Node, siblings: Option<usize>) -> Vec<IdSet> {
    let (sockets, threads) = cpus_by_socket(node, siblings);
    let cpus = sockets.concat();
    cpus.chunks(threads).map(|core| core.iter().copied().collect()).collect()
}

/// The CPUs of each socket, a core's threads one after the other, and the threads
/// of a core: where the numbering does not show them, as many as `siblings` says.
pub(super) fn cpus_by_socket(node: &Node, siblings: Option<usize>) -> (Vec<Vec<usize>>, usize) {
    let places = places(node);
    let smt = [2, 4, 8]
        .into_iter()
        .find_map(|threads| Some((threads, stride(places.iter().flatten(), threads)?)));
    let divides = |threads: &usize| places.iter().flatten().all(|numa| numa.len() % threads == 0);
    let neighbours = siblings.filter(|threads| *threads > 0).filter(divides).unwrap_or(1);
    let (threads, stride) = smt.unwrap_or((1, 0));
    if smt.is_none() {
        return (places.iter().map(|socket| socket.concat()).collect(), neighbours);
    }
    let cpus_of = |numa: &Vec<usize>| -> Vec<usize> {
        let first = numa.iter().take(numa.len() / threads);
        first.flat_map(|cpu| (0..threads).map(move |thread| cpu + thread * stride)).collect()
    };
    (places.iter().map(|socket| socket.iter().flat_map(cpus_of).collect()).collect(), threads)
}

/// How far apart the threads of a core are numbered, if each NUMA node's CPUs are
/// `threads` equal ranges with gaps between: all first threads of the machine come
/// before all second ones.
fn stride<'a>(numa: impl Iterator<Item = &'a Vec<usize>>, threads: usize) -> Option<usize> {
    let mut stride = None;
    for cpus in numa {
        let cores = cpus.len() / threads;
        // Of single CPUs nobody can tell whether they are threads or every other core.
        if cores < 2 || cores * threads != cpus.len() {
            return None;
        }
        let (first, rest) = cpus.split_at(cores);
        let (start, end, second) = (first.first()?, first.last()?, rest.first()?);
        let apart = second - start;
        let is_range = end - start + 1 == cores;
        let repeats = |(nth, range): (usize, &[usize])| {
            first.iter().map(|cpu| cpu + (nth + 1) * apart).eq(range.iter().copied())
        };
        let fits = is_range
            && end + 1 < *second
            && *end < apart
            && *stride.get_or_insert(apart) == apart
            && rest.chunks(cores).enumerate().all(repeats);
        if !fits {
            return None;
        }
    }
    stride
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::read_any;
    use gpubind_core::node::NumaNode;

    pub fn node(numa: &[(&str, &[u32])]) -> Node {
        let numa = numa.iter().zip(0..).map(|((cpus, distance), id)| NumaNode {
            id,
            cpus: cpus.parse().unwrap(),
            distance: distance.to_vec(),
        });
        Node { numa: numa.collect(), ..Node::default() }
    }

    /// Two sockets in NPS2 with two threads for each of 16 cores.
    pub fn nps2() -> Node {
        node(&[
            ("0-3,16-19", &[10, 12, 32, 32]),
            ("4-7,20-23", &[12, 10, 32, 32]),
            ("8-11,24-27", &[32, 32, 10, 12]),
            ("12-15,28-31", &[32, 32, 12, 10]),
        ])
    }

    fn texts(sets: &[IdSet]) -> Vec<String> {
        sets.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn near_numa_nodes_are_one_socket_and_without_distances_each_is_one() {
        assert_eq!(sockets(&nps2()), [[0, 1], [2, 3]]);
        let one = node(&[("0-3", &[10, 12]), ("4-7", &[12, 10])]);
        assert_eq!(sockets(&one), [[0, 1]]);
        let unknown = node(&[("0-3", &[]), ("", &[]), ("4-7", &[])]);
        assert_eq!(sockets(&unknown), [[0], [2]], "a memory-only node is no socket");
    }

    #[test]
    fn cores_are_counted_socket_by_socket() {
        let cores: Vec<String> = cores(&nps2(), None).iter().map(ToString::to_string).collect();
        assert_eq!(cores.len(), 16);
        assert_eq!((cores[1].as_str(), cores[8].as_str()), ("1,17", "8,24"));
    }

    #[test]
    fn without_numa_nodes_the_gpus_own_cpu_lists_are_the_sockets() {
        let pasted = |lists: [&str; 4]| {
            let row = |(gpu, list): (usize, &str)| {
                let links = (0..4).map(|other| if other == gpu { " X " } else { "SYS" });
                format!("GPU{gpu}\t{}\t{list}\n", links.collect::<Vec<_>>().join("\t"))
            };
            let rows: String = lists.into_iter().enumerate().map(row).collect();
            read_any(&format!("\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\n{rows}")).unwrap().0
        };
        let two = pasted(["8-15,24-31", "0-7,16-23", "8-15,24-31", "0-7,16-23"]);
        assert!(two.numa.is_empty());
        assert_eq!(texts(&socket_cpus(&two)), ["0-7,16-23", "8-15,24-31"]);
        assert_eq!(texts(&cores(&two, None)[..2]), ["0,16", "1,17"]);
        // Lists of one socket that show different parts of it.
        let merged = pasted(["0-3", "8-11", "2-7", "10-15"]);
        assert_eq!(texts(&socket_cpus(&merged)), ["0-7", "8-15"]);
        assert_eq!(socket_cpus(&Node::default()), []);
    }
}
