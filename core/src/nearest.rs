//! What a mistyped word may have meant.

/// The nearest of some names, if it is near enough to be what was meant.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // As clap has it for its options.
    const NEAR: f64 = 0.7;
    let likeness = |candidate: &str| strsim::jaro(name, candidate);
    let candidates = names.map(|candidate| (likeness(candidate), candidate));
    let best = candidates.max_by(|one, other| one.0.total_cmp(&other.0));
    best.filter(|(likeness, _)| *likeness > NEAR).map(|(_, candidate)| candidate)
}
