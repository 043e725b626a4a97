//! Tasks that share their plan get exactly what each would have computed by itself,
//! whatever is in the memory that they share.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gpubind_core::node::{Device, IdSet, Node};
use gpubind_core::plan::{Plan, Shape, SharedPlan, TaskSets, plan};
use gpubind_core::shared_words;
use proptest::prelude::*;

mod plan_support;
use plan_support::{Case, all_devices, any_case, cyclic, machines};

/// The word that says how far the writer is, and what it then is.
const STATE: usize = 0;
const CLAIMED: u64 = 1;

/// New memory for the plan of so many tasks.
fn memory(tasks: usize) -> &'static [AtomicU64] {
    shared_words(SharedPlan::words(tasks)).unwrap()
}

fn shared(words: &'static [AtomicU64]) -> SharedPlan {
    SharedPlan::over(words).unwrap()
}

/// Compares what a task gets with what it would get by itself.
fn check(case: &Case, shape: Shape, shared: &SharedPlan, alone: &Plan, task: usize) {
    let Case { node, devices, tasks } = case;
    let got = shared.plan(node, devices, &TaskSets::from(tasks), shape, task).unwrap();
    assert_eq!(
        (&got.shares, got.cost, got.naive, got.why(task)),
        (&alone.shares, alone.cost, alone.naive, alone.why(task)),
        "task {task}"
    );
}

/// All tasks, in any order of those.
fn check_all(case: &Case, shape: Shape, first: usize) {
    let alone = plan(&case.node, &case.devices, &case.tasks, shape).unwrap();
    let shared = shared(memory(case.tasks.len()));
    for task in 0..case.tasks.len() {
        check(case, shape, &shared, &alone, (first + task) % case.tasks.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_shared_plan_is_the_one_that_each_task_computes(
        case in any_case(2..=20, 1..=12), first in 0..20_usize,
    ) {
        for shape in [Shape::Single, Shape::Auto, Shape::Share(2)] {
            check_all(&case, shape, first);
        }
    }

    /// Each word of the memory, with any value, before or after the plan is written.
    #[test]
    fn no_value_in_the_memory_leads_to_another_plan(
        case in any_case(2..=20, 1..=12), word in 0..16_usize, value in any::<u64>(),
    ) {
        let alone = plan(&case.node, &case.devices, &case.tasks, Shape::Single).unwrap();
        let words = memory(case.tasks.len());
        if word != STATE || value != CLAIMED {
            words[word].store(value, Ordering::Relaxed);
        }
        for task in [0, 1] {
            check(&case, Shape::Single, &shared(words), &alone, task);
        }
        // What is behind the list and the costs that `why` does not need is nobody's.
        words[word].store(value, Ordering::Relaxed);
        if words[STATE].load(Ordering::Relaxed) != CLAIMED {
            check(&case, Shape::Single, &shared(words), &alone, 1);
        }
    }
}

fn many(node: &Node, count: usize) -> Case {
    let devices: Vec<Device> = all_devices(node);
    Case { node: node.clone(), devices, tasks: cyclic(node, count) }
}

/// With hundreds of tasks, making all sets in each would cost more than all else.
#[test]
fn a_task_that_reads_the_plan_makes_its_own_set_only() {
    let (_, node) = machines().into_iter().find(|(name, _)| name == "two-cpu").unwrap();
    let case = many(&node, 64);
    let alone = plan(&case.node, &case.devices, &case.tasks, Shape::Single).unwrap();
    let shared = shared(memory(64));
    for (task, made_of) in [(3, (0..64).collect()), (5, vec![5]), (63, vec![63])] {
        let made = Rc::new(RefCell::new(Vec::new()));
        let (tasks, note) = (case.tasks.clone(), made.clone());
        let sets = TaskSets::deferred(64, move |task| {
            note.borrow_mut().push(task);
            tasks[task].clone()
        });
        let got = shared.plan(&node, &case.devices, &sets, Shape::Single, task).unwrap();
        assert_eq!((&got.shares, got.why(task)), (&alone.shares, alone.why(task)), "task {task}");
        assert_eq!(*made.borrow(), made_of, "task {task}");
    }
    // Who has them from elsewhere makes a plan of its own.
    check(&case, Shape::Single, &shared, &alone, 7);
}

#[test]
fn tasks_with_other_inputs_compute_their_own_plan() {
    let (_, node) = machines().into_iter().find(|(name, _)| name == "two-cpu").unwrap();
    let case = many(&node, 16);
    let others = [
        Case { tasks: case.tasks.iter().rev().cloned().collect(), ..case.clone() },
        Case { devices: case.devices[..4].to_vec(), ..case.clone() },
        Case { tasks: vec![IdSet::default(); 16], ..case.clone() },
        many(&node, 15),
        many(&node, 17),
    ];
    let alone = |case: &Case| plan(&case.node, &case.devices, &case.tasks, Shape::Single).unwrap();
    let shared = shared(memory(16));
    check(&case, Shape::Single, &shared, &alone(&case), 0);
    for other in &others {
        assert_ne!(alone(other).shares, alone(&case).shares, "a case that shows nothing");
        check(other, Shape::Single, &shared, &alone(other), 3);
    }
    check(&case, Shape::Single, &shared, &alone(&case), 5);
}

#[test]
fn a_writer_that_was_killed_costs_the_others_a_short_wait() {
    let (_, node) = machines().into_iter().find(|(name, _)| name == "two-cpu").unwrap();
    for (tasks, longest) in [(64, Duration::from_secs(5)), (8, Duration::from_millis(60))] {
        let case = many(&node, tasks);
        let alone = plan(&case.node, &case.devices, &case.tasks, Shape::Single).unwrap();
        let words = memory(tasks);
        words[STATE].store(CLAIMED, Ordering::Relaxed);
        let begin = Instant::now();
        check(&case, Shape::Single, &shared(words), &alone, 1);
        let waited = begin.elapsed();
        assert!(waited < longest, "{tasks} tasks: {waited:?}");
        assert!(
            tasks <= 8 || waited > Duration::from_secs(1),
            "too short on a busy node: {waited:?}"
        );
    }
}

#[test]
fn the_others_wait_for_a_large_plan_and_take_it() {
    let (_, node) = machines().into_iter().find(|(name, _)| name == "two-cpu").unwrap();
    let case = many(&node, 256);
    let alone = plan(&case.node, &case.devices, &case.tasks, Shape::Single).unwrap();
    let shared = shared(memory(256));
    let shared = &shared;
    std::thread::scope(|threads| {
        for task in 0..16 {
            let (case, alone) = (&case, &alone);
            threads.spawn(move || check(case, Shape::Single, shared, alone, task));
        }
    });
}

#[test]
fn memory_that_is_too_small_is_not_written_to() {
    let (_, node) = machines().into_iter().find(|(name, _)| name == "two-cpu").unwrap();
    let case = many(&node, 64);
    let alone = plan(&case.node, &case.devices, &case.tasks, Shape::Single).unwrap();
    let words = shared_words(20).unwrap();
    check(&case, Shape::Single, &shared(words), &alone, 0);
    assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
    assert!(SharedPlan::over(&words[..8]).is_none());
    assert_eq!(SharedPlan::words(1), 0);
    assert_eq!(SharedPlan::words(100_000), 0);
}
