//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::helpers;
use crate::shape::Shape;

#[derive(Debug, Parser)]
#[command(name = "launch-bench")]
pub struct Settings {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compare step launches.
    Run(Run),
    /// Run a command and write how many nanoseconds it took to a file: inside the system
    /// of the Slurm release, where no script stands around it.
    Time {
        file: PathBuf,
        #[arg(last = true)]
        command: Vec<OsString>,
    },
}

#[derive(Debug, clap::Args)]
pub struct Run {
    /// Rounds; each runs all configurations once.
    #[arg(long, default_value_t = 20)]
    pub rounds: usize,
    /// Rounds in which configurations run that take seconds.
    #[arg(long, default_value_t = 5)]
    pub slow_rounds: usize,
    /// Shapes of steps.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Shape::USUAL)]
    pub shapes: Vec<Shape>,
    /// Only configurations whose name holds one of these words, and the references.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Another SPANK plugin to compare with; may be given again.
    #[arg(long, value_name = "FILE.so")]
    pub beside: Vec<PathBuf>,
    /// The Slurm release, as scripts/cluster takes it.
    #[arg(long, default_value = "host")]
    pub slurm: String,
    /// How the clusters' names begin.
    #[arg(long, default_value = "bench")]
    pub name: String,
    /// Where results go.
    #[arg(long, default_value_os_t = helpers::folder())]
    pub out: PathBuf,
}
