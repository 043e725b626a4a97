//! Memory that a process shares with the children it forks.

use std::ptr::null_mut;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// So many words, all zero, which stay until the process ends; `None` where there is no
/// memory, and for none.
pub fn shared_words(count: usize) -> Option<&'static [AtomicU64]> {
    let bytes = count.checked_mul(size_of::<AtomicU64>()).filter(|bytes| *bytes > 0)?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: new memory at an address that the kernel chooses; nobody else's mapping is
    // touched.
    let memory = unsafe { mmap_anonymous(null_mut(), bytes, access, MapFlags::SHARED) }.ok()?;
    // SAFETY: the mapping is page-aligned, zeroed, that long, and stays until the process
    // ends. Other processes change it only as atomic words.
    Some(unsafe { std::slice::from_raw_parts(memory.cast::<AtomicU64>(), count) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_memory_is_zero_and_none_is_none() {
        let words = shared_words(3).unwrap();
        let all: Vec<u64> =
            words.iter().map(|word| word.load(std::sync::atomic::Ordering::Relaxed)).collect();
        assert_eq!(all, [0; 3]);
        assert!(shared_words(0).is_none());
        assert!(shared_words(usize::MAX).is_none());
    }
}
