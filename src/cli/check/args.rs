//! The arguments of `gpubind check`.

use std::path::PathBuf;

use super::super::machine_args::MachineArgs;

/// Check whether this node is set up right, and say what to do where it is not
///
/// Prints a line for each check: ok, note, warning or broken, what was found, and
/// what to do. A check that cannot be made here says so in a note. Exit code: 0, or 1
/// if there are warnings, or 2 if something is broken; with --fold, as of the worst node.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// The machine; by default as the plugin's arguments describe it.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Slurm's configuration [default: $SLURM_CONF, /etc/slurm/slurm.conf, or what scontrol shows]
    #[arg(long, value_name = "FILE")]
    pub slurm_conf: Option<PathBuf>,
    /// The file that loads the plugin [default: Slurm's own plugstack.conf]
    #[arg(long, value_name = "FILE")]
    pub plugstack: Option<PathBuf>,
    /// The site file [default: config=PATH in plugstack.conf, else /etc/gpubind.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print a JSON object
    #[arg(long, group = "form")]
    pub json: bool,
    /// Print one line: the node's name, and ok or what is wrong
    #[arg(long, group = "form")]
    pub brief: bool,
    /// Print metrics for a textfile collector of Prometheus
    #[arg(long, group = "form")]
    pub prometheus: bool,
    /// Check nothing; read the --brief lines of many nodes from a file (- for standard
    /// input), and print each text once, with the nodes that say it
    #[arg(long, group = "form", value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub fold: Option<PathBuf>,
}
