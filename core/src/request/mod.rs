//! What a user asks for, and how that gets from a command line to the tasks.
//!
//! | file | what lives there |
//! |---|---|
//! | `items` | the one table of items: names, values, defaults, meaning |
//! | `grammar` | a request as text, and the value of `--gpu-bind` |
//! | `slurm_options` | which options of srun, sbatch and salloc take a value |
//! | `command_line` | gpubind's words on such a command line |
//! | `propagation` | the variables that carry a request to the tasks (the sender) |
//! | `component` | which request is a task's own (the receiver) |
//!
//! Everything here is text in, data out. What a request *does* to a task is in
//! [`crate::plan`] and [`crate::bind`]; how a site's settings combine with it in
//! [`crate::site`].

mod command_line;
mod component;
mod grammar;
mod propagation;
mod slurm_options;

pub use command_line::{Command, CommandLine, Component, Wish, read_command_line};
pub use component::{ComponentPosition, NotAsked, Wanted, wanted};
pub use grammar::{BindText, ITEMS, Ids, Item, LocalRank, Mode, Request, RequestError, bind_text};
pub use propagation::{Change, propagate, tres_bind_text, variables};
