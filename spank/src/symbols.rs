//! What Slurm's plugin loader looks for: words about the plugin (its version word is the
//! constructor's), and the hooks. Nothing else is exported.

use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::sync::Mutex;

use gpubind_core::site::{Origin, PlugstackArgs};

use crate::client::{self, Client};
use crate::end::End;
use crate::spank::{Context, Spank};
use crate::step::{self, Step};
use crate::{log, sys, task};

/// The plugin's name, by which Slurm also names its option's variable.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "Slurm's name")]
pub static plugin_name: [u8; 8] = *b"gpubind\0";

/// What kind of plugin it is.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "Slurm's name")]
pub static plugin_type: [u8; 6] = *b"spank\0";

/// The plugin's state in one process; tasks inherit it through fork(2).
struct State {
    client: Client,
    args: PlugstackArgs,
    step: Option<Step>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

type Arguments = *const *const c_char;

/// Called when Slurm has loaded the plugin.
#[unsafe(no_mangle)]
pub extern "C" fn slurm_spank_init(
    handle: *mut sys::Handle,
    argc: c_int,
    argv: Arguments,
) -> c_int {
    // A panic's own text would go to fd 2, which in slurmstepd is not ours; the guard
    // reports it through Slurm.
    set_hook(Box::new(|_| {}));
    guard("init", handle, |spank| {
        if spank.register_option(client::OPTION, client::ARGUMENT, client::USAGE).is_err() {
            tracing::info!("another plugin has the option --gpubind; --gpu-bind=spank still works");
        }
        let mut state =
            State { client: Client::default(), args: PlugstackArgs::default(), step: None };
        let mut end = None;
        match spank.context() {
            context @ (Context::Local | Context::Allocator) => {
                (state.client, end) = client::init(context);
            }
            Context::Remote => {
                log::listen();
                state.args = plugstack_args(argc, argv);
            }
            Context::Slurmd => {
                log::listen();
                step::refresh(&plugstack_args(argc, argv));
            }
            Context::Other => {}
        }
        if let Ok(mut slot) = STATE.lock() {
            *slot = Some(state);
        }
        end
    })
}

/// Called when Slurm has parsed all options.
#[unsafe(no_mangle)]
pub extern "C" fn slurm_spank_init_post_opt(
    handle: *mut sys::Handle,
    _: c_int,
    _: Arguments,
) -> c_int {
    guard("init_post_opt", handle, |spank| {
        let mut slot = STATE.lock().ok()?;
        let state = slot.as_mut()?;
        match spank.context() {
            Context::Local | Context::Allocator => {
                return client::after_options(&state.client, spank.option().as_deref());
            }
            Context::Remote => state.step = step::read(spank, &state.args),
            Context::Slurmd | Context::Other => {}
        }
        None
    })
}

/// Called in slurmstepd for each task, when its CPUs are final and before it goes on.
#[unsafe(no_mangle)]
pub extern "C" fn slurm_spank_task_post_fork(
    handle: *mut sys::Handle,
    _: c_int,
    _: Arguments,
) -> c_int {
    guard("task_post_fork", handle, |spank| {
        let slot = STATE.lock().ok()?;
        let step = slot.as_ref()?.step.as_ref()?;
        step::record(spank, step);
        None
    })
}

/// Called in each task, as the user, just before it becomes the user's program.
#[unsafe(no_mangle)]
pub extern "C" fn slurm_spank_task_init(handle: *mut sys::Handle, _: c_int, _: Arguments) -> c_int {
    guard("task_init", handle, |spank| {
        let slot = STATE.lock().ok()?;
        let step = slot.as_ref()?.step.as_ref()?;
        task::bind(spank, step)
    })
}

/// Runs a hook's work. A panic is reported in one line, and the step goes on unbound.
/// Never fails: what a failing hook does to a node is not for gpubind to cause.
fn guard(hook: &str, handle: *mut sys::Handle, work: impl FnOnce(&Spank) -> Option<End>) -> c_int {
    // SAFETY: the hook that is running has got this handle.
    let spank = unsafe { Spank::new(handle) };
    let end = catch_unwind(AssertUnwindSafe(|| work(&spank))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("no message");
        log::error(&format!("internal error in {hook}: {text}; the step goes on without gpubind"));
        None
    });
    // Here no lock is held that something at the process's end could want.
    match end {
        None => 0,
        Some(End::Command(code)) => std::process::exit(code),
        // SAFETY: ends this forked child; nothing of Rust's is left half done.
        Some(End::Task(code)) => unsafe { libc::_exit(code) },
    }
}

/// plugstack.conf's arguments; wrong ones are reported and ignored.
fn plugstack_args(argc: c_int, argv: Arguments) -> PlugstackArgs {
    let mut words = Vec::new();
    for position in 0..usize::try_from(argc).unwrap_or(0) {
        // SAFETY: Slurm gives argc C strings, which live as long as the hook.
        let word = unsafe {
            let word = *argv.add(position);
            if word.is_null() { break } else { std::ffi::CStr::from_ptr(word) }
        };
        words.push(word.to_string_lossy());
    }
    let words = words.iter().map(AsRef::as_ref);
    let (args, errors) = PlugstackArgs::read(words, &Origin::Plugstack(None));
    errors.iter().for_each(|error| log::error(&error.to_string()));
    args
}
