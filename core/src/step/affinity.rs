//! Where the kernel lets each of a step's tasks run, in memory that the tasks
//! share with slurmstepd.
//!
//! slurmstepd writes a task's CPUs when they are final and before any task goes
//! on (src/slurmd/slurmstepd/mgr.c, _fork_all_tasks). So every task knows those of
//! all, also where Slurm lists none or something widens a mask afterwards, and
//! all make the same plan.

use std::sync::atomic::{AtomicU64, Ordering};

use super::reach::{AFFINITY_CPUS, cpus_of};
use crate::node::IdSet;

const BITS: usize = u64::BITS as usize;
const WORDS: usize = AFFINITY_CPUS.div_ceil(BITS);

/// One mask for each task of the step on this node; empty until it is known.
#[derive(Debug, Clone, Copy)]
pub struct Affinity {
    masks: &'static [AtomicU64],
    /// slurmstepd, which can look at its children.
    parent: u32,
}

impl Affinity {
    /// How many words of shared memory so many tasks need.
    pub fn words(tasks: usize) -> usize {
        tasks.saturating_mul(WORDS)
    }

    /// In this memory, made before tasks fork and all zero; `None` where there is none.
    pub fn over(masks: &'static [AtomicU64]) -> Option<Affinity> {
        (!masks.is_empty()).then(|| Affinity { masks, parent: std::process::id() })
    }

    /// Writes the CPUs of a task.
    pub fn record(&self, task: usize, process: i32) {
        // With SlurmdParameters=contain_spank, hooks run in a child that may number
        // processes in another way.
        if std::process::id() != self.parent {
            return;
        }
        if let Some(mask) = self.masks.chunks(WORDS).nth(task) {
            for cpu in cpus_of(process).iter() {
                if let Some(word) = mask.get(cpu / BITS) {
                    word.fetch_or(1 << (cpu % BITS), Ordering::Relaxed);
                }
            }
        }
    }

    /// Whether the CPUs of all tasks are known, as they are from the first task's start on.
    pub fn is_complete(&self) -> bool {
        let is_known = |word: &AtomicU64| word.load(Ordering::Relaxed) != 0;
        self.masks.chunks(WORDS).all(|mask| mask.iter().any(is_known))
    }

    /// The CPUs of a task, by its local rank; empty where they are not known.
    pub fn of(&self, task: usize) -> IdSet {
        let mask = self.masks.chunks(WORDS).nth(task).unwrap_or_default();
        IdSet::from_words(mask.iter().map(|word| word.load(Ordering::Relaxed)))
    }

    /// How many tasks there are.
    pub fn tasks(&self) -> usize {
        self.masks.len() / WORDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_words;

    fn affinity(tasks: usize) -> Affinity {
        Affinity::over(shared_words(Affinity::words(tasks)).unwrap()).unwrap()
    }

    #[test]
    fn what_a_child_may_use_is_known_to_all_once_all_are_recorded() {
        let affinity = affinity(2);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = i32::try_from(child.id()).unwrap();
        affinity.record(0, process);
        assert!(!affinity.is_complete(), "one is missing");
        affinity.record(1, process);
        affinity.record(2, process);
        let own = crate::step::own_cpus();
        assert!(affinity.is_complete());
        assert_eq!([0, 1, 2].map(|task| affinity.of(task)), [own.clone(), own, IdSet::default()]);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_is_gone_leaves_its_task_unknown() {
        let affinity = affinity(1);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = i32::try_from(child.id()).unwrap();
        child.wait().unwrap();
        affinity.record(0, process);
        assert!(!affinity.is_complete());
        assert_eq!(affinity.of(0), IdSet::default());
        assert!(Affinity::over(&[]).is_none());
    }
}
