//! The version word that lets one plugin serve every Slurm release.

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
}
