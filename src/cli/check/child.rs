//! Other programs, run with a deadline: Slurm's commands, and gpubind itself.

use gpubind_core::variables;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use gpubind_core::child::{Output, find_program};
use gpubind_core::trusted::{ROOT, trusted_program};

/// How long a command of Slurm's may take that asks nobody else: to show its options or
/// its version takes it a fraction of a second.
const QUICK: Duration = Duration::from_secs(3);
/// scontrol waits for slurmctld for up to a minute.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs a program that must succeed, or says in words why there is no answer. Root
/// runs only what is root's.
pub fn run(
    program: &Path,
    args: &[&str],
    env: &[(&str, OsString)],
    deadline: Duration,
) -> Result<Output, String> {
    if rustix::process::geteuid().is_root() {
        trusted_program(program, ROOT).map_err(|why| format!("root does not run it: {why}"))?;
    }
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    gpubind_core::child::run_any(program, &args, env, deadline).map_err(|error| error.to_string())
}

/// Runs one of Slurm's commands with this slurm.conf and more environment, or says
/// why not.
pub fn slurm(
    name: &str,
    args: &[&str],
    conf: Option<&Path>,
    more: &[(&str, OsString)],
) -> Result<Output, String> {
    let program =
        find_program(name).ok_or_else(|| format!("there is no {name} on this machine"))?;
    let mut env = vec![("LC_ALL", OsString::from("C"))];
    env.extend(conf.map(|conf| (variables::SLURM_CONF, conf.as_os_str().to_owned())));
    env.extend_from_slice(more);
    let deadline = if name == "scontrol" { PATIENCE } else { QUICK };
    run(&program, args, &env, deadline)
}
