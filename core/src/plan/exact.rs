//! The best list of devices for up to 8 ranks on up to 8 devices.
//!
//! Branch and bound, rank by rank, over the lists with the smallest `numa`. The
//! bound on what a beginning can still become is the sum of three parts: its own
//! links; for each rank to come, its links to the beginning from the best device
//! that is left; and the links among the ranks to come, from a table over all
//! combinations of devices that may be left.

use super::cost::Problem;
use super::numa_optimal::NumaOptimal;

/// The most ranks and devices.
pub(super) const MOST: usize = 8;

/// A combination that no list with the smallest `numa` begins with. Real values
/// stay far below: 28 pairs of at most 5040 times 8000.
const NEVER: u32 = u32::MAX;

/// Whether a problem is small enough.
pub(super) fn fits(problem: &Problem) -> bool {
    problem.ranks() <= MOST && problem.devices() <= MOST
}

/// The best list. `list` is any list with the smallest `numa`; the better it is,
/// the less there is to search.
pub(super) fn search(problem: &Problem, near: &NumaOptimal, list: Vec<usize>) -> Vec<usize> {
    let mut search = Search::new(problem, near);
    search.fill_ahead(problem, near);
    search.best_links = problem.links(&list) as u32;
    search.best[..list.len()].copy_from_slice(&list);
    search.place(0, 0, 0);
    search.best[..list.len()].to_vec()
}

/// Of each device, a number that fits a lane of the processor's vectors.
type Row = [u32; MOST];

struct Search {
    ranks: usize,
    devices: usize,
    /// The most ranks on one device.
    most: usize,
    /// For each rank, the devices that it may have, as bits.
    allowed: [u8; MOST],
    /// For each device, those before it that can stand in for it, as bits: same
    /// class, and same hops to all others.
    twins: [u8; MOST],
    /// Links of two ranks so far apart, one on this device, for each device.
    links: [[Row; MOST]; MOST],
    /// What one rank on a device adds to a combination's number: a combination is
    /// written with a digit for each device, the number of ranks on it.
    digit: [usize; MOST],
    /// For each combination of devices in use, the least links among the ranks
    /// that are to come.
    ahead: Vec<u32>,
    list: [usize; MOST],
    load: [usize; MOST],
    /// For each number of ranks placed, and each rank to come, its links to
    /// those placed from each device.
    pull: [[Row; MOST]; MOST + 1],
    best: [usize; MOST],
    best_links: u32,
}

impl Search {
    fn new(problem: &Problem, near: &NumaOptimal) -> Search {
        let (ranks, devices) = (problem.ranks(), problem.devices());
        let most = problem.load.1;
        let mut search = Search {
            ranks,
            devices,
            most,
            allowed: [0; MOST],
            twins: [0; MOST],
            links: [[[0; MOST]; MOST]; MOST],
            digit: [0; MOST],
            ahead: vec![NEVER; (most + 1).pow(devices as u32)],
            list: [0; MOST],
            load: [0; MOST],
            pull: [[[0; MOST]; MOST]; MOST + 1],
            best: [0; MOST],
            best_links: NEVER,
        };
        for (allowed, &row) in search.allowed.iter_mut().zip(&problem.row_of) {
            for (device, &class) in problem.class_of.iter().enumerate() {
                *allowed |= u8::from(near.allowed[row][class]) << device;
            }
        }
        for a in 0..devices {
            search.digit[a] = (most + 1).pow(a as u32);
            for b in 0..devices {
                for (links, weight) in search.links.iter_mut().zip(&problem.weight) {
                    links[a][b] = (weight * problem.hop(a, b)) as u32;
                }
                search.twins[a] |= u8::from(b < a && are_twins(problem, a, b)) << b;
            }
        }
        search
    }

    /// Fills `ahead`, from full combinations to the empty one. The value of a
    /// combination is the least, over the devices for the next rank, of the value
    /// of what is then in use and the links of that rank to those after it, if each
    /// of those could have the nearest device that is left.
    fn fill_ahead(&mut self, problem: &Problem, near: &NumaOptimal) {
        let mut nearest = [[0; MOST]; MOST];
        for (device, order) in nearest.iter_mut().enumerate().take(self.devices) {
            *order = std::array::from_fn(|other| other);
            order[..self.devices].sort_unstable_by_key(|&other| problem.hop(device, other));
        }
        let mut load = [0; MOST];
        load[..self.devices].fill(self.most);
        for used in (0..self.ahead.len()).rev() {
            let rank: usize = load[..self.devices].iter().sum();
            if rank == self.ranks && is_complete(problem, near, &load) {
                self.ahead[used] = 0;
            }
            if rank < self.ranks {
                let mut least = NEVER;
                for device in bits(self.allowed[rank]) {
                    if load[device] == self.most {
                        continue;
                    }
                    let then = self.ahead[used + self.digit[device]];
                    if then < least {
                        load[device] += 1;
                        let order = &nearest[device][..self.devices];
                        least = least.min(then + self.nearest_links(rank, device, order, &load));
                        load[device] -= 1;
                    }
                }
                self.ahead[used] = least;
            }
            // One less, digit by digit.
            for load in &mut load[..self.devices] {
                match load.checked_sub(1) {
                    Some(less) => {
                        *load = less;
                        break;
                    }
                    None => *load = self.most,
                }
            }
        }
    }

    /// Links of a rank on a device to all ranks after it, the next on the nearest
    /// place left, and so on. `order` has the devices from near to far.
    fn nearest_links(
        &self,
        rank: usize,
        device: usize,
        order: &[usize],
        load: &[usize; MOST],
    ) -> u32 {
        let mut sum = 0;
        let mut apart = 1;
        for &other in order {
            for _ in load[other]..self.most {
                if rank + apart == self.ranks {
                    return sum;
                }
                sum += self.links[apart][device][other];
                apart += 1;
            }
        }
        sum
    }

    /// Tries all devices for the next rank. `used` is the combination in use,
    /// `links` what it has cost.
    fn place(&mut self, rank: usize, used: usize, links: u32) {
        if rank == self.ranks {
            let (list, best) = (&self.list[..rank], &self.best[..rank]);
            if (links, list) < (self.best_links, best) {
                self.best_links = links;
                self.best = self.list;
            }
            return;
        }
        for device in bits(self.allowed[rank]) {
            let then = used + self.digit[device];
            // With a twin of no use so far, the other one in its place
            // gives as cheap a list, and a smaller one.
            let twin =
                self.load[device] == 0 && bits(self.twins[device]).any(|twin| self.load[twin] == 0);
            if self.load[device] == self.most || twin || self.ahead[then] == NEVER {
                continue;
            }
            let links = links + self.pull[rank][rank][device];
            self.list[rank] = device;
            self.load[device] += 1;
            let bound = links + self.ahead[then] + self.behind(rank);
            let (list, best) = (&self.list[..=rank], &self.best[..=rank]);
            if (bound, list) <= (self.best_links, best) {
                self.place(rank + 1, then, links);
            }
            self.load[device] -= 1;
        }
    }

    /// The least links between the ranks up to this one, just placed, and those
    /// to come. Notes what each of those would have from each device.
    fn behind(&mut self, rank: usize) -> u32 {
        let mut open = 0;
        for (device, &load) in self.load[..self.devices].iter().enumerate() {
            open |= u8::from(load < self.most) << device;
        }
        let (before, after) = self.pull.split_at_mut(rank + 1);
        let mut sum = 0;
        for later in rank + 1..self.ranks {
            let pull = &mut after[0][later];
            let links = &self.links[later - rank][self.list[rank]];
            for ((pull, before), links) in pull.iter_mut().zip(&before[rank][later]).zip(links) {
                *pull = before + links;
            }
            sum += bits(open & self.allowed[later]).map(|device| pull[device]).min().unwrap_or(0);
        }
        sum
    }
}

/// Whether two devices can stand in for each other.
fn are_twins(problem: &Problem, a: usize, b: usize) -> bool {
    let others = (0..problem.devices()).filter(|&other| other != a && other != b);
    problem.class_of[a] == problem.class_of[b]
        && others.into_iter().all(|other| problem.hop(a, other) == problem.hop(b, other))
}

/// Whether devices and classes have as many ranks as they must, at the end.
fn is_complete(problem: &Problem, near: &NumaOptimal, load: &[usize; MOST]) -> bool {
    let mut classes = [0; MOST];
    for (&class, load) in problem.class_of.iter().zip(load) {
        if *load < problem.load.0 {
            return false;
        }
        classes[class] += load;
    }
    near.load.iter().zip(classes).all(|((least, most), load)| (least..=most).contains(&&load))
}

/// The positions of a number's set bits, rising.
fn bits(mut bits: u8) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = bits.trailing_zeros() as usize;
        bits &= bits.checked_sub(1)?;
        Some(lowest)
    })
}
