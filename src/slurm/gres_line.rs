//! One line of gres.conf that lists GPUs.

/// A line of `Name=gpu`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GresLine {
    /// Its number in the file.
    pub number: usize,
    /// `Type=`.
    pub kind: Option<String>,
    /// How many GPUs its files are.
    pub devices: usize,
    /// `Count=` as written.
    pub count: Option<String>,
    /// Whether it has File= and MultipleFiles=.
    pub has_both_files: bool,
}

impl GresLine {
    /// How many GPUs it lists.
    pub fn gpus(&self) -> u64 {
        match self.devices {
            0 => self.count.as_deref().and_then(parse_count).unwrap_or(1),
            devices => devices as u64,
        }
    }
}

/// A number, with K, M, G, T or P behind it (src/common/slurm_protocol_api.c, suffix_mult).
pub(super) fn parse_count(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let power = match text.get(digits.len()..)?.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kib" => 1,
        "m" | "mib" => 2,
        "g" | "gib" => 3,
        "t" | "tib" => 4,
        "p" | "pib" => 5,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1024_u64.checked_pow(power)?)
}
