//! What a user asks for, and how that gets from a command line to the tasks.
//!
//! | file | what lives there |
//! |---|---|
//! | `items` | the one table of items: names, values, defaults, meaning |
//! | `grammar` | a request as text |
//! | `binding` | whose binding is asked for; the values of `--gpu-bind` and `--tres-bind` |
//! | `command` | srun, sbatch and salloc |
//! | `slurm_options` | the options of srun, sbatch and salloc in each release |
//! | `arguments` | such a command line word by word, as getopt_long(3) reads it |
//! | `command_line` | what one says |
//! | `reading` | finding that, and the words to replace |
//! | `script` | a batch script's `#SBATCH` lines |
//! | `bind_variables` | SLURM_GPU_BIND and its like, as a user sets them |
//! | `transport` | bindings as a variable carries them |
//! | `slurm_variables` | what Slurm's own variables say of a binding |
//! | `propagation` | the variables that carry a request to the tasks (the sender) |
//! | `component` | which request is a task's own (the receiver) |
//!
//! Everything here is text in, data out. What a request *does* to a task is in
//! [`crate::plan`] and [`crate::bind`]; how a site's settings combine with it in
//! [`crate::site`].

mod arguments;
mod bind_variables;
mod binding;
mod command;
mod command_line;
mod component;
mod grammar;
mod items;
mod propagation;
mod reading;
mod script;
mod slurm_options;
mod slurm_variables;
mod transport;

pub use bind_variables::accept_in_variables;
pub use binding::Binding;
pub use command::Command;
pub use command_line::{CommandLine, CommandLineError, Component, Unclear};
pub use component::{
    ComponentPosition, StepRequest, inside_component, script_request, step_request,
};
pub use grammar::{RequestError, items_help};
pub use items::{
    Cpus, Form, GivenBy, ITEMS, Ids, Item, ItemValue, LocalRank, Mode, Request, Settings,
    written_items,
};
pub use propagation::{
    VariableError, job_request, personal_default, propagate, request_of_process,
};
pub use reading::read_command_line;
pub use script::{ScriptError, read_script};
pub use slurm_options::{Arity, long_options, short_option};
pub use slurm_variables::is_none_spank;
pub use transport::Bindings;

/// A variable to set or, without a value, to unset.
pub type Change = (String, Option<String>);
