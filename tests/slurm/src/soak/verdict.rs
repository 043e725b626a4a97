//! What the tasks of a step have said, held against each other and against what slurmctld
//! has given the job.

use std::collections::{BTreeMap, BTreeSet};

use super::faults::Effect;
use super::rule::{Rule, TASKS};
use super::step::{Step, Way};
use crate::cluster::Ran;

/// A task's line, see [`super::task::main`].
struct Said {
    local: usize,
    own: Vec<usize>,
}

/// How a step of a soak went.
pub struct Verdict {
    /// What was wrong.
    pub wrong: Vec<String>,
    pub tasks: usize,
    /// NVML did not answer in time, as may happen on a busy machine.
    pub is_late: bool,
}

/// Reads IDs such as `0-2,5`.
fn ids(text: &str) -> BTreeSet<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse::<usize>().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// What is wrong with what a step, or two at once, has printed.
pub fn judge(step: &Step, effect: Effect, ran: &Ran) -> Verdict {
    let mut wrong = Vec::new();
    let mut steps: BTreeMap<&str, Vec<Said>> = BTreeMap::new();
    let mut devices: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for line in ran.stdout.lines().filter(|line| line.starts_with("soak ")) {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, id, local, found, verdict, rest @ ..] = &words[..] else {
            wrong.push(format!("no verdict: {line}"));
            continue;
        };
        if *verdict != "ok" {
            wrong.push(format!("task {local} of step {id}: {}", rest.join(" ")));
        }
        if *found != "-" {
            devices.insert(id, ids(found));
        }
        let own = rest.first().map(|own| ids(own).into_iter().collect()).unwrap_or_default();
        steps.entry(id).or_default().push(Said { local: local.parse().unwrap_or(99), own });
    }
    let tasks = steps.values().map(Vec::len).sum();
    let says = |text: &str| ran.stderr.contains(text) || ran.stdout.contains(text);
    let is_late = says("NVML did not answer within") || says("another process is still reading");
    let effect = if is_late { Effect::Either } else { effect };
    if says("panicked") || says("internal error") {
        wrong.push("a hook has panicked".to_owned());
    }
    let is_shared = step.gpus < TASKS && !step.share;
    let fails = step.strict && (is_shared || matches!(effect, Effect::Unknown));
    let may_fail = fails || step.strict && !matches!(effect, Effect::Known);
    let count = if step.way.is_two() { 2 } else { 1 };
    if fails && tasks > 0 {
        wrong.push(format!("under strict {tasks} tasks have run"));
    }
    // Of two steps, one alone may have what keeps it from being bound.
    let are_whole = steps.values().all(|said| said.len() == TASKS);
    let is_refused = may_fail && says("gpubind: strict: ");
    if !are_whole || steps.len() != count && !is_refused {
        wrong.push(format!("{tasks} tasks of {count} steps, exit code {:?}", ran.code));
    }
    if wrong.is_empty() && tasks > 0 {
        wrong.extend(compare(step, effect, &steps, &devices));
    }
    if !wrong.is_empty() {
        wrong.push(format!("{step:?}\n{}{}", ran.stdout, ran.stderr));
    }
    Verdict { wrong, tasks, is_late }
}

/// What is wrong although each task has what its rule allows.
fn compare(
    step: &Step,
    effect: Effect,
    steps: &BTreeMap<&str, Vec<Said>>,
    devices: &BTreeMap<&str, BTreeSet<usize>>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut all = BTreeMap::new();
    for (id, said) in steps {
        let own: BTreeSet<usize> = said.iter().flat_map(|said| said.own.iter().copied()).collect();
        let of_job = devices.get(id).cloned().unwrap_or_default();
        if !own.is_subset(&of_job) {
            wrong.push(format!("step {id} has {own:?} of its job's {of_job:?}"));
        }
        // In a job of two steps each has a half: which, only their tasks tell.
        let of_step = if step.way == Way::TwoSteps { own.clone() } else { of_job };
        if step.rule.is_bound() {
            wrong.extend(spread(said, &of_step, effect).map(|why| format!("step {id}: {why}")));
        }
        let is_near = step.halves && step.rule == Rule::Own && step.gpus == TASKS;
        let far = said.iter().find(|said| said.own[0] / 4 != said.local / 4);
        if let Some(far) = far.filter(|_| is_near && effect == Effect::Known) {
            wrong.push(format!("task {} of step {id} is remote to {:?}", far.local, far.own));
        }
        for gpu in own {
            if let Some(other) = all.insert(gpu, id) {
                wrong.push(format!("GPU {gpu} is in steps {other} and {id}"));
            }
        }
    }
    wrong
}

/// Whether the step's devices that can be used have the same number of tasks, but for one.
fn spread(said: &[Said], devices: &BTreeSet<usize>, effect: Effect) -> Option<String> {
    let mut load: BTreeMap<usize, usize> = devices.iter().map(|gpu| (*gpu, 0)).collect();
    if let Effect::Lost(lost) = effect {
        if load.len() > 1 {
            load.remove(&lost);
        }
    }
    for gpu in said.iter().flat_map(|said| &said.own) {
        match load.get_mut(gpu) {
            Some(load) => *load += 1,
            None => return Some(format!("a task has GPU {gpu}, which is lost")),
        }
    }
    let (least, most) = (load.values().min()?, load.values().max()?);
    (most - least > 1).then(|| format!("tasks of each GPU: {load:?}"))
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;

    /// A step of one job with this rule, by srun.
    fn step(rule: Rule, gpus: usize) -> Step {
        let mut random = Random::new(1);
        let mut step = loop {
            let step = Step::random(&mut random, gpus);
            if step.way == Way::Srun {
                break step;
            }
        };
        (step.rule, step.gpus, step.strict, step.share, step.halves) =
            (rule, gpus, false, false, true);
        step
    }

    /// What its tasks print that have these GPUs.
    fn ran(owns: &[usize]) -> Ran {
        let line = |(local, own): (usize, &usize)| {
            let devices = if local == 0 { "0-7" } else { "-" };
            format!("soak 5.0 {local} {devices} ok {own}\n")
        };
        let stdout = owns.iter().enumerate().map(line).collect();
        Ran { stdout, stderr: String::new(), code: Some(0) }
    }

    fn wrong(step: &Step, effect: Effect, ran: &Ran) -> String {
        judge(step, effect, ran).wrong.first().cloned().unwrap_or_default()
    }

    #[test]
    fn a_step_whose_tasks_each_have_a_near_gpu_is_right_and_any_other_is_not() {
        let own = step(Rule::Own, 8);
        let good = [0, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(wrong(&own, Effect::Known, &ran(&good)), "");
        let far = ran(&[4, 1, 2, 3, 0, 5, 6, 7]);
        assert_eq!(wrong(&own, Effect::Known, &far), "task 0 of step 5.0 is remote to [4]");
        assert_eq!(wrong(&own, Effect::Unknown, &far), "");
        let piled = wrong(&own, Effect::Unknown, &ran(&[0, 0, 0, 3, 4, 5, 6, 7]));
        assert!(piled.contains("tasks of each GPU"), "{piled}");
        let lost = wrong(&own, Effect::Lost(2), &ran(&good));
        assert_eq!(lost, "step 5.0: a task has GPU 2, which is lost");
        assert_eq!(
            wrong(&own, Effect::Known, &ran(&good[..7])),
            "7 tasks of 1 steps, exit code Some(0)"
        );
        let others = wrong(&own, Effect::Known, &ran(&[0, 1, 2, 3, 4, 5, 6, 8]));
        assert!(others.contains("of its job's"), "{others}");
    }

    #[test]
    fn what_a_task_finds_wrong_is_wrong_and_so_is_a_strict_step_that_runs_all_the_same() {
        let mut said = ran(&[0; 8]);
        said.stdout = said.stdout.replace("7 - ok 0", "7 - wrong no CUDA_VISIBLE_DEVICES");
        let found = wrong(&step(Rule::Slurm, 8), Effect::Known, &said);
        assert_eq!(found, "task 7 of step 5.0: no CUDA_VISIBLE_DEVICES");
        let strict = Step { strict: true, ..step(Rule::Own, 4) };
        let ran = ran(&[0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(wrong(&strict, Effect::Known, &ran), "under strict 8 tasks have run");
        let refused =
            Ran { stdout: String::new(), stderr: "gpubind: strict: so".into(), code: Some(1) };
        assert_eq!(wrong(&strict, Effect::Known, &refused), "");
        assert_ne!(wrong(&step(Rule::Own, 4), Effect::Known, &refused), "");
        let lost = Step { way: Way::TwoJobs, share: true, ..strict };
        let one = Ran { stdout: ran.stdout.replace("0-7", "0-3"), stderr: refused.stderr, ..ran };
        assert_eq!(wrong(&lost, Effect::Lost(7), &one), "", "the other has GPU 7");
        let half = Ran { stdout: one.stdout.replacen("soak 5.0 3", "3", 1), ..one };
        assert_ne!(wrong(&lost, Effect::Lost(7), &half), "");
    }

    #[test]
    fn two_jobs_at_once_have_no_gpu_in_common() {
        let two = Step { way: Way::TwoJobs, halves: false, ..step(Rule::Own, 4) };
        let (one, mut other) = (ran(&[0, 1, 2, 3, 0, 1, 2, 3]), ran(&[3, 4, 5, 6, 3, 4, 5, 6]));
        other.stdout = other.stdout.replace("5.0", "6.0").replace("0-7", "3-6");
        let both = Ran { stdout: one.stdout.replace("0-7", "0-3") + &other.stdout, ..one };
        assert_eq!(wrong(&two, Effect::Known, &both), "GPU 3 is in steps 5.0 and 6.0");
    }
}
