//! The variables by which launchers tell a process its number on the node, and
//! how many there are.
//!
//! The worker shim compiles this very file (worker/src), so it uses `core` only.
//! SLURM_LOCALID is not here: a launcher itself has it, and so has all below it.

use crate::variables;

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
    launcher(
        "torchrun",
        variables::LOCAL_RANK,
        Some(variables::LOCAL_WORLD_SIZE),
        Some(variables::RANK),
    ),
    launcher(
        "Open MPI",
        variables::OMPI_LOCAL_RANK,
        Some(variables::OMPI_LOCAL_SIZE),
        Some(variables::OMPI_RANK),
    ),
    launcher(
        "MVAPICH",
        variables::MV2_LOCAL_RANK,
        Some(variables::MV2_LOCAL_SIZE),
        Some(variables::MV2_RANK),
    ),
    launcher(
        "MPICH or Intel MPI",
        variables::MPI_LOCAL_RANK,
        Some(variables::MPI_LOCAL_SIZE),
        Some(variables::PMI_RANK),
    ),
    launcher(
        "PALS",
        variables::PALS_LOCAL_RANK,
        Some(variables::PALS_LOCAL_SIZE),
        Some(variables::PALS_RANK),
    ),
    launcher("Flux", variables::FLUX_LOCAL_RANK, None, Some(variables::FLUX_RANK)),
    launcher(
        "PMI",
        variables::PMI_LOCAL_RANK,
        Some(variables::PMI_LOCAL_SIZE),
        Some(variables::PMI_RANK),
    ),
    launcher("PMIx", variables::PMIX_LOCAL_RANK, None, Some(variables::PMIX_RANK)),
];
