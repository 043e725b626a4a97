//! In slurmstepd, before the tasks fork: what the step owns and what the node has.
//! And when slurmd starts: having the node read beforehand.

use std::os::unix::fs::MetadataExt;

use gpubind_core::bind::DEVICE_LISTS;
use gpubind_core::node::{self, Node, ProbeOptions, Roots, load_or_probe};
use gpubind_core::plan::SharedPlan;
use gpubind_core::site::{BindDefault, JobInfo, PlugstackArgs, Site};
use gpubind_core::step::{Affinity, GpuLists};
use gpubind_core::{shared_words, variables};

use crate::log;
use crate::spank::Spank;

/// Step ids from here up are Slurm's own steps (slurm/slurm.h, SLURM_MAX_NORMAL_STEP_ID).
const FIRST_SPECIAL_STEP: u32 = 0xffff_fff0;
/// SLURM_BATCH_SCRIPT and SLURM_INTERACTIVE_STEP (slurm/slurm.h).
const SCRIPTS: [u32; 2] = [0xffff_fffb, 0xffff_fffa];

/// What all tasks of a step need; made once, inherited by each through fork(2).
pub struct Step {
    /// `#SBATCH --gpubind`, as Slurm has handed it over to the script.
    pub option: Option<String>,
    /// Whether this is a batch script or an interactive shell.
    pub is_script: bool,
    /// What the site sets.
    pub site: Site,
    /// Why the site file is ignored, where it is.
    pub site_error: Option<String>,
    /// Slurm's lists for the whole step: a task's own are gone or wrong under
    /// `none` in several releases (gres.c, gres_g_task_set_env).
    pub plain: [Option<String>; DEVICE_LISTS.len()],
    /// Those of them that name devices; `None` where the step has no GPU.
    pub lists: Option<GpuLists>,
    /// The machine, or why it is not known. Not asked where the step has no GPU.
    pub node: Option<Result<Node, String>>,
    /// Whether NVML was read for this step.
    pub is_read_now: bool,
    /// The root folder in which slurmstepd runs.
    pub root: Option<Folder>,
    /// LOCAL_RANK, which no plugin has set yet.
    pub local_rank: Option<String>,
    /// The tasks' CPUs, once they are forked.
    pub affinity: Option<Affinity>,
    /// Where the tasks share their plan.
    pub plan: Option<SharedPlan>,
}

/// Reads the step; `None` where gpubind has nothing to do with it.
pub fn read(spank: &Spank, args: &PlugstackArgs) -> Option<Step> {
    let variable = |name: &str| spank.variable(name).map(|it| it.to_string_lossy().into_owned());
    let id = spank.step_id().unwrap_or(0);
    let is_script = SCRIPTS.contains(&id);
    if id > FIRST_SPECIAL_STEP && !is_script {
        return None;
    }
    let step = read_of(spank, args, is_script, &variable);
    if step.is_none() && variable(variables::STEP_REQUEST).is_some() {
        // srun's note to the plugin, not to the user's program.
        let _ = spank.remove_variable(variables::STEP_REQUEST);
    }
    step
}

fn read_of(
    spank: &Spank,
    args: &PlugstackArgs,
    is_script: bool,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Option<Step> {
    let says = |name: &str| variable(name).is_some_and(|text| !text.trim().is_empty());
    let option = spank.option().filter(|_| is_script);
    let option = option.map(|option| option.to_string_lossy().into_owned());
    // A script has to do with gpubind only where the job itself has asked.
    let is_asked = match is_script {
        true => says(variables::JOB_REQUEST) || option.is_some(),
        false => [variables::STEP_REQUEST, variables::JOB_REQUEST, variables::REQUEST]
            .iter()
            .any(|name| says(name)),
    };
    if is_script && !is_asked {
        return None;
    }
    // Slurm sets one of these for each step with GPUs that have device files, and takes
    // an inherited one away from steps without.
    let gpus = if is_script { variables::JOB_GPUS } else { variables::STEP_GPUS };
    let step_gpus = variable(gpus).filter(|list| !list.is_empty());
    if step_gpus.is_none() && !is_asked {
        // Most steps of a cluster: nothing more is read for them.
        return None;
    }
    let job = JobInfo::read(variable);
    if step_gpus.is_none() {
        let site = args.site(None, &job);
        return Some(Step {
            option,
            is_script,
            site,
            site_error: None,
            plain: DEVICE_LISTS.map(variable),
            lists: None,
            node: None,
            is_read_now: false,
            root: None,
            local_rank: None,
            affinity: None,
            plan: None,
        });
    }
    let (site, site_error) = load_site(args, &job);
    let is_wanted = is_asked || site.default == BindDefault::Always;
    if !is_wanted && site_error.is_none() {
        return None;
    }
    let node = is_wanted.then(|| node(&site));
    let is_read_now = matches!(node, Some(Ok((_, true))));
    let node = node.map(|node| node.map(|(node, _)| node));
    let tasks = usize::try_from(spank.local_task_count().unwrap_or(0)).unwrap_or(0);
    let (affinity, plan) = shared(if is_wanted { tasks } else { 0 });
    let lists = GpuLists { visible: variable(variables::CUDA_VISIBLE_DEVICES), step_gpus };
    let lists = Some(lists);
    Some(Step {
        option,
        is_script,
        site,
        site_error,
        plain: DEVICE_LISTS.map(variable),
        lists,
        node,
        is_read_now,
        root: root(),
        local_rank: variable(variables::LOCAL_RANK),
        affinity,
        plan,
    })
}

/// What so many tasks share, in one piece of memory.
fn shared(tasks: usize) -> (Option<Affinity>, Option<SharedPlan>) {
    let masks = Affinity::words(tasks);
    let words = shared_words(masks.saturating_add(SharedPlan::words(tasks)));
    match words.and_then(|words| words.split_at_checked(masks)) {
        Some((masks, plan)) => (Affinity::over(masks), SharedPlan::over(plan)),
        None => (None, None),
    }
}

/// A folder, whatever its name: device and inode.
pub type Folder = (u64, u64);

/// The process's root folder. In a container it is another one.
pub fn root() -> Option<Folder> {
    let root = std::fs::metadata("/").ok()?;
    Some((root.dev(), root.ino()))
}

/// The site's settings; a file that is ignored is reported in slurmd's log.
fn load_site(args: &PlugstackArgs, job: &JobInfo) -> (Site, Option<String>) {
    let (site, error) = args.load_site(job);
    let site_error = error.map(|error| error.to_string());
    if let Some(error) = &site_error {
        log::error(error);
    }
    (site, site_error)
}

/// After a task's fork and before it goes on: its CPUs are final.
pub fn record(spank: &Spank, step: &Step) {
    if let (Some(affinity), Some(task), Some(process)) =
        (&step.affinity, spank.task_id(), spank.task_pid())
    {
        affinity.record(usize::try_from(task).unwrap_or(usize::MAX), process);
    }
}

/// When slurmd starts: has the node read in the background.
pub fn refresh(args: &PlugstackArgs) {
    let (site, _) = load_site(args, &JobInfo::default());
    if let Err(error) = node::refresh(&probe_options(&site)) {
        log::error(&format!("cannot have this node's GPUs read: {error}"));
    }
}

/// The machine, and whether NVML was read for it now.
fn node(site: &Site) -> Result<(Node, bool), String> {
    match load_or_probe(&probe_options(site)) {
        Ok((node, stale)) => {
            if let Some(why) = &stale {
                tracing::debug!("NVML was read for this step: {why}");
            }
            Ok((node, stale.is_some()))
        }
        Err(error) => {
            log::error(&error.to_string());
            Err(error.to_string())
        }
    }
}

fn probe_options(site: &Site) -> ProbeOptions {
    ProbeOptions {
        roots: Roots::new(site.fsroot.clone()),
        program: site.program.clone(),
        nvml: site.nvml.clone(),
        timeout: site.probe_timeout,
        max_age: site.snapshot_max_age,
    }
}
