//! Sets of CPUs without memory of their own, as sched_setaffinity(2) takes them.

/// Longest text of all parts in a record; Linux lets a variable have 128 KiB.
pub const MOST_TEXT: usize = 8192;

const BITS: usize = u64::BITS as usize;
/// As many CPUs as the C library's `cpu_set_t` has.
const WORDS: usize = 1024 / BITS;

/// A set of the CPUs 0 to 1023.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuMask(pub [u64; WORDS]);

impl CpuMask {
    /// Reads a list as the kernel writes it, such as `0-3,8`; `None` for the empty one,
    /// and for anything else.
    pub fn read(list: &[u8]) -> Option<CpuMask> {
        let mut mask = CpuMask::default();
        for range in list.split(|byte| *byte == b',') {
            let mut ends = range.split(|byte| *byte == b'-');
            let first = cpu(ends.next()?)?;
            let last = match ends.next() {
                Some(last) => cpu(last)?,
                None => first,
            };
            if last < first || ends.next().is_some() {
                return None;
            }
            for cpu in first..=last {
                *mask.0.get_mut(cpu / BITS)? |= 1 << (cpu % BITS);
            }
        }
        Some(mask)
    }

    /// Whether all of these are among the others, and not all of the others are among these.
    pub fn is_less_than(&self, others: &CpuMask) -> bool {
        let is_within = self.0.iter().zip(&others.0).all(|(own, other)| own & !other == 0);
        is_within && self != others
    }
}

fn cpu(digits: &[u8]) -> Option<usize> {
    usize::try_from(crate::text::number(digits)?).ok().filter(|cpu| *cpu < WORDS * BITS)
}
