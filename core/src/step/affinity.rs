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
#[derive(Debug)]
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

    /// The CPUs of all tasks, by local rank; `None` unless all are known.
    pub fn of_all_tasks(&self) -> Option<Vec<IdSet>> {
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let set = |mask: &[AtomicU64]| IdSet::from_words(mask.iter().map(word));
        self.masks
            .chunks(WORDS)
            .map(|mask| Some(set(mask)).filter(|cpus| !cpus.is_empty()))
            .collect()
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
        assert_eq!(affinity.of_all_tasks(), None, "one is missing");
        affinity.record(1, process);
        affinity.record(2, process);
        let own = crate::step::own_cpus();
        assert_eq!(affinity.of_all_tasks(), Some(vec![own.clone(), own]));
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
        assert_eq!(affinity.of_all_tasks(), None);
        assert!(Affinity::over(&[]).is_none());
    }
}
