//! Which devices the tasks of a step get.

use std::slice::ChunksExact;

/// For each task, by local rank, the positions of its own devices in the allocation, in slot
/// order; as many for each, and never none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shares {
    // One list: a task that reads the plan of hundreds makes nothing for each of them.
    list: Vec<usize>,
    each: usize,
}

impl Shares {
    /// From the list of all tasks' devices, so many for each.
    pub(super) fn new(list: Vec<usize>, each: usize) -> Shares {
        Shares { list, each: each.max(1) }
    }

    /// How many tasks there are.
    pub fn tasks(&self) -> usize {
        self.list.len() / self.each
    }

    /// How many devices each task has.
    pub fn each(&self) -> usize {
        self.each
    }

    /// The devices of all tasks, one task's after the other's.
    pub fn list(&self) -> &[usize] {
        &self.list
    }

    /// The devices of a task; `None` for one that is not there.
    pub fn get(&self, task: usize) -> Option<&[usize]> {
        self.iter().nth(task)
    }

    /// The devices of each task.
    pub fn iter(&self) -> ChunksExact<'_, usize> {
        self.list.chunks_exact(self.each)
    }
}

impl<const EACH: usize, const TASKS: usize> PartialEq<[[usize; EACH]; TASKS]> for Shares {
    fn eq(&self, other: &[[usize; EACH]; TASKS]) -> bool {
        self.iter().eq(other.iter())
    }
}
