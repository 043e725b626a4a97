//! How the site has set up Slurm: slurm.conf and gres.conf, as far as they matter to
//! GPUs, whether they fit the machine, and where Slurm's defaults put tasks on it.
//!
//! Read by `gpubind check` and `gpubind snapshot`, never by the plugin: a step asks Slurm
//! itself. What does
//! *not* live here: gpubind's own configuration and plugstack.conf ([`crate::config`]),
//! and what to say about any of it ([`crate::cli`]).
//!
//! | file | what it reads |
//! |---|---|
//! | `lines` | the form that all of Slurm's configuration files share |
//! | `conf` | slurm.conf, cgroup.conf and `scontrol show config`; a node's entry |
//! | `gres` | gres.conf, for one node |
//!
//! | file | what it says |
//! |---|---|
//! | `gres_rules` | what slurmd refuses in gres.conf, and types that differ from slurm.conf's |
//! | `gres_comparison` | gres.conf against the machine |
//! | `gres_order` | which GPU each of Slurm's indices means |
//! | `placement` | task plugins, and ranks that are far from their GPUs by default |

mod conf;
mod gres;
mod gres_comparison;
mod gres_line;
mod gres_order;
mod gres_rules;
mod hosts;
mod layout;
mod lines;
mod placement;
mod plugstack;
mod release;
mod single;
mod sockets;
mod step_cpus;

pub use conf::{NodeEntry, SlurmConf};
pub use gres::{GresGpu, GresLinks, NodeGres, expand, read as read_gres};
pub use gres_comparison::{GresComparison, Misplaced, compare_gres};
pub use gres_line::GresLine;
pub use gres_order::gres_minors;
pub use gres_rules::{GresRefusal, GresTypeProblem, type_problem};
pub(crate) use hosts::folded;
pub use layout::{Distribution, LayoutError, TaskLayout, layout};
pub use lines::{Line, Lines, ReadError};
pub use placement::{Placement, PlacementError, placement, task_plugins};
pub use plugstack::{PluginLine, PlugstackFile, PlugstackProblem, plugstack_path};
pub use release::{release, release_version};
pub use single::slurm_single;
pub use sockets::{cores, socket_cpus, sockets};
pub use step_cpus::{BindUnit, StepOptions, step_cpus};
