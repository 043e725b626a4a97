//! End-to-end tests on a virtual node as sites have it: two sockets, several NUMA nodes,
//! cgroup v2, Slurm with devices, cores and memory constrained.
//!
//! `vm-tests --numa 2,8 NAME` boots the machine with so many NUMA nodes, one after the
//! other, and runs the tests whose name contains NAME; without `--numa` it is the one
//! with 4. `vm-tests --figures` prints the figures of docs/performance.md. They are few and broad: under emulation a step takes seconds.
//! `scripts/test --vm` builds what they need.

// Tests end by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod figures;
mod forms;
mod jobs;
mod machine;
mod rank;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;

use libtest_mimic::{Arguments, Failed, Trial};
use machine::Vm;

/// A test and its name.
type Test = (&'static str, fn(&Vm));

const TESTS: [Test; 5] = [
    ("check_finds_nothing_wrong", jobs::check_finds_nothing_wrong),
    ("the_plan_before_equals_the_job_after", forms::the_plan_before_equals_the_job_after),
    ("jobs_side_by_side_have_their_own_gpus", jobs::jobs_side_by_side_have_their_own_gpus),
    ("workers_of_a_task_have_a_gpu_each", jobs::workers_of_a_task_have_a_gpu_each),
    ("a_site_that_binds_always", jobs::a_site_that_binds_always),
];

/// The machine that runs now; the next one's test stops it.
static RUNNING: Mutex<Option<Vm>> = Mutex::new(None);

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().collect();
    if words.get(1).is_some_and(|word| word == "--figures") {
        words.remove(1);
        numa_of(&mut words).into_iter().for_each(|numa| figures::print(&Vm::start(numa)));
        return ExitCode::SUCCESS;
    }
    let numa = numa_of(&mut words);
    let mut arguments = Arguments::from_iter(words);
    // One machine at a time.
    arguments.test_threads = Some(1);
    let trials = numa.iter().flat_map(|numa| {
        let numa = *numa;
        TESTS.map(|(name, body)| {
            Trial::test(format!("numa-{numa}::{name}"), move || run(numa, body))
        })
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    *RUNNING.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
    conclusion.exit_code()
}

/// Takes `--numa LIST` off the front of the command line.
fn numa_of(words: &mut Vec<String>) -> Vec<usize> {
    if words.len() > 2 && words[1] == "--numa" {
        words.remove(1);
        return words.remove(1).split(',').map(|number| number.parse().unwrap()).collect();
    }
    vec![4]
}

/// Runs one test on a machine of that shape.
fn run(numa: usize, body: fn(&Vm)) -> Result<(), Failed> {
    let mut running = RUNNING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        if running.as_ref().is_none_or(|vm| vm.numa != numa) {
            *running = None;
            *running = Some(Vm::start(numa));
        }
        if let Some(vm) = running.as_ref() {
            body(vm);
        }
    }));
    outcome.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Failed::from(text.unwrap_or_else(|| "the test panicked".to_owned()))
    })
}
