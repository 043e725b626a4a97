//! Sets of CPU numbers, as the kernel and Slurm write them.

use std::fmt;
use std::str::FromStr;

use fixedbitset::FixedBitSet;
use serde::{Deserialize, Serialize};

/// The highest CPU number that a set may hold. Linux itself stops at 8192
/// (`CONFIG_NR_CPUS`, arch/x86/Kconfig); the limit keeps a mistyped number from
/// taking gigabytes.
pub const MAX_CPU: usize = 65_535;

/// A set of CPU numbers (OS numbers, as in /proc/cpuinfo and sched_setaffinity(2)).
///
/// Text form is the kernel's list format, `0-3,8` (Documentation/admin-guide/
/// cputopology.rst); the empty set is the empty text.
///
/// ```
/// use gpubind_core::node::IdSet;
/// let cpus: IdSet = "0-2,8".parse().unwrap();
/// assert_eq!(cpus.count(), 4);
/// assert_eq!(cpus.to_string(), "0-2,8");
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IdSet(FixedBitSet);

/// Why a text is no CPU set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdSetError {
    /// A part that is neither a number nor a range of numbers.
    #[error("`{0}` is not a CPU number or a range like 0-15")]
    Part(String),
    /// A range whose end is below its start.
    #[error("the CPU range `{0}` runs backwards")]
    Backwards(String),
    /// A mask with something else than hexadecimal digits.
    #[error("`{0}` is not a hexadecimal CPU mask")]
    Mask(String),
    /// A CPU number beyond [`MAX_CPU`].
    #[error("CPU {0} is beyond the highest number that a machine can have ({MAX_CPU})")]
    TooHigh(String),
}

impl IdSet {
    /// Number of CPUs in the set.
    pub fn count(&self) -> usize {
        self.0.count_ones(..)
    }

    /// Whether there is no CPU in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_clear()
    }

    /// Whether this CPU is in the set.
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.contains(cpu)
    }

    /// The CPUs in rising order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.ones()
    }

    /// How many CPUs are in both sets.
    pub fn common(&self, other: &IdSet) -> usize {
        self.0.intersection_count(&other.0)
    }

    /// The CPUs that are in both sets.
    pub fn intersection(&self, other: &IdSet) -> IdSet {
        self.0.intersection(&other.0).collect()
    }

    /// The numbers of the bits that are set, as the kernel and NVML write masks: word by
    /// word, the lowest bit first.
    pub fn from_words(words: impl IntoIterator<Item = u64>) -> IdSet {
        let bits = u64::BITS as usize;
        let mut set = FixedBitSet::new();
        for (at, mut word) in words.into_iter().enumerate() {
            // The length ends at the highest CPU, so that equal sets compare equal.
            if word != 0 {
                set.grow((at + 1) * bits - word.leading_zeros() as usize);
            }
            while word != 0 {
                set.insert(at * bits + word.trailing_zeros() as usize);
                word &= word - 1;
            }
        }
        IdSet(set)
    }

    /// Reads a hexadecimal mask as Slurm writes it in SLURM_CPU_BIND_LIST: bit
    /// *n* is CPU *n*, with or without a leading `0x`, in either case.
    pub fn from_mask(text: &str) -> Result<IdSet, IdSetError> {
        let lower = text.trim().to_ascii_lowercase();
        let digits = lower.strip_prefix("0x").unwrap_or(&lower);
        if digits.is_empty() {
            return Err(IdSetError::Mask(text.to_owned()));
        }
        let mut cpus = Vec::new();
        for (position, digit) in digits.chars().rev().enumerate() {
            let bits = digit.to_digit(16).ok_or_else(|| IdSetError::Mask(text.to_owned()))?;
            for bit in (0..4).filter(|bit| bits & (1 << bit) != 0) {
                let cpu = position * 4 + bit;
                if cpu > MAX_CPU {
                    return Err(IdSetError::TooHigh(cpu.to_string()));
                }
                cpus.push(cpu);
            }
        }
        Ok(cpus.into_iter().collect())
    }
}

impl FromIterator<usize> for IdSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        // The length ends at the highest CPU, so that equal sets compare equal.
        IdSet(cpus.into_iter().collect())
    }
}

impl FromStr for IdSet {
    type Err = IdSetError;

    fn from_str(text: &str) -> Result<Self, IdSetError> {
        let number = |part: &str| -> Result<usize, IdSetError> {
            if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
                return Err(IdSetError::Part(part.to_owned()));
            }
            match part.parse() {
                Ok(cpu) if cpu <= MAX_CPU => Ok(cpu),
                _ => Err(IdSetError::TooHigh(part.to_owned())),
            }
        };
        let mut cpus = Vec::new();
        for part in text.trim().split(',').map(str::trim) {
            if part.is_empty() && text.trim().is_empty() {
                break;
            }
            match part.split_once('-') {
                None => cpus.push(number(part)?),
                Some((first, last)) => {
                    let (first, last) = (number(first.trim())?, number(last.trim())?);
                    if last < first {
                        return Err(IdSetError::Backwards(part.to_owned()));
                    }
                    cpus.extend(first..=last);
                }
            }
        }
        Ok(cpus.into_iter().collect())
    }
}

impl TryFrom<String> for IdSet {
    type Error = IdSetError;

    fn try_from(text: String) -> Result<Self, IdSetError> {
        text.parse()
    }
}

impl From<IdSet> for String {
    fn from(cpus: IdSet) -> String {
        cpus.to_string()
    }
}

impl fmt::Display for IdSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for IdSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdSet({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_back_as_they_are_written() {
        for text in ["", "0", "0-3", "0-2,8", "48-63,176-191", "1,3,5"] {
            let cpus: IdSet = text.parse().unwrap();
            assert_eq!(cpus.to_string(), text);
        }
        assert_eq!("1-1".parse::<IdSet>().unwrap().to_string(), "1");
        assert_eq!(" 3, 1-2 ".parse::<IdSet>().unwrap().to_string(), "1-3");
    }

    #[test]
    fn bad_lists_say_which_part_is_wrong() {
        assert_eq!("0,x".parse::<IdSet>(), Err(IdSetError::Part("x".into())));
        assert_eq!("0,,1".parse::<IdSet>(), Err(IdSetError::Part("".into())));
        assert_eq!("-1".parse::<IdSet>(), Err(IdSetError::Part("".into())));
        assert_eq!("5-3".parse::<IdSet>(), Err(IdSetError::Backwards("5-3".into())));
        let far = "99999999999999999999";
        assert_eq!(far.parse::<IdSet>(), Err(IdSetError::TooHigh(far.into())));
    }

    #[test]
    fn masks_are_read_in_all_of_slurms_spellings() {
        for text in ["0x0000F1", "f1", "F1", "0xf1"] {
            assert_eq!(IdSet::from_mask(text).unwrap().to_string(), "0,4-7");
        }
        assert!(IdSet::from_mask("0x0").unwrap().is_empty());
        for text in ["", "0x", "xyz", "0x-1"] {
            assert_eq!(IdSet::from_mask(text), Err(IdSetError::Mask(text.into())));
        }
    }

    #[test]
    fn equal_sets_are_equal_however_they_came_about() {
        let wide: IdSet = "0-200".parse().unwrap();
        let small: IdSet = "0-3".parse().unwrap();
        assert_eq!(wide.intersection(&small), small);
        assert_eq!(wide.common(&small), 4);
        assert_eq!(IdSet::from_mask("0x00000000000f").unwrap(), small);
        assert_eq!(IdSet::from_words([15, 0, 0]), small);
        assert_eq!(IdSet::from_words([0, 1 << 63 | 2]).to_string(), "65,127");
        assert_eq!(IdSet::from_words([0, 0]), IdSet::default());
    }
}
