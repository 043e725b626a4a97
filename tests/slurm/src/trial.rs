//! What a test is here: its name, the kinds of cluster that it runs on, what it does.

use crate::cluster::{Cluster, Kind};

/// One test.
#[derive(Clone, Copy)]
pub struct Test {
    /// The function's name.
    pub name: &'static str,
    /// It runs once on a cluster of each.
    pub kinds: &'static [Kind],
    pub body: fn(&Cluster),
}

/// A table of tests from their functions: `[KIND, …]: function, …;` and so on.
macro_rules! tests {
    ($($kinds:tt: $($body:ident),+;)*) => {
        &[$($($crate::trial::Test {
            name: stringify!($body),
            kinds: &$kinds,
            body: $body,
        },)+)*]
    };
}

pub(crate) use tests;
