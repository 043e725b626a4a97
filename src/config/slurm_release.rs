//! Which Slurm release a process, or a command, belongs to.

/// The version word that Slurm compares for a plugin, from the number that
/// `slurm_api_version()` gives.
///
/// Slurm compares a SPANK plugin's `plugin_version` with its own by major and
/// minor (src/common/plugin.c, `_verify_syms`): major << 16 | minor << 8. The API
/// number's upper half rises by one per release (RELEASE notes, META file):
/// 38 = 22.05, 39 = 23.02, 40 = 23.11, 41 = 24.05, and from there two a year, in
/// May and November. `None` for releases before 22.05.
pub fn plugin_version(api: u32) -> Option<u32> {
    let (major, minor) = match api >> 16 {
        0..=37 => return None,
        38 => (22, 5),
        39 => (23, 2),
        40 => (23, 11),
        number => {
            let half_years = number - 41;
            (24 + half_years / 2, if half_years % 2 == 0 { 5 } else { 11 })
        }
    };
    // Beyond a byte the word has no room: not a release that the rule describes.
    (major <= 0xff).then_some(major << 16 | minor << 8)
}

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
    fn each_release_has_its_word_and_the_rule_goes_on() {
        for (number, major, minor) in [
            (38, 22, 5),
            (39, 23, 2),
            (40, 23, 11),
            (41, 24, 5),
            (42, 24, 11),
            (43, 25, 5),
            (44, 25, 11),
            (45, 26, 5),
            (46, 26, 11),
            (51, 29, 5),
        ] {
            let word = Some(major << 16 | minor << 8);
            assert_eq!(plugin_version(number << 16 | 7), word, "{number}");
        }
        assert_eq!(plugin_version(38 << 16), Some(0x16_05_00), "as the headers of 22.05 have it");
        for number in [0, 36, 37, 0xffff] {
            assert_eq!(plugin_version(number << 16), None, "{number}");
        }
    }

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
