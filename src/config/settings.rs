//! What holds for one step, after all sources have been put together.

use super::request::{Ids, LocalRank, Mode, Request};

/// The environment variable in which a request travels from srun, sbatch and
/// salloc to the tasks. Its name begins with `SLURM`, so `--export=NONE` keeps
/// it (src/common/env.c).
pub const REQUEST_VARIABLE: &str = "SLURM_GPUBIND";

/// Names of the rank variables that gpubind itself has set, so that a step inside
/// this step does not take them for the user's own.
pub const RANK_ENV_SET: &str = "GPUBIND_RANK_ENV";

/// The settings of a step: the request over the built-in defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How a task sees the step's devices.
    pub mode: Mode,
    /// Whether several tasks on one device are wanted.
    pub share: bool,
    /// How whole GPUs are written.
    pub ids: Ids,
    /// What LOCAL_RANK means where exactly one device is visible.
    pub local_rank: LocalRank,
    /// Whether RANK, WORLD_SIZE and the like are exported where unset.
    pub rank_env: bool,
    /// Whether a task that keeps several devices loads the worker shim.
    pub workers: bool,
    /// Whether each rank says on stderr what it got.
    pub verbose: bool,
    /// Whether a task that cannot be bound as asked fails.
    pub strict: bool,
}

impl From<&Request> for Settings {
    fn from(request: &Request) -> Self {
        Settings {
            mode: request.mode.unwrap_or(Mode::Auto),
            share: request.share,
            ids: request.ids.unwrap_or(Ids::Index),
            local_rank: request.local_rank.unwrap_or(LocalRank::Virtual),
            // On, because only an explicit request leads here so far.
            rank_env: request.rank_env.unwrap_or(true),
            workers: request.workers.unwrap_or(true),
            verbose: request.verbose,
            strict: request.strict,
        }
    }
}
