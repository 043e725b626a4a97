//! Wording that several messages share.

/// A number of things: `1 GPU`, `3 GPUs`.
pub fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
