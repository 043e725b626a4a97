//! Every environment variable that gpubind reads or writes: who sets it, who reads
//! it, what it means. It is gpubind's real interface, so all names are here and
//! nowhere else; docs/variables.md is made from this table.

/// What is known of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub group: &'static str,
    /// Who sets it.
    pub set_by: &'static str,
    /// Who reads it.
    pub read_by: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

/// Makes a constant of each name, and the table of all.
macro_rules! variables {
    ($($group:literal { $($constant:ident = $name:literal, set by $set:literal, read by $read:literal:
        $meaning:literal;)* })*) => {
        $($(#[doc = $meaning] pub const $constant: &str = $name;)*)*

        /// All variables, in the order of the documentation.
        pub const VARIABLES: &[Variable] = &[$($(Variable {
            name: $name,
            group: $group,
            set_by: $set,
            read_by: $read,
            meaning: $meaning,
        },)*)*];
    };
}

variables! {
    "Requests" {
        REQUEST = "SLURM_GPUBIND", set by "user", read by "srun (plugin), `gpubind exec`":
            "the user's personal default, for steps of which nobody has said anything";
        JOB_REQUEST = "SLURM_GPUBIND_JOB", set by "sbatch, salloc, srun (plugin)", read by "srun (plugin), plugin, `gpubind exec`, `gpubind report`":
            "what the job, or the step around, has itself asked for: items, `slurm` for Slurm's own binding, or `GROUP:ITEMS` for each component with `;` between them";
        STEP_REQUEST = "SLURM_GPUBIND_STEP", set by "srun (plugin)", read by "plugin, in each task, which takes it away":
            "what is in effect in srun's own step, in the same form";
    }
    "What gpubind tells each rank" {
        GPU_UUID = "GPUBIND_GPU_UUID", set by "plugin, `gpubind exec`, shim", read by "logs, scripts, `gpubind report`":
            "UUIDs of the rank's own devices, with commas between them";
        GPU_PCI = "GPUBIND_GPU_PCI", set by "plugin, `gpubind exec`, shim", read by "logs, scripts":
            "PCI addresses of the rank's own devices";
        GPU_INDEX = "GPUBIND_GPU_INDEX", set by "plugin, `gpubind exec`, shim", read by "logs, scripts":
            "NVML's indices of the rank's own devices on the whole node, as nvidia-smi numbers them outside of jobs";
        GPU_ORDINAL = "GPUBIND_GPU_ORDINAL", set by "plugin, `gpubind exec`, shim", read by "logs, scripts":
            "numbers of the rank's own devices among those that the task can reach: what CUDA, NVML and nvidia-smi count in the task";
        NUMA_NODE = "GPUBIND_NUMA_NODE", set by "plugin, `gpubind exec`, shim", read by "logs, scripts":
            "NUMA nodes of each own device; several of one device with `+` between them";
        BOUND_LOCAL_RANK = "GPUBIND_LOCAL_RANK", set by "plugin, `gpubind exec`, shim", read by "logs, scripts, `gpubind exec`, `gpubind report`":
            "the number by which the rank was bound, whatever LOCAL_RANK says";
        WHY = "GPUBIND_WHY", set by "plugin, `gpubind exec`", read by "logs, `gpubind report`":
            "why these devices";
        ASSIGNED_LIST = "GPUBIND_VISIBLE", set by "plugin, `gpubind exec`, shim", read by "`gpubind exec`, `gpubind report --check`":
            "CUDA_VISIBLE_DEVICES as gpubind set it; where both are equal the list is in plan order and is not planned again";
        CPUS = "GPUBIND_CPUS", set by "plugin, `gpubind exec`, shim", read by "logs, scripts, `gpubind report --check`":
            "with `cpus=local`, the CPUs that the rank has been left";
        SHARING_WANTED = "GPUBIND_SHARE", set by "plugin, `gpubind exec`", read by "`gpubind report --check`":
            "`on` where several ranks on a device are wanted";
        RANK_VARIABLES_SET = "GPUBIND_RANK_ENV", set by "plugin, `gpubind exec`", read by "plugin, `gpubind exec`, `gpubind report`":
            "`NAME=VALUE` of each rank variable, and of CUDA_DEVICE_ORDER, that gpubind itself has set, with commas between them";
        WORKERS = "GPUBIND_WORKERS", set by "plugin, shim, `gpubind exec`", read by "shim, `gpubind exec`, `gpubind report`":
            "the record for the worker shim of a task that keeps several devices; `done` in a worker that has its device, and in all below it";
    }
    "Options of the program" {
        OPTION_NVML = "GPUBIND_NVML", set by "user", read by "the `gpubind` program (`--nvml`)":
            "the NVML library";
        OPTION_FSROOT = "GPUBIND_FSROOT", set by "user", read by "the `gpubind` program (`--fsroot`)":
            "folder in front of /sys, /proc, /dev and /run";
        OPTION_LOG = "GPUBIND_LOG", set by "user", read by "the `gpubind` program":
            "which diagnostics go to stderr: error, warn, info, debug or trace";
        NO_COLOR = "NO_COLOR", set by "user", read by "the `gpubind` program":
            "no colour (no-color.org)";
        COLUMNS = "COLUMNS", set by "user, shell", read by "`gpubind topo`, `gpubind plan`":
            "how many columns text may have; else as many as the terminal has, and without one any number";
    }
    "Device lists" {
        CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES", set by "Slurm; then plugin, `gpubind exec`, shim", read by "CUDA; plugin, shim, program":
            "the devices that CUDA shows, in this order";
        CUDA_DEVICE_ORDER = "CUDA_DEVICE_ORDER", set by "plugin, `gpubind exec`", read by "CUDA":
            "PCI_BUS_ID, so that numbers count in PCI order";
        GPU_DEVICE_ORDINAL = "GPU_DEVICE_ORDINAL", set by "Slurm; then plugin, `gpubind exec`, shim", read by "OpenCL on AMD":
            "narrowed to match where Slurm has set it";
        ROCR_VISIBLE_DEVICES = "ROCR_VISIBLE_DEVICES", set by "Slurm; then plugin, `gpubind exec`, shim", read by "ROCm":
            "narrowed to match where Slurm has set it";
        ZE_AFFINITY_MASK = "ZE_AFFINITY_MASK", set by "Slurm; then plugin, `gpubind exec`, shim", read by "oneAPI Level Zero":
            "narrowed to match where Slurm has set it";
    }
    "Ranks" {
        RANK = "RANK", set by "torchrun; plugin, `gpubind exec` with rank-env", read by "programs":
            "the rank's number in the step";
        WORLD_SIZE = "WORLD_SIZE", set by "torchrun; plugin, `gpubind exec` with rank-env", read by "programs":
            "number of ranks in the step";
        LOCAL_RANK = "LOCAL_RANK", set by "torchrun; plugin, `gpubind exec` with rank-env", read by "programs, shim, program":
            "the rank's number on its node; 0 where exactly one device is visible and local-rank=virtual";
        LOCAL_WORLD_SIZE = "LOCAL_WORLD_SIZE", set by "torchrun; plugin, `gpubind exec` with rank-env", read by "programs, shim, program":
            "number of ranks on this node";
        LOCAL_SIZE = "LOCAL_SIZE", set by "deepspeed", read by "shim, program":
            "number of workers on this node";
        NODE_RANK = "NODE_RANK", set by "plugin, `gpubind exec` with rank-env", read by "programs":
            "the node's number in the step";
        MASTER_ADDR = "MASTER_ADDR", set by "torchrun; plugin, `gpubind exec` with rank-env", read by "programs":
            "the host of rank 0";
        MASTER_PORT = "MASTER_PORT", set by "torchrun; plugin, `gpubind exec` with rank-env", read by "programs":
            "the port of rank 0";
        PYTORCH_VERSION = "PYTORCH_VERSION", set by "images of PyTorch", read by "shim":
            "there pyxis sets LOCAL_RANK";
        OMP_NUM_THREADS = "OMP_NUM_THREADS", set by "user; plugin, `gpubind exec` with omp", read by "OpenMP":
            "with `omp`, the number of the rank's cores where it is unset";
        SUBMITIT_EXECUTOR = "SUBMITIT_EXECUTOR", set by "submitit", read by "plugin, `gpubind exec`":
            "the launcher sets rank variables itself";
        TORCHELASTIC_RUN_ID = "TORCHELASTIC_RUN_ID", set by "torchrun", read by "shim, plugin, program":
            "only torchrun's workers have it";
    }
    "Other launchers" {
        OMPI_LOCAL_RANK = "OMPI_COMM_WORLD_LOCAL_RANK", set by "Open MPI", read by "shim, program":
            "number on the node";
        OMPI_LOCAL_SIZE = "OMPI_COMM_WORLD_LOCAL_SIZE", set by "Open MPI", read by "shim, program":
            "how many there are on the node";
        OMPI_RANK = "OMPI_COMM_WORLD_RANK", set by "Open MPI", read by "program":
            "number among all";
        MV2_LOCAL_RANK = "MV2_COMM_WORLD_LOCAL_RANK", set by "MVAPICH", read by "shim, program":
            "number on the node";
        MV2_LOCAL_SIZE = "MV2_COMM_WORLD_LOCAL_SIZE", set by "MVAPICH", read by "shim, program":
            "how many there are on the node";
        MV2_RANK = "MV2_COMM_WORLD_RANK", set by "MVAPICH", read by "program":
            "number among all";
        MPI_LOCAL_RANK = "MPI_LOCALRANKID", set by "MPICH, Intel MPI", read by "shim, program":
            "number on the node";
        MPI_LOCAL_SIZE = "MPI_LOCALNRANKS", set by "MPICH, Intel MPI", read by "shim, program":
            "how many there are on the node";
        PALS_LOCAL_RANK = "PALS_LOCAL_RANKID", set by "PALS", read by "shim, program":
            "number on the node";
        PALS_LOCAL_SIZE = "PALS_LOCAL_SIZE", set by "PALS", read by "shim, program":
            "how many there are on the node";
        PALS_RANK = "PALS_RANKID", set by "PALS", read by "program":
            "number among all";
        FLUX_LOCAL_RANK = "FLUX_TASK_LOCAL_ID", set by "Flux", read by "shim, program":
            "number on the node";
        FLUX_RANK = "FLUX_TASK_RANK", set by "Flux", read by "program":
            "number among all";
        PMI_LOCAL_RANK = "PMI_LOCAL_RANK", set by "PMI process managers", read by "shim, program":
            "number on the node";
        PMI_LOCAL_SIZE = "PMI_LOCAL_SIZE", set by "PMI process managers", read by "shim, program":
            "how many there are on the node";
        PMI_RANK = "PMI_RANK", set by "PMI process managers", read by "program":
            "number among all";
        PMIX_LOCAL_RANK = "PMIX_LOCAL_RANK", set by "PMIx", read by "shim, program":
            "number on the node";
        PMIX_RANK = "PMIX_RANK", set by "PMIx", read by "program":
            "number among all";
    }
    "The dynamic linker" {
        LD_PRELOAD = "LD_PRELOAD", set by "user; plugin, shim", read by "ld.so(8)":
            "gains the shim in a task that keeps several devices";
        LD_LIBRARY_PATH = "LD_LIBRARY_PATH", set by "user", read by "ld.so(8); `gpubind exec`":
            "handed on to the child that reads NVML";
        PATH = "PATH", set by "user", read by "srun, sbatch, salloc (plugin), `gpubind exec`":
            "whether a word names a program";
    }
    "Slurm: the job and the step" {
        JOB_ID = "SLURM_JOB_ID", set by "Slurm", read by "plugin, program":
            "the job";
        JOBID = "SLURM_JOBID", set by "Slurm", read by "plugin":
            "the same, by its older name";
        STEP_ID = "SLURM_STEP_ID", set by "Slurm", read by "program":
            "the step";
        JOB_PARTITION = "SLURM_JOB_PARTITION", set by "Slurm", read by "plugin, program":
            "for `[partition.NAME]`";
        JOB_CONSTRAINTS = "SLURM_JOB_CONSTRAINTS", set by "a site's own plugin", read by "plugin, program":
            "for `[constraint.NAME]`; no release sets it in a step";
        NODE_NAME = "SLURMD_NODENAME", set by "Slurm", read by "plugin, program":
            "the node's name";
        PROC_ID = "SLURM_PROCID", set by "Slurm", read by "plugin, program":
            "the task's number in the step";
        LOCAL_ID = "SLURM_LOCALID", set by "Slurm", read by "plugin, program":
            "the task's number on its node";
        TASK_PID = "SLURM_TASK_PID", set by "Slurm", read by "program":
            "the task's own process, which is no launcher's worker whatever the job exports";
        NODE_ID = "SLURM_NODEID", set by "Slurm", read by "plugin, program":
            "the node's number in the step";
        STEP_NUM_TASKS = "SLURM_STEP_NUM_TASKS", set by "Slurm", read by "plugin, program":
            "number of tasks in the step";
        STEP_NUM_NODES = "SLURM_STEP_NUM_NODES", set by "Slurm", read by "plugin":
            "number of nodes of the step";
        STEP_TASKS_PER_NODE = "SLURM_STEP_TASKS_PER_NODE", set by "srun", read by "plugin, program":
            "tasks on each node, such as `4(x2),3`";
        DISTRIBUTION = "SLURM_DISTRIBUTION", set by "srun", read by "plugin, program":
            "how tasks are dealt to nodes";
        STEP_NODE_LIST = "SLURM_STEP_NODELIST", set by "Slurm", read by "plugin, program":
            "the step's nodes";
        NODE_LIST = "SLURM_NODELIST", set by "Slurm", read by "plugin, program":
            "the job's nodes";
        HET_SIZE = "SLURM_HET_SIZE", set by "Slurm", read by "srun, sbatch, salloc (plugin)":
            "number of components of a heterogeneous job";
        OCI_CONTAINER = "SLURM_CONTAINER", set by "Slurm", read by "plugin":
            "the OCI bundle of `srun --container`";
        PYXIS_IMAGE = "PYXIS_CONTAINER_IMAGE", set by "user", read by "pyxis; plugin":
            "pyxis's `--container-image` by the environment: whether a step has a container";
        PYXIS_NAME = "PYXIS_CONTAINER_NAME", set by "user", read by "pyxis; plugin":
            "its `--container-name`";
        SLURM_CONF = "SLURM_CONF", set by "user, slurmd", read by "the `gpubind` program":
            "where slurm.conf is";
    }
    "Slurm: GPUs and CPUs" {
        JOB_GPUS = "SLURM_JOB_GPUS", set by "Slurm", read by "plugin":
            "the job's GPUs on the batch script's node, as gres indices";
        STEP_GPUS = "SLURM_STEP_GPUS", set by "Slurm", read by "plugin, program":
            "the step's GPUs, as gres indices";
        CPUS_ON_NODE = "SLURM_CPUS_ON_NODE", set by "Slurm", read by "`gpubind report --check`":
            "how many CPUs the step has on this node";
        GPUS_ON_NODE = "SLURM_GPUS_ON_NODE", set by "Slurm", read by "program":
            "how many GPUs the step has on this node";
        GRES = "SLURM_GRES", set by "user", read by "srun (plugin)":
            "srun's `--gres` by the environment";
        SHARDS_ON_NODE = "SLURM_SHARDS_ON_NODE", set by "Slurm", read by "plugin":
            "set in a job with gres/shard";
        MPS_PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", set by "Slurm", read by "plugin":
            "set in a job with gres/mps";
        GPU_BIND = "SLURM_GPU_BIND", set by "user; sbatch, salloc; srun (plugin)", read by "srun; srun (plugin)":
            "srun's `--gpu-bind` by the environment";
        TRES_BIND = "SLURM_TRES_BIND", set by "user; sbatch, salloc, from 23.11 on srun; srun (plugin)", read by "srun; plugin":
            "the same for any TRES; from 23.11 on also the text for the binding of the step itself";
        SBATCH_GPU_BIND = "SBATCH_GPU_BIND", set by "user", read by "sbatch; sbatch (plugin)":
            "sbatch's `--gpu-bind`";
        SBATCH_TRES_BIND = "SBATCH_TRES_BIND", set by "user", read by "sbatch; sbatch (plugin)":
            "sbatch's `--tres-bind`, from 23.11 on";
        SALLOC_GPU_BIND = "SALLOC_GPU_BIND", set by "user", read by "salloc; salloc (plugin)":
            "salloc's `--gpu-bind`";
        SALLOC_TRES_BIND = "SALLOC_TRES_BIND", set by "user", read by "salloc; salloc (plugin)":
            "salloc's `--tres-bind`, from 23.11 on";
        STEP_TRES_BIND = "SLURMD_TRES_BIND", set by "slurmstepd", read by "plugin, in each task":
            "the text for the binding of the task's step; inherited where a step has none";
        GPUS_PER_TASK = "SLURM_GPUS_PER_TASK", set by "sbatch, salloc", read by "srun; srun (plugin)":
            "has Slurm bind GPUs to tasks of its own accord";
        NTASKS_PER_GPU = "SLURM_NTASKS_PER_GPU", set by "sbatch, salloc", read by "srun; srun (plugin)":
            "has Slurm bind GPUs to tasks of its own accord";
        TRES_PER_TASK = "SLURM_TRES_PER_TASK", set by "sbatch, salloc", read by "srun; srun (plugin)":
            "has Slurm bind GPUs to tasks of its own accord where it names gpu";
        SCRIPT_OPTION = "SLURM_SPANK__SLURM_SPANK_OPTION_gpubind_gpubind", set by "sbatch, salloc", read by "srun; sbatch, salloc (plugin)":
            "hands `#SBATCH --gpubind` down";
        CPU_BIND_TYPE = "SLURM_CPU_BIND_TYPE", set by "Slurm", read by "plugin, program":
            "the form of SLURM_CPU_BIND_LIST";
        CPU_BIND_LIST = "SLURM_CPU_BIND_LIST", set by "Slurm", read by "plugin, program":
            "masks, CPUs or NUMA nodes of the node's tasks";
    }
}
