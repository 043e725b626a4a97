//! What can be wrong with a text, and what a text can leave open.

use gpubind_core::node::Link;

/// Why a text has no usable matrix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopoTextError {
    /// No line names GPU columns.
    #[error(
        "no line names the columns GPU0, GPU1, …: this is not the output of `nvidia-smi topo -m`"
    )]
    NoMatrix,
    /// The columns are named but no row follows.
    #[error("line {line} names the columns, but no row like `{row} X …` follows it")]
    NoRows {
        /// Line of the column names.
        line: usize,
        /// First row that should follow.
        row: String,
    },
    /// A cell that is no link word.
    #[error("line {line}, row {row}, column {column}: {}", not_a_link(cell))]
    Cell {
        /// Line of the row.
        line: usize,
        /// Row label.
        row: String,
        /// Column name.
        column: String,
        /// The cell as it stands there.
        cell: String,
    },
    /// A row that ends too early.
    #[error("line {line}, row {row}: {found} of {wanted} cells, nothing for column {column}")]
    ShortRow {
        /// Line of the row.
        line: usize,
        /// Row label.
        row: String,
        /// Cells that are there.
        found: usize,
        /// Columns of the matrix.
        wanted: usize,
        /// First column without a cell.
        column: String,
    },
    /// A row with more link words than columns.
    #[error("line {line}, row {row}: `{cell}` is a cell too many for {wanted} columns")]
    LongRow {
        /// Line of the row.
        line: usize,
        /// Row label.
        row: String,
        /// The first cell too many.
        cell: String,
        /// Columns of the matrix.
        wanted: usize,
    },
    /// A GPU column without a row of that name.
    #[error("line {line} names column {row}, but the text has no row {row}")]
    MissingRow {
        /// Line of the column names.
        line: usize,
        /// Name of the missing row.
        row: String,
    },
    /// A GPU row without a column of that name.
    #[error("line {line}, row {row}: the first line names no column {row}")]
    NoColumn {
        /// Line of the row.
        line: usize,
        /// Row label.
        row: String,
    },
    /// Two different rows of the same GPU.
    #[error("line {line}, row {row}: line {first} has another row {row}")]
    TwoRows {
        /// Line of the second row.
        line: usize,
        /// Row label.
        row: String,
        /// Line of the first row.
        first: usize,
    },
    /// `X` off the diagonal, or something else on it.
    #[error(
        "line {line}, row {row}, column {column}: `{cell}` where {} must stand",
        diagonal(row, column)
    )]
    Diagonal {
        /// Line of the row.
        line: usize,
        /// Row label.
        row: String,
        /// Column name.
        column: String,
        /// What stands there.
        cell: Link,
    },
    /// Two cells without anything between them that can be parted in several ways.
    #[error(
        "line {line}, row {row}: `{cell}` may be parted in several ways; put a space between its cells"
    )]
    Glued {
        /// Line of the row.
        line: usize,
        /// Row label.
        row: String,
        /// The cells as they stand there.
        cell: String,
    },
    /// A wrapped row whose two readings differ in the matrix.
    #[error(
        "line {line}, row {row}: the wrapped line may be read in several ways; paste it unwrapped"
    )]
    Wrapped {
        /// First line of the row.
        line: usize,
        /// Row label.
        row: String,
    },
    /// A line of a table with bars that has not one cell for each column.
    #[error("line {line}: {found} cells between bars, where the table has {wanted} columns")]
    TableLine {
        /// The line.
        line: usize,
        /// Cells in it.
        found: usize,
        /// Cells of the line that names the columns.
        wanted: usize,
    },
    /// Link words that belong to no row.
    #[error("line {line}: `{cell}` stands in no row; every row starts with its label, like GPU0")]
    Stray {
        /// Line of the cells.
        line: usize,
        /// First cell that has no row.
        cell: String,
    },
}

fn not_a_link(cell: &str) -> String {
    let hint = match cell {
        "OK" | "CNS" | "GNS" | "TNS" | "NS" => " (as `nvidia-smi topo -p2p` fingerprints it)",
        _ => "",
    };
    format!("`{cell}`{hint} is not one of X, NV#, PIX, PXB, PHB, NODE, SYS")
}

fn diagonal(row: &str, column: &str) -> &'static str {
    if row == column { "X" } else { "a link" }
}

/// What a text left open, or where it contradicts itself. The node is usable
/// all the same: what is in doubt is left out, not guessed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextWarning {
    /// No column for the CPUs.
    #[error("no CPU Affinity column: the GPUs' CPUs are not known")]
    NoCpuColumn,
    /// GPUs with an empty CPU cell.
    #[error("no CPUs in the row of {gpus} (outside the job's cpuset?): not known")]
    NoCpus {
        /// Names of the GPUs.
        gpus: String,
    },
    /// GPUs with an empty NUMA cell beside their CPUs.
    #[error("no NUMA node in the row of {gpus}: not known")]
    NoNuma {
        /// Names of the GPUs.
        gpus: String,
    },
    /// A row's affinity cells could not be separated or are no lists.
    #[error("line {line}, row {row}: {reason}; its CPU and NUMA cells are left out")]
    AffinityLeftOut {
        /// Line of the row.
        line: usize,
        /// Row label.
        row: String,
        /// What is wrong with them.
        reason: String,
    },
    /// A cell that says that the link is not known.
    #[error("line {line}, row {row}, column {column}: link not known")]
    UnknownLink {
        /// Line of the row.
        line: usize,
        /// Row label.
        row: String,
        /// Column name.
        column: String,
    },
    /// The two directions of a pair differ.
    #[error("{a} to {b} is {there}, but {b} to {a} is {back}; the worse one is used")]
    Asymmetric {
        /// First device.
        a: String,
        /// Second device.
        b: String,
        /// From first to second.
        there: Link,
        /// From second to first.
        back: Link,
    },
    /// A row of a network adapter that is no complete row.
    #[error("line {line}: row {row} is left out: {reason}")]
    NicRowLeftOut {
        /// Line of the row.
        line: usize,
        /// Row label.
        row: String,
        /// What is wrong with it.
        reason: String,
    },
    /// GPUs of different NUMA nodes cannot share CPUs.
    #[error(
        "{a} and {b} print NUMA nodes {numa_a} and {numa_b} but the same CPUs {cpus}: clipped by a job's cpuset?"
    )]
    SameCpusOtherNuma {
        /// First GPU.
        a: String,
        /// Second GPU.
        b: String,
        /// NUMA node of the first.
        numa_a: u32,
        /// NUMA node of the second.
        numa_b: u32,
        /// CPUs that both print.
        cpus: String,
    },
    /// GPUs of one NUMA node have the same CPUs.
    #[error("{a} and {b} print the same NUMA node {numa} but different CPUs")]
    OtherCpusSameNuma {
        /// First GPU.
        a: String,
        /// Second GPU.
        b: String,
        /// Their NUMA node.
        numa: u32,
    },
    /// SYS means different NUMA nodes, and those do not share CPUs.
    #[error(
        "{a} and {b} are SYS apart but print the same CPUs {cpus}: clipped by a job's cpuset, or hidden by a virtual machine?"
    )]
    SameCpusSysApart {
        /// First GPU.
        a: String,
        /// Second GPU.
        b: String,
        /// CPUs that both print.
        cpus: String,
    },
    /// CPU sets that overlap but are not equal.
    #[error("{a} and {b} print CPU lists that overlap but differ")]
    CpusOverlap {
        /// First GPU.
        a: String,
        /// Second GPU.
        b: String,
    },
    /// Six single CPUs: the length at which nvidia-smi cuts even/odd lists.
    #[error(
        "the CPU list {cpus} of {gpus} has six single CPUs: nvidia-smi cuts long lists there, so some may be missing"
    )]
    CpuListCut {
        /// Names of the GPUs.
        gpus: String,
        /// The list.
        cpus: String,
    },
    /// A GPU that prints several NUMA nodes.
    #[error(
        "several NUMA nodes ({numa}) in the row of {gpus}: which CPUs belong to which node is not known"
    )]
    SeveralNuma {
        /// Names of the GPUs.
        gpus: String,
        /// The nodes.
        numa: String,
    },
    /// NUMA ids of GPU memory in the NUMA cell.
    #[error(
        "NUMA nodes {numa} in the row of {gpus} are GPU memory (the lowest GPU NUMA ID is {first}): left out"
    )]
    GpuMemoryNodes {
        /// Names of the GPUs.
        gpus: String,
        /// The ids that were left out.
        numa: String,
        /// The lowest GPU NUMA ID in the table.
        first: u32,
    },
    /// The text comes from `topo -mp`.
    #[error(
        "the legend has no NV# entry (`topo -mp`): NVLinks, if there are any, are not in this text"
    )]
    NvLinkHidden,
    /// Another matrix follows.
    #[error("line {line} begins another matrix: only the first one was read")]
    SecondMatrix {
        /// Line of its column names.
        line: usize,
    },
}
