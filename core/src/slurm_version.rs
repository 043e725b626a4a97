//! Slurm's releases: which one a process belongs to, and the version word that lets
//! one plugin serve them all.

/// A release of Slurm, such as 24.11.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlurmRelease {
    year: u32,
    month: u32,
}

impl SlurmRelease {
    /// The release of this year and month.
    pub const fn new(year: u32, month: u32) -> SlurmRelease {
        SlurmRelease { year, month }
    }

    /// The release whose `slurm_api_version()` gives this number; `None` before 22.05.
    ///
    /// The number's upper half rises by one per release (RELEASE notes, META file):
    /// 38 = 22.05, 39 = 23.02, 40 = 23.11, 41 = 24.05, and from there two a year, in
    /// May and November.
    pub fn from_api(api: u32) -> Option<SlurmRelease> {
        let (year, month) = match api >> 16 {
            0..=37 => return None,
            38 => (22, 5),
            39 => (23, 2),
            40 => (23, 11),
            number => {
                let half_years = number - 41;
                (24 + half_years / 2, if half_years % 2 == 0 { 5 } else { 11 })
            }
        };
        // Beyond a byte the version word has no room: not a release that the rule describes.
        (year <= 0xff).then_some(SlurmRelease { year, month })
    }

    /// The word that Slurm compares with its own: a SPANK plugin's `plugin_version`, by
    /// major and minor (src/common/plugin.c, `_verify_syms`): major << 16 | minor << 8.
    fn version_word(self) -> u32 {
        self.year << 16 | self.month << 8
    }
}

/// The version word for the Slurm whose `slurm_api_version()` gives this number.
pub fn plugin_version(api: u32) -> Option<u32> {
    SlurmRelease::from_api(api).map(SlurmRelease::version_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_in_the_order_of_time() {
        let releases: Vec<_> = (38..48).map(|n| SlurmRelease::from_api(n << 16).unwrap()).collect();
        assert!(releases.is_sorted());
        assert_eq!(releases[4], SlurmRelease::new(24, 11));
    }

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
}
