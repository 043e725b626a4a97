//! The plugin's hooks without Slurm: what they cost, and whether they leak. And how large
//! its file is.
//!
//! Instructions and system calls do not depend on what else the machine does, so they are
//! compared with tests/hooks/baseline.csv: a change that costs more fails. `--write`, in
//! front of all other arguments, writes that file anew; `--steps N` sets how many steps
//! run under memcheck.
//!
//! target/stage must be built, and valgrind and strace installed; scripts/test and
//! scripts/counts see to that.

// Tests end by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod baseline;
mod counts;
mod machine;
mod memory;
mod scenario;
mod size;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// Steps under memcheck, where `--steps` does not say otherwise.
const STEPS: u32 = 3;

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().collect();
    if words.get(1).is_some_and(|word| word == "--write") {
        return counts::write();
    }
    let mut steps = STEPS;
    if words.get(1).is_some_and(|word| word == "--steps") {
        steps = words.get(2).and_then(|word| word.parse().ok()).expect("--steps needs a number");
        words.drain(1..3);
    }
    let arguments = Arguments::from_iter(words);
    let trials: Vec<Trial> =
        [counts::trials(), memory::trials(steps), size::trials()].into_iter().flatten().collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
