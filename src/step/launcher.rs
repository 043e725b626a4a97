//! The variables by which launchers tell a process its number on the node, and
//! how many there are.
//!
//! The worker shim compiles this very file (worker/src), so it uses `core` only.
//! SLURM_LOCALID is not here: a launcher itself has it, and so has all below it.

/// A launcher's variables for one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launcher {
    /// Whose they are, in words.
    pub name: &'static str,
    /// Its number among the launcher's processes on this node, from 0.
    pub local_rank: &'static str,
    /// How many there are on this node; `None` where the launcher does not tell.
    pub local_size: Option<&'static str>,
    /// Its number among all processes.
    pub rank: Option<&'static str>,
}

const fn launcher(
    name: &'static str,
    local_rank: &'static str,
    local_size: Option<&'static str>,
    rank: Option<&'static str>,
) -> Launcher {
    Launcher { name, local_rank, local_size, rank }
}

/// Each launcher's variables; the first that is set counts. LOCAL_RANK comes first:
/// torchrun may run inside a task that MPI's process manager has numbered, and who
/// sets it under mpirun derives it from MPI's own.
pub const LAUNCHERS: [Launcher; 8] = [
    launcher("torchrun", "LOCAL_RANK", Some("LOCAL_WORLD_SIZE"), Some("RANK")),
    launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        Some("OMPI_COMM_WORLD_LOCAL_SIZE"),
        Some("OMPI_COMM_WORLD_RANK"),
    ),
    launcher(
        "MVAPICH",
        "MV2_COMM_WORLD_LOCAL_RANK",
        Some("MV2_COMM_WORLD_LOCAL_SIZE"),
        Some("MV2_COMM_WORLD_RANK"),
    ),
    launcher("MPICH or Intel MPI", "MPI_LOCALRANKID", Some("MPI_LOCALNRANKS"), Some("PMI_RANK")),
    launcher("PALS", "PALS_LOCAL_RANKID", Some("PALS_LOCAL_SIZE"), Some("PALS_RANKID")),
    launcher("Flux", "FLUX_TASK_LOCAL_ID", None, Some("FLUX_TASK_RANK")),
    launcher("PMI", "PMI_LOCAL_RANK", Some("PMI_LOCAL_SIZE"), Some("PMI_RANK")),
    launcher("PMIx", "PMIX_LOCAL_RANK", None, Some("PMIX_RANK")),
];
