//! All lists of devices with the smallest `numa`.
//!
//! Which rank gets a device of which class is a transportation problem: ranks of
//! one row are alike, and so are devices of one class, whose number of ranks has a
//! least and a greatest value. Successive shortest paths solve it exactly, since
//! each path keeps the ranks seated so far at their smallest cost (Ahuja, Magnanti,
//! Orlin: Network Flows, 1993, section 9.7). An assignment crate would need a
//! row for each rank and a column for each place on a device, could not hold the
//! devices to equal loads, and tells no prices.
//!
//! The prices are what the rest of the solver lives on. By complementary
//! slackness a list has the smallest `numa` exactly if each rank is in a class
//! that is cheapest for it with the class's price added, and if each class with a
//! positive price is as full, each with a negative one as empty, as may be.

use super::cost::Problem;

/// The most classes, and the most cells of the table of rows and classes, with
/// which the nearest lists are sought. Real nodes have at most 16 classes, and
/// with 8 of those there may be 1024 ranks with a row each.
const MOST_CLASSES: usize = 64;
const MOST_CELLS: usize = 1 << 13;

/// What all lists with the smallest `numa` have in common, and one of them.
pub(super) struct NumaOptimal {
    /// For each row, the classes that a rank of it may be in.
    pub allowed: Vec<Vec<bool>>,
    /// For each class, its least and greatest number of ranks.
    pub load: Vec<(usize, usize)>,
    /// For each row, how many of its ranks are in each class in one such list.
    pub seats: Vec<Vec<usize>>,
}

/// Describes the lists with the smallest `numa`, or nothing if there is too much
/// to look at.
pub(super) fn nearest(problem: &Problem) -> Option<NumaOptimal> {
    let (rows, classes) = (problem.numa.len(), problem.classes());
    if classes > MOST_CLASSES || rows * classes > MOST_CELLS {
        return None;
    }
    let mut supply = vec![0; rows];
    for &row in &problem.row_of {
        supply[row] += 1;
    }
    let mut size = vec![0; classes];
    for &class in &problem.class_of {
        size[class] += 1;
    }
    let (least, most) = problem.load;
    let mut flow = Flow {
        numa: &problem.numa,
        seats: vec![vec![0; classes]; rows],
        free: size.iter().map(|size| size * least).collect(),
    };
    // Every class is filled to its least load first, as if those places earned a
    // premium; there is no other way to reach the least load of all.
    flow.fill(&mut supply);
    for (free, size) in flow.free.iter_mut().zip(&size) {
        *free += size * (most - least);
    }
    flow.fill(&mut supply);

    let load: Vec<usize> =
        (0..classes).map(|class| flow.seats.iter().map(|row| row[class]).sum()).collect();
    let bounds: Vec<(usize, usize)> = size.iter().map(|size| (size * least, size * most)).collect();
    let price = flow.prices(&load, &bounds);
    let allowed = problem.numa.iter().map(|row| {
        let net = || row.iter().zip(&price).map(|(&cost, price)| cost as i64 + price);
        let cheapest = net().min();
        net().map(|cost| Some(cost) == cheapest).collect()
    });
    Some(NumaOptimal {
        allowed: allowed.collect(),
        load: bounds
            .iter()
            .zip(&price)
            .map(|(&(least, most), price)| match price {
                1.. => (most, most),
                0 => (least, most),
                _ => (least, least),
            })
            .collect(),
        seats: flow.seats,
    })
}

/// Ranks seated so far.
struct Flow<'p> {
    numa: &'p [Vec<u64>],
    /// Ranks of each row in each class.
    seats: Vec<Vec<usize>>,
    /// Places left in each class.
    free: Vec<usize>,
}

/// How a class was reached: the class before and the row of the rank that moves
/// on from there, or nothing if the new rank itself takes a seat here.
type Step = Option<(usize, usize)>;

impl Flow<'_> {
    /// Seats ranks while there are places, each row's by the cheapest path: into a
    /// class, from which a rank moves on into another one, and so on until
    /// a class has a place.
    fn fill(&mut self, supply: &mut [usize]) {
        for (row, supply) in supply.iter_mut().enumerate() {
            while *supply > 0 && self.free.iter().any(|&free| free > 0) {
                let mut dist: Vec<i64> = self.numa[row].iter().map(|&cost| cost as i64).collect();
                let mut from: Vec<Step> = vec![None; dist.len()];
                self.relax(&mut dist, &mut from);
                let free = (0..dist.len()).filter(|&class| self.free[class] > 0);
                let Some(end) = free.min_by_key(|&class| dist[class]) else { break };
                *supply -= self.push(row, *supply, end, &from);
            }
        }
    }

    /// Moves as many ranks as the path to `end` carries, and returns how many.
    fn push(&mut self, row: usize, supply: usize, end: usize, from: &[Step]) -> usize {
        let path = || {
            std::iter::successors(Some(end), |&class| from[class].map(|(before, _)| before))
                .map(|class| (class, from[class]))
        };
        let mut amount = supply.min(self.free[end]);
        for (_, step) in path() {
            if let Some((before, moving)) = step {
                amount = amount.min(self.seats[moving][before]);
            }
        }
        self.free[end] -= amount;
        let path: Vec<_> = path().collect();
        for (class, step) in path {
            match step {
                Some((before, moving)) => {
                    self.seats[moving][before] -= amount;
                    self.seats[moving][class] += amount;
                }
                None => self.seats[row][class] += amount,
            }
        }
        amount
    }

    /// Shortest distances (Bellman-Ford) over the moves of seated ranks between
    /// classes. There is no negative cycle, because the ranks are seated at the
    /// smallest cost, so it ends.
    fn relax(&self, dist: &mut [i64], from: &mut [Step]) {
        let mut changed = true;
        while changed {
            changed = false;
            for (row, (seats, numa)) in self.seats.iter().zip(self.numa).enumerate() {
                for class in (0..dist.len()).filter(|&class| seats[class] > 0) {
                    let base = dist[class] - numa[class] as i64;
                    for to in 0..dist.len() {
                        let through = base + numa[to] as i64;
                        if through < dist[to] {
                            dist[to] = through;
                            from[to] = Some((class, row));
                            changed = true;
                        }
                    }
                }
            }
        }
    }

    /// What a place in each class is worth, when all ranks are seated.
    fn prices(&self, load: &[usize], bounds: &[(usize, usize)]) -> Vec<i64> {
        let mut dist = vec![0; load.len()];
        let mut from = vec![None; load.len()];
        // A place that is left joins the classes: a rank may leave one that is
        // not at its least load for one that is not full.
        let mut outside = 0;
        loop {
            self.relax(&mut dist, &mut from);
            let before = outside;
            for (class, &(_, most)) in bounds.iter().enumerate() {
                if load[class] < most {
                    outside = outside.min(dist[class]);
                }
            }
            let mut changed = outside != before;
            for (class, &(least, _)) in bounds.iter().enumerate() {
                if load[class] > least && dist[class] > outside {
                    dist[class] = outside;
                    changed = true;
                }
            }
            if !changed {
                return dist.iter().map(|dist| outside - dist).collect();
            }
        }
    }
}
