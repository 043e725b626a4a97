//! gpubind's SPANK plugin: hooks that call the library, nothing else.
//!
//! | hook | srun, sbatch, salloc | slurmd | slurmstepd |
//! |---|---|---|---|
//! | init | [`client`]: reads the command line, before Slurm does | [`step`]: has the node read | reads plugstack.conf's arguments |
//! | init_post_opt | [`client`]: takes `#SBATCH --gpubind=` | – | [`step`]: what the step owns, what the node has |
//! | task_post_fork | – | – | [`step`]: on which CPUs the task may run |
//! | task_init | – | – | [`task`]: the environment of one task |
//!
//! | file | what lives there |
//! |---|---|
//! | `symbols` | what Slurm's plugin loader looks for, and the guard around each hook |
//! | `sys`, `spank` | Slurm's functions, as declared and as called |
//! | `log` | messages to the user, diagnostics to Slurm's log |
//! | `script` | the batch script, before sbatch reads it |
//! | `end` | ending a command or a task |
//! | `constructor`, `argv` | what happens before Slurm looks at the plugin |
//!
//! No hook ever returns an error: a failing hook of a required plugin drains
//! nodes (doc/man/man8/spank.8). Under `strict`, task_init ends its own task. No other
//! hook is exported: where a plugin has a job prolog or epilog, slurmd starts a process
//! for it in every job (src/slurmd/slurmd/req.c, _run_spank_job_script).

mod argv;
mod client;
mod constructor;
mod end;
mod log;
mod script;
mod spank;
mod step;
mod symbols;
mod sys;
mod task;
