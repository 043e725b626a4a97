//! Which Slurm release a command belongs to.

use gpubind_core::plugin_version;

/// Major and minor release in what `slurmd -V` or `srun --version` prints:
/// `slurm 24.11.5`, or `slurm-wlm 22.05.8` by Debian.
pub fn release(printed: &str) -> Option<(u32, u32)> {
    let word =
        printed.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let mut numbers = word.split(['.', '-']).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// The version word of a release, if it is one that the rule of [`plugin_version`]
/// describes.
pub fn release_version(major: u32, minor: u32) -> Option<u32> {
    // 255.11 is the last release that the word has room for.
    let words = (38..=512).filter_map(|number| plugin_version(number << 16));
    words.into_iter().find(|word| (word >> 16, word >> 8 & 0xff) == (major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_read_and_has_the_word_of_its_number() {
        assert_eq!(release("slurm-wlm 22.05.8\n"), Some((22, 5)));
        assert_eq!(release("slurm 24.11.5-2"), Some((24, 11)));
        assert_eq!(release("slurm 26.05-0rc1"), Some((26, 5)));
        assert_eq!(release("slurm"), None);
        assert_eq!(release_version(22, 5), Some(0x16_05_00));
        assert_eq!(release_version(26, 11), Some(0x1a_0b_00));
        for (major, minor) in [(21, 8), (22, 11), (27, 8)] {
            assert_eq!(release_version(major, minor), None, "{major}.{minor}");
        }
    }
}
