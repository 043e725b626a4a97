//! Steps under memcheck, and what a process holds after many of them.

use std::fs;
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::machine::{Machine, run};
use crate::scenario::{CLIENTS, STEPS, Scenario};

const TASKS: u32 = 8;
/// Steps in one process, after some that fill its buffers.
const WARM_UP: usize = 20;
const REPEATED: usize = 200;
/// What a step may leave: what the plugin keeps until its process ends. Slurm's processes
/// run one step each, so nothing adds up.
const LEFT_BYTES: usize = 1024;
const LEFT_MAPPINGS: usize = 1;

pub fn trials(steps: u32) -> Vec<Trial> {
    let mut trials = Vec::new();
    for scenario in STEPS.into_iter().chain(CLIENTS) {
        let name = scenario.name().replace(' ', "-");
        trials.push(Trial::test(format!("memory::no-error-in-{name}"), move || {
            memcheck(scenario, if scenario.is_client() { 1 } else { steps })
        }));
    }
    for scenario in STEPS {
        let name = scenario.name().replace(' ', "-");
        trials.push(Trial::test(format!("memory::little-is-left-by-{name}"), move || {
            leaves_little(scenario)
        }));
    }
    trials
}

/// No invalid access, no use of undefined memory and no lost memory, in the step and in
/// each of its tasks.
fn memcheck(scenario: Scenario, steps: u32) -> Result<(), Failed> {
    let machine = Machine::new();
    let folder = tempfile::tempdir().unwrap();
    let mut memcheck = Command::new("valgrind");
    memcheck.args(["-q", "--leak-check=full", "--show-leak-kinds=definite,indirect,possible"]);
    memcheck.arg("--trace-children=yes");
    memcheck.arg(format!("--log-file={}/%p", folder.path().display()));
    let count = format!("--steps={steps}");
    let options: &[&str] = if scenario.is_client() { &[] } else { &[&count] };
    scenario.add_to(&mut memcheck, &machine, TASKS, options);
    run(&mut memcheck);
    let mut processes = 0;
    for entry in fs::read_dir(folder.path()).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        processes += 1;
        if !text.is_empty() {
            return Err(Failed::from(text));
        }
    }
    // Each step is a process, unless there is only one, and so is each task.
    let own = u32::from(steps > 1);
    let expected = if scenario.is_client() { 1 } else { own + steps * (1 + TASKS) };
    assert_eq!(processes, expected, "processes under memcheck");
    Ok(())
}

/// What a step leaves in its process, seen by running many in one.
fn leaves_little(scenario: Scenario) -> Result<(), Failed> {
    let machine = Machine::new();
    let mut command = Command::new("env");
    let count = format!("--steps={}", WARM_UP + REPEATED);
    scenario.add_to(&mut command, &machine, TASKS, &["--same-process", &count]);
    let text = run(&mut command);
    let held: Vec<[usize; 3]> = text.lines().map(numbers).collect();
    assert_eq!(held.len(), WARM_UP + REPEATED, "{text}");
    let [bytes, descriptors, mappings] = held[WARM_UP - 1];
    let [bytes_after, descriptors_after, mappings_after] = held[held.len() - 1];
    let left = |what: &str, before: usize, after: usize, each: usize| {
        let more = after.saturating_sub(before);
        let line = format!("{REPEATED} steps left {more} {what}, not more than {each} each may be");
        if more > each * REPEATED { Err(Failed::from(line)) } else { Ok(()) }
    };
    left("allocated bytes", bytes, bytes_after, LEFT_BYTES)?;
    left("descriptors", descriptors, descriptors_after, 0)?;
    left("mappings", mappings, mappings_after, LEFT_MAPPINGS)
}

/// What the stand-in prints after a step: allocated bytes, descriptors, mappings.
fn numbers(line: &str) -> [usize; 3] {
    let numbers: Vec<usize> = line.split(' ').map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}
