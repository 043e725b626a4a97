//! The steps that are counted and checked.

use std::process::Command;

use crate::machine::{GPUS, Machine, root, stage};

/// What kind of step it is, and of which program the hooks are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// A step without GPUs that asks for nothing: most steps of a cluster.
    NoGpus,
    /// A step with all GPUs that asks for nothing.
    NotAsked,
    /// A step with all GPUs, `--gpu-bind=spank`, and a snapshot that is current.
    Asked,
    /// The same on one of 10,000 nodes whose names have no ranges.
    ManyNodes,
    /// srun with `--gpu-bind=spank` and without.
    SrunNotAsked,
    SrunAsked,
}

pub const STEPS: [Scenario; 3] = [Scenario::NoGpus, Scenario::NotAsked, Scenario::Asked];
pub const TASKS: [u32; 3] = [8, 64, 512];
pub const CLIENTS: [Scenario; 2] = [Scenario::SrunNotAsked, Scenario::SrunAsked];
/// As many names as Slurm's longest list of a large cluster has.
const NODES: u32 = 10_000;

impl Scenario {
    pub fn name(self) -> &'static str {
        match self {
            Scenario::NoGpus => "step without GPUs",
            Scenario::NotAsked => "step with GPUs, not asked for",
            Scenario::Asked => "step, asked for",
            Scenario::ManyNodes => "step on 10,000 nodes, asked for",
            Scenario::SrunNotAsked => "srun, not asked for",
            Scenario::SrunAsked => "srun, asked for",
        }
    }

    pub fn is_client(self) -> bool {
        CLIENTS.contains(&self)
    }

    /// Adds the stand-in with all its arguments to a command, behind `options` of its own.
    pub fn add_to(self, command: &mut Command, machine: &Machine, tasks: u32, options: &[&str]) {
        command.arg(stage().join("spank-host")).args(options);
        for word in machine.plugin_args() {
            command.arg("--arg").arg(word);
        }
        let plugin = stage().join("spank_gpubind.so");
        if self.is_client() {
            command.arg("--as=srun").arg(plugin).args(["--", "srun", "-N2", "--ntasks-per-node=8"]);
            if self == Scenario::SrunAsked {
                command.arg("--gpu-bind=spank:single");
            }
            command.args(["--gpus-per-node=8", "python", "train.py", "--epochs", "9"]);
            return;
        }
        command.arg("--tasks").arg(tasks.to_string()).arg("--cpu-map=0,1");
        // What Slurm sets for any step, with a user's own variables.
        command.arg("--env").arg(root().join("tests/hooks/step.env"));
        let masks: Vec<String> = (0..tasks).map(|task| format!("0x{}", 1 + task % 2)).collect();
        command.arg(format!("--task-set=SLURM_CPU_BIND_LIST={}", masks.join(",")));
        command.arg("--task-set=SLURM_CPU_BIND_TYPE=mask_cpu:");
        if self != Scenario::NoGpus {
            let all: Vec<String> = (0..GPUS).map(|gpu| gpu.to_string()).collect();
            for name in ["SLURM_STEP_GPUS", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"] {
                command.arg(format!("--set={name}={}", all.join(",")));
            }
        }
        if matches!(self, Scenario::Asked | Scenario::ManyNodes) {
            // As the plugin has it travel from srun; `none` takes the list away.
            command.args(["--set=SLURM_GPUBIND=single", "--task-set=CUDA_VISIBLE_DEVICES"]);
            command.args(["--task-set=SLURM_STEP_GPUS", "--task-set=GPU_DEVICE_ORDINAL"]);
        }
        if self == Scenario::ManyNodes {
            let names: Vec<String> = (0..NODES).map(|node| format!("n{node:04}-gpu")).collect();
            command.arg(format!("--set=SLURM_STEP_NODELIST={}", names.join(",")));
            command.arg(format!("--set=SLURM_STEP_NUM_NODES={NODES}"));
            command.arg(format!("--set=SLURM_STEP_TASKS_PER_NODE={tasks}(x{NODES})"));
        }
        command.arg(plugin);
    }
}
