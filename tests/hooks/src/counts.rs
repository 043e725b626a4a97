//! Instructions (callgrind) and system calls (strace) of each hook.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use libtest_mimic::{Failed, Trial};

use crate::baseline::{self, Count, Row};
use crate::machine::{Machine, run};
use crate::scenario::{CLIENTS, STEPS, Scenario, TASKS};

/// What hooks cost by their labels: HOOK, or HOOK:TASK.
type ByLabel = BTreeMap<String, u64>;

fn cases() -> impl Iterator<Item = (Scenario, u32)> {
    let steps = STEPS.into_iter().flat_map(|step| TASKS.map(|tasks| (step, tasks)));
    let steps = steps.chain([(Scenario::ManyNodes, TASKS[0])]);
    steps.chain(CLIENTS.map(|client| (client, 0)))
}

pub fn trials() -> Vec<Trial> {
    let compare = |(scenario, tasks): (Scenario, u32)| {
        let name = match tasks {
            0 => format!("counts::{}", scenario.name()),
            _ => format!("counts::{} of {tasks} tasks", scenario.name()),
        };
        Trial::test(name.replace(' ', "-"), move || {
            let worse = baseline::worse(&baseline::read()?, &measure(scenario, tasks));
            if worse.is_empty() { Ok(()) } else { Err(Failed::from(worse.join("\n"))) }
        })
    };
    cases().map(compare).collect()
}

/// Measures everything, writes the baseline, and prints it for people.
pub fn write() -> ExitCode {
    let rows: Vec<Row> = cases().flat_map(|(scenario, tasks)| measure(scenario, tasks)).collect();
    fs::write(baseline::file(), baseline::csv(&rows)).unwrap();
    print!("{}", baseline::markdown(&rows));
    ExitCode::SUCCESS
}

/// All hooks of one scenario. Tasks run in turn, or the first would not always be the one
/// that does the work for all; and only some of many, since the others are alike.
fn measure(scenario: Scenario, tasks: u32) -> Vec<Row> {
    let machine = Machine::new();
    let options: &[&str] = if scenario.is_client() { &[] } else { &["--in-turn", "--sample=3"] };
    let folder = tempfile::tempdir().unwrap();
    let mut callgrind = Command::new("valgrind");
    callgrind.args(["-q", "--tool=callgrind", "--collect-atstart=no", "--trace-children=yes"]);
    callgrind.arg(format!("--callgrind-out-file={}/%p", folder.path().display()));
    scenario.add_to(&mut callgrind, &machine, tasks, &[options, &["--marks=callgrind"]].concat());
    run(&mut callgrind);
    let instructions = dumps(folder.path());
    let log = folder.path().join("strace");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o"]).arg(&log).arg("--");
    scenario.add_to(&mut strace, &machine, tasks, &[options, &["--marks=strace"]].concat());
    run(&mut strace);
    let system_calls = calls(&fs::read_to_string(&log).unwrap());
    let labels = instructions.keys().eq(system_calls.keys());
    assert!(labels, "{:?} {:?}", instructions.keys(), system_calls.keys());
    rows(scenario, tasks, &instructions, &system_calls)
}

/// Instructions by label, from callgrind's dumps.
fn dumps(folder: &Path) -> ByLabel {
    const LABEL: &str = "desc: Trigger: Client Request: ";
    let mut found = ByLabel::new();
    for entry in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let after = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
        if let Some(label) = after(LABEL) {
            let total = after("totals: ").unwrap().trim().parse().unwrap();
            let other = found.insert(label.to_owned(), total);
            assert_eq!(other, None, "{label} twice");
        }
    }
    found
}

/// System calls by label, from strace's log; each process has its own hook.
fn calls(log: &str) -> ByLabel {
    let mut found = ByLabel::new();
    let mut running: BTreeMap<&str, String> = BTreeMap::new();
    for line in log.lines() {
        let (process, call) = line.trim_start().split_once(' ').unwrap();
        let call = call.trim_start();
        let mark = |what: &str| {
            let path = call.strip_prefix(&format!("access(\"/spank-host/{what}/"))?;
            path.split('"').next().map(str::to_owned)
        };
        if let Some(label) = mark("begin") {
            let other = found.insert(label.clone(), 0);
            assert_eq!(other, None, "{label} twice");
            running.insert(process, label);
        } else if mark("end").is_some() {
            running.remove(process);
        } else if !call.starts_with("<...")
            && !call.starts_with("---")
            && !call.starts_with("+++")
            && let Some(label) = running.get(process)
        {
            *found.get_mut(label).unwrap() += 1;
        }
    }
    found
}

/// A row for each hook; for one that runs for each task, the first one's and a mean over
/// the others.
fn rows(
    scenario: Scenario,
    tasks: u32,
    instructions: &ByLabel,
    system_calls: &ByLabel,
) -> Vec<Row> {
    let mut sums: BTreeMap<String, (Count, u64)> = BTreeMap::new();
    for ((label, instructions), system_calls) in instructions.iter().zip(system_calls.values()) {
        let hook = match label.split_once(':') {
            None => label.clone(),
            Some((hook, "0")) => format!("{hook} (first)"),
            Some((hook, _)) => format!("{hook} (others)"),
        };
        let (sum, number) = sums.entry(hook).or_default();
        sum.instructions += instructions;
        sum.system_calls += system_calls;
        *number += 1;
    }
    let row = |(hook, (sum, number)): (String, (Count, u64))| Row {
        scenario: scenario.name().to_owned(),
        tasks,
        hook: hook.trim_start_matches("slurm_spank_").to_owned(),
        count: Count {
            instructions: sum.instructions / number,
            system_calls: sum.system_calls / number,
        },
    };
    sums.into_iter().map(row).collect()
}
