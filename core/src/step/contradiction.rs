//! Rank variables that contradict Slurm's numbers: those that a batch script exports once,
//! from its own SLURM_PROCID, are the same in every task of a step.

use std::fmt;

use crate::variables;

use super::rank_info::{Env, is_noted, number, task};

/// The variables of a task that are another task's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    set: Vec<(&'static str, String)>,
    slurm: (&'static str, u64),
    is_first: bool,
}

impl Contradiction {
    /// Whether the task is the first on its node that finds it. Task 0 of a step never
    /// contradicts what the batch script, itself number 0, has exported.
    pub fn is_first(&self) -> bool {
        self.is_first
    }
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set: Vec<String> =
            self.set.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let (name, number) = self.slurm;
        let verb = if set.len() == 1 { "contradicts" } else { "contradict" };
        write!(f, "{} {verb} {name}={number}", set.join(" and "))
    }
}

/// What contradicts Slurm's numbers in the environment of one of Slurm's tasks, of which
/// the step has several. LOCAL_RANK=0 alone contradicts nothing: it is right wherever one
/// GPU is visible.
pub fn contradiction(env: Env) -> Option<Contradiction> {
    let task = task(env)?;
    let tasks: u64 = number(env, variables::STEP_NUM_TASKS)?;
    let set = |name: &str| env(name).filter(|value| !is_noted(env, name, value));
    let differs = |name: &str, own: u64| {
        let value = set(name)?;
        (value.trim().parse() != Ok(own)).then_some(value)
    };
    let rank = u64::from(task.rank?);
    let local_rank = task.local_rank as u64;
    let value = differs(variables::RANK, rank);
    let local = differs(variables::LOCAL_RANK, local_rank);
    let local = local.filter(|local| value.is_some() || local.trim() != "0");
    let slurm = match value {
        Some(_) => (variables::PROC_ID, rank),
        None => (variables::LOCAL_ID, local_rank),
    };
    // Task 0 has said it where the numbers are not 0, as they are in a batch script.
    let is_zero = |it: &Option<String>| it.as_ref().is_none_or(|it| it.trim() == "0");
    let is_first = match local_rank {
        0 => true,
        1 => {
            number::<u64>(env, variables::NODE_ID).unwrap_or(0) == 0
                && is_zero(&value)
                && is_zero(&local)
        }
        _ => false,
    };
    let found = [(variables::RANK, value), (variables::LOCAL_RANK, local)];
    let set: Vec<_> = found.into_iter().filter_map(|(name, it)| Some((name, it?))).collect();
    (tasks > 1 && !set.is_empty()).then_some(Contradiction { set, slurm, is_first })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Option<(String, bool)> {
        let step = [("SLURM_STEP_TASKS_PER_NODE", "4(x2)"), ("SLURM_STEP_NUM_TASKS", "8")];
        let all = [&step[..], variables].concat();
        let found = contradiction(&|name| {
            let found = all.iter().rev().find(|(set, _)| *set == name);
            found.map(|(_, value)| (*value).to_owned())
        })?;
        Some((found.to_string(), found.is_first()))
    }

    #[test]
    fn numbers_of_the_batch_script_are_no_tasks() {
        let task = |rank, local, node| {
            let numbers =
                [("SLURM_PROCID", rank), ("SLURM_LOCALID", local), ("SLURM_NODEID", node)];
            found(&[&numbers[..], &[("RANK", "0"), ("LOCAL_RANK", "0")]].concat())
        };
        assert_eq!(task("0", "0", "0"), None);
        assert_eq!(
            task("1", "1", "0"),
            Some(("RANK=0 and LOCAL_RANK=0 contradict SLURM_PROCID=1".into(), true))
        );
        assert_eq!(task("2", "2", "0").map(|it| it.1), Some(false));
        assert_eq!(task("4", "0", "1"), Some(("RANK=0 contradicts SLURM_PROCID=4".into(), true)));
        assert_eq!(task("5", "1", "1").map(|it| it.1), Some(false));
    }

    #[test]
    fn what_may_be_meant_contradicts_nothing() {
        let task = [("SLURM_PROCID", "5"), ("SLURM_LOCALID", "1"), ("SLURM_NODEID", "1")];
        for right in [
            &[("LOCAL_RANK", "0")][..],
            &[("RANK", "5"), ("LOCAL_RANK", "0")],
            &[("RANK", "5"), ("LOCAL_RANK", "1")],
            &[("RANK", "0"), (variables::RANK_VARIABLES_SET, "RANK=0")],
            &[("SLURM_STEP_NUM_TASKS", "1"), ("RANK", "0")],
        ] {
            assert_eq!(found(&[&task[..], right].concat()), None, "{right:?}");
        }
    }

    #[test]
    fn one_task_of_a_node_speaks_for_all() {
        let said = |local: &str| {
            let task = [("SLURM_PROCID", local), ("SLURM_LOCALID", local), ("LOCAL_RANK", "3")];
            found(&task)
        };
        let text = "LOCAL_RANK=3 contradicts SLURM_LOCALID=0".to_owned();
        assert_eq!(said("0"), Some((text, true)));
        assert_eq!(said("1").map(|it| it.1), Some(false));
        assert_eq!(said("3"), None);
    }
}
