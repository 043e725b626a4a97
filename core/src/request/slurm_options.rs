//! Which options of srun, sbatch and salloc take a value.
//!
//! Needed to tell Slurm's own arguments from the user program's: getopt stops at
//! the first word that is neither an option nor an option's value. The table is
//! the union of all releases from 22.05 on (src/common/slurm_opt.c,
//! `slurm_opt_*`); an option that a later release adds is told by what follows
//! it, see [`super::command_line`].

use super::command::Command;

/// Whether an option takes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arity {
    /// Never takes the next word: a flag, or an optional value after `=`.
    Flag,
    /// Takes a value: after `=`, or else the next word.
    Value,
}

/// Long options that take a value in every command that has them.
const VALUES: &[&str] = &[
    "accel-bind",
    "account",
    "acctg-freq",
    "array",
    "batch",
    "bb",
    "bbf",
    "bcast-exclude",
    "begin",
    "chdir",
    "cluster",
    "cluster-constraint",
    "clusters",
    "comment",
    "constraint",
    "container",
    "container-id",
    "context",
    "core-spec",
    "cores-per-socket",
    "cpu-bind",
    "cpu-freq",
    "cpu_bind",
    "cpus-per-gpu",
    "cpus-per-task",
    "deadline",
    "delay-boot",
    "dependency",
    "distribution",
    "epilog",
    "error",
    "exclude",
    "export",
    "export-file",
    "extra",
    "extra-node-info",
    "gid",
    "gpu-bind",
    "gpu-freq",
    "gpubind",
    "gpus",
    "gpus-per-node",
    "gpus-per-socket",
    "gpus-per-task",
    "gres",
    "gres-flags",
    "het-group",
    "hint",
    "input",
    "job-name",
    "jobid",
    "kill-on-invalid-dep",
    "licenses",
    "mail-type",
    "mail-user",
    "mcs-label",
    "mem",
    "mem-bind",
    "mem-per-cpu",
    "mem-per-gpu",
    "mincpus",
    "mpi",
    "msg-timeout",
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
    "open-mode",
    "output",
    "pack-group",
    "partition",
    "power",
    "prefer",
    "priority",
    "profile",
    "prolog",
    "qos",
    "relative",
    "reservation",
    "segment",
    "signal",
    "slurmd-debug",
    "sockets-per-node",
    "switches",
    "task-epilog",
    "task-prolog",
    "tasks-per-node",
    "thread-spec",
    "threads",
    "threads-per-core",
    "time",
    "time-min",
    "tmp",
    "topology",
    "treewidth",
    "tres-bind",
    "tres-per-task",
    "uid",
    "wait-all-nodes",
    "wckey",
    "wrap",
];

/// Long options that never take the next word.
const FLAGS: &[&str] = &[
    "autocomplete",
    "bcast",
    "bell",
    "compress",
    "consolidate-segments",
    "contiguous",
    "debugger-test",
    "disable-status",
    "disable-stdout-job-summary",
    "exact",
    "exclusive",
    "external",
    "external-launcher",
    "get-user-env",
    "help",
    "hold",
    "ignore-pbs",
    "immediate",
    "interactive",
    "kill-command",
    "kill-on-bad-exit",
    "label",
    "multi-prog",
    "nice",
    "no-allocate",
    "no-bell",
    "no-kill",
    "no-requeue",
    "no-shell",
    "oom-kill-step",
    "overcommit",
    "overlap",
    "oversubscribe",
    "parsable",
    "preserve-env",
    "propagate",
    "pty",
    "quiet",
    "quit-on-interrupt",
    "reboot",
    "requeue",
    "resv-ports",
    "send-libs",
    "spread-job",
    "spread-segments",
    "stepmgr",
    "test-only",
    "unbuffered",
    "usage",
    "use-min-nodes",
    "verbose",
    "version",
    "wait-for-children",
    "whole",
    "x11",
];

/// Short options that take a value, as the commands' getopt strings list them.
fn short_values(command: Command) -> &'static str {
    match command {
        Command::Srun => "AbDMCScdmexBGiJLTFwNnopqrtW",
        Command::Sbatch => "AabDMCScdmexBGiJLFwNnopqt",
        Command::Salloc => "AbDMCScdmxBGJLFwNnpqt",
    }
}

/// Whether a short option takes a value.
pub(super) fn short(command: Command, letter: char) -> Arity {
    if short_values(command).contains(letter) { Arity::Value } else { Arity::Flag }
}

/// Finds a long option by its name or, as getopt_long(3) does, by a prefix that
/// fits one option only. Gives the full name and the arity; `None` for a name
/// that is not in the table, and for a prefix of several options.
pub(super) fn long(command: Command, name: &str) -> Option<(&'static str, Arity)> {
    let wait = match command {
        Command::Srun => Arity::Value,
        Command::Sbatch | Command::Salloc => Arity::Flag,
    };
    let mut fits = VALUES
        .iter()
        .map(|known| (*known, Arity::Value))
        .chain(FLAGS.iter().map(|known| (*known, Arity::Flag)))
        .chain([("wait", wait)])
        .filter(|(known, _)| known.starts_with(name));
    let exact = fits.clone().find(|(known, _)| *known == name);
    exact.or_else(|| match (fits.next(), fits.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_in_one_table_only() {
        for name in VALUES {
            assert!(!FLAGS.contains(name), "{name}");
        }
    }

    #[test]
    fn unique_prefixes_are_found_and_others_are_not() {
        let bind = Some(("gpu-bind", Arity::Value));
        assert_eq!(long(Command::Srun, "gpu-b"), bind);
        assert_eq!(long(Command::Srun, "gpu-bind"), bind);
        assert_eq!(long(Command::Srun, "gpub"), Some(("gpubind", Arity::Value)));
        assert_eq!(long(Command::Srun, "gpu"), None);
        assert_eq!(long(Command::Srun, "gpus"), Some(("gpus", Arity::Value)));
        assert_eq!(long(Command::Srun, "no-such-option"), None);
    }

    #[test]
    fn wait_takes_a_value_in_srun_only() {
        assert_eq!(long(Command::Srun, "wait"), Some(("wait", Arity::Value)));
        assert_eq!(long(Command::Sbatch, "wait"), Some(("wait", Arity::Flag)));
        assert_eq!(short(Command::Srun, 'W'), Arity::Value);
        assert_eq!(short(Command::Sbatch, 'W'), Arity::Flag);
    }
}
