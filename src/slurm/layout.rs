//! The CPU sets that Slurm's task/affinity would give the tasks of a step that
//! has a whole node, for `gpubind plan`: what a job *will* get is known before it
//! is queued. A running step reads its real sets, see [`super::task_cpus`].
//!
//! The order is that of src/plugins/task/affinity/dist_tasks.c
//! (`_task_layout_lllp_block`, `_task_layout_lllp_cyclic`). Two things that
//! Slurm knows and a [`Node`] does not tell are derived:
//!
//! * **sockets**: NUMA nodes that are nearer to each other than Linux's
//!   REMOTE_DISTANCE of 20 (include/linux/topology.h) are on one socket. AMD's NPS
//!   and Intel's SNC modes show 11 to 16 there, two sockets 20 or more. Without a
//!   distance table each NUMA node is a socket.
//! * **cores**: where the CPUs of each NUMA node are k equal ranges (k = 2, 4, 8)
//!   with gaps between, equally far apart on all nodes, the ranges are the cores'
//!   first threads, second threads and so on, as x86 numbers them. Elsewhere each CPU
//!   is a core, which gives the same sets where siblings are numbered one after the
//!   other.

use gpubind_core::node::{IdSet, Node, NumaNode};

/// From this distance on, two NUMA nodes are on different sockets.
const REMOTE_DISTANCE: u32 = 20;

/// How tasks are dealt to the sockets of a node: the second part of srun's
/// `--distribution`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Distribution {
    /// `block:block`: consecutive tasks fill the first socket, then the next.
    Block,
    /// `block:cyclic`, Slurm's default: consecutive tasks go to consecutive sockets.
    #[default]
    Cyclic,
}

/// CPU sets as Slurm would make them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskLayout {
    /// The CPU set of each task, by local rank; empty where the node's CPUs are unknown.
    pub tasks: Vec<IdSet>,
    /// How many sockets the tasks were dealt to.
    pub sockets: usize,
    /// CPUs of each task; `None` if all tasks share all CPUs, because there are
    /// fewer CPUs than tasks, or because no CPU is known.
    pub cpus_per_task: Option<usize>,
}

/// Why there is no layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{tasks} tasks with {cpus_per_task} CPUs each are more than the node's {cpus} CPUs; at most {most} each"
)]
pub struct LayoutError {
    /// Tasks of the step on the node.
    pub tasks: usize,
    /// CPUs asked for, for each task.
    pub cpus_per_task: usize,
    /// CPUs of the node.
    pub cpus: usize,
    /// What would fit.
    pub most: usize,
}

/// Deals a whole node's CPUs to `tasks` tasks. Without `cpus_per_task` each task
/// gets an equal number of whole cores. With it, the number is rounded up to whole
/// cores where the node has enough, because Slurm gives no core to two tasks.
///
/// # Errors
/// [`LayoutError`] if the node has not that many CPUs.
pub fn layout(
    node: &Node,
    tasks: usize,
    cpus_per_task: Option<usize>,
    distribution: Distribution,
) -> Result<TaskLayout, LayoutError> {
    let (sockets, threads) = cpus_by_socket(node);
    let count = sockets.len();
    let cpus: usize = sockets.iter().map(Vec::len).sum();
    if cpus == 0 {
        return Ok(TaskLayout {
            tasks: vec![IdSet::default(); tasks],
            sockets: 0,
            cpus_per_task: None,
        });
    }
    let share = cpus / tasks.max(1);
    let each = match cpus_per_task {
        Some(asked) if asked > share => {
            return Err(LayoutError { tasks, cpus_per_task: asked, cpus, most: share });
        }
        Some(asked) => Some(asked.next_multiple_of(threads)).filter(|whole| *whole <= share),
        None => None,
    };
    let each = each.or(cpus_per_task).unwrap_or_else(|| match share / threads * threads {
        0 => share,
        whole => whole,
    });
    let tasks = match (each, distribution) {
        // Slurm binds nothing where the CPUs do not suffice.
        (0, _) => vec![sockets.iter().flatten().copied().collect(); tasks],
        (_, Distribution::Block) => {
            let cpus: Vec<usize> = sockets.into_iter().flatten().collect();
            cpus.chunks(each).take(tasks).map(|cpus| cpus.iter().copied().collect()).collect()
        }
        (_, Distribution::Cyclic) => deal(&sockets, tasks, each),
    };
    Ok(TaskLayout { tasks, sockets: count, cpus_per_task: (each > 0).then_some(each) })
}

/// Gives each task its CPUs from one socket, the next task from the next socket.
/// A socket that runs out in the midst of a task hands on to the next one. There
/// must be enough CPUs.
fn deal(sockets: &[Vec<usize>], tasks: usize, each: usize) -> Vec<IdSet> {
    let mut free: Vec<_> = sockets.iter().map(|cpus| cpus.iter().copied()).collect();
    let mut socket = 0;
    let mut sets = Vec::with_capacity(tasks);
    for _ in 0..tasks {
        let mut cpus = Vec::with_capacity(each);
        let mut tried = 0;
        while cpus.len() < each && tried <= free.len() {
            match free.get_mut(socket).and_then(Iterator::next) {
                Some(cpu) => {
                    cpus.push(cpu);
                    tried = 0;
                }
                None => {
                    socket = (socket + 1) % free.len();
                    tried += 1;
                }
            }
        }
        socket = (socket + 1) % free.len();
        sets.push(cpus.into_iter().collect());
    }
    sets
}

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

/// The CPUs of each core in the order in which Slurm numbers cores: socket by socket
/// (gres.conf(5), Cores). Empty where the node's CPUs are unknown.
pub fn cores(node: &Node) -> Vec<IdSet> {
    let (sockets, threads) = cpus_by_socket(node);
    let cpus = sockets.concat();
    cpus.chunks(threads).map(|core| core.iter().copied().collect()).collect()
}

/// The CPUs of each socket, a core's threads one after the other, and the threads
/// of a core.
fn cpus_by_socket(node: &Node) -> (Vec<Vec<usize>>, usize) {
    let numa: Vec<Vec<usize>> = node
        .numa
        .iter()
        .map(|numa| numa.cpus.iter().collect::<Vec<_>>())
        .filter(|cpus| !cpus.is_empty())
        .collect();
    let smt = [2, 4, 8].into_iter().find_map(|threads| Some((threads, stride(&numa, threads)?)));
    let (threads, stride) = smt.unwrap_or((1, 0));
    let cpus_of = |numa: &NumaNode| -> Vec<usize> {
        let first = numa.cpus.iter().take(numa.cpus.count() / threads);
        first.flat_map(|cpu| (0..threads).map(move |thread| cpu + thread * stride)).collect()
    };
    let sockets = sockets(node);
    let cpus = sockets.iter().map(|socket| {
        socket.iter().filter_map(|at| node.numa.get(*at)).flat_map(cpus_of).collect()
    });
    (cpus.collect(), threads)
}

/// How far apart the threads of a core are numbered, if each NUMA node's CPUs are
/// `threads` equal ranges with gaps between: all first threads of the machine come
/// before all second ones.
fn stride(numa: &[Vec<usize>], threads: usize) -> Option<usize> {
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
mod tests {
    use super::*;

    fn node(numa: &[(&str, &[u32])]) -> Node {
        let numa = numa.iter().zip(0..).map(|((cpus, distance), id)| NumaNode {
            id,
            cpus: cpus.parse().unwrap(),
            distance: distance.to_vec(),
        });
        Node { numa: numa.collect(), ..Node::default() }
    }

    /// Two sockets in NPS2 with two threads for each of 16 cores.
    fn nps2() -> Node {
        node(&[
            ("0-3,16-19", &[10, 12, 32, 32]),
            ("4-7,20-23", &[12, 10, 32, 32]),
            ("8-11,24-27", &[32, 32, 10, 12]),
            ("12-15,28-31", &[32, 32, 12, 10]),
        ])
    }

    fn sets(
        node: &Node,
        tasks: usize,
        cpus_per_task: Option<usize>,
        distribution: Distribution,
    ) -> Vec<String> {
        let layout = layout(node, tasks, cpus_per_task, distribution).unwrap();
        layout.tasks.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn cyclic_alternates_between_sockets_and_block_fills_the_first() {
        let cyclic = sets(&nps2(), 4, None, Distribution::Cyclic);
        assert_eq!(cyclic, ["0-3,16-19", "8-11,24-27", "4-7,20-23", "12-15,28-31"]);
        let block = sets(&nps2(), 4, None, Distribution::Block);
        assert_eq!(block, ["0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"]);
    }

    #[test]
    fn a_part_of_the_node_is_filled_from_its_first_cores() {
        let cyclic = sets(&nps2(), 3, Some(4), Distribution::Cyclic);
        assert_eq!(cyclic, ["0-1,16-17", "8-9,24-25", "2-3,18-19"]);
        let block = sets(&nps2(), 3, Some(4), Distribution::Block);
        assert_eq!(block, ["0-1,16-17", "2-3,18-19", "4-5,20-21"]);
    }

    #[test]
    fn no_core_is_given_to_two_tasks_while_there_are_enough() {
        assert_eq!(sets(&nps2(), 2, Some(1), Distribution::Block), ["0,16", "1,17"]);
        assert_eq!(sets(&nps2(), 2, Some(3), Distribution::Block), ["0-1,16-17", "2-3,18-19"]);
        let crowded = layout(&nps2(), 32, Some(1), Distribution::Block).unwrap();
        assert_eq!(crowded.cpus_per_task, Some(1));
        assert_eq!(crowded.tasks[1].to_string(), "16");
    }

    #[test]
    fn a_task_that_no_socket_can_hold_goes_on_with_the_next() {
        let three = node(&[("0-5", &[10, 21]), ("6-11", &[21, 10])]);
        let cyclic = sets(&three, 3, None, Distribution::Cyclic);
        assert_eq!(cyclic, ["0-3", "6-9", "4-5,10-11"]);
    }

    #[test]
    fn more_tasks_than_cpus_share_them_all_and_too_many_cpus_are_refused() {
        let two = node(&[("0", &[10, 20]), ("1", &[20, 10])]);
        let shared = layout(&two, 3, None, Distribution::Cyclic).unwrap();
        assert_eq!((shared.cpus_per_task, shared.sockets), (None, 2));
        assert!(shared.tasks.iter().all(|cpus| cpus.to_string() == "0-1"));
        let refused = layout(&two, 2, Some(2), Distribution::Cyclic).unwrap_err().to_string();
        let expected = "2 tasks with 2 CPUs each are more than the node's 2 CPUs; at most 1 each";
        assert_eq!(refused, expected);
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
        let cores: Vec<String> = cores(&nps2()).iter().map(ToString::to_string).collect();
        assert_eq!(cores.len(), 16);
        assert_eq!((cores[1].as_str(), cores[8].as_str()), ("1,17", "8,24"));
    }

    #[test]
    fn siblings_are_found_where_the_description_leaves_nodes_out() {
        let pasted = node(&[("4-7,20-23", &[]), ("12-15,28-31", &[])]);
        assert_eq!(sets(&pasted, 2, Some(4), Distribution::Cyclic), ["4-5,20-21", "12-13,28-29"]);
        let plain = node(&[("0-7", &[])]);
        assert_eq!(sets(&plain, 2, Some(2), Distribution::Block), ["0-1", "2-3"]);
    }

    #[test]
    fn cpus_that_alternate_between_sockets_are_taken_one_by_one() {
        let interleaved = node(&[("0,2,4,6", &[10, 21]), ("1,3,5,7", &[21, 10])]);
        assert_eq!(sets(&interleaved, 2, Some(2), Distribution::Cyclic), ["0,2", "1,3"]);
    }

    #[test]
    fn a_node_of_unknown_cpus_leaves_the_tasks_unknown() {
        let layout = layout(&Node::default(), 2, None, Distribution::Cyclic).unwrap();
        assert_eq!(layout.tasks, [IdSet::default(), IdSet::default()]);
    }
}
