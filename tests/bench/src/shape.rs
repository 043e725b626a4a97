//! How many tasks on how many nodes, and whether in a job of their own.

use clap::ValueEnum;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    #[value(name = "job-1x8")]
    Job1,
    #[value(name = "step-1x8")]
    Step1,
    #[value(name = "job-2x8")]
    Job2,
    #[value(name = "step-2x8")]
    Step2,
    #[value(name = "step-1x512")]
    Step512,
}

impl Shape {
    pub const ALL: [Shape; 5] =
        [Shape::Job1, Shape::Step1, Shape::Job2, Shape::Step2, Shape::Step512];
    /// Those that a bench without further words has.
    pub const USUAL: [Shape; 4] = [Shape::Job1, Shape::Step1, Shape::Job2, Shape::Step2];

    pub fn name(self) -> &'static str {
        match self {
            Shape::Job1 => "job-1x8",
            Shape::Step1 => "step-1x8",
            Shape::Job2 => "job-2x8",
            Shape::Step2 => "step-2x8",
            Shape::Step512 => "step-1x512",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Shape::Job1 => "a job of its own, 8 tasks on one node",
            Shape::Step1 => "a step in a running job, 8 tasks on one node",
            Shape::Job2 => "a job of its own, 8 tasks on each of two nodes",
            Shape::Step2 => "a step in a running job, 8 tasks on each of two nodes",
            Shape::Step512 => "a step in a running job, 512 tasks on one node",
        }
    }

    /// Whether the step runs in a job that is there before.
    pub fn is_in_job(self) -> bool {
        !matches!(self, Shape::Job1 | Shape::Job2)
    }

    /// Options of the salloc around it, where there is one.
    pub fn job_options(self) -> &'static [&'static str] {
        match self {
            // One task for each CPU: srun overcommits.
            Shape::Step512 => &["-N1", "--gpus-per-node=8"],
            shape => shape.options(),
        }
    }

    /// srun's options.
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Shape::Job1 | Shape::Step1 => &["-N1", "-n8", "--gpus-per-node=8"],
            Shape::Job2 | Shape::Step2 => {
                &["-N2", "-n16", "--ntasks-per-node=8", "--gpus-per-node=8"]
            }
            Shape::Step512 => &["-O", "-n512"],
        }
    }

    pub fn tasks(self) -> usize {
        match self {
            Shape::Job1 | Shape::Step1 => 8,
            Shape::Job2 | Shape::Step2 => 16,
            Shape::Step512 => 512,
        }
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(self.name())
    }
}
