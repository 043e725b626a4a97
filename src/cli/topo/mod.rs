//! `gpubind topo`: what this machine, or a described one, looks like.

mod json;
mod matrix;
mod summary;
mod svg;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::ending::{CommandError, Failure, warn};
use super::input::{self, Input, InputError};
use super::machine_args::MachineArgs;
use super::output;
use crate::{ReadAnyError, read_any};
use gpubind_core::node::Node;
use gpubind_core::variables;

/// Show GPUs, links, NUMA nodes and network adapters of this machine or of a file
#[derive(Debug, Clone, clap::Args)]
pub struct TopoArgs {
    /// Read FILE (- for standard input) and not this machine: pasted `nvidia-smi topo -m` text,
    /// a snapshot or a machine description
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Draw the machine into FILE (- for standard output)
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// The machine to read.
    #[command(flatten)]
    pub machine: MachineArgs,
}

impl Failure for TopoError {}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum TopoError {
    /// The file cannot be read.
    #[error(transparent)]
    Open(#[from] InputError),
    /// The file tells no node.
    #[error("{path}: {error}")]
    Content {
        /// The file.
        path: String,
        /// Why.
        #[source]
        error: ReadAnyError,
    },
    /// The drawing cannot be written.
    #[error("cannot write {path}: {error}")]
    Write {
        /// The file.
        path: String,
        /// Why.
        #[source]
        error: io::Error,
    },
}

/// Runs the command; warnings go to stderr.
///
/// # Errors
/// [`CommandError`].
pub fn run(args: &TopoArgs, out: &mut dyn Write) -> Result<ExitCode, CommandError> {
    let node = match &args.from {
        Some(path) => from_file(path)?,
        None => args.machine.node()?,
    };
    if let Some(path) = &args.svg {
        let drawing = svg::draw(&node, &summary::text(&node));
        if path == Path::new("-") {
            out.write_all(drawing.as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        let failed = |error| TopoError::Write { path: path.display().to_string(), error };
        fs::write(path, drawing).map_err(failed)?;
        if !args.json {
            return Ok(ExitCode::SUCCESS);
        }
    }
    if args.json {
        output::json(&json::TopoJson::from(&node), out)?;
    } else {
        write!(out, "{}\n\n{}", summary::text(&node), matrix::text(&node, colour()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Colours only where a person looks, and has not declined (no-color.org).
pub(super) fn colour() -> bool {
    let declined = std::env::var_os(variables::NO_COLOR).is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !declined
}

/// Reads the node that a file describes; what is odd about it goes to stderr.
pub(super) fn from_file(path: &Path) -> Result<Node, TopoError> {
    let Input { name, text } = input::read(path)?;
    let (node, warnings) =
        read_any(&text).map_err(|error| TopoError::Content { path: name.clone(), error })?;
    for warning in warnings {
        warn(&format!("{name}: {warning}"));
    }
    Ok(node)
}
