//! The CPU sets of a step with a `--cpu-bind` of a unit, on a whole node: what
//! task/affinity makes of srun's options (src/plugins/task/affinity/dist_tasks.c,
//! `lllp_distribution` and what it calls; the same from 22.05 to 24.11).
//!
//! CPUs are dealt one by one, then each task's set grows to whole units. In that a task
//! may get the unit of another: two tasks on two threads of a core, bound to cores, have
//! the same CPUs.

use super::layout::Distribution;
use super::sockets::{cores, cpus_by_socket, socket_cpus};
use gpubind_core::node::{IdSet, Node};

/// What `--cpu-bind` binds tasks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindUnit {
    /// Single CPUs.
    Threads,
    /// All threads of a core.
    Cores,
    /// All CPUs of a socket.
    Sockets,
    /// All CPUs of a NUMA node.
    Ldoms,
}

/// srun's options that decide which CPUs a task gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepOptions {
    /// Tasks on the node.
    pub tasks: usize,
    /// `--cpus-per-task`, 1 without it.
    pub cpus_per_task: usize,
    /// `--distribution`.
    pub distribution: Distribution,
    /// `--cpu-bind`.
    pub unit: BindUnit,
    /// `--threads-per-core`, which is 1 with `--hint=nomultithread`.
    pub threads_per_core: Option<usize>,
    /// Threads of a core that are numbered one after the other, where that is known.
    pub siblings: Option<usize>,
}

impl StepOptions {
    /// What task/affinity binds to where srun has no `--cpu-bind`: the unit of which the
    /// tasks need as many as there are, with a CPU of each for each CPU of theirs.
    /// `None` where it binds nothing.
    pub fn automatic(self, node: &Node) -> Option<BindUnit> {
        let (sockets, threads) = cpus_by_socket(node, self.siblings);
        let cpus: usize = sockets.iter().map(Vec::len).sum();
        let wanted = self.tasks.saturating_mul(self.cpus_per_task);
        [
            (sockets.len(), BindUnit::Sockets),
            (cpus / threads, BindUnit::Cores),
            (cpus, BindUnit::Threads),
        ]
        .into_iter()
        .find_map(|(count, unit)| (count == wanted).then_some(unit))
    }
}

/// The CPU set of each task, by local rank: all of the node's for each where they do not
/// suffice, as Slurm then binds nothing. Empty sets where the node's CPUs are unknown.
pub fn step_cpus(node: &Node, options: &StepOptions) -> Vec<IdSet> {
    let dealt = Dealing::new(node, options).deal();
    let all = || socket_cpus(node).iter().flat_map(IdSet::iter).collect::<IdSet>();
    let Some(sets) = dealt else { return vec![all(); options.tasks] };
    let units = units(node, options);
    let grown = |cpus: Vec<usize>| -> IdSet {
        let cpus: IdSet = cpus.into_iter().collect();
        let whole = units.iter().filter(|unit| unit.common(&cpus) > 0).flat_map(IdSet::iter);
        cpus.iter().chain(whole).collect()
    };
    sets.into_iter().map(grown).collect()
}

/// The sets of CPUs that a task gets as a whole.
fn units(node: &Node, options: &StepOptions) -> Vec<IdSet> {
    match options.unit {
        BindUnit::Threads => Vec::new(),
        BindUnit::Cores => cores(node, options.siblings),
        BindUnit::Sockets => socket_cpus(node),
        BindUnit::Ldoms => node.numa.iter().map(|numa| numa.cpus.clone()).collect(),
    }
}

/// The node's CPUs while they are dealt, socket by socket, a core's threads one after
/// the other.
struct Dealing<'o> {
    options: &'o StepOptions,
    sockets: Vec<Vec<usize>>,
    threads: usize,
    /// CPUs of each task.
    each: usize,
    /// The next CPU of each socket.
    next: Vec<usize>,
    /// CPUs taken of each core, by socket.
    taken: Vec<Vec<usize>>,
}

impl<'o> Dealing<'o> {
    fn new(node: &Node, options: &'o StepOptions) -> Dealing<'o> {
        let (sockets, threads) = cpus_by_socket(node, options.siblings);
        let cpus: usize = sockets.iter().map(Vec::len).sum();
        let share = cpus / options.tasks.max(1);
        let mut dealing = Dealing {
            options,
            threads,
            each: options.cpus_per_task.min(share),
            next: Vec::new(),
            taken: Vec::new(),
            sockets,
        };
        dealing.begin_anew();
        dealing
    }

    /// All CPUs may be dealt again.
    fn begin_anew(&mut self) {
        self.next = vec![0; self.sockets.len()];
        self.taken =
            self.sockets.iter().map(|cpus| vec![0; cpus.len().div_ceil(self.threads)]).collect();
    }

    /// The CPUs of each task; `None` where there is not one for each.
    fn deal(mut self) -> Option<Vec<Vec<usize>>> {
        if self.each == 0 {
            return None;
        }
        let mut sets = Vec::with_capacity(self.options.tasks);
        let mut socket = 0;
        for _ in 0..self.options.tasks {
            let mut cpus = Vec::with_capacity(self.each);
            while cpus.len() < self.each {
                let (found, at) = self.take(socket)?;
                cpus.push(found);
                socket = at;
                if self.options.distribution == Distribution::FullCyclic && cpus.len() == 1 {
                    // Only the first CPU of a task is followed by another socket's.
                    socket = (socket + 1) % self.sockets.len();
                }
            }
            self.leave_core(socket);
            if self.options.distribution == Distribution::Cyclic {
                socket = (socket + 1) % self.sockets.len();
            }
            sets.push(cpus);
        }
        Some(sets)
    }

    /// The next CPU from this socket on, and its socket. When all are dealt, another round
    /// begins; `None` if even that finds none.
    fn take(&mut self, from: usize) -> Option<(usize, usize)> {
        for _ in 0..2 {
            for step in 0..self.sockets.len() {
                let socket = (from + step) % self.sockets.len();
                // Consecutive tasks fill the sockets from the first one on.
                let ends = self.options.distribution == Distribution::Block && socket < from;
                if let Some(cpu) = (!ends).then(|| self.take_of(socket)).flatten() {
                    return Some((cpu, socket));
                }
            }
            self.begin_anew();
        }
        None
    }

    /// The next CPU of a socket whose core may give another.
    fn take_of(&mut self, socket: usize) -> Option<usize> {
        let most = self.options.threads_per_core.unwrap_or(self.threads);
        let (cpus, next) = (self.sockets.get(socket)?, self.next.get_mut(socket)?);
        while let Some(cpu) = cpus.get(*next) {
            let taken = self.taken.get_mut(socket)?.get_mut(*next / self.threads)?;
            *next += 1;
            if *taken < most {
                *taken += 1;
                return Some(*cpu);
            }
        }
        None
    }

    /// Bound to cores, a task leaves the rest of its last core to nobody. Slurm skips as
    /// many CPUs for a task of more than a core as are in its last one.
    fn leave_core(&mut self, socket: usize) {
        let rest = match self.each < self.threads {
            true => self.threads - self.each,
            false => self.each % self.threads,
        };
        if let (BindUnit::Cores, Some(next)) = (self.options.unit, self.next.get_mut(socket)) {
            *next += rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpubind_core::node::NumaNode;

    /// Two sockets of two NUMA nodes of two cores of two threads; `split` as firmware
    /// numbers them, else siblings are neighbours.
    fn node(split: bool) -> Node {
        let lists = match split {
            true => ["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"],
            false => ["0-3", "4-7", "8-11", "12-15"],
        };
        let numa = |(id, cpus): (u32, &str)| NumaNode {
            id,
            cpus: cpus.parse().unwrap(),
            distance: (0..4).map(|to| [10, 12, 32, 32][(id ^ to) as usize]).collect(),
        };
        Node { numa: (0..).zip(lists).map(numa).collect(), ..Node::default() }
    }

    const STEP: StepOptions = StepOptions {
        tasks: 4,
        cpus_per_task: 1,
        distribution: Distribution::Cyclic,
        unit: BindUnit::Threads,
        threads_per_core: None,
        siblings: Some(2),
    };

    fn sets(split: bool, options: StepOptions) -> Vec<String> {
        step_cpus(&node(split), &options).iter().map(ToString::to_string).collect()
    }

    /// As seen in Slurm 24.11 on a node of that shape.
    #[test]
    fn tasks_are_bound_to_each_unit() {
        let bound = |split, unit| sets(split, StepOptions { unit, ..STEP });
        assert_eq!(bound(false, BindUnit::Threads), ["0", "8", "1", "9"]);
        assert_eq!(bound(true, BindUnit::Threads), ["0", "4", "8", "12"]);
        assert_eq!(bound(false, BindUnit::Cores), ["0-1", "8-9", "2-3", "10-11"]);
        assert_eq!(bound(true, BindUnit::Cores), ["0,8", "4,12", "1,9", "5,13"]);
        assert_eq!(bound(false, BindUnit::Sockets), ["0-7", "8-15", "0-7", "8-15"]);
        assert_eq!(bound(false, BindUnit::Ldoms), ["0-3", "8-11", "0-3", "8-11"]);
    }

    #[test]
    fn the_distribution_says_which_socket_is_next() {
        let dealt = |distribution, cpus_per_task| {
            sets(false, StepOptions { distribution, cpus_per_task, ..STEP })
        };
        assert_eq!(dealt(Distribution::Block, 4), ["0-3", "4-7", "8-11", "12-15"]);
        assert_eq!(dealt(Distribution::Cyclic, 4), ["0-3", "8-11", "4-7", "12-15"]);
        assert_eq!(dealt(Distribution::FullCyclic, 2), ["0,8", "1,9", "2,10", "3,11"]);
    }

    #[test]
    fn fewer_threads_of_a_core_may_be_used() {
        let one = StepOptions { threads_per_core: Some(1), cpus_per_task: 2, ..STEP };
        assert_eq!(sets(false, one), ["0,2", "8,10", "4,6", "12,14"]);
    }

    #[test]
    fn where_cpus_do_not_suffice_nothing_is_bound() {
        let many = StepOptions { tasks: 17, ..STEP };
        assert_eq!(sets(false, many), vec!["0-15"; 17]);
        // Less than was asked for each.
        let wide = StepOptions { cpus_per_task: 9, ..STEP };
        assert_eq!(sets(false, wide), ["0-3", "8-11", "4-7", "12-15"]);
        assert_eq!(step_cpus(&Node::default(), &STEP), vec![IdSet::default(); 4]);
    }

    #[test]
    fn slurm_binds_by_itself_where_units_and_cpus_are_as_many() {
        let unit = |tasks, cpus_per_task| {
            StepOptions { tasks, cpus_per_task, ..STEP }.automatic(&node(false))
        };
        assert_eq!(unit(2, 1), Some(BindUnit::Sockets));
        assert_eq!(unit(8, 1), Some(BindUnit::Cores));
        assert_eq!(unit(8, 2), Some(BindUnit::Threads));
        assert_eq!(unit(4, 1), None);
    }
}
