//! gpubind's SPANK plugin: hooks that call the library, nothing else.
//!
//! | hook | srun, sbatch, salloc | slurmd | slurmstepd |
//! |---|---|---|---|
//! | init | [`client`]: reads the command line, before Slurm does | [`step`]: has the node read | reads plugstack.conf's arguments |
//! | init_post_opt | [`client`]: takes `#SBATCH --gpubind=` | – | [`step`]: what the step owns, what the node has |
//! | task_post_fork | – | – | [`step`]: on which CPUs the task may run |
//! | task_init | – | – | [`task`]: the environment of one task |
//!
//! No hook ever returns an error: a failing hook of a required plugin drains
//! nodes (doc/man/man8/spank.8). Under `strict`, task_init ends its own task.

mod argv;
mod client;
mod constructor;
mod say;
mod step;
mod task;

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};

use gpubind_core::site::{Origin, PlugstackArgs};
use slurm_spank::{Context, Plugin, SPANK_PLUGIN, SpankHandle, SpankOption};

/// What Slurm's plugin loader looks for; the macro leaves the items undocumented.
#[allow(missing_docs)]
mod symbols {
    use super::{Gpubind, Plugin, SPANK_PLUGIN};

    // No release has version word 1: the constructor writes the right one before
    // Slurm reads it.
    SPANK_PLUGIN!(b"gpubind", 1, Gpubind);
}

/// The plugin's state in one process; tasks inherit it through fork(2).
#[derive(Default)]
struct Gpubind {
    args: PlugstackArgs,
    client: client::Client,
    step: Option<step::Step>,
}

/// What a hook gives back to Slurm.
type Hook = Result<(), Box<dyn Error>>;

// SAFETY: the trait asks for care because task hooks run in a forked child of
// slurmstepd; this plugin starts no threads and holds no locks across a fork.
unsafe impl Plugin for Gpubind {
    fn setup(&mut self, _: &mut SpankHandle) -> Hook {
        // A panic's own text would go to fd 2, which in slurmstepd is not ours;
        // `guard` tells it through Slurm.
        set_hook(Box::new(|_| {}));
        Ok(())
    }

    fn report_error(&self, _: &mut SpankHandle, error: &dyn Error) {
        say::error(&error.to_string());
    }

    fn init(&mut self, spank: &mut SpankHandle) -> Hook {
        guard("init", || {
            let option = SpankOption::new("gpubind").takes_value("ITEM,...").usage(client::USAGE);
            if spank.register_option(option).is_err() {
                say::debug("another plugin has the option --gpubind; --gpu-bind=spank still works");
            }
            match spank.context() {
                Ok(Context::Local | Context::Allocator) => self.client = client::init(),
                Ok(Context::Remote) => self.args = args(spank),
                Ok(Context::Slurmd) => step::refresh(&args(spank)),
                _ => {}
            }
        });
        Ok(())
    }

    fn init_post_opt(&mut self, spank: &mut SpankHandle) -> Hook {
        guard("init_post_opt", || match spank.context() {
            Ok(Context::Local | Context::Allocator) => {
                let value = spank.get_option_value_lossy("gpubind");
                client::after_options(&self.client, value.as_deref());
            }
            Ok(Context::Remote) => self.step = step::read(spank, &self.args),
            _ => {}
        });
        Ok(())
    }

    fn task_post_fork(&mut self, spank: &mut SpankHandle) -> Hook {
        if let Some(step) = &self.step {
            guard("task_post_fork", || step::record(spank, step));
        }
        Ok(())
    }

    fn task_init(&mut self, spank: &mut SpankHandle) -> Hook {
        if let Some(step) = &self.step {
            guard("task_init", || task::bind(spank, step));
        }
        Ok(())
    }
}

/// plugstack.conf's arguments; wrong ones are told and do not count.
fn args(spank: &SpankHandle) -> PlugstackArgs {
    let (args, errors) =
        PlugstackArgs::read(spank.plugin_argv().unwrap_or_default(), &Origin::Plugstack(None));
    errors.iter().for_each(|error| say::error(&error.to_string()));
    args
}

/// Runs a hook's work; a panic is told in one line and the step goes on unbound.
fn guard(hook: &str, work: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("no message");
        say::error(&format!("internal error in {hook}: {text}; the step goes on without gpubind"));
    }
}
