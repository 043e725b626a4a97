//! A step of eight tasks, chosen at random: how it is asked for and started, and what its
//! tasks are allowed to have.

use super::random::Random;
use super::rule::Rule;

/// Tasks 0-3 at CPU 0, the others at CPU 1.
pub const HALVES: &str = "--cpu-bind=map_cpu:0,0,0,0,1,1,1,1";

/// How a step is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Srun,
    Salloc,
    Sbatch,
    /// Two at once, each a job of its own with half of the GPUs.
    TwoJobs,
    /// Two at once in a job, each with half of its GPUs.
    TwoSteps,
}

impl Way {
    pub const NAMES: [(Way, &str); 5] = [
        (Way::Srun, "srun"),
        (Way::Salloc, "salloc, srun"),
        (Way::Sbatch, "sbatch, srun"),
        (Way::TwoJobs, "two jobs at once"),
        (Way::TwoSteps, "two steps of a job at once"),
    ];
}

/// What a user may write, and what it means.
const REQUESTS: [(&str, Rule); 14] = [
    ("", Rule::Plain),
    ("--gpubind=off", Rule::Plain),
    ("--gpu-bind=none,spank:off", Rule::Plain),
    ("--gpu-bind=closest", Rule::Slurm),
    ("--gpu-bind=map_gpu:0", Rule::Slurm),
    ("SLURM_GPUBIND=single", Rule::Own),
    ("--gpu-bind=spank", Rule::Own),
    ("--gpubind=auto,ids=uuid", Rule::Own),
    ("--gpu-bind=spank:single", Rule::Own),
    ("--gpu-bind=spank:single,workers=off,rank-env=off", Rule::Own),
    ("--gpubind=ordered", Rule::Ordered),
    ("--gpu-bind=spank:ordered,ids=uuid", Rule::Ordered),
    ("--gpu-bind=spank:first", Rule::First),
    ("--gpubind=first,ids=uuid", Rule::First),
];

/// A step to run, or two of this kind at once.
#[derive(Debug, Clone)]
pub struct Step {
    pub way: Way,
    pub rule: Rule,
    /// For each step.
    pub gpus: usize,
    pub strict: bool,
    pub share: bool,
    pub halves: bool,
    /// The option, or the variable.
    pub request: String,
    pub exports: bool,
}

impl Step {
    /// One that fits where so many GPUs are free.
    pub fn random(random: &mut Random, free: usize) -> Step {
        let (request, rule) = *random.pick(&REQUESTS);
        // srun alone as often as all others together: it is the quickest.
        let way = match random.one_in(2) {
            true => Way::Srun,
            false => random.pick(&Way::NAMES).0,
        };
        let most = if way.is_two() { free / 2 } else { free };
        // All of them as often as any other number.
        let gpus = if random.one_in(2) { most } else { 1 + random.below(most) };
        let is_option = rule.is_bound() && request.starts_with('-');
        let strict = is_option && random.one_in(3);
        let share = is_option && random.one_in(3);
        let mut request = request.to_owned();
        for (item, _) in [("strict", strict), ("share", share)].iter().filter(|(_, on)| *on) {
            let is_bare = request.ends_with("=spank");
            request.push_str(&format!("{}{item}", if is_bare { ":" } else { "," }));
        }
        let exports = !request.starts_with('-') || !random.one_in(5);
        Step { way, rule, gpus, strict, share, halves: random.one_in(2), request, exports }
    }

    /// The words in front of srun.
    pub fn environment(&self) -> Option<&str> {
        Some(self.request.as_str()).filter(|request| request.starts_with("SLURM_"))
    }

    /// srun and its options, but for where the GPUs come from.
    pub fn srun(&self) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        words.extend(["srun", "-O", "-N1", "-n8"].map(str::to_owned));
        words.extend(self.halves.then(|| HALVES.to_owned()));
        words.extend((!self.exports).then(|| "--export=NONE".to_owned()));
        words.extend(Some(self.request.clone()).filter(|request| request.starts_with('-')));
        words
    }
}

impl Way {
    pub fn is_two(self) -> bool {
        matches!(self, Way::TwoJobs | Way::TwoSteps)
    }
}
