//! What can be wrong with a text, and what a text can leave open.

use gpubind_core::node::Link;

/// Why a text has no usable matrix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopoTextError {
    #[error(
        "no line names the columns GPU0, GPU1, …: this is not the output of `nvidia-smi topo -m`"
    )]
    NoMatrix,
    #[error("line {line} names the columns, but no row like `{row} X …` follows it")]
    NoRows { line: usize, row: String },
    #[error("line {line}, row {row}, column {column}: {}", not_a_link(cell))]
    Cell { line: usize, row: String, column: String, cell: String },
    #[error("line {line}, row {row}: {found} of {wanted} cells, nothing for column {column}")]
    ShortRow { line: usize, row: String, found: usize, wanted: usize, column: String },
    #[error("line {line}, row {row}: `{cell}` is a cell too many for {wanted} columns")]
    LongRow { line: usize, row: String, cell: String, wanted: usize },
    #[error("line {line} names column {row}, but the text has no row {row}")]
    MissingRow { line: usize, row: String },
    #[error("line {line}, row {row}: the first line names no column {row}")]
    NoColumn { line: usize, row: String },
    #[error("line {line}, row {row}: line {first} has another row {row}")]
    TwoRows { line: usize, row: String, first: usize },
    #[error(
        "line {line}, row {row}, column {column}: `{cell}` where {} must stand",
        diagonal(row, column)
    )]
    Diagonal { line: usize, row: String, column: String, cell: Link },
    #[error(
        "line {line}, row {row}: `{cell}` may be parted in several ways; put a space between its cells"
    )]
    Glued { line: usize, row: String, cell: String },
    #[error(
        "line {line}, row {row}: the wrapped line may be read in several ways; paste it unwrapped"
    )]
    Wrapped { line: usize, row: String },
    #[error("line {line}: {found} cells between bars, where the table has {wanted} columns")]
    TableLine { line: usize, found: usize, wanted: usize },
    #[error("line {line}: `{cell}` stands in no row; every row starts with its label, like GPU0")]
    Stray { line: usize, cell: String },
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
    #[error("no CPU Affinity column: the GPUs' CPUs are not known")]
    NoCpuColumn,
    #[error("no CPUs in the row of {gpus} (outside the job's cpuset?): not known")]
    NoCpus { gpus: String },
    #[error("no NUMA node in the row of {gpus}: not known")]
    NoNuma { gpus: String },
    #[error("line {line}, row {row}: {reason}; its CPU and NUMA cells are left out")]
    AffinityLeftOut { line: usize, row: String, reason: String },
    #[error("line {line}, row {row}, column {column}: link not known")]
    UnknownLink { line: usize, row: String, column: String },
    #[error("{a} to {b} is {there}, but {b} to {a} is {back}; the worse one is used")]
    Asymmetric { a: String, b: String, there: Link, back: Link },
    #[error("line {line}: row {row} is left out: {reason}")]
    NicRowLeftOut { line: usize, row: String, reason: String },
    #[error(
        "{a} and {b} print NUMA nodes {numa_a} and {numa_b} but the same CPUs {cpus}: clipped by a job's cpuset?"
    )]
    SameCpusOtherNuma { a: String, b: String, numa_a: u32, numa_b: u32, cpus: String },
    #[error("{a} and {b} print the same NUMA node {numa} but different CPUs")]
    OtherCpusSameNuma { a: String, b: String, numa: u32 },
    #[error(
        "{a} and {b} are SYS apart but print the same CPUs {cpus}: clipped by a job's cpuset, or hidden by a virtual machine?"
    )]
    SameCpusSysApart { a: String, b: String, cpus: String },
    #[error("{a} and {b} print CPU lists that overlap but differ")]
    CpusOverlap { a: String, b: String },
    #[error(
        "the CPU list {cpus} of {gpus} has six single CPUs: nvidia-smi cuts long lists there, so some may be missing"
    )]
    CpuListCut { gpus: String, cpus: String },
    #[error(
        "several NUMA nodes ({numa}) in the row of {gpus}: which CPUs belong to which node is not known"
    )]
    SeveralNuma { gpus: String, numa: String },
    #[error(
        "NUMA nodes {numa} in the row of {gpus} are GPU memory (the lowest GPU NUMA ID is {first}): left out"
    )]
    GpuMemoryNodes { gpus: String, numa: String, first: u32 },
    #[error(
        "the legend has no NV# entry (`topo -mp`): NVLinks, if there are any, are not in this text"
    )]
    NvLinkHidden,
    #[error("line {line} begins another matrix: only the first one was read")]
    SecondMatrix { line: usize },
}
