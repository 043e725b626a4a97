//! The plugin's dynamic symbols: what it shows to Slurm, and what it needs of it.
//!
//! One binary serves all releases, so it may need only what each of them has; the
//! oldest that the suite runs on decides. Slurm's programs export all that they
//! have, so any other name that the plugin showed could be taken for one of theirs.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use object::{Object, ObjectSymbol};

use crate::cluster::{Cluster, EMPTY};
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [EMPTY]:
        the_plugin_shows_only_spanks_symbols,
        the_plugin_needs_only_what_is_there,
        a_slurm_of_no_known_release_runs_without_the_plugin,
        the_shim_needs_little_and_shows_nothing;
};

/// The programs that load the plugin.
const PROGRAMS: [&str; 5] = ["srun", "sbatch", "salloc", "slurmd", "slurmstepd"];

const PLUGIN: &str = "spank_gpubind.so";

const SHIM: &str = "libgpubind_worker.so";

fn the_plugin_shows_only_spanks_symbols(cluster: &Cluster) {
    let (shown, _) = symbols(&cluster.stage().join(PLUGIN));
    let hooks = ["init", "init_post_opt", "task_init", "task_post_fork"];
    let hooks = hooks.map(|hook| format!("slurm_spank_{hook}"));
    let words = ["plugin_name", "plugin_type", "plugin_version"].map(str::to_owned);
    assert_eq!(shown, hooks.into_iter().chain(words).collect());
}

fn the_plugin_needs_only_what_is_there(cluster: &Cluster) {
    let plugin = cluster.stage().join(PLUGIN);
    let (_, needed) = symbols(&plugin);
    assert!(needed.iter().any(|name| name.starts_with("spank_")), "{needed:?}");
    // What the plugin itself is linked to, all but Slurm, is loaded with it.
    let own = shown_by(cluster, &libraries(cluster, plugin.to_str().unwrap()));
    for program in PROGRAMS {
        let found = cluster.run(&["sh", "-c", &format!("command -v {program}")]);
        let file = found.stdout.trim();
        assert!(!file.is_empty(), "no {program}");
        let mut files = libraries(cluster, file);
        files.push(file.to_owned());
        let there = shown_by(cluster, &files);
        let lacks: Vec<_> =
            needed.iter().filter(|name| !own.contains(*name) && !there.contains(*name)).collect();
        assert_eq!(lacks, [""; 0], "{program} lacks what the plugin needs");
    }
}

/// It is loaded into programs of all kinds, in containers too.
fn the_shim_needs_little_and_shows_nothing(cluster: &Cluster) {
    let file = cluster.stage().join(SHIM);
    let (shown, needed) = symbols(&file);
    assert_eq!(shown, BTreeSet::new(), "a program could take it for another's");
    // Of any C library: no threads, no locks, no malloc, no streams. _exit and write are for a
    // worker beyond the number of devices, the affinity for cpus=local.
    let allowed = [
        "_exit",
        "bcmp",
        "environ",
        "getpid",
        "memcpy",
        "memmove",
        "memset",
        "mmap",
        "mmap64",
        "program_invocation_short_name",
        "sched_getaffinity",
        "sched_setaffinity",
        "strlen",
        "write",
    ];
    let others: Vec<_> = needed.iter().filter(|name| !allowed.contains(&name.as_str())).collect();
    assert_eq!(others, [""; 0]);
    let libraries = libraries(cluster, file.to_str().unwrap());
    let known = |file: &String| file.contains("/libc.so.6") || file.contains("/ld-linux");
    assert!(libraries.iter().all(known), "{libraries:?}");
    let size = std::fs::metadata(&file).unwrap().len();
    assert!(size < 100_000, "{size} bytes");
}

/// An srun whose number is no release's: Slurm itself then finds that the plugin does
/// not fit, says so, and goes on, since the plugin is optional.
fn a_slurm_of_no_known_release_runs_without_the_plugin(cluster: &Cluster) {
    let library = cluster.folder().join("unknown-release.so");
    let source = library.with_extension("c");
    std::fs::write(&source, "long slurm_api_version(void) { return 7 << 16; }\n").unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    assert!(cc.status().unwrap().success());
    let preload = [("LD_PRELOAD", library.to_str().unwrap())];

    let help = cluster.run_with(&preload, &["srun", "--help"]);
    assert!(!help.stdout.contains("--gpubind"), "the plugin was loaded all the same");
    let ran = cluster.run_with(&preload, &["srun", "-N1", "-n1", "hostname"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.stdout.lines().count(), 1);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(lines.len() <= 2, "{lines:?}");
    assert!(lines.iter().all(|line| line.contains("lugin")), "{lines:?}");
    // With its own number the same srun has it.
    assert!(cluster.run(&["srun", "--help"]).stdout.contains("--gpubind"));
}

/// The libraries that a program or library is loaded with, in the cluster's system.
fn libraries(cluster: &Cluster, file: &str) -> Vec<String> {
    let ran = cluster.run(&["ldd", file]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let paths = ran.stdout.split_whitespace().filter(|word| word.starts_with('/'));
    paths.map(str::to_owned).collect()
}

fn shown_by(cluster: &Cluster, files: &[String]) -> BTreeSet<String> {
    files.iter().flat_map(|file| symbols(&cluster.system_file(file)).0).collect()
}

/// The dynamic symbols that a file defines, and those that it cannot do without.
fn symbols(file: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
    let bytes = std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let elf = object::File::parse(&*bytes).unwrap();
    let (mut shown, mut needed) = (BTreeSet::new(), BTreeSet::new());
    for symbol in elf.dynamic_symbols() {
        let name = symbol.name().unwrap().to_owned();
        // Not is_definition(): it leaves out libc's indirect functions.
        if !symbol.is_undefined() {
            shown.insert(name);
        } else if !symbol.is_weak() && !name.is_empty() {
            needed.insert(name);
        }
    }
    (shown, needed)
}
