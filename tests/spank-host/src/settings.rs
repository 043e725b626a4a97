//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Runs a SPANK plugin's hooks as one of Slurm's programs does.
///
/// As slurmstepd it ends with 3 where a hook did not return 0. As srun, sbatch or salloc,
/// COMMAND is that program's own command line, with its options, for the plugin to read.
#[derive(Debug, Clone, Parser)]
#[command(name = "spank-host", version)]
pub struct Settings {
    /// The program to stand in for.
    #[arg(long = "as", value_enum, default_value_t = Program::Slurmstepd)]
    pub program: Program,
    /// The Slurm release whose version the plugin finds.
    #[arg(long, default_value = "22.05", value_name = "YEAR.MONTH")]
    pub slurm: String,
    /// An argument of the plugin, as in plugstack.conf; may be given again.
    #[arg(long = "arg", value_name = "WORD")]
    pub args: Vec<String>,
    /// A value for an option that the plugin registers; may be given again.
    #[arg(long = "option", value_name = "NAME=VALUE")]
    pub options: Vec<String>,
    /// Print what each task has got, or the client's command line and environment: a
    /// JSON object in a line each.
    #[arg(long)]
    pub json: bool,
    /// Least important messages of the plugin to print: 0 what it says to the user,
    /// 1 errors, 2 info, 3 verbose, 4 to 6 debug.
    #[arg(long, default_value_t = 1, value_name = "LEVEL")]
    pub log_level: i32,
    /// Mark where each hook begins and ends.
    #[arg(long, value_enum)]
    pub marks: Option<Marks>,
    /// Whether this process has the client's command line already.
    #[arg(skip)]
    pub is_client: bool,
    #[command(flatten)]
    pub step: StepSettings,
    /// The plugin.
    pub plugin: PathBuf,
    /// The tasks' program, started where there is no --json; or the client's command line.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// What belongs to slurmstepd alone.
#[derive(Debug, Clone, clap::Args)]
pub struct StepSettings {
    /// Tasks on this node.
    #[arg(long, default_value_t = 1)]
    pub tasks: u32,
    /// Steps to run one after the other, each in a process of its own.
    #[arg(long, default_value_t = 1)]
    pub steps: u32,
    /// Run all steps in one process, which Slurm never does, to see whether memory grows;
    /// print after each: allocated bytes, open descriptors, mappings.
    #[arg(long)]
    pub same_process: bool,
    /// Tasks on all nodes [as many as on this node].
    #[arg(long)]
    pub total_tasks: Option<u32>,
    /// The rank of the node's first task.
    #[arg(long, default_value_t = 0)]
    pub first_rank: u32,
    /// Nodes of the job.
    #[arg(long, default_value_t = 1)]
    pub nodes: u32,
    /// This node's number.
    #[arg(long, default_value_t = 0)]
    pub node_id: u32,
    /// The job.
    #[arg(long, default_value_t = 1)]
    pub job_id: u32,
    /// The step.
    #[arg(long, default_value_t = 0)]
    pub step_id: u32,
    /// The job's user and group; tasks run as that user [this process's].
    #[arg(long)]
    pub uid: Option<u32>,
    /// A file with the step's environment, a line NAME=VALUE for each variable.
    #[arg(long, value_name = "FILE")]
    pub env: Option<PathBuf>,
    /// A variable of the step; may be given again.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// A variable that Slurm sets in each task, or NAME alone: takes away; may be given
    /// again.
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub task_set: Vec<String>,
    /// CPUs to bind tasks to, in turn.
    #[arg(long, value_delimiter = ',', value_name = "CPU,...")]
    pub cpu_map: Vec<u32>,
    /// Let a task begin when the one before has ended; else all run at once.
    #[arg(long)]
    pub in_turn: bool,
    /// Run task_init, and mark hooks, for the first N tasks and the last one only.
    #[arg(long, value_name = "N")]
    pub sample: Option<u32>,
}

impl StepSettings {
    /// Whether the task is one of those that --sample says.
    pub fn is_sampled(&self, local: u32) -> bool {
        self.sample.is_none_or(|sample| local < sample || local + 1 == self.tasks)
    }
}

/// One of Slurm's programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Program {
    Slurmstepd,
    Srun,
    Sbatch,
    Salloc,
    Slurmd,
    /// slurmstepd spank prolog
    Prolog,
    /// slurmstepd spank epilog
    Epilog,
}

/// For what marks are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Marks {
    /// A dump for each hook, HOOK or HOOK:TASK; wants --collect-atstart=no.
    Callgrind,
    /// access(2) of /spank-host/begin/HOOK and /spank-host/end/HOOK.
    Strace,
}
