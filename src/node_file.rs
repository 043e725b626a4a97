//! A node from whatever file a user has of it.

use gpubind_core::node::snapshot::{Snapshot, SnapshotError};
use gpubind_core::node::{Node, NodeError};
use gpubind_machine::{Machine, MachineError};
use gpubind_topo_text::{self as topo_text, TextWarning, TopoTextError};

/// Why a file tells no node.
#[derive(Debug, thiserror::Error)]
pub enum ReadAnyError {
    /// It begins like a snapshot and is none.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// It looks like a machine fixture and is none.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// It was read as the text of `nvidia-smi topo -m`, and has no complete matrix.
    #[error(transparent)]
    Text(#[from] TopoTextError),
    /// A matrix was read, but it describes no possible machine.
    #[error("this describes no machine: {0}")]
    Node(#[from] NodeError),
}

/// Reads a node from a snapshot (JSON), a machine fixture (TOML) or pasted
/// `nvidia-smi topo -m` text, and tells which one it is by looking at it. The
/// warnings are those of the pasted text.
///
/// # Errors
/// [`ReadAnyError`], of the form that the text looks like.
pub fn read_any(text: &str) -> Result<(Node, Vec<TextWarning>), ReadAnyError> {
    if text.trim_start().starts_with('{') {
        return Ok((Snapshot::parse(text.as_bytes())?.node, Vec::new()));
    }
    if text.lines().any(is_machine_line) {
        return Ok((Machine::parse(text)?.to_node(), Vec::new()));
    }
    let (node, warnings) = topo_text::parse(text)?;
    node.check()?;
    Ok((node, warnings))
}

/// Every fixture lists its GPUs under the key `gpu`.
fn is_machine_line(line: &str) -> bool {
    let line: String = line.chars().filter(|c| !c.is_whitespace()).collect();
    line.starts_with("gpu=[") || line.starts_with("[[gpu]]")
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use gpubind_core::node::snapshot::Fingerprint;
    use gpubind_core::node::{Link, Roots};

    const FIXTURE: &str = r#"
        name = "desk"
        description = "one GPU"
        source = "example"
        driver = "580.82.07"
        cuda = "13.0"
        numa = [{ id = 0, cpus = "0-7" }]
        gpu = [{ pci = "0000:01:00.0", name = "NVIDIA RTX A4000", numa = [0] }]
    "#;

    #[test]
    fn each_form_is_recognised() {
        let (node, _) = read_any(FIXTURE).unwrap();
        assert_eq!(node.driver.as_deref(), Some("580.82.07"));
        let fingerprint = Fingerprint::take(&Roots::new("/nonexistent"));
        let snapshot = Snapshot::new(node.clone(), fingerprint, SystemTime::now());
        assert_eq!(read_any(&snapshot.to_json()).unwrap(), (node, Vec::new()));
        let (node, _) = read_any("\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX\t X \n").unwrap();
        assert_eq!(node.link(0, 1), Link::Pix);
    }

    #[test]
    fn a_broken_file_is_refused_as_what_it_looks_like() {
        assert!(matches!(read_any("{}"), Err(ReadAnyError::Snapshot(_))));
        let broken = FIXTURE.replace("0-7", "x");
        assert!(matches!(read_any(&broken), Err(ReadAnyError::Machine(_))));
        assert!(matches!(read_any("hello"), Err(ReadAnyError::Text(_))));
    }
}
