//! The CPU sets of a step's tasks, made only where somebody looks at them all.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::node::IdSet;

/// The CPU sets of a step's tasks on a node, by local rank; empty where unknown.
pub struct TaskSets<'a>(Sets<'a>);

enum Sets<'a> {
    Known(Cow<'a, [IdSet]>),
    Deferred { count: usize, of: Box<dyn Fn(usize) -> IdSet>, all: OnceCell<Vec<IdSet>> },
}

impl<'a> TaskSets<'a> {
    /// So many tasks, and the set of each. A task that reads a plan which another one has
    /// made needs its own set only; with hundreds of tasks, making all sets would take it
    /// longer than all else. `of` must be the same for all tasks that share a plan.
    pub fn deferred(count: usize, of: impl Fn(usize) -> IdSet + 'static) -> TaskSets<'a> {
        TaskSets(Sets::Deferred { count, of: Box::new(of), all: OnceCell::new() })
    }

    /// How many tasks there are.
    pub fn count(&self) -> usize {
        match &self.0 {
            Sets::Known(sets) => sets.len(),
            Sets::Deferred { count, .. } => *count,
        }
    }

    /// The set of one task; empty for one that is not there.
    pub fn of(&self, task: usize) -> Cow<'_, IdSet> {
        match &self.0 {
            Sets::Known(sets) => sets.get(task).map(Cow::Borrowed).unwrap_or_default(),
            Sets::Deferred { count, of, .. } if task < *count => Cow::Owned(of(task)),
            Sets::Deferred { .. } => Cow::default(),
        }
    }

    /// The sets of all tasks.
    pub fn all(&self) -> &[IdSet] {
        match &self.0 {
            Sets::Known(sets) => sets,
            Sets::Deferred { count, of, all } => all.get_or_init(|| (0..*count).map(of).collect()),
        }
    }

    /// A number that is another one for other sets.
    pub(super) fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        match &self.0 {
            Sets::Known(sets) => sets.hash(&mut hasher),
            // Those of a step are the same for all that share its plan, and no list of sets
            // has this hash.
            Sets::Deferred { count, .. } => (usize::MAX, count).hash(&mut hasher),
        }
        hasher.finish()
    }
}

impl<'a> From<&'a [IdSet]> for TaskSets<'a> {
    fn from(sets: &'a [IdSet]) -> TaskSets<'a> {
        TaskSets(Sets::Known(Cow::Borrowed(sets)))
    }
}

impl<'a> From<&'a Vec<IdSet>> for TaskSets<'a> {
    fn from(sets: &'a Vec<IdSet>) -> TaskSets<'a> {
        TaskSets::from(sets.as_slice())
    }
}

impl From<Vec<IdSet>> for TaskSets<'_> {
    fn from(sets: Vec<IdSet>) -> Self {
        TaskSets(Sets::Known(Cow::Owned(sets)))
    }
}

impl fmt::Debug for TaskSets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}
