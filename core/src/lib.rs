//! All of gpubind that runs in srun, in Slurm's daemons or in a task.
//!
//! The heart is one pure function, [`bind::edits`]: from a [`node::Node`], the
//! step's [`step::Allocation`], its tasks' CPU sets, the [`site::Settings`]
//! and one local rank it makes the changes to that rank's environment. The
//! SPANK plugin (`spank/`) and the `gpubind` program (`src/`) only gather those
//! inputs or apply those changes; they hold no policy of their own.
//!
//! | module | what lives there |
//! |---|---|
//! | [`variables`] | every environment variable that gpubind reads or writes |
//! | [`node`] | what a machine has: the model, the snapshot |
//! | [`request`] | what a user asks for: grammar, command lines, the way to the tasks |
//! | [`site`] | what a site sets: gpubind.toml, plugstack.conf's arguments, precedence |
//! | [`step`] | what Slurm gave this step: allocation, CPU sets, ranks |
//! | [`plan`] | who gets what: cost, solver, the plan |
//! | [`bind`] | what that makes of a process's environment |
//! | [`child`] | running a program with a deadline |
//! | [`words`] | wording that several messages share |
//! | [`trusted`] | opening files that only root can have written |
//!
//! Each module uses only those above it in this order: `variables`, `trusted`,
//! `child`, `node`, `request`, `site`, `step`, `plan`, `bind`. What does *not* live
//! here: readers of NVML, of pasted text and of Slurm's files, and the commands.

pub mod bind;
pub mod child;
mod nearest;
pub mod node;
pub mod plan;
pub mod request;
mod shared_words;
pub mod site;
mod slurm_version;
pub mod step;
pub mod trusted;
pub mod words;

pub use gpubind_shim_core::variables;
pub use shared_words::shared_words;
pub use slurm_version::{SlurmRelease, plugin_version};
