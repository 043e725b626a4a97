//! A list under improvement: devices of two ranks are exchanged, and ranks moved to a
//! device with a place, until nothing makes the list better.
//!
//! With hundreds of ranks on a few GPUs nearly all pairs are hopeless, and a bound shows
//! it for all ranks of a GPU at once: what a rank gains by going there, and the most that
//! any rank gains by coming back. Pairs are tried in the same order as without the bound,
//! so that it changes how long the improvement takes and never where it ends.

use super::cost::Problem;
use super::numa_optimal::NumaOptimal;

/// Rounds over all pairs of ranks after which an improvement stops in any case.
/// It ends by itself, because each round but the last makes the list better, and
/// has never taken more than 30 rounds on thousands of random machines with up
/// to 256 ranks. If it ever took more than these, the list would be better than
/// its start, but might not withstand every exchange.
const ROUNDS: usize = 1000;

/// More than any rank gains, and less.
const ALWAYS: i64 = i64::MAX / 4;
const NEVER: i64 = i64::MIN / 4;

pub(super) struct Exchange<'p> {
    problem: &'p Problem,
    near: &'p NumaOptimal,
    list: Vec<usize>,
    gpus: usize,
    /// For each rank and, within it, each GPU, the links cost of the rank to all others
    /// if it was on that GPU.
    pull: Vec<u64>,
    /// For each GPU and, within it, each other GPU, no less than what any rank on the
    /// first gains by going to the second, the others staying where they are. With fewer
    /// ranks than GPUs it is not worth its keep and stays at [`ALWAYS`].
    gain: Vec<i64>,
    /// Whether `gain` is kept.
    is_bounded: bool,
    /// For each GPU, whether an exchange with the ranks on it can be better: for the rank
    /// whose turn it is.
    hopeful: Vec<bool>,
    /// Whether each GPU is one device, so that ranks on the same have nothing to exchange.
    is_device_each: bool,
    device_load: Vec<usize>,
    class_load: Vec<usize>,
    /// For each GPU, the class of its devices.
    class_of_gpu: Vec<usize>,
}

impl<'p> Exchange<'p> {
    pub fn new(problem: &'p Problem, near: &'p NumaOptimal, list: Vec<usize>) -> Self {
        let (gpus, ranks) = (problem.hop.len(), list.len());
        let mut device_load = vec![0; problem.devices()];
        let mut class_load = vec![0; problem.classes()];
        let mut class_of_gpu = vec![0; gpus];
        for (&class, &gpu) in problem.class_of.iter().zip(&problem.gpu_of) {
            class_of_gpu[gpu] = class;
        }
        for &device in &list {
            device_load[device] += 1;
            class_load[problem.class_of[device]] += 1;
        }
        let pull = pulls(problem, &list);
        Exchange {
            problem,
            near,
            list,
            gpus,
            pull,
            gain: vec![ALWAYS; gpus * gpus],
            is_bounded: gpus <= ranks,
            hopeful: vec![false; gpus],
            is_device_each: gpus == problem.devices(),
            device_load,
            class_load,
            class_of_gpu,
        }
    }

    /// The same without the bound.
    #[cfg(test)]
    pub fn unbounded(mut self) -> Self {
        self.is_bounded = false;
        self.gain.fill(ALWAYS);
        self
    }

    /// Improves the list until nothing makes it better any more. Gives its links, too.
    pub fn run(mut self) -> (u64, Vec<usize>) {
        let (least, most) = self.problem.load;
        for _ in 0..ROUNDS {
            let mut better = false;
            self.find_gains();
            for rank in 0..self.list.len() {
                better |= self.exchange_with_later(rank);
                for device in 0..if least == most { 0 } else { self.device_load.len() } {
                    better |= self.try_move(rank, device);
                }
            }
            if !better {
                break;
            }
        }
        // Each pair is in the pulls of both.
        let pulls = (0..self.list.len()).map(|rank| self.pull(rank, self.gpu(rank)));
        (pulls.sum::<u64>() / 2, self.list)
    }

    /// Tries to exchange the devices of a rank and of each one after it.
    fn exchange_with_later(&mut self, rank: usize) -> bool {
        let mut better = false;
        let mut next = rank + 1;
        while let Some(other) = self.next_partner(rank, next) {
            better |= self.try_exchange(rank, other);
            next = other + 1;
        }
        better
    }

    /// The first rank from `from` on with which an exchange can be better.
    fn next_partner(&mut self, rank: usize, from: usize) -> Option<usize> {
        let own = self.gpu(rank);
        let allowed = &self.near.allowed[self.problem.row_of[rank]];
        let pulls = &self.pull[rank * self.gpus..][..self.gpus];
        let mut is_any = false;
        for (gpu, hopeful) in self.hopeful.iter_mut().enumerate() {
            let gain = pulls[own] as i64 - pulls[gpu] as i64;
            *hopeful = allowed[self.class_of_gpu[gpu]]
                && gain + self.gain[gpu * self.gpus + own] >= 0
                && !(gpu == own && self.is_device_each);
            is_any |= *hopeful;
        }
        if !is_any {
            return None;
        }
        (from..self.list.len()).find(|&other| self.hopeful[self.gpu(other)])
    }

    /// Exchanges the devices of two ranks, `a` below `b`, if that is better:
    /// cheaper, or as cheap and smaller as a list.
    fn try_exchange(&mut self, a: usize, b: usize) -> bool {
        let (device_a, device_b) = (self.list[a], self.list[b]);
        let (gpu_a, gpu_b) = (self.gpu(a), self.gpu(b));
        if device_a == device_b || !self.allows(a, gpu_b) || !self.allows(b, gpu_a) {
            return false;
        }
        let before = self.pull(a, gpu_a) + self.pull(b, gpu_b);
        // The two ranks' own pair: on each other's place, each would be measured
        // against the other where it was.
        let pair = self.problem.weight[b - a] * self.problem.hop[gpu_a][gpu_b];
        let after = self.pull(a, gpu_b) + self.pull(b, gpu_a) + 2 * pair;
        if (after, device_b) >= (before, device_a) {
            return false;
        }
        self.put(a, device_b);
        self.put(b, device_a);
        let problem = self.problem;
        let weight = |apart: usize| problem.weight[apart] as i64;
        self.shift(gpu_a, gpu_b, |rank| weight(rank.abs_diff(a)) - weight(rank.abs_diff(b)));
        true
    }

    /// Moves a rank to another device, if there is a place and that is better.
    fn try_move(&mut self, rank: usize, to: usize) -> bool {
        let from = self.list[rank];
        let (least, most) = self.problem.load;
        if self.device_load[to] >= most || self.device_load[from] <= least || from == to {
            return false;
        }
        let class_of = &self.problem.class_of;
        let (out, into) = (class_of[from], class_of[to]);
        let fits = out == into
            || self.class_load[out] > self.near.load[out].0
                && self.class_load[into] < self.near.load[into].1;
        let pull = |device: usize| self.pull(rank, self.problem.gpu_of[device]);
        let is_allowed = self.allows(rank, self.problem.gpu_of[to]);
        if !fits || !is_allowed || (pull(to), to) >= (pull(from), from) {
            return false;
        }
        self.put(rank, to);
        let problem = self.problem;
        let gpu = |device: usize| problem.gpu_of[device];
        self.shift(gpu(from), gpu(to), |other| problem.weight[other.abs_diff(rank)] as i64);
        self.note_gains(rank);
        true
    }

    /// Gives a rank a device.
    fn put(&mut self, rank: usize, to: usize) {
        let from = std::mem::replace(&mut self.list[rank], to);
        self.device_load[from] -= 1;
        self.device_load[to] += 1;
        self.class_load[self.problem.class_of[from]] -= 1;
        self.class_load[self.problem.class_of[to]] += 1;
    }

    /// Has each rank's pulls follow what has left one GPU for another, by its weight to
    /// that rank.
    fn shift(&mut self, from: usize, to: usize, weight: impl Fn(usize) -> i64) {
        if from == to {
            return;
        }
        let hops = self.problem.hop[to].iter().zip(&self.problem.hop[from]);
        let farther: Vec<i64> = hops.map(|(&to, &from)| to as i64 - from as i64).collect();
        for rank in 0..self.list.len() {
            let weight = weight(rank);
            // Far away, weights are rounded to the same.
            if weight != 0 {
                let pulls = &mut self.pull[rank * self.gpus..][..self.gpus];
                for (pull, farther) in pulls.iter_mut().zip(&farther) {
                    *pull = pull.wrapping_add_signed(weight * farther);
                }
                self.note_gains(rank);
            }
        }
    }

    /// Fills `gain` anew, so that it is exact.
    fn find_gains(&mut self) {
        if self.is_bounded {
            self.gain.fill(NEVER);
            for rank in 0..self.list.len() {
                self.note_gains(rank);
            }
        }
    }

    /// Has `gain` be no less than what this rank gains. Links are below 2^49
    /// ([`Problem::links`]).
    fn note_gains(&mut self, rank: usize) {
        let own = self.gpu(rank);
        let allowed = &self.near.allowed[self.problem.row_of[rank]];
        let pulls = &self.pull[rank * self.gpus..][..self.gpus];
        let gains = &mut self.gain[own * self.gpus..][..self.gpus];
        for ((gain, &pull), &class) in gains.iter_mut().zip(pulls).zip(&self.class_of_gpu) {
            if allowed[class] {
                *gain = (*gain).max(pulls[own] as i64 - pull as i64);
            }
        }
    }

    fn gpu(&self, rank: usize) -> usize {
        self.problem.gpu_of[self.list[rank]]
    }

    fn pull(&self, rank: usize, gpu: usize) -> u64 {
        self.pull[rank * self.gpus + gpu]
    }

    fn allows(&self, rank: usize, gpu: usize) -> bool {
        self.near.allowed[self.problem.row_of[rank]][self.class_of_gpu[gpu]]
    }
}

/// The table of [`Exchange::pull`]: the weights of a rank's others are summed up by their
/// GPUs first, since there are fewer GPUs than ranks.
fn pulls(problem: &Problem, list: &[usize]) -> Vec<u64> {
    let gpus = problem.hop.len();
    let gpu_of: Vec<usize> = list.iter().map(|&device| problem.gpu_of[device]).collect();
    let mut weights = vec![0; list.len() * gpus];
    for (a, &gpu_a) in gpu_of.iter().enumerate() {
        for (b, (&gpu_b, weight)) in gpu_of[a + 1..].iter().zip(&problem.weight[1..]).enumerate() {
            weights[a * gpus + gpu_b] += weight;
            weights[(a + 1 + b) * gpus + gpu_a] += weight;
        }
    }
    let mut pulls = vec![0; weights.len()];
    for (pull, weights) in pulls.chunks_exact_mut(gpus).zip(weights.chunks_exact(gpus)) {
        for (weight, hops) in weights.iter().zip(&problem.hop) {
            for (pull, hop) in pull.iter_mut().zip(hops) {
                *pull += weight * hop;
            }
        }
    }
    pulls
}
