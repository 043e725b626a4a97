//! How large the plugin's file is, as it is shipped.

use libtest_mimic::{Failed, Trial};

use crate::machine::stage;

/// A few per cent more than it has. What it is made of: docs/performance.md.
const MOST: u64 = 1_120_000;

pub fn trials() -> Vec<Trial> {
    let test = || {
        let size = std::fs::metadata(stage().join("spank_gpubind.so"))?.len();
        match size <= MOST {
            true => Ok(()),
            false => Err(Failed::from(format!("the plugin has {size} bytes, more than {MOST}"))),
        }
    };
    vec![Trial::test("size::plugin", test)]
}
