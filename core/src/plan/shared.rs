//! One plan for all tasks of a step on a node: the first that comes makes it, the others
//! read it. Each gets exactly what it would have computed by itself.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::AtomicU64;

use crate::node::{Device, Node};

use super::cost::Problem;
use super::exact::MOST;
use super::shared_list::{Expected, Found, SharedList, Written};
use super::shares::Shares;
use super::task_sets::TaskSets;
use super::why::{Distances, Reasons};
use super::{MAX_DEVICES, MAX_TASKS, Plan, PlanError, Shape, check, plan, share};

/// Memory that the tasks of a step share.
#[derive(Debug)]
pub struct SharedPlan(SharedList);

impl SharedPlan {
    /// How many words of shared memory the plan of so many tasks needs; none where there
    /// is nothing to share.
    pub fn words(tasks: usize) -> usize {
        // Fewer tasks than devices share those.
        if (2..=MAX_TASKS).contains(&tasks) { SharedList::words(tasks.max(MAX_DEVICES)) } else { 0 }
    }

    /// In this memory, made before the tasks fork and all zero; `None` where it is too
    /// small.
    pub fn over(words: &'static [AtomicU64]) -> Option<SharedPlan> {
        SharedList::over(words).map(SharedPlan)
    }

    /// The plan of [`plan`], in which [`Plan::why`] may know of this task only. `node` is
    /// the same for all that share the memory; all else may differ.
    ///
    /// # Errors
    /// Those of [`plan`].
    pub fn plan(
        &self,
        node: &Node,
        devices: &[Device],
        tasks: &TaskSets,
        shape: Shape,
        task: usize,
    ) -> Result<Plan, PlanError> {
        check(node, devices, tasks.count())?;
        let share = share(tasks.count(), devices.len(), shape);
        let key = key(devices, tasks, share);
        let count = tasks.count() * share;
        // A small plan is made in less time than a wait takes.
        let is_large = count > MOST || devices.len() > MOST;
        match self.0.find(&Expected { key, count, devices: devices.len() }, is_large) {
            Found::Written(Written { list, cost, naive }) => {
                let own = tasks.of(task);
                let own = std::slice::from_ref(own.as_ref());
                let problem = Problem::new(node, devices, own, share);
                Ok(Plan {
                    cost,
                    naive,
                    shares: Shares::new(list, share),
                    reasons: Reasons::Distances(Distances::of(problem, task, share)),
                })
            }
            Found::Claimed => {
                let plan = plan(node, devices, tasks.all(), shape)?;
                let Plan { cost, naive, .. } = plan;
                let list = plan.shares.list().to_vec();
                self.0.write(key, &Written { list, cost, naive });
                Ok(plan)
            }
            Found::Nothing => plan(node, devices, tasks.all(), shape),
        }
    }
}

/// A number that is another one for other inputs. The hasher has no random key, so that
/// it is the same in all processes.
fn key(devices: &[Device], tasks: &TaskSets, share: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    (devices, tasks.key(), share).hash(&mut hasher);
    hasher.finish()
}
