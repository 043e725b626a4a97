//! What the worker shim adds to the start of a process:
//! `cargo bench -p gpubind-worker`. The program is true(1), which does nothing else.
//!
//! | bench | aim |
//! |---|---|
//! | `without` | what the others are compared with |
//! | `left_alone` | under 100 µs more |
//! | `acted_on` | under 300 µs more |
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use divan::Bencher;

fn main() {
    library();
    divan::main();
}

/// The library as it is shipped, which cargo bench's own profile does not build.
fn library() -> &'static PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--profile", "worker", "-p", "gpubind-worker"]);
        assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
        // TARGET/release/deps/worker-HASH
        let bench = std::env::current_exe().unwrap();
        bench.ancestors().nth(3).unwrap().join("worker/libgpubind_worker.so")
    })
}

/// Starts true(1) with as many variables as a Slurm task has, and waits for its end.
fn start(bencher: Bencher, shim: bool, variables: &[(&str, &str)]) {
    let others = (0..100).map(|number| (format!("SLURM_VARIABLE_{number}"), "some value"));
    let mut command = Command::new("/bin/true");
    command.env_clear().envs(others).env("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7");
    command.envs(variables.iter().copied());
    if shim {
        command.env("LD_PRELOAD", library());
    }
    bencher.bench_local(|| assert!(command.status().unwrap().success()));
}

/// As the plugin arms a task with the process id 1.
const ARMED: (&str, &str) =
    ("GPUBIND_WORKERS", "4;1;virtual;kept;reported;0,1,2,3,4,5,6,7;;0,0,0,0,0,0,0,0");

#[divan::bench(sample_count = 2000)]
fn without(bencher: Bencher) {
    start(bencher, false, &[ARMED]);
}

#[divan::bench(sample_count = 2000)]
fn left_alone(bencher: Bencher) {
    start(bencher, true, &[ARMED]);
}

#[divan::bench(sample_count = 2000)]
fn acted_on(bencher: Bencher) {
    let lists =
        ["GPU_UUID", "GPU_PCI", "GPU_INDEX", "NUMA_NODE"].map(|fact| format!("GPUBIND_{fact}"));
    let mut worker = vec![ARMED, ("LOCAL_RANK", "5"), ("GPUBIND_LOCAL_RANK", "0")];
    worker.extend(lists.iter().map(|name| (name.as_str(), "a,b,c,d,e,f,g,h")));
    start(bencher, true, &worker);
}
