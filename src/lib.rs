//! gpubind gives every rank of a Slurm job step its own nearest GPU.
//!
//! The heart is one pure function, [`bind::edits`]: from a [`node::Node`], the
//! step's [`step::Allocation`], its tasks' CPU sets, the [`config::Settings`]
//! and one local rank it makes the changes to that rank's environment. The
//! SPANK plugin (`spank/`) and the `gpubind` program ([`cli`]) only gather those
//! inputs or apply those changes; they hold no policy of their own.
//!
//! | folder | what lives there |
//! |---|---|
//! | [`node`] | what a machine has: the model, reading NVML, the snapshot |
//! | [`step`] | what Slurm gave this step: allocation, CPU sets, tasks |
//! | [`plan`] | who gets what: cost, solver, the plan |
//! | [`bind`] | what that makes of a process's environment |
//! | [`config`] | the request grammar, plugstack arguments, precedence |
//! | [`slurm`] | how the site has set up Slurm, and whether that fits the machine |
//! | [`cli`] | the `gpubind` program, a file per command |

pub mod bind;
#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
pub mod node;
pub mod plan;
pub mod slurm;
pub mod step;
