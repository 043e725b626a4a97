//! What a user should know once per node; under `strict`, why a task fails.

use crate::node::IdSet;
use crate::step::Contradiction;
use crate::words::count;

/// Something that keeps a step from being bound as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// Several tasks on a device, and nobody asked for it.
    #[error(
        "{tasks} tasks share {devices} on this node; add `share` if that is wanted, else ask for \
         more GPUs or start fewer tasks per node", devices = count(*devices, "GPU")
    )]
    Shared {
        /// Tasks of the step on this node.
        tasks: usize,
        /// Devices of the step on this node.
        devices: usize,
    },
    /// The node's GPUs could not be read, so nearness is not known.
    #[error("{reason}; affinity is unknown, so GPUs are assigned in index order")]
    NodeUnknown {
        /// Why it could not be read.
        reason: String,
    },
    /// The step has no device on this node.
    #[error("the step has no GPU on this node; the environment stays as Slurm made it")]
    NoDevice,
    /// Slurm's list names nothing that NVML lists, or none of it can be used.
    #[error("{reason}; each task is given an entry of Slurm's own list")]
    ListOnly {
        /// What does not fit.
        reason: String,
    },
    /// Slurm's list counts something else than GPUs.
    #[error("{reason}; the environment stays as Slurm made it")]
    Uncountable {
        /// What cannot be told apart.
        reason: String,
    },
    /// Devices of the step that cannot be used; the others are given.
    #[error(
        "the step's {} cannot be used; its tasks are given the other {}",
        names.join(" and "), count(*left, "GPU")
    )]
    Lost {
        /// What cannot be used, in words.
        names: Vec<String>,
        /// Devices of the step that can.
        left: usize,
    },
    /// The process runs in a container that lacks some of the step's device files.
    #[error(
        "this container has {} of the step's {}; its tasks are given those",
        there, count(there + absent, "GPU")
    )]
    FewerInContainer {
        /// Devices of the step that are in the container.
        there: usize,
        /// Devices of the step that are not.
        absent: usize,
    },
    /// The process runs in a container that lacks all of the step's device files.
    #[error(
        "this container has no device file of the step's {}; the environment stays as Slurm \
         made it", count(*devices, "GPU")
    )]
    NoDeviceFile {
        /// Devices of the step on this node.
        devices: usize,
    },
    /// A process that sees several MIG instances.
    #[error(
        "each task sees {instances} MIG instances, of which CUDA uses the first only; start one \
         task for each instance"
    )]
    SeveralInstances {
        /// How many.
        instances: usize,
    },
    /// The task keeps several devices for its workers, which cannot be told apart.
    #[error(
        "tasks keep several GPUs, but cannot read the worker shim where they run, so that each \
         worker of a launcher sees all of them; mount /usr/lib/gpubind into the container, or \
         start the workers by gpubind exec"
    )]
    NoShim,
    /// The image's variables win over gpubind's.
    #[error(
        "the container is entered after gpubind's turn, so that an image's own \
         CUDA_VISIBLE_DEVICES or LOCAL_RANK is in effect instead of gpubind's; put gpubind's line \
         behind pyxis's in plugstack.conf (`gpubind check` says which order there is)"
    )]
    Overwritten,
    /// The site keeps all of the step's devices from its ranks.
    #[error(
        "the site keeps {devices} of this node from all ranks (exclude in gpubind.toml), and the \
         step has no other; the environment stays as Slurm made it", devices = count(*devices, "GPU")
    )]
    Excluded {
        /// The step's devices on this node.
        devices: usize,
    },
    /// Neither the machine nor a list tells of any device.
    #[error("{reason}; the environment stays as it is")]
    NothingKnown {
        /// Why the machine could not be read.
        reason: String,
    },
    /// A device list that fits nothing that the process can reach.
    #[error(
        "CUDA_VISIBLE_DEVICES={list} names no GPU that this process can reach; the environment \
         stays as it is"
    )]
    NamesNothing {
        /// The list.
        list: String,
    },
    /// A process in a step whose devices nothing tells.
    #[error(
        "this process is in a job step, and neither CUDA_VISIBLE_DEVICES nor SLURM_STEP_GPUS says \
         which GPUs are the step's; hand both on to it (for a container: -e 'SLURM*' -e 'CUDA*' \
         -e 'GPUBIND*'); the environment stays as it is"
    )]
    StepUnknown,
    /// A process in a container that no variable of Slurm's has come into.
    #[error(
        "this process is in a container, nothing says whether it is in a job step, and it takes \
         all of the {devices} GPUs that it can reach; in a step, hand on what Slurm and gpubind \
         have set (-e 'SLURM*' -e 'CUDA*' -e 'GPUBIND*'), or give the container the step's GPUs only"
    )]
    MayBeInStep {
        /// How many.
        devices: usize,
    },
    /// A machine without GPUs, or none that the process can reach.
    #[error("this process can reach no GPU; the environment stays as it is")]
    NoGpu,
    /// Rank variables that were exported before the step began.
    #[error(
        "{found}: exported before srun, these are the same in all tasks; the GPUs follow Slurm's \
         numbers (without the export, each task gets its own)"
    )]
    RanksContradict {
        /// Which, and what they contradict.
        found: Contradiction,
    },
    /// Tasks that have other CPUs than Slurm has given them, and have not said which.
    #[error(
        "a script has changed this task's CPUs, and gpubind exec of local ranks {ranks} has not \
         said theirs; GPUs are planned by the CPUs that Slurm has given"
    )]
    CpusUnknown {
        /// Their local ranks.
        ranks: IdSet,
    },
    /// With `cpus=local`, tasks that have no local CPU to keep.
    #[error(
        "cpus=local: none of the CPUs of local ranks {ranks} is local to their GPUs, so these \
         ranks keep the CPUs that they have; give the tasks more CPUs (--cpus-per-task, \
         --cpu-bind=none)"
    )]
    NoLocalCpus {
        /// Their local ranks.
        ranks: IdSet,
    },
    /// UUIDs were asked for and are not known.
    #[error("ids=uuid: the UUIDs of this node's GPUs are unknown; they are written as indices")]
    UuidUnknown,
    /// Slurm itself has narrowed each task to some of the step's GPUs.
    #[error(
        "Slurm's own binding lets this task reach {reachable} of the step's {step}; the \
         environment stays as Slurm made it (with --gpu-bind=spank on the srun that starts the \
         step, all stay reachable)",
        step = count(*step, "GPU")
    )]
    Narrowed {
        /// Reachable GPUs.
        reachable: usize,
        /// GPUs of the step on this node.
        step: usize,
    },
}

impl Warning {
    /// Whether it keeps some programs from being bound as asked, for which `strict` ends
    /// all: what a program is nobody knows beforehand. Only for [`super::Edits::notes`].
    pub fn is_grave(&self) -> bool {
        matches!(self, Warning::NoShim | Warning::Overwritten)
    }
}
