//! What a user asks for, and how that gets from a command line to the tasks.
//!
//! | file | what lives there |
//! |---|---|
//! | `items` | the one table of items: names, values, defaults, meaning |
//! | `grammar` | a request as text |
//! | `binding` | whose binding is asked for; the values of `--gpu-bind` and `--tres-bind` |
//! | `command` | srun, sbatch and salloc |
//! | `slurm_options` | which options of srun, sbatch and salloc take a value |
//! | `command_line` | gpubind's words on such a command line |
//! | `transport` | bindings as a variable carries them |
//! | `slurm_variables` | what Slurm's own variables say of a binding |
//! | `propagation` | the variables that carry a request to the tasks (the sender) |
//! | `component` | which request is a task's own (the receiver) |
//!
//! Everything here is text in, data out. What a request *does* to a task is in
//! [`crate::plan`] and [`crate::bind`]; how a site's settings combine with it in
//! [`crate::site`].

mod binding;
mod command;
mod command_line;
mod component;
mod grammar;
mod items;
mod propagation;
mod slurm_options;
mod slurm_variables;
mod transport;

pub use binding::Binding;
pub use command::Command;
pub use command_line::{CommandLine, Component, read_command_line};
pub use component::{
    ComponentPosition, StepRequest, inside_component, script_request, step_request,
};
pub use grammar::RequestError;
pub use items::{
    Form, GivenBy, ITEMS, Ids, Item, ItemValue, LocalRank, Mode, Request, Settings, written_items,
};
pub use propagation::{
    Change, VariableError, job_request, personal_default, propagate, request_of_process,
};
pub use slurm_variables::is_none_spank;
pub use transport::Bindings;
