//! A list of devices in memory that several processes share: one of them writes it, once,
//! and the others read it.
//!
//! Nothing in that memory is trusted. A list is taken only if it was made for the same
//! problem, is whole by its checksum, and is one that a plan can have; the writer may have
//! been killed at any point, and whoever does not find a list in time makes its own.

use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use super::cost::Cost;

/// The words in front of the list.
const STATE: usize = 0;
const KEY: usize = 1;
const COUNT: usize = 2;
const CHECKSUM: usize = 3;
const COSTS: usize = 4;
const LIST: usize = 8;

/// What `STATE` is: zero at first, then one of these.
const CLAIMED: u64 = 1;
const WRITTEN: u64 = 2;

/// Devices in a word.
const IN_WORD: usize = 4;
const BITS: usize = 16;

/// How often a reader looks again, at first each time after twice as long: 2 s in all, if
/// the writer has been killed. With hundreds of tasks on a few CPUs the writer gets but a
/// small part of one, and readers that give up to make their own plans take the rest of it.
const LOOKS: u32 = 70;
const FIRST_WAIT: Duration = Duration::from_micros(250);
/// As often the wait is doubled, to 32 ms.
const DOUBLED: u32 = 7;

/// A list and its costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    pub list: Vec<usize>,
    pub cost: Cost,
    pub naive: Cost,
}

/// What a list must be.
pub(super) struct Expected {
    /// A number that differs for different problems.
    pub key: u64,
    pub count: usize,
    pub devices: usize,
}

/// What a process finds.
pub(super) enum Found {
    Written(Written),
    /// Nothing, and it is up to this process to write.
    Claimed,
    /// Nothing that is of use.
    Nothing,
}

#[derive(Debug)]
pub(super) struct SharedList {
    words: &'static [AtomicU64],
}

impl SharedList {
    /// How many words a list of so many devices needs.
    pub fn words(count: usize) -> usize {
        LIST + count.div_ceil(IN_WORD)
    }

    /// In this memory; `None` where it is too small.
    pub fn over(words: &'static [AtomicU64]) -> Option<SharedList> {
        (words.len() > LIST).then_some(SharedList { words })
    }

    /// Reads the list, or has this process write it. Where another process is at it,
    /// waits a short time, if it may.
    pub fn find(&self, expected: &Expected, may_wait: bool) -> Found {
        let state = self.word(STATE);
        let claim = || state.compare_exchange(0, CLAIMED, Ordering::Relaxed, Ordering::Relaxed);
        if SharedList::words(expected.count) <= self.words.len() && claim().is_ok() {
            return Found::Claimed;
        }
        for look in 0..LOOKS {
            match state.load(Ordering::Acquire) {
                WRITTEN => return self.read(expected).map_or(Found::Nothing, Found::Written),
                CLAIMED if may_wait => sleep(FIRST_WAIT * (1 << look.min(DOUBLED))),
                _ => return Found::Nothing,
            }
        }
        Found::Nothing
    }

    /// Writes the list: only for who has claimed it.
    pub fn write(&self, key: u64, written: &Written) {
        let set = |at: usize, value: u64| {
            if let Some(word) = self.words.get(at) {
                word.store(value, Ordering::Relaxed);
            }
        };
        set(KEY, key);
        set(COUNT, written.list.len() as u64);
        for (at, cost) in numbers(written).into_iter().enumerate() {
            set(COSTS + at, cost);
        }
        for (at, devices) in written.list.chunks(IN_WORD).enumerate() {
            let number =
                devices.iter().enumerate().map(|(at, device)| (*device as u64) << (at * BITS));
            set(LIST + at, number.sum());
        }
        set(CHECKSUM, self.checksum(written.list.len()));
        self.word(STATE).store(WRITTEN, Ordering::Release);
    }

    fn read(&self, expected: &Expected) -> Option<Written> {
        let get = |at: usize| self.words.get(at).map_or(0, |word| word.load(Ordering::Relaxed));
        let Expected { key, count, devices } = *expected;
        let is_it = get(KEY) == key
            && get(COUNT) == count as u64
            && SharedList::words(count) <= self.words.len()
            && get(CHECKSUM) == self.checksum(count);
        if !is_it {
            return None;
        }
        let device = |at: usize| {
            let number = get(LIST + at / IN_WORD) >> (at % IN_WORD * BITS);
            (number & ((1 << BITS) - 1)) as usize
        };
        let list: Vec<usize> = (0..count).map(device).collect();
        let mut load = vec![0; devices];
        for device in &list {
            *load.get_mut(*device)? += 1;
        }
        let (least, most) = (count / devices, count.div_ceil(devices));
        let cost = |at: usize| Cost { numa: get(COSTS + at), links: get(COSTS + at + 1) };
        let is_even = load.iter().all(|load| (least..=most).contains(load));
        is_even.then(|| Written { list, cost: cost(0), naive: cost(2) })
    }

    /// Of all words but the state and itself.
    fn checksum(&self, count: usize) -> u64 {
        let mut hasher = DefaultHasher::new();
        let words = self.words.iter().take(SharedList::words(count));
        for (_, word) in words.enumerate().filter(|(at, _)| ![STATE, CHECKSUM].contains(at)) {
            hasher.write_u64(word.load(Ordering::Relaxed));
        }
        hasher.finish()
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // There are more than LIST words.
        &self.words[at]
    }
}

fn numbers(written: &Written) -> [u64; 4] {
    let Written { cost, naive, .. } = written;
    [cost.numa, cost.links, naive.numa, naive.links]
}
