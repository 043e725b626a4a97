//! The arguments of `gpubind plan`.

use std::path::PathBuf;

use super::super::machine_args::MachineArgs;
use super::srun_options::{DistributionArg, HintArg, distribution};

/// Show which GPU each task would get, before a job is queued
///
/// Plans a step on this machine or on the one that --from describes, by the very
/// function that the plugin runs in each task, with the CPUs that Slurm's task/affinity
/// would give the tasks of a step with the whole node (--exclusive). --distribution,
/// --cpus-per-task, --cpu-bind, --hint and --threads-per-core are srun's. Without
/// --cpu-bind, --hint and --threads-per-core each task gets an equal part of the node;
/// with one of them, and without --cpus-per-task, one CPU, as from srun.
///
/// Before a job runs nobody can know which cores it gets of a node that it shares, which
/// cores are kept from jobs (CoreSpecCount), or what a site has made other defaults
/// (TaskPluginParam, CR_CORE_DEFAULT_DIST_BLOCK): --cpus says which CPUs they are. NUMA
/// nodes nearer to each other than 20 count as one socket. Threads of a core that are
/// numbered one after the other count as cores, unless --siblings says how many they are.
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
    #[arg(long, value_name = "LISTS", conflicts_with_all = ["cpu_bind", "distribution", "cpus_per_task", "hint", "threads_per_core"])]
    pub(super) cpus: Option<String>,
    /// srun's --cpu-bind: cores, sockets, threads, ldoms, rank_ldom or none, or the tasks' CPUs as
    /// mask_cpu:, map_cpu:, mask_ldom: or map_ldom: and a list
    #[arg(long, value_name = "TYPE[:LIST]")]
    pub(super) cpu_bind: Option<String>,
    /// srun's --distribution: block:block (or plane=N) fills the first socket first, block:cyclic
    /// (or block, or cyclic) takes turns, block:fcyclic takes turns with each CPU [default:
    /// block:cyclic, as Slurm]
    #[arg(long, short = 'm', value_name = "HOW", value_parser = distribution)]
    pub(super) distribution: Option<DistributionArg>,
    /// CPUs of each task [default: an equal part of the node's; with --cpu-bind, --hint or
    /// --threads-per-core 1, as from srun]
    #[arg(long, short = 'c', value_name = "N")]
    pub(super) cpus_per_task: Option<usize>,
    /// srun's --hint: with nomultithread, tasks use one thread of each core
    #[arg(long, value_name = "HINT", value_enum)]
    pub(super) hint: Option<HintArg>,
    /// srun's --threads-per-core: as many threads of each core are used
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub(super) threads_per_core: Option<u8>,
    /// How many CPUs that are numbered one after the other are threads of one core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub(super) siblings: Option<u8>,
    /// The step's GPUs: NVML indices, ranges and UUIDs (MIG instances by UUID only), as in 4-7
    /// [default: all]
    #[arg(long, value_name = "LIST")]
    pub(super) devices: Option<String>,
    /// Number the GPUs as the tasks see them where cgroup.conf has ConstrainDevices=yes: only the
    /// step's own count
    #[arg(long)]
    pub(super) constrained: bool,
    /// What each task sees; `share` and `cpus=local` may be added to the others
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
    /// Draw the machine with the ranks at their GPUs into FILE (- for standard output)
    #[arg(long, value_name = "FILE", conflicts_with = "compare")]
    pub(super) svg: Option<PathBuf>,
    /// Print a JSON object; GPUs are NVML indices, what is not known is null
    #[arg(long)]
    pub(super) json: bool,
    /// The machine to read.
    #[command(flatten)]
    pub(super) machine: MachineArgs,
}

/// The items of the request that make a difference here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ModeArg {
    Auto,
    Single,
    Ordered,
    First,
    Share,
    #[value(name = "cpus=local")]
    CpusLocal,
}

/// `--ids`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum IdsArg {
    Index,
    Uuid,
}
