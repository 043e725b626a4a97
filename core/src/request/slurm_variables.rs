//! Slurm's own variables for the binding of GPUs, as sbatch and salloc hand them down to
//! srun: what they say, and what gpubind writes there.

use super::Change;
use super::binding::{Binding, gpu_value};
use super::items::Request;
use super::reading::asks_for_shared_gres;
use crate::variables;

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// By these, `--gpus-per-task` and its like of sbatch and salloc reach srun.
const BIND_IMPLICITLY: [&str; 3] =
    [variables::GPUS_PER_TASK, variables::NTASKS_PER_GPU, variables::TRES_PER_TASK];

/// What the job's own `--gpu-bind` or `--tres-bind` says, for the component with this
/// suffix: `#SBATCH --gpu-bind=none,spank:…` arrives so. A text that cannot be
/// understood is [`Binding::Unspecified`], since Slurm will say so.
pub(super) fn explicit(env: Env, suffix: &str) -> Binding {
    let value = |name: &str| env(&format!("{name}{suffix}"));
    let tres = value(variables::TRES_BIND).filter(|text| !is_implicit(text, env));
    // The later one wins in srun, too (src/srun/libsrun/opt.c, env_vars).
    let tres = tres.map(|text| Binding::from_tres_bind(&text).unwrap_or_default());
    match tres {
        Some(Binding::Unspecified) | None => {
            let gpu = value(variables::GPU_BIND).map(|text| Binding::from_gpu_bind(&text));
            gpu.and_then(Result::ok).unwrap_or_default()
        }
        Some(binding) => binding,
    }
}

/// Whether a text is what sbatch and salloc, from 23.11 on, make of `--gpus-per-task` and
/// `--ntasks-per-gpu` (src/common/slurm_opt.c, _implicitly_bind_tres_per_task).
fn is_implicit(text: &str, env: Env) -> bool {
    let gpu = text.split('+').find_map(gpu_value).unwrap_or_default();
    let asked = BIND_IMPLICITLY.iter().any(|name| env(name).is_some());
    asked && (gpu.starts_with("per_task:") || gpu.starts_with("single:"))
}

/// Whether srun, by what it reads from its environment, has Slurm bind GPUs to tasks of
/// its own accord.
pub(super) fn binds_implicitly(env: Env) -> bool {
    let names_gpus = |name: &&str| {
        env(name).is_some_and(|value| *name != variables::TRES_PER_TASK || value.contains("gpu"))
    };
    env(variables::TRES_BIND).is_some_and(|text| is_implicit(&text, env))
        || BIND_IMPLICITLY.iter().any(names_gpus)
}

/// Whether the job has shared GRES, which an srun inside it gets without a word.
/// SLURM_GRES is srun's own option (src/common/slurm_opt.c); Slurm sets the others
/// in a job with gres/shard or gres/mps.
pub(super) fn has_shared_gres(env: Env) -> bool {
    env(variables::GRES).is_some_and(|gres| asks_for_shared_gres(&gres))
        || [variables::SHARDS_ON_NODE, variables::MPS_PERCENTAGE]
            .iter()
            .any(|name| env(name).is_some())
}

/// Keeps Slurm from narrowing each task to some GPUs, as `--gpus-per-task` and
/// inherited options would. 23.11 and later hand SLURM_TRES_BIND down and read
/// it after SLURM_GPU_BIND, so where it is set it must say the same.
pub(super) fn without_slurms_binding(request: &Request, env: Env) -> Vec<Change> {
    let text = request.slurm_text();
    let mut set = vec![(variables::GPU_BIND.to_owned(), Some(text.clone()))];
    if let Some(tres) = env(variables::TRES_BIND) {
        let others = tres.split('+').filter(|part| !part.is_empty() && gpu_value(part).is_none());
        let ours = format!("gres/gpu:{text}");
        let parts: Vec<&str> = others.chain([ours.as_str()]).collect();
        set.push((variables::TRES_BIND.to_owned(), Some(parts.join("+"))));
    }
    set
}

/// Takes gpubind's text out of the variables with this suffix.
pub(super) fn without_gpubinds_texts(env: Env, suffix: &str) -> Vec<Change> {
    let name = |name: &str| format!("{name}{suffix}");
    let (gpu, tres) = (name(variables::GPU_BIND), name(variables::TRES_BIND));
    let mut changes = Vec::new();
    if env(&gpu).is_some_and(|text| is_gpubinds(&text)) {
        changes.push((gpu, None));
    }
    if let Some(text) = env(&tres) {
        let others = |part: &&str| gpu_value(part).is_none_or(|text| !is_gpubinds(text));
        let kept: Vec<&str> = text.split('+').filter(others).collect();
        let kept = kept.join("+");
        if kept != text {
            changes.push((tres, Some(kept).filter(|kept| !kept.is_empty())));
        }
    }
    changes
}

/// What an outer job has left in these variables: an inner step of a new job would take
/// it for the new job's.
pub(super) fn of_an_outer_job(env: Env) -> Vec<Change> {
    let components = env(variables::HET_SIZE).and_then(|size| size.parse().ok()).unwrap_or(0);
    // Slurm keeps the older name of the same thing up, too.
    let groups = (0..components.min(128))
        .flat_map(|group: u32| ["HET", "PACK"].map(|name| format!("_{name}_GROUP_{group}")));
    [String::new()]
        .into_iter()
        .chain(groups)
        .flat_map(|suffix| without_gpubinds_texts(env, &suffix))
        .collect()
}

/// Whether a value of `--gpu-bind` is one that gpubind writes for Slurm.
fn is_gpubinds(value: &str) -> bool {
    let value = value.strip_prefix("verbose,").unwrap_or(value);
    value.starts_with("none,spank")
}

/// Whether a TRES binding is the one that gpubind writes for Slurm, which takes device
/// lists out of the tasks' environment.
pub fn is_none_spank(tres_bind: &str) -> bool {
    tres_bind.split('+').filter_map(gpu_value).any(is_gpubinds)
}
