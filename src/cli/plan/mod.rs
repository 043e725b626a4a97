//! `gpubind plan`: what would happen, before a job is queued.
//!
//! Everything that decides is the library's: [`crate::slurm::layout`] makes the CPU
//! sets, [`gpubind_core::plan`] the plan, [`gpubind_core::bind`] each rank's environment. Here
//! arguments become those functions' inputs, and their results text:
//!
//! | file | what it does |
//! |---|---|
//! | `devices`, `cpus` | read what was typed, and refuse what the node lacks |
//! | `scenario` | puts the inputs together and asks the library |
//! | `nearness` | how near ranks are to their devices, in words and numbers |
//! | `table`, `sentence`, `compare` | the output for people |
//! | `json` | the output for programs |

mod compare;
mod cpus;
mod devices;
mod json;
mod nearness;
mod scenario;
mod sentence;
mod table;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use super::{CommandError, MachineArgs, USAGE, complain, output, topo};
use crate::nvml::NvmlError;
use crate::slurm::LayoutError;
use gpubind_core::node::Node;
use gpubind_core::plan::{MAX_TASKS, PlanError};
use gpubind_core::request::RequestError;
use scenario::Scenario;

/// Show which GPU each task would get, before a job is queued
///
/// Plans a step on this machine or on the one that --from describes, by the very
/// function that the plugin runs in each task. Without --cpus and --cpu-bind the
/// tasks get the CPUs that Slurm's task/affinity would give them on a whole node;
/// NUMA nodes nearer to each other than 20 count as one socket there.
///
/// DISTANCE is the mean NUMA distance of the rank's CPUs to its GPU, as Linux counts
/// it; LINK is between its GPU and the previous rank's.
///
/// The costs are for comparison, smaller is better and numa comes first. numa: how
/// far the ranks' CPUs are from their GPUs beyond the local distance, in
/// thousandths of the NUMA distance, summed over the ranks. links: how far apart
/// the GPUs of ranks with close numbers are. naive is rank i on the i-th GPU.
#[derive(Debug, Clone, clap::Args)]
pub struct PlanArgs {
    /// Tasks of the step on the node [default: one for each list of CPUs, else one for each GPU]
    #[arg(long, short = 'n', value_name = "N")]
    tasks: Option<usize>,
    /// The tasks' CPUs: a list for each task, `;` between, as in "0-15;16-31"
    #[arg(long, value_name = "LISTS", conflicts_with_all = ["cpu_bind", "distribution", "cpus_per_task"])]
    cpus: Option<String>,
    /// The tasks' CPUs as Slurm writes them in SLURM_CPU_BIND: mask_cpu:, map_cpu:, mask_ldom: or
    /// map_ldom: and a list
    #[arg(long, value_name = "TYPE:LIST", conflicts_with_all = ["distribution", "cpus_per_task"])]
    cpu_bind: Option<String>,
    /// How Slurm deals tasks to sockets: block fills the first one first (block:block), cyclic
    /// takes turns (block:cyclic) [default: cyclic, as Slurm]
    #[arg(long, short = 'm', value_name = "HOW", value_enum)]
    distribution: Option<DistributionArg>,
    /// CPUs of each task [default: an equal part of the node's]
    #[arg(long, short = 'c', value_name = "N")]
    cpus_per_task: Option<usize>,
    /// The step's GPUs: NVML indices, ranges and UUIDs (MIG instances by UUID only), as in 4-7
    /// [default: all]
    #[arg(long, value_name = "LIST")]
    devices: Option<String>,
    /// Number the GPUs as the tasks see them where cgroup.conf has ConstrainDevices=yes: only the
    /// step's own count
    #[arg(long)]
    constrained: bool,
    /// What each task sees; `share` may be added to the others
    #[arg(long, value_name = "ITEM,…", value_delimiter = ',', value_enum, default_value = "auto")]
    mode: Vec<ModeArg>,
    /// How GPUs are written; MIG instances are always written as UUIDs
    #[arg(long, value_enum, default_value = "index")]
    ids: IdsArg,
    /// Plan for the machine that FILE describes (- for standard input): a snapshot, a machine
    /// description, or pasted `nvidia-smi topo -m` text
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Show naive, Slurm's greedy --gpu-bind=single:1 and the plan side by side, one GPU for each
    /// task
    #[arg(long)]
    compare: bool,
    /// Print a JSON object; GPUs are NVML indices, what is not known is null
    #[arg(long)]
    json: bool,
    /// The machine to read.
    #[command(flatten)]
    machine: MachineArgs,
}

/// `--distribution`, also as srun spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum DistributionArg {
    #[value(alias = "block:block")]
    Block,
    #[value(alias = "block:cyclic")]
    Cyclic,
}

/// The items of the request that make a difference here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ModeArg {
    Auto,
    Single,
    Ordered,
    First,
    Share,
}

/// `--ids`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum IdsArg {
    Index,
    Uuid,
}

/// Why there is no plan to show.
#[derive(Debug, thiserror::Error)]
pub enum PlanCommandError {
    /// The arguments contradict themselves or the machine.
    #[error(transparent)]
    Wrong(#[from] Wrong),
    /// This machine cannot be read.
    #[error("{0}; `--from FILE` plans for a machine that a file describes")]
    Nvml(#[from] NvmlError),
    /// There is nothing to give.
    #[error("the machine has no GPU that can be used, so there is nothing to plan")]
    NoGpu,
}

/// Arguments that contradict themselves or the machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A number of tasks that no step has.
    #[error("--tasks {0}: a step has 1 to {MAX_TASKS} tasks on a node")]
    Tasks(usize),
    /// Something in `--devices`.
    #[error("--devices: {0}")]
    Devices(#[from] devices::DeviceError),
    /// Something in `--cpus`, `--cpu-bind`, `--distribution` or `--cpus-per-task`.
    #[error(transparent)]
    Cpus(#[from] cpus::CpusError),
    /// CPUs that the node has not.
    #[error("--cpus-per-task: {0}")]
    TaskLayout(#[from] LayoutError),
    /// Items that exclude each other.
    #[error("--mode: {0}")]
    Mode(#[from] RequestError),
    /// More than can be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Runs the command; warnings go to stderr.
///
/// # Errors
/// [`CommandError`].
pub fn run(args: &PlanArgs, out: &mut dyn Write) -> Result<ExitCode, CommandError> {
    let node = match &args.from {
        Some(path) => topo::from_file(path)?,
        None => args.machine.node().map_err(PlanCommandError::Nvml)?,
    };
    match show(args, &node, out) {
        Err(CommandError::Plan(PlanCommandError::Wrong(wrong))) => Ok(complain(&wrong, USAGE)),
        shown => shown.map(|()| ExitCode::SUCCESS),
    }
}

fn show(args: &PlanArgs, node: &Node, out: &mut dyn Write) -> Result<(), CommandError> {
    let scenario = Scenario::new(node, args)?;
    let compared = match args.compare {
        true => Some(scenario.compare().map_err(PlanCommandError::Wrong)?),
        false => None,
    };
    if args.json {
        output::json(&json::PlanJson::new(&scenario, compared.as_deref()), out)?;
    } else {
        let colour = topo::colour();
        let text = match &compared {
            Some(compared) => compare::text(&scenario, compared, colour),
            None => table::text(&scenario, colour),
        };
        out.write_all(text.as_bytes())?;
    }
    // The same words as in the job itself.
    for warning in &scenario.warnings {
        eprintln!("gpubind: {warning}");
    }
    Ok(())
}
