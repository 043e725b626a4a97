//! In slurmstepd, before the tasks fork: what the step owns and what the node has.
//! And when slurmd starts: having the node read beforehand.

use gpubind_core::node::{self, Node, ProbeOptions, Roots, load_or_probe};
use gpubind_core::site::{BindDefault, JobInfo, PlugstackArgs, Site};
use gpubind_core::step::{Affinity, GpuLists};
use gpubind_core::variables;
use slurm_spank::SpankHandle;

use crate::say;

/// Step ids from here up are Slurm's own steps: batch, extern, interactive
/// (slurm/slurm.h, SLURM_MAX_NORMAL_STEP_ID).
const FIRST_SPECIAL_STEP: u32 = 0xffff_fff0;

/// What all tasks of a step need; made once, inherited by each through fork(2).
pub struct Step {
    /// The request, as the user wrote it. It is read in the task, as the user.
    pub request: Option<String>,
    /// What the site sets.
    pub site: Site,
    /// Why the site file does not count, where it should.
    pub broken: Option<String>,
    /// Slurm's lists for the whole step: a task's own are gone or wrong under
    /// `none` in several releases (gres.c, gres_g_task_set_env).
    pub lists: GpuLists,
    /// The machine, or why it is not known. Not asked where the step has no GPU.
    pub node: Option<Result<Node, String>>,
    /// The tasks' CPUs, once they are forked.
    pub affinity: Option<Affinity>,
}

/// Reads the step; `None` where gpubind has nothing to do with it.
pub fn read(spank: &SpankHandle, args: &PlugstackArgs) -> Option<Step> {
    if spank.job_stepid().is_ok_and(|id| id > FIRST_SPECIAL_STEP) {
        return None;
    }
    let step = read_normal(spank, args);
    if step.is_none()
        && spank.getenv_lossy(variables::COMPONENT_REQUESTS).is_ok_and(|list| list.is_some())
    {
        // srun's note to the plugin, not to the user's program.
        let _ = spank.unsetenv(variables::COMPONENT_REQUESTS);
    }
    step
}

fn read_normal(spank: &SpankHandle, args: &PlugstackArgs) -> Option<Step> {
    let variable = |name: &str| spank.getenv_lossy(name).ok().flatten();
    let request = variable(variables::REQUEST).filter(|request| !request.trim().is_empty());
    let lists = GpuLists {
        visible: variable(variables::CUDA_VISIBLE_DEVICES),
        step_gpus: variable(variables::STEP_GPUS).filter(|list| !list.is_empty()),
    };
    let job = JobInfo::read(&variable);
    // Slurm sets SLURM_STEP_GPUS for each step with GPUs that have device files,
    // and takes an inherited one away from steps without.
    if lists.step_gpus.is_none() {
        let site = args.site(None, &job);
        return request.is_some().then_some(Step {
            request,
            site,
            broken: None,
            lists,
            node: None,
            affinity: None,
        });
    }
    let (site, broken) = load_site(args, &job);
    let acts = request.is_some() || site.default == BindDefault::Always;
    if !acts && broken.is_none() {
        return None;
    }
    let node = acts.then(|| node(&site));
    let tasks = usize::try_from(spank.job_local_task_count().unwrap_or(0)).unwrap_or(0);
    let affinity = node.as_ref().and_then(|_| Affinity::new(tasks));
    Some(Step { request, site, broken, lists, node, affinity })
}

/// The site's settings; a file that does not count is told in slurmd's log.
fn load_site(args: &PlugstackArgs, job: &JobInfo) -> (Site, Option<String>) {
    let (site, error) = args.load_site(job);
    let broken = error.map(|error| error.to_string());
    if let Some(error) = &broken {
        say::error(error);
    }
    (site, broken)
}

/// After a task's fork and before it goes on: its CPUs are final.
pub fn record(spank: &SpankHandle, step: &Step) {
    if let (Some(affinity), Ok(task), Ok(process)) =
        (&step.affinity, spank.task_id(), spank.task_pid())
    {
        affinity.record(usize::try_from(task).unwrap_or(usize::MAX), process);
    }
}

/// When slurmd starts: has the node read in the background.
pub fn refresh(args: &PlugstackArgs) {
    let (site, _) = load_site(args, &JobInfo::default());
    if let Err(error) = node::refresh(&source(&site)) {
        say::error(&format!("cannot have this node's GPUs read: {error}"));
    }
}

fn node(site: &Site) -> Result<Node, String> {
    match load_or_probe(&source(site)) {
        Ok((node, stale)) => {
            if let Some(why) = stale {
                say::debug(&format!("NVML was read for this step: {why}"));
            }
            Ok(node)
        }
        Err(error) => {
            say::error(&error.to_string());
            Err(error.to_string())
        }
    }
}

fn source(site: &Site) -> ProbeOptions {
    ProbeOptions {
        roots: Roots::new(site.fsroot.clone()),
        program: site.program.clone(),
        nvml: site.nvml.clone(),
        timeout: site.probe_timeout,
        max_age: site.snapshot_max_age,
    }
}
