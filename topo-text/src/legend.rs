//! What stands behind the matrix: names of network adapters, and whether the
//! text comes from `topo -mp`.

use std::collections::HashMap;

use super::cells::tokens;
use super::clean::Line;

/// The device names that a NIC legend gives: `NIC0: mlx5_0`, one or several in
/// a line. The first one is taken where a name is there twice.
pub(super) fn nic_names(lines: &[Line]) -> HashMap<String, String> {
    let mut names = HashMap::new();
    for line in lines {
        let words = tokens(&line.text);
        for (at, word) in words.iter().enumerate() {
            let Some((label, glued)) = word.text.split_once(':') else { continue };
            let number = label.strip_prefix("NIC").unwrap_or_default();
            if number.is_empty() || !number.chars().all(|c| c.is_ascii_digit()) {
                continue;
            }
            let next = words.get(at + 1).map(|next| next.text);
            let name = Some(glued).filter(|glued| !glued.is_empty()).or(next);
            if let Some(name) = name {
                names.entry(label.to_owned()).or_insert_with(|| name.to_owned());
            }
        }
    }
    names
}

/// Whether a complete legend of the newer kind (with NODE) leaves out `NV#`:
/// `topo -mp` prints it so, and leaves NVLinks out of the matrix too.
pub(super) fn hides_nvlink(lines: &[Line]) -> bool {
    let explains = |word: &str, meaning: &str| {
        lines.iter().any(|line| {
            let words = tokens(&line.text);
            let words = words.iter().map(|word| word.text).filter(|text| *text != "**");
            let mut words = words.skip_while(|text| text.trim_matches('*') != word);
            words.next().is_some()
                && words.next() == Some("=")
                && (meaning.is_empty() || words.next() == Some(meaning))
        })
    };
    explains("X", "Self") && explains("NODE", "") && explains("PIX", "") && !explains("NV#", "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::lines;

    #[test]
    fn nic_names_are_read_from_one_line_or_many() {
        let text =
            "PIX  = x\nNIC0: rocep177s0f0    NIC1: rocep177s0f1\n  NIC2: mlx5_bond_0\nNIC: x\n";
        let names = nic_names(&lines(text));
        assert_eq!(names.len(), 3);
        assert_eq!(names["NIC1"], "rocep177s0f1");
        assert_eq!(names["NIC2"], "mlx5_bond_0");
    }

    #[test]
    fn only_a_complete_legend_without_nvlink_hides_it() {
        let mp = "  X    = Self\n  NODE = a\n  PIX  = b\n";
        assert!(hides_nvlink(&lines(mp)));
        assert!(!hides_nvlink(&lines(&format!("{mp}  NV#  = c\n"))));
        assert!(!hides_nvlink(&lines("  X   = Self\n  SOC = a\n  PIX = b\n")));
        assert!(!hides_nvlink(&lines("")));
    }
}
