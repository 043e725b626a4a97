//! The variables in which Slurm lists a step's devices.

use crate::request::Change;
use crate::variables;

/// Lists that Slurm sets for a whole step and takes away, or writes in wrong numbers,
/// where the step's binding begins with `none` (src/interfaces/gres.c,
/// gres_g_task_set_env). The first is what CUDA reads.
pub const DEVICE_LISTS: [&str; 5] = [
    variables::CUDA_VISIBLE_DEVICES,
    variables::STEP_GPUS,
    variables::GPU_DEVICE_ORDINAL,
    variables::ROCR_VISIBLE_DEVICES,
    variables::ZE_AFFINITY_MASK,
];

/// Lists of other makers' GPUs; Slurm sets all of them where gres.conf says nothing
/// else (src/plugins/gres/common/gres_common.c).
pub(super) const OTHER_MAKERS: [&str; 3] =
    [variables::GPU_DEVICE_ORDINAL, variables::ROCR_VISIBLE_DEVICES, variables::ZE_AFFINITY_MASK];

/// Puts back the lists that the tasks of a plain step have: those of the step, read
/// before there were tasks. `step` has an entry for each of [`DEVICE_LISTS`].
pub fn restore(
    step: &[Option<String>; DEVICE_LISTS.len()],
    env: &dyn Fn(&str) -> Option<String>,
) -> Vec<Change> {
    let lists = DEVICE_LISTS.iter().zip(step);
    lists
        .filter(|(name, list)| list.is_some() && env(name) != **list)
        .map(|(name, list)| ((*name).to_owned(), list.clone()))
        .collect()
}
