//! `gpubind topo`: what this machine, or a described one, looks like.

mod json;
mod matrix;
mod summary;
pub(super) mod svg;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::ending::{CommandError, Failure, warn};
use super::input::{self, Input, InputError};
use super::machine_args::MachineArgs;
use super::output::{self, Form};
use crate::{ReadAnyError, read_any};
use gpubind_core::node::Node;

/// Show GPUs, links, NUMA nodes and network adapters of this machine or of a file
///
/// On a terminal, and wherever COLUMNS is set, what is wider than that is folded: the matrix
/// becomes several, each with the GPUs at the left. `--from` reads that, too.
#[derive(Debug, Clone, clap::Args)]
pub struct TopoArgs {
    /// Read FILE (- for standard input) and not this machine: pasted `nvidia-smi topo -m` text,
    /// a snapshot or a machine description
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Leave the network adapters out
    #[arg(long)]
    pub no_nics: bool,
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
    let mut node = match &args.from {
        Some(path) => from_file(path)?,
        None => args.machine.node()?,
    };
    if args.no_nics {
        node.nics.clear();
    }
    if let Some(path) = &args.svg {
        let drawing = svg::draw(&node, &summary::text(&node), &[], None);
        if write_drawing(path, &drawing, out)? || !args.json {
            return Ok(ExitCode::SUCCESS);
        }
    }
    if args.json {
        output::json(&json::TopoJson::from(&node), out)?;
    } else {
        let form = Form::here();
        let summary = form.text(&summary::text(&node), "");
        write!(out, "{summary}\n\n{}", matrix::text(&node, form))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a drawing; tells whether that was to standard output.
///
/// # Errors
/// [`CommandError`].
pub(super) fn write_drawing(
    path: &Path,
    drawing: &str,
    out: &mut dyn Write,
) -> Result<bool, CommandError> {
    if path == Path::new("-") {
        out.write_all(drawing.as_bytes())?;
        return Ok(true);
    }
    let failed = |error| TopoError::Write { path: path.display().to_string(), error };
    fs::write(path, drawing).map_err(failed)?;
    Ok(false)
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
