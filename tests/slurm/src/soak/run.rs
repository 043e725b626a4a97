//! Starts a step of a soak in its way, and waits for its end.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use super::step::{Step, Way};
use super::task::Given;
use crate::cluster::{Cluster, Ran};

/// How long a batch job may take.
const LONG: Duration = Duration::from_secs(60);

/// What the tasks are given on their command line.
pub fn given<'a>(
    step: &Step,
    lost: Option<usize>,
    devices: &'a Path,
    uuids: &'a str,
    mark: Option<&'a Path>,
) -> Given<'a> {
    Given { rule: step.rule, gpus: step.gpus, lost, devices, uuids, mark }
}

/// The words of a step's command: the test program itself, as a task.
fn command(step: &Step, given: &Given) -> Vec<String> {
    let program = std::env::current_exe().unwrap().display().to_string();
    let mut words = step.srun();
    words.push(program);
    words.extend(given.words());
    words
}

/// Runs a step, or two at once, to the end.
pub fn run(cluster: &Cluster, step: &Step, given: &Given) -> Ran {
    let srun = command(step, given);
    let gpus = format!("--gpus-per-node={}", step.gpus);
    let all =
        format!("--gpus-per-node={}", if step.way.is_two() { 2 * step.gpus } else { step.gpus });
    let quoted: Vec<String> = srun.iter().map(|word| format!("'{word}'")).collect();
    let set: Vec<&str> = step.environment().into_iter().collect();
    let shell = match set.first() {
        Some(variable) => format!("{variable} {}", quoted.join(" ")),
        None => quoted.join(" "),
    };
    match step.way {
        Way::Srun | Way::TwoJobs => {
            let words: Vec<&str> = srun.iter().map(String::as_str).collect();
            let words = [&["env"], &set[..], &words[..1], &[gpus.as_str()], &words[1..]].concat();
            match step.way {
                Way::Srun => cluster.run(&words),
                _ => at_once(cluster, &words),
            }
        }
        Way::Salloc => cluster.run(&["salloc", "-Q", "-N1", &all, "sh", "-c", &shell]),
        Way::TwoSteps => {
            let one = shell.replacen("'srun'", &format!("srun --exact {gpus}"), 1);
            let both = format!("{one} & {one} & wait");
            cluster.run(&["salloc", "-Q", "-N1", &all, "sh", "-c", &both])
        }
        Way::Sbatch => batch(cluster, &all, &shell),
    }
}

/// The same command twice.
fn at_once(cluster: &Cluster, words: &[&str]) -> Ran {
    let start = || {
        let mut command = cluster.command(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (one, other) = (start(), start());
    let (one, other) = (one.wait_with_output().unwrap(), other.wait_with_output().unwrap());
    let (one, other) = (Ran::from(one), Ran::from(other));
    Ran {
        stdout: one.stdout + &other.stdout,
        stderr: one.stderr + &other.stderr,
        code: one.code.max(other.code),
    }
}

/// `sbatch --wait` looks only after 2 and 10 seconds.
fn batch(cluster: &Cluster, gpus: &str, command: &str) -> Ran {
    let [file, out, err, done] =
        ["sh", "out", "err", "done"].map(|end| cluster.folder().join(format!("soak.{end}")));
    let script =
        format!("#!/bin/sh\n{command}\necho $? >{0}.new; mv {0}.new {0}\n", done.display());
    fs::write(&file, script).unwrap();
    let words = ["sbatch", "-N1", gpus, "-o", out.to_str().unwrap(), "-e", err.to_str().unwrap()];
    let sent = cluster.run(&[&words[..], &[file.to_str().unwrap()]].concat());
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    let begin = Instant::now();
    while !done.exists() && begin.elapsed() < LONG {
        sleep(Duration::from_millis(20));
    }
    let read = |file: &Path| fs::read_to_string(file).unwrap_or_default();
    let code = read(&done).trim().parse().ok();
    let ran = Ran { stdout: read(&out), stderr: read(&err), code };
    for file in [file, out, err, done] {
        let _ = fs::remove_file(file);
    }
    ran
}

/// Runs a step and meanwhile something else, which ends when the step has ended.
pub fn while_it_runs<T: Send>(
    step: impl FnOnce() -> Ran,
    other: impl FnOnce(&AtomicBool) -> T + Send,
) -> (Ran, T) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let other = scope.spawn(|| other(&is_over));
        let ran = step();
        is_over.store(true, Ordering::Relaxed);
        (ran, other.join().unwrap())
    })
}

/// Restarts slurmd once the first task of a step has said that it runs; whether it has.
pub fn restart_when(cluster: &Cluster, mark: &Path, signal: &str, is_over: &AtomicBool) -> bool {
    while !mark.exists() {
        if is_over.load(Ordering::Relaxed) {
            return false;
        }
        sleep(Duration::from_millis(10));
    }
    cluster.restart_slurmd(signal);
    true
}
