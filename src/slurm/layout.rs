//! The CPU sets that Slurm's task/affinity would give the tasks of a step that
//! has a whole node, for `gpubind plan`: what a job *will* get is known before it
//! is queued. A running step reads its real sets, see [`super::task_cpus`].
//!
//! The order is that of src/plugins/task/affinity/dist_tasks.c
//! (`_task_layout_lllp_block`, `_task_layout_lllp_cyclic`). Sockets and cores are
//! derived, see `sockets`.

use super::sockets::cpus_by_socket;
use gpubind_core::node::{IdSet, Node};

/// How tasks are dealt to the sockets of a node: the second part of srun's
/// `--distribution`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Distribution {
    /// `block:block`: consecutive tasks fill the first socket, then the next.
    Block,
    /// `block:cyclic`, Slurm's default: consecutive tasks go to consecutive sockets.
    #[default]
    Cyclic,
    /// `block:fcyclic`: so do the CPUs of a task.
    FullCyclic,
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
    let (sockets, threads) = cpus_by_socket(node, None);
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
        (_, Distribution::Cyclic | Distribution::FullCyclic) => deal(&sockets, tasks, each),
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

#[cfg(test)]
mod tests {
    use super::super::sockets::tests::{node, nps2};
    use super::*;

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
