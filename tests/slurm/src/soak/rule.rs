//! What the tasks of a step may have.

/// Of each step.
pub const TASKS: usize = 8;

/// What a task is allowed to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// What Slurm gives without gpubind: all devices of the step.
    Plain,
    /// What Slurm's own binding gives: one device at least.
    Slurm,
    /// One device.
    Own,
    /// All devices, entry SLURM_LOCALID its own.
    Ordered,
    /// All devices, its own first.
    First,
}

impl Rule {
    const NAMES: [(&'static str, Rule); 5] = [
        ("plain", Rule::Plain),
        ("slurm", Rule::Slurm),
        ("own", Rule::Own),
        ("ordered", Rule::Ordered),
        ("first", Rule::First),
    ];

    pub fn named(text: &str) -> Rule {
        Rule::NAMES.iter().find(|(name, _)| *name == text).expect("a rule").1
    }

    pub fn name(self) -> &'static str {
        Rule::NAMES.iter().find(|(_, rule)| *rule == self).map_or("", |(name, _)| name)
    }

    /// Whether gpubind is to set anything.
    pub fn is_bound(self) -> bool {
        !matches!(self, Rule::Plain | Rule::Slurm)
    }
}
