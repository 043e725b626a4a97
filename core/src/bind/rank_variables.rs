//! RANK, WORLD_SIZE and the like, for programs that read `env://`.

use crate::request::LocalRank;
use crate::step::{contradiction, is_noted};
use crate::variables;

use super::rank::Rank;
use super::warning::Warning;

/// What an unmodified `env://` program reads.
pub(super) const RANK_VARIABLES: [&str; 7] = [
    variables::RANK,
    variables::WORLD_SIZE,
    variables::LOCAL_RANK,
    variables::LOCAL_WORLD_SIZE,
    variables::NODE_RANK,
    variables::MASTER_ADDR,
    variables::MASTER_PORT,
];

/// Set in every task of a job that submitit starts. Its own helper exports the rank
/// variables, and refuses where one of them is there already
/// (submitit/helpers.py, TorchDistributedEnvironment.export).
const SUBMITIT: &str = variables::SUBMITIT_EXECUTOR;

/// The rank variables of a task that sees `seen` devices, each only where the user has
/// not set it.
pub(super) fn rank_variables(
    rank: &Rank,
    share: usize,
    seen: usize,
) -> Vec<(&'static str, String)> {
    let wanted = is_wanted(rank, share);
    let others = of_another_plugin(rank, seen);
    let Some(ranks) = rank.ranks.filter(|_| wanted) else { return Vec::from_iter(others) };
    let local_rank = if is_virtual(rank, seen) { 0 } else { rank.local_rank };
    let values = [
        Some(ranks.rank.to_string()),
        Some(ranks.world_size.to_string()),
        Some(local_rank.to_string()),
        Some(ranks.local_world_size.to_string()),
        Some(ranks.node_rank.to_string()),
        ranks.master_addr.clone(),
        Some(ranks.master_port.to_string()),
    ];
    let values = RANK_VARIABLES.into_iter().zip(values);
    values
        .filter_map(|(name, value)| Some((name, value?)))
        .filter(|(name, _)| is_free(name, rank.env))
        .chain(others)
        .collect()
}

fn is_virtual(rank: &Rank, seen: usize) -> bool {
    seen == 1 && rank.settings.local_rank == LocalRank::Virtual
}

/// LOCAL_RANK where another plugin has set it since the step began, to a number that
/// names no visible device: pyxis writes SLURM_LOCALID there in images with
/// PYTORCH_VERSION (pyxis_slurmstepd.c, pytorch_setup).
fn of_another_plugin(rank: &Rank, seen: usize) -> Option<(&'static str, String)> {
    let now = (rank.env)(variables::LOCAL_RANK)?;
    let is_users = rank.users_local_rank == Some(now.as_str());
    let is_others = !is_users && !is_free(variables::LOCAL_RANK, rank.env);
    (is_others && is_virtual(rank, seen)).then(|| (variables::LOCAL_RANK, "0".to_owned()))
}

/// LOCAL_RANK as the worker shim will set it where pyxis has set it by then, for the note.
pub(super) fn local_rank_to_come(rank: &Rank, seen: usize) -> Option<(&'static str, String)> {
    let is_free = (rank.env)(variables::LOCAL_RANK).is_none();
    let is_coming = rank.is_before_container && is_virtual(rank, seen) && is_free;
    is_coming.then(|| (variables::LOCAL_RANK, "0".to_owned()))
}

fn is_wanted(rank: &Rank, share: usize) -> bool {
    match rank.settings.said.rank_env {
        Some(on) => on,
        // A task that keeps a share is no rank; its children may be.
        None => rank.settings.asked && share == 1 && (rank.env)(SUBMITIT).is_none(),
    }
}

/// The user's own rank variables, where they cannot be this rank's. The first task of a
/// node that finds it speaks for all.
pub(super) fn contradicted(rank: &Rank, share: usize) -> Option<Warning> {
    let is_rank = share == 1 && is_wanted(rank, share) && rank.ranks.is_some();
    let found = is_rank.then(|| contradiction(rank.env)).flatten()?;
    found.is_first().then_some(Warning::RanksContradict { found })
}

/// The note of the variables that gpubind sets here and that a step inside must not take
/// for the user's.
pub(super) fn note(set: &[(&'static str, String)]) -> Option<(&'static str, String)> {
    let entries: Vec<String> = set.iter().map(|(name, value)| format!("{name}={value}")).collect();
    (!entries.is_empty()).then(|| (variables::RANK_VARIABLES_SET, entries.join(",")))
}

/// Whether a variable is unset, or is still what an outer step's gpubind has set.
pub(super) fn is_free(name: &str, env: &dyn Fn(&str) -> Option<String>) -> bool {
    env(name).is_none_or(|value| is_noted(env, name, &value))
}
