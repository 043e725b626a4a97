//! Many steps in random modes, one after the other and side by side, on a node on which
//! things break and are mended at random. Each task checks by itself what it has; at the
//! end nothing may be left on the node. `scripts/soak` runs it for long, see
//! docs/reliability.md; the trials here run a short piece.

mod faults;
mod leaks;
mod random;
mod rule;
mod run;
mod step;
mod table;
pub mod task;
mod verdict;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::cluster::{Cluster, HOST, Kind, Ran};
use crate::node::{Node, remove};
use crate::trial::{Test, tests};
use faults::{Effect, KILLED, Trouble};
use random::Random;
use step::{Step, Way};
use table::Found;

/// GPUs of a node.
const GPUS: usize = 8;

const OPEN: Kind = Kind::new(
    "t-soak",
    &["--machine", "two-cpu", "--nodes", "1", "--plugstack", "probe-timeout=2"],
);
const CONSTRAINED: Kind = Kind::new(
    "t-soakbox",
    &[
        "--machine",
        "two-cpu",
        "--nodes",
        "1",
        "--plugstack",
        "probe-timeout=2",
        "--constrain-devices",
    ],
);

pub const TESTS: &[Test] = tests! {
    [OPEN, CONSTRAINED]: random_steps_on_a_node_where_things_break;
};

fn random_steps_on_a_node_where_things_break(cluster: &Cluster) {
    let seed = if cluster.kind.is_constrained() { 14 } else { 15 };
    let problems = soak(cluster, 24, seed, &mut |_| ()).problems();
    assert!(problems.is_empty(), "seed {seed}: {}", problems.join("\n"));
}

/// `soak --steps N [--seed S] [--slurm R]`: half of the steps on a node whose devices are
/// open to all, half where they are constrained.
pub fn main(words: &[String]) -> ExitCode {
    let value = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1).cloned()
    };
    let number = |name: &str| value(name).map(|text| text.parse::<u64>().expect("a number"));
    let steps = number("--steps").unwrap_or(200) as usize;
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = number("--seed").unwrap_or(clock.as_secs() % 1_000_000);
    let slurm = value("--slurm").unwrap_or(HOST.to_owned());
    println!("{steps} steps with seed {seed}");
    let mut is_well = true;
    for (kind, steps, seed) in
        [(OPEN, steps.div_ceil(2), seed), (CONSTRAINED, steps / 2, seed.wrapping_add(1))]
    {
        let cluster = Cluster::start(kind, &slurm);
        let found = soak(&cluster, steps, seed, &mut |line| println!("{line}"));
        found.print(kind.name);
        for problem in found.problems() {
            is_well = false;
            println!("{problem}");
        }
    }
    println!("{}", if is_well { "nothing was wrong" } else { "failed" });
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs so many steps.
fn soak(cluster: &Cluster, steps: usize, seed: u64, say: &mut dyn FnMut(&str)) -> Found {
    let begin = Instant::now();
    let mut random = Random::new(seed);
    let mut soak = Soak {
        cluster,
        trouble: Trouble::new(Node::of(cluster)),
        uuids: cluster.uuids().join(","),
        holder: Holder { held: 0 },
        found: Found::default(),
    };
    // What comes with the first steps stays.
    for _ in 0..3 {
        soak.step(&Step::random(&mut random, GPUS), None);
    }
    let before = leaks::idle(cluster, "before");
    let mut last = before;
    for number in 0..steps {
        let restart = soak.before(&mut random, number, steps);
        let mut step = Step::random(&mut random, GPUS - soak.holder.held);
        if restart.is_some() && step.way.is_two() {
            // The other of two might just be launched: Slurm would refuse it.
            step.way = Way::Srun;
        }
        soak.step(&step, restart);
        if restart.is_some() {
            // A new process, with what is its own.
            soak.holder.end(cluster);
            let files = std::mem::take(&mut last.files);
            last = leaks::idle(cluster, "after a restart");
            last.files = files;
            soak.found.memory.clear();
        }
        if number % 10 == 0 {
            soak.found.memory.push((number, leaks::memory(cluster)));
        }
        if number % 100 == 99 {
            let memory = leaks::memory(cluster);
            let wrong = soak.found.wrong.len();
            say(&format!("{} steps, {wrong} wrong, slurmd has {memory} KiB", number + 1));
        }
    }
    soak.finish(&last, begin)
}

struct Soak<'c> {
    cluster: &'c Cluster,
    trouble: Trouble,
    uuids: String,
    holder: Holder,
    found: Found,
}

impl Soak<'_> {
    /// What happens before a step; the signal that slurmd is to be restarted by meanwhile.
    /// In the second half it is left alone: what it has then is compared.
    fn before(&mut self, random: &mut Random, number: usize, steps: usize) -> Option<&'static str> {
        self.trouble.next(random);
        if random.one_in(15) {
            self.holder.end(self.cluster);
            self.holder.begin(self.cluster, random.below(5));
        }
        let is_due = number == steps / 4 || number < steps / 2 && random.one_in(40);
        is_due.then(|| *random.pick(&["TERM", "KILL"]))
    }

    fn step(&mut self, step: &Step, restart: Option<&'static str>) {
        let cluster = self.cluster;
        let (name, _, effect) = self.trouble.now;
        let lost = match effect {
            Effect::Lost(gpu) => Some(gpu),
            _ => None,
        };
        let mark = cluster.folder().join("mark");
        let devices = cluster.folder().join("root/dev");
        let given =
            run::given(step, lost, &devices, &self.uuids, restart.map(|_| Path::new(&mark)));
        let run = || run::run(cluster, step, &given);
        let ran = match restart {
            Some(signal) => {
                let restart = |is_over: &_| run::restart_when(cluster, &mark, signal, is_over);
                let (ran, is_done) = run::while_it_runs(run, restart);
                if !is_done {
                    // No task has run.
                    cluster.restart_slurmd(signal);
                }
                self.found.restarts += 1;
                remove(&mark);
                ran
            }
            None if name == KILLED => {
                let node = &self.trouble.node;
                let (ran, killed) =
                    run::while_it_runs(run, |is_over| faults::kill_readers(node, is_over));
                self.found.killed += killed;
                ran
            }
            None => run(),
        };
        self.note(step, &ran, restart);
    }

    fn note(&mut self, step: &Step, ran: &Ran, restart: Option<&'static str>) {
        let (name, _, effect) = self.trouble.now;
        let verdict = verdict::judge(step, effect, ran);
        let found = &mut self.found;
        found.steps += 1;
        found.tasks += verdict.tasks;
        found.refused += usize::from(verdict.tasks == 0 && verdict.wrong.is_empty());
        found.late +=
            usize::from(verdict.is_late && matches!(effect, Effect::Known | Effect::Lost(_)));
        *found.faults.entry(name).or_default() += 1;
        let way = Way::NAMES.iter().position(|(way, _)| *way == step.way).unwrap_or(0);
        *found.ways.entry(way).or_default() += 1;
        if !verdict.wrong.is_empty() {
            let restart = restart.map_or(String::new(), |signal| format!(", slurmd gets {signal}"));
            let number = found.steps;
            let text = verdict.wrong.join("\n");
            found.wrong.push(format!("step {number}, fault: {name}{restart}: {text}"));
        }
        if found.steps % 50 == 0 {
            self.look_for_drained();
        }
    }

    fn look_for_drained(&mut self) {
        let states = self.cluster.run(&["sinfo", "-h", "-N", "-o", "%N %T %E"]).stdout;
        let bad = |line: &&str| ["drain", "down", "fail"].iter().any(|state| line.contains(state));
        self.found.drained.extend(states.lines().filter(bad).map(str::to_owned));
    }

    fn finish(mut self, before: &leaks::Idle, begin: Instant) -> Found {
        self.holder.end(self.cluster);
        self.trouble.end();
        self.look_for_drained();
        let after = leaks::idle(self.cluster, "at the end");
        for (what, found) in after.more_than(before) {
            self.found.left.insert(what, found);
        }
        let log = fs::read_to_string(self.cluster.folder().join("log/slurmctld.log")).unwrap();
        let drained = log.lines().filter(|line| line.contains("drain"));
        self.found.drained.extend(drained.map(str::to_owned));
        self.found.memory.push((usize::MAX, leaks::memory(self.cluster)));
        let memory = &self.found.memory;
        let middle = memory[memory.len() / 2].1 as i64;
        self.found.growth = memory[memory.len() - 1].1 as i64 - middle;
        self.found.time = begin.elapsed();
        self.found
    }
}

/// A job that holds some of the node's GPUs, so that those of steps do not begin at 0.
struct Holder {
    held: usize,
}

impl Holder {
    fn begin(&mut self, cluster: &Cluster, gpus: usize) {
        if gpus == 0 {
            return;
        }
        let count = format!("--gpus-per-node={gpus}");
        let words = ["sbatch", "-N1", &count, "-J", "holder", "-o", "/dev/null"];
        let ran = cluster.run(&[&words[..], &["--wrap", "sleep 1000"]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        self.held = gpus;
        wait(cluster, |states| states.contains("RUNNING"));
    }

    fn end(&mut self, cluster: &Cluster) {
        if std::mem::take(&mut self.held) > 0 {
            cluster.run(&["scancel", "-n", "holder"]);
            wait(cluster, str::is_empty);
        }
    }
}

fn wait(cluster: &Cluster, is_it: impl Fn(&str) -> bool) {
    let begin = Instant::now();
    while !is_it(&cluster.run(&["squeue", "-h", "-n", "holder", "-o", "%T"]).stdout) {
        assert!(begin.elapsed().as_secs() < 30, "the job that holds GPUs");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}
