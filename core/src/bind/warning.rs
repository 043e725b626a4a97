//! What a user should know once per node; under `strict`, why a task fails.

/// Something that keeps a step from being bound as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// Several tasks on a device, and nobody asked for it.
    #[error(
        "{tasks} tasks share {devices} on this node; add `share` if that is wanted, else ask for \
         more GPUs or start fewer tasks per node", devices = count(*devices)
    )]
    Shared {
        /// Tasks of the step on this node.
        tasks: usize,
        /// Devices of the step on this node.
        devices: usize,
    },
    /// The node's GPUs could not be read, so nearness is not known.
    #[error("{reason}; affinity is unknown, so GPUs are given in their own order")]
    NodeUnknown {
        /// Why it could not be read.
        reason: String,
    },
    /// The step has no device on this node that could be named.
    #[error("no GPU of the step can be named on this node; the environment stays as Slurm made it")]
    NoDevice,
    /// The site keeps all of the step's devices from its ranks.
    #[error(
        "the site keeps {devices} of this node from all ranks (exclude in gpubind.toml), and the \
         step has no other; the environment stays as Slurm made it", devices = count(*devices)
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
    /// A machine without GPUs, or none that the process can reach.
    #[error("this process can reach no GPU; the environment stays as it is")]
    NoGpu,
    /// UUIDs were asked for and are not known.
    #[error("ids=uuid: the UUIDs of this node's GPUs are unknown; they are written as indices")]
    UuidUnknown,
    /// Slurm itself has narrowed each task to some of the step's GPUs.
    #[error(
        "Slurm's device cgroup lets this task reach {reachable} of the step's {step}; gpubind \
         stands aside (without --gpus-per-task or with --gpu-bind=spank, peers stay reachable)",
        step = count(*step)
    )]
    Narrowed {
        /// Reachable GPUs.
        reachable: usize,
        /// GPUs of the step on this node.
        step: usize,
    },
}

fn count(devices: usize) -> String {
    if devices == 1 { "1 GPU".to_owned() } else { format!("{devices} GPUs") }
}
