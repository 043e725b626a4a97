//! Reads pasted `nvidia-smi topo -m` and `topo -mp` text.
//!
//! People paste this table through terminals, mail, Markdown and comments, so
//! the reader trusts words and not positions: link words look unlike CPU
//! lists and labels wherever they stand. Where the text allows two readings
//! that differ in the matrix it refuses, with line and cell; where only the
//! affinity columns are in doubt it leaves those out and says so.
//!
//! | file | what it does |
//! |---|---|
//! | `clean` | escape codes, quotes, comment marks: text to plain lines |
//! | `padding` | takes out the padding of a wrapped terminal line |
//! | `blocks` | the blocks of a matrix that `gpubind topo` has folded, side by side |
//! | `pipes` | Markdown and box tables to tab-separated lines |
//! | `cells` | words of the matrix: link words, lists, glued cells |
//! | `header` | the line that names the columns |
//! | `body` | which pieces of which lines belong to which row |
//! | `row` | one row's links |
//! | `tail` | one row's CPU and NUMA cells |
//! | `build` | rows to a node |
//! | `checks` | contradictions that the text itself shows, a cut last row |
//! | `legend` | NIC names, and whether `-mp` hid the NVLinks |
//!
//! What does not live here: writing such text (the `topo` command does), and
//! reading anything else than text (see [`gpubind_core::node`]).

mod blocks;
mod body;
mod build;
mod cells;
mod checks;
mod clean;
mod error;
mod header;
mod legend;
mod padding;
mod pipes;
mod row;
mod tail;

pub use error::{TextWarning, TopoTextError};

use clean::Line;
use gpubind_core::node::Node;
use header::Header;

/// Reads the first GPU matrix in a text, with what the text leaves open.
///
/// PCI addresses are not in such text: the GPUs get placeholder addresses in
/// the order of their numbers (see [`gpubind_core::node::PciAddress::placeholder`]).
///
/// ```
/// let text = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n\
///             GPU0\t X \tNV4\t24-31\t3\n\
///             GPU1\tNV4\t X \t40-47\t5\n";
/// let (node, warnings) = gpubind_topo_text::parse(text).unwrap();
/// assert_eq!(node.gpus[1].numa.known(), Some(&vec![5]));
/// assert!(warnings.is_empty());
/// ```
///
/// # Errors
///
/// Where there is no matrix, or none that is complete and square.
pub fn parse(text: &str) -> Result<(Node, Vec<TextWarning>), TopoTextError> {
    let lines = pipes::to_tabs(blocks::join(padding::cut(clean::lines(text))))?;
    let lines = header::split_from_row(lines);
    let mut first_error = None;
    for (start, line) in lines.iter().enumerate() {
        if !header::names_a_gpu(&line.text) {
            continue;
        }
        for (header, rows_at) in header::candidates(&lines, start) {
            match read_table(&lines, &header, rows_at) {
                Ok(read) => return Ok(read),
                Err(error) => first_error = Some(worse(first_error, error)),
            }
        }
    }
    Err(first_error.unwrap_or(TopoTextError::NoMatrix))
}

/// Of two failed attempts the one that got further says more.
fn worse(first: Option<TopoTextError>, second: TopoTextError) -> TopoTextError {
    match first {
        None | Some(TopoTextError::NoRows { .. }) => second,
        Some(first) => first,
    }
}

fn read_table(
    lines: &[Line],
    header: &Header,
    rows_at: usize,
) -> Result<(Node, Vec<TextWarning>), TopoTextError> {
    let body = body::collect(lines, header, rows_at)?;
    let mut warnings = body.warnings.clone();
    let mut rows = row::read_all(header, &body, &mut warnings)?;
    if body.at_end {
        checks::distrust_cut_row(header, &mut rows, &mut warnings);
    }
    let rest = lines.get(body.end..).unwrap_or_default();
    let node = build::node(header, &rows, legend::nic_names(rest), &mut warnings)?;
    checks::contradictions(&node, &rows, &mut warnings);
    if legend::hides_nvlink(rest) {
        warnings.push(TextWarning::NvLinkHidden);
    }
    if let Some(line) = second_matrix(rest) {
        warnings.push(TextWarning::SecondMatrix { line });
    }
    Ok((node, warnings))
}

/// The line of another header with rows, behind the first matrix.
fn second_matrix(lines: &[Line]) -> Option<usize> {
    let starts = lines.iter().enumerate().filter(|(_, line)| header::starts_matrix(&line.text));
    let has_rows = |(header, rows_at): &(Header, usize)| {
        !matches!(body::collect(lines, header, *rows_at), Err(TopoTextError::NoRows { .. }))
    };
    let mut found = starts.filter(|(at, _)| header::candidates(lines, *at).iter().any(has_rows));
    found.next().map(|(_, line)| line.number)
}
