//! End-to-end tests: a stock slurmctld, slurmd and srun with the plugin inside.
//!
//! Each test names the kinds of cluster that it runs on; a cluster is started
//! when the first test of its kind begins and stopped after the last. Tests of
//! one cluster run one after the other: they hold GPUs, and look at logs. Tests with
//! PyTorch and Open MPI (torch.rs) are for trixie and forky; on the host's Slurm
//! there are none.
//! `scripts/test` builds what they need; `cargo run -p slurm-tests -- NAME` runs
//! some of them with what was built last. `--slurm RELEASE` before all other
//! arguments takes another Slurm than this machine's, see scripts/cluster --help.

// Tests end by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod allocation;
mod check;
mod cluster;
mod command_lines;
mod containers;
mod cpu_sets;
mod faults;
mod gres;
mod gres_order;
mod hostile;
mod kinds_of_steps;
mod launch;
mod load;
mod local_cpus;
mod modes;
mod never_worse;
mod node;
mod processes;
mod pyxis;
mod quiet;
mod requests;
mod scripts;
mod site;
mod soak;
mod symbols;
mod tools;
mod torch;
mod trial;
mod trouble;
mod uuids;
mod workers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;

use cluster::{Cluster, HOST, Kind, PLAIN};
use libtest_mimic::{Arguments, Failed, Trial};
use trial::Test;

/// The cluster that runs now; the next kind's test stops it.
static RUNNING: Mutex<Option<Cluster>> = Mutex::new(None);

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().collect();
    match words.get(1).map(String::as_str) {
        Some(soak::task::WORD) => {
            soak::task::main(&words[2..]);
            return ExitCode::SUCCESS;
        }
        Some("soak") => return soak::main(&words[2..]),
        _ => {}
    }
    let slurm: &'static str = slurm_of(&mut words).leak();
    let mut arguments = Arguments::from_iter(words);
    // Clusters are started in turn, so tests run in turn.
    arguments.test_threads = Some(1);
    let tests = [
        symbols::TESTS,
        requests::TESTS,
        command_lines::TESTS,
        modes::TESTS,
        never_worse::TESTS,
        scripts::TESTS,
        kinds_of_steps::TESTS,
        allocation::TESTS,
        cpu_sets::TESTS,
        local_cpus::TESTS,
        gres::TESTS,
        gres_order::TESTS,
        uuids::TESTS,
        tools::TESTS,
        trouble::TESTS,
        faults::TESTS,
        hostile::TESTS,
        processes::TESTS,
        load::TESTS,
        soak::TESTS,
        check::TESTS,
        site::TESTS,
        launch::TESTS,
        quiet::TESTS,
        workers::TESTS,
        pyxis::TESTS,
        containers::TESTS,
        torch::TESTS,
    ]
    .concat();
    let mut kinds: Vec<Kind> = Vec::new();
    for kind in tests.iter().flat_map(|test| test.kinds) {
        if kind.can_run_on(slurm) && !kinds.contains(kind) {
            kinds.push(*kind);
        }
    }
    // Comes last: what steps find there is compared with what they found elsewhere.
    kinds.sort_by_key(|kind| *kind == PLAIN);
    let mut trials = Vec::new();
    for kind in kinds {
        for Test { name, body, .. } in tests.iter().filter(|test| test.kinds.contains(&kind)) {
            let body = *body;
            let prefix = if slurm == HOST { String::new() } else { format!("{slurm}::") };
            let name = format!("{prefix}{}::{name}", kind.name);
            trials.push(Trial::test(name, move || run(kind, slurm, body)));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    *RUNNING.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
    conclusion.exit_code()
}

/// Takes `--slurm RELEASE` off the front of the command line.
fn slurm_of(words: &mut Vec<String>) -> String {
    if words.len() > 2 && words[1] == "--slurm" {
        words.remove(1);
        return words.remove(1);
    }
    HOST.to_owned()
}

/// Runs one test on a cluster of its kind.
fn run(kind: Kind, slurm: &str, body: fn(&Cluster)) -> Result<(), Failed> {
    let mut running = RUNNING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        if running.as_ref().is_none_or(|cluster| cluster.kind != kind) {
            // The old one goes first: fewer daemons side by side.
            *running = None;
            *running = Some(Cluster::start(kind, slurm));
        }
        if let Some(cluster) = running.as_ref() {
            body(cluster);
        }
    }));
    outcome.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Failed::from(text.unwrap_or_else(|| "the test panicked".to_owned()))
    })
}
