//! The arguments of `gpubind plan`.

use std::path::PathBuf;

use super::super::machine_args::MachineArgs;

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
    pub(super) tasks: Option<usize>,
    /// The tasks' CPUs: a list for each task, `;` between, as in "0-15;16-31"
    #[arg(long, value_name = "LISTS", conflicts_with_all = ["cpu_bind", "distribution", "cpus_per_task"])]
    pub(super) cpus: Option<String>,
    /// The tasks' CPUs as Slurm writes them in SLURM_CPU_BIND: mask_cpu:, map_cpu:, mask_ldom: or
    /// map_ldom: and a list
    #[arg(long, value_name = "TYPE:LIST", conflicts_with_all = ["distribution", "cpus_per_task"])]
    pub(super) cpu_bind: Option<String>,
    /// How Slurm deals tasks to sockets: block fills the first one first (block:block), cyclic
    /// takes turns (block:cyclic) [default: cyclic, as Slurm]
    #[arg(long, short = 'm', value_name = "HOW", value_enum)]
    pub(super) distribution: Option<DistributionArg>,
    /// CPUs of each task [default: an equal part of the node's]
    #[arg(long, short = 'c', value_name = "N")]
    pub(super) cpus_per_task: Option<usize>,
    /// The step's GPUs: NVML indices, ranges and UUIDs (MIG instances by UUID only), as in 4-7
    /// [default: all]
    #[arg(long, value_name = "LIST")]
    pub(super) devices: Option<String>,
    /// Number the GPUs as the tasks see them where cgroup.conf has ConstrainDevices=yes: only the
    /// step's own count
    #[arg(long)]
    pub(super) constrained: bool,
    /// What each task sees; `share` may be added to the others
    #[arg(long, value_name = "ITEM,…", value_delimiter = ',', value_enum, default_value = "auto")]
    pub(super) mode: Vec<ModeArg>,
    /// How GPUs are written; MIG instances are always written as UUIDs
    #[arg(long, value_enum, default_value = "index")]
    pub(super) ids: IdsArg,
    /// Plan for the machine that FILE describes (- for standard input): a snapshot, a machine
    /// description, or pasted `nvidia-smi topo -m` text
    #[arg(long, value_name = "FILE")]
    pub(super) from: Option<PathBuf>,
    /// Show naive, Slurm's greedy --gpu-bind=single:1 and the plan side by side, one GPU for each
    /// task
    #[arg(long)]
    pub(super) compare: bool,
    /// Print a JSON object; GPUs are NVML indices, what is not known is null
    #[arg(long)]
    pub(super) json: bool,
    /// The machine to read.
    #[command(flatten)]
    pub(super) machine: MachineArgs,
}

/// `--distribution`, also as srun spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum DistributionArg {
    #[value(alias = "block:block")]
    Block,
    #[value(alias = "block:cyclic")]
    Cyclic,
}

/// The items of the request that make a difference here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ModeArg {
    Auto,
    Single,
    Ordered,
    First,
    Share,
}

/// `--ids`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum IdsArg {
    Index,
    Uuid,
}
