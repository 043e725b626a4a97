//! The options of srun, sbatch and salloc in each release, and whether they take a value.
//!
//! Needed to tell Slurm's own arguments from the user program's: getopt_long(3) stops at
//! the first word that is neither an option nor an option's value. The long options are
//! those of `common_options` in src/common/slurm_opt.c, from 22.05 to 26.11; a test on
//! real commands compares them (tests/slurm/src/command_lines.rs). A later release's are
//! taken to be the newest one's.

use super::command::Command;
use crate::SlurmRelease;

/// Whether an option takes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arity {
    /// Never takes the next word: a flag, or a long option's optional value after `=`.
    Flag,
    /// An optional value: the rest of the same word. Of short options only.
    Optional,
    /// Takes a value: the rest of the same word, or else the next word.
    Value,
}

use Arity::{Flag, Value};

/// Options that the same commands have in the same releases.
struct Group {
    commands: u8,
    arity: Arity,
    /// The first release that has them.
    from: SlurmRelease,
    /// The first release that has them no longer.
    before: Option<SlurmRelease>,
    names: &'static [&'static str],
}

const SRUN: u8 = 1;
const SBATCH: u8 = 2;
const SALLOC: u8 = 4;
const ALL: u8 = SRUN | SBATCH | SALLOC;

type Release = (u32, u32);

const fn between(
    from: Release,
    before: Release,
    commands: u8,
    arity: Arity,
    names: &'static [&'static str],
) -> Group {
    let before = Some(SlurmRelease::new(before.0, before.1));
    Group { before, ..since(from, commands, arity, names) }
}

const fn since(from: Release, commands: u8, arity: Arity, names: &'static [&'static str]) -> Group {
    Group { commands, arity, from: SlurmRelease::new(from.0, from.1), before: None, names }
}

const fn until(
    before: Release,
    commands: u8,
    arity: Arity,
    names: &'static [&'static str],
) -> Group {
    between((0, 0), before, commands, arity, names)
}

const fn always(commands: u8, arity: Arity, names: &'static [&'static str]) -> Group {
    since((0, 0), commands, arity, names)
}

/// Slurm's options, and gpubind's own.
static OPTIONS: &[Group] = &[
    always(ALL, Value, &["gpubind"]),
    until((24, 5), ALL, Value, &["power"]),
    always(
        ALL,
        Value,
        &[
            "account",
            "acctg-freq",
            "bb",
            "bbf",
            "begin",
            "chdir",
            "cluster",
            "cluster-constraint",
            "clusters",
            "comment",
            "constraint",
            "container",
            "context",
            "core-spec",
            "cores-per-socket",
            "cpu-freq",
            "cpus-per-gpu",
            "cpus-per-task",
            "deadline",
            "delay-boot",
            "dependency",
            "distribution",
            "exclude",
            "extra-node-info",
            "gpu-bind",
            "gpu-freq",
            "gpus",
            "gpus-per-node",
            "gpus-per-socket",
            "gpus-per-task",
            "gres",
            "gres-flags",
            "hint",
            "job-name",
            "licenses",
            "mail-type",
            "mail-user",
            "mcs-label",
            "mem",
            "mem-bind",
            "mem-per-cpu",
            "mem-per-gpu",
            "mincpus",
            "network",
            "nodefile",
            "nodelist",
            "nodes",
            "ntasks",
            "ntasks-per-core",
            "ntasks-per-gpu",
            "ntasks-per-node",
            "ntasks-per-socket",
            "ntasks-per-tres",
            "partition",
            "prefer",
            "priority",
            "profile",
            "qos",
            "reservation",
            "signal",
            "sockets-per-node",
            "switches",
            "tasks-per-node",
            "thread-spec",
            "threads-per-core",
            "time",
            "time-min",
            "tmp",
            "wckey",
        ],
    ),
    since((23, 2), ALL, Value, &["autocomplete", "container-id", "extra", "tres-per-task"]),
    since((23, 11), ALL, Value, &["tres-bind"]),
    since((24, 5), ALL, Value, &["segment"]),
    since((25, 11), ALL, Value, &["resources"]),
    between((26, 5), (26, 11), ALL, Value, &["container-type"]),
    since((26, 5), ALL, Value, &["mem-update"]),
    since((26, 11), ALL, Value, &["runtime"]),
    always(SBATCH | SALLOC, Value, &["wait-all-nodes"]),
    until((23, 2), SRUN | SALLOC, Value, &["gid", "uid"]),
    always(SRUN | SBATCH, Value, &["error", "export", "input", "open-mode", "output"]),
    until((23, 11), SBATCH, Value, &["export-file"]),
    always(SBATCH, Value, &["array", "batch", "gid", "kill-on-invalid-dep", "uid", "wrap"]),
    since((24, 5), SBATCH, Value, &["export-file"]),
    always(
        SRUN,
        Value,
        &[
            "accel-bind",
            "bcast-exclude",
            "cpu-bind",
            "cpu_bind",
            "epilog",
            "het-group",
            "jobid",
            "mpi",
            "msg-timeout",
            "pack-group",
            "prolog",
            "relative",
            "slurmd-debug",
            "task-epilog",
            "task-prolog",
            "threads",
            "wait",
        ],
    ),
    since((23, 11), SRUN, Value, &["treewidth"]),
    since((26, 5), SRUN, Value, &["ignore-signals"]),
    always(
        ALL,
        Flag,
        &[
            "contiguous",
            "exclusive",
            "help",
            "hold",
            "nice",
            "no-kill",
            "overcommit",
            "oversubscribe",
            "quiet",
            "reboot",
            "spread-job",
            "usage",
            "use-min-nodes",
            "verbose",
            "version",
        ],
    ),
    since((24, 5), ALL, Flag, &["stepmgr"]),
    since((24, 11), ALL, Flag, &["oom-kill-step"]),
    since((25, 11), ALL, Flag, &["consolidate-segments", "spread-segments"]),
    since((24, 5), SBATCH | SALLOC, Flag, &["resv-ports"]),
    always(SRUN | SALLOC, Flag, &["immediate", "x11"]),
    always(SRUN | SBATCH, Flag, &["propagate", "test-only"]),
    until((24, 11), SALLOC, Flag, &["get-user-env"]),
    always(SALLOC, Flag, &["bell", "kill-command", "no-bell", "no-shell"]),
    always(
        SBATCH,
        Flag,
        &["get-user-env", "ignore-pbs", "no-requeue", "parsable", "requeue", "wait"],
    ),
    since((25, 5), SBATCH, Flag, &["external"]),
    always(
        SRUN,
        Flag,
        &[
            "bcast",
            "compress",
            "debugger-test",
            "disable-status",
            "exact",
            "interactive",
            "kill-on-bad-exit",
            "label",
            "multi-prog",
            "no-allocate",
            "overlap",
            "preserve-env",
            "pty",
            "quit-on-interrupt",
            "resv-ports",
            "send-libs",
            "unbuffered",
            "whole",
        ],
    ),
    since((23, 11), SRUN, Flag, &["external-launcher"]),
    since((25, 5), SRUN, Flag, &["wait-for-children"]),
    since((26, 5), SRUN, Flag, &["async", "parsable"]),
];

/// Options of SPANK plugins that are common beside this one.
static PLUGINS_OPTIONS: &[Group] = &[
    // pyxis (args.c).
    always(
        ALL,
        Value,
        &[
            "container-env",
            "container-image",
            "container-mounts",
            "container-name",
            "container-save",
            "container-unshare",
            "container-workdir",
        ],
    ),
    always(
        ALL,
        Flag,
        &[
            "container-entrypoint",
            "container-entrypoint-log",
            "container-mount-home",
            "container-readonly",
            "container-remap-root",
            "container-writable",
            "no-container-entrypoint",
            "no-container-mount-home",
            "no-container-remap-root",
        ],
    ),
];

/// Short options with a value, and those with an optional one, as the commands' getopt
/// strings list them in each release.
fn short_options(command: Command) -> (&'static str, &'static str) {
    match command {
        Command::Srun => ("AbDMCScdmexBGiJLTFwNnopqrtW", "IKk"),
        Command::Sbatch => ("AabDMCScdmexBGiJLFwNnopqt", "k"),
        Command::Salloc => ("AbDMCScdmxBGJLFwNnpqt", "IKk"),
    }
}

/// Whether a short option takes a value.
pub fn short_option(command: Command, letter: char) -> Arity {
    match short_options(command) {
        (values, _) if values.contains(letter) => Value,
        (_, optional) if optional.contains(letter) => Arity::Optional,
        _ => Flag,
    }
}

/// Finds a long option by its name or, as getopt_long(3) does, by a prefix that fits
/// one option only. Gives the full name and the arity; `None` for a name that is in no
/// table, and for a prefix of several options, which the command refuses.
pub fn long(command: Command, release: SlurmRelease, name: &str) -> Option<(&'static str, Arity)> {
    let find = |table| {
        let mut fits =
            options(table, command, release).filter(|(known, _)| known.starts_with(name));
        let exact = fits.clone().find(|(known, _)| *known == name);
        exact.or_else(|| match (fits.next(), fits.next()) {
            (Some(only), None) => Some(only),
            _ => None,
        })
    };
    find(OPTIONS).or_else(|| find(PLUGINS_OPTIONS))
}

/// The long options of a command in a release, without those of other plugins.
pub fn long_options(
    command: Command,
    release: SlurmRelease,
) -> impl Iterator<Item = (&'static str, Arity)> + Clone {
    options(OPTIONS, command, release)
}

fn options(
    table: &'static [Group],
    command: Command,
    release: SlurmRelease,
) -> impl Iterator<Item = (&'static str, Arity)> + Clone {
    let bit = match command {
        Command::Srun => SRUN,
        Command::Sbatch => SBATCH,
        Command::Salloc => SALLOC,
    };
    let has = move |group: &&Group| {
        group.commands & bit != 0
            && group.from <= release
            && group.before.is_none_or(|before| release < before)
    };
    let names = |group: &'static Group| group.names.iter().map(|name| (*name, group.arity));
    table.iter().filter(has).flat_map(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMANDS: [Command; 3] = [Command::Srun, Command::Sbatch, Command::Salloc];
    const RELEASES: [Release; 9] =
        [(22, 5), (23, 2), (23, 11), (24, 5), (24, 11), (25, 5), (25, 11), (26, 5), (26, 11)];

    fn at(command: Command, release: Release, name: &str) -> Option<(&'static str, Arity)> {
        long(command, SlurmRelease::new(release.0, release.1), name)
    }

    #[test]
    fn an_option_is_there_once_in_each_command_and_release() {
        for (command, release) in COMMANDS.iter().flat_map(|c| RELEASES.map(|r| (*c, r))) {
            let release = SlurmRelease::new(release.0, release.1);
            let mut names: Vec<_> = long_options(command, release).map(|(name, _)| name).collect();
            names.extend(options(PLUGINS_OPTIONS, command, release).map(|(name, _)| name));
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{command:?} {release:?}");
            assert!(count > 100 && names.contains(&"gpu-bind") && names.contains(&"gpubind"));
        }
    }

    #[test]
    fn unique_prefixes_are_found_and_others_are_not() {
        let bind = Some(("gpu-bind", Value));
        for release in RELEASES {
            let srun = |name| at(Command::Srun, release, name);
            assert_eq!(srun("gpu-b"), bind);
            assert_eq!(srun("gpu-bind"), bind);
            assert_eq!(srun("gpub"), Some(("gpubind", Value)));
            assert_eq!(srun("gpu"), None);
            assert_eq!(srun("gpus"), Some(("gpus", Value)));
            assert_eq!(srun("no-such-option"), None);
        }
    }

    #[test]
    fn abbreviations_differ_between_commands_and_releases() {
        for release in RELEASES {
            assert_eq!(at(Command::Srun, release, "wait"), Some(("wait", Value)));
            assert_eq!(at(Command::Sbatch, release, "wait"), Some(("wait", Flag)));
            assert_eq!(at(Command::Salloc, release, "wait"), Some(("wait-all-nodes", Value)));
            assert_eq!(at(Command::Salloc, release, "job"), Some(("job-name", Value)));
            assert_eq!(at(Command::Srun, release, "job"), None, "jobid as well");
        }
        assert_eq!(at(Command::Srun, (22, 5), "res"), None);
        assert_eq!(at(Command::Salloc, (22, 5), "res"), Some(("reservation", Value)));
        assert_eq!(at(Command::Salloc, (24, 5), "res"), None, "resv-ports as well");
        assert_eq!(at(Command::Srun, (22, 5), "tres"), None);
        assert_eq!(at(Command::Srun, (23, 2), "tres"), Some(("tres-per-task", Value)));
        assert_eq!(at(Command::Srun, (23, 11), "tres"), None, "tres-bind as well");
    }

    #[test]
    fn each_release_has_its_own_options() {
        for (name, release, before) in [
            ("autocomplete", (23, 2), (22, 5)),
            ("resources", (25, 11), (25, 5)),
            ("mem-update", (26, 5), (25, 11)),
            ("container-type", (26, 5), (25, 11)),
        ] {
            for command in COMMANDS {
                assert_eq!(at(command, release, name), Some((name, Value)));
                assert_eq!(at(command, before, name), None, "{name}");
            }
        }
        assert_eq!(at(Command::Srun, (26, 5), "async"), Some(("async", Flag)));
        assert_eq!(at(Command::Srun, (26, 5), "ignore-signals"), Some(("ignore-signals", Value)));
        assert_eq!(at(Command::Sbatch, (26, 5), "async"), None);
    }

    #[test]
    fn other_plugins_options_are_known_where_slurm_has_none_that_fits() {
        let srun = |name| at(Command::Srun, (26, 5), name);
        assert_eq!(srun("container-name"), Some(("container-name", Value)));
        assert_eq!(srun("container-im"), Some(("container-image", Value)));
        assert_eq!(srun("container-writable"), Some(("container-writable", Flag)));
        assert_eq!(srun("no-container-m"), Some(("no-container-mount-home", Flag)));
        assert_eq!(srun("container-i"), Some(("container-id", Value)));
        assert_eq!(srun("container-mount"), None);
    }

    #[test]
    fn short_options_take_values_by_command() {
        assert_eq!(short_option(Command::Srun, 'W'), Value);
        assert_eq!(short_option(Command::Sbatch, 'W'), Flag);
        assert_eq!(short_option(Command::Srun, 'K'), Arity::Optional);
        assert_eq!(short_option(Command::Sbatch, 'K'), Flag);
    }
}
