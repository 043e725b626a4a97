//! What is done in a process.

use core::ffi::{CStr, c_char};
use gpubind_shim_core::worker::{Surplus, Worker, surplus_line};
use gpubind_shim_core::{Put, variables};

use crate::affinity;
use crate::environment::Environment;
use crate::space::Space;
use gpubind_shim_core::record::{
    Later, ProcessKind, Record, changes, classify, cpus_of, fingerprints, inherited_ranks,
    overwritten, without_shim,
};

unsafe extern "C" {
    /// environ(7).
    static mut environ: *mut *mut c_char;
    /// The last part of argv\[0\] (program_invocation_short_name(3)).
    static program_invocation_short_name: *const c_char;
}

/// Called by the dynamic linker.
pub extern "C" fn run() {
    // SAFETY: before main there is only this thread, and this is its only call. The
    // C library has set the variable, as a dependency; texts are never freed.
    let mut environment = unsafe { Environment::new(environ) };
    let Some(record) = environment.get(variables::WORKERS).and_then(Record::read) else { return };
    // SAFETY: null, or a C string that stays.
    let program = unsafe {
        match program_invocation_short_name {
            name if name.is_null() => &[],
            name => CStr::from_ptr(name).to_bytes(),
        }
    };
    // SAFETY: always succeeds.
    let process = unsafe { libc::getpid() };
    let process = u32::try_from(process).unwrap_or(0);
    match classify(&record, process, program, |name| environment.get(name)) {
        ProcessKind::Unaffected => {}
        ProcessKind::ContainerLauncher => leave(&mut environment),
        ProcessKind::Overwritten { serves } => {
            get_back(&mut environment, &record);
            if !serves {
                environment.remove(variables::WORKERS);
                leave(&mut environment);
            }
        }
        ProcessKind::Task(fingerprints) => {
            remember(&mut environment, &Record { fingerprints, ..record })
        }
        ProcessKind::Rank { is_last } => {
            forget_ranks(&mut environment);
            if is_last {
                leave(&mut environment);
            }
        }
        ProcessKind::Worker(worker) => {
            say(&|put| surplus_line(record.surplus, &worker, put));
            if worker.round > 0 && record.surplus == Surplus::Refused {
                // SAFETY: ends the process at once; nothing of the program has run.
                unsafe { libc::_exit(1) }
            }
            if !worker.has_ranks {
                forget_ranks(&mut environment);
            }
            if let Some(cpus) = cpus_of(&record, &worker) {
                affinity::leave(cpus);
            }
            narrow(&mut environment, &record, &worker);
            // All below have their device: nothing is left to do there.
            leave(&mut environment);
        }
    }
}

/// Writes a line to stderr, if there is one, in one piece and as far as that works.
fn say(line: &dyn Fn(Put)) {
    let mut length = 0;
    line(&mut |piece| length += piece.len());
    if length == 0 {
        return;
    }
    let Some(mut space) = Space::of(length) else { return };
    let text = space.bytes(line);
    // SAFETY: so many bytes have been written there.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, text.cast(), length) };
}

/// In a launcher's rank: RANK and the like are the task's above, not its own.
fn forget_ranks(environment: &mut Environment) {
    let mut names = [""; 8];
    let inherited = inherited_ranks(|name| environment.get(name));
    for (slot, name) in names.iter_mut().zip(inherited) {
        *slot = name;
    }
    for name in names.iter().filter(|name| !name.is_empty()) {
        environment.remove(name);
    }
}

/// In the task's own process: from here on its launchers' variables are known to be
/// its own. TaskProlog and other plugins may have set some after gpubind's turn.
fn remember(environment: &mut Environment, record: &Record) {
    let mut length = variables::WORKERS.len() + 2;
    record.write(&mut |piece| length += piece.len());
    let Some(mut space) = Space::of(length) else { return };
    let text = space.text(variables::WORKERS, |put| record.write(put));
    environment.replace(variables::WORKERS, text);
}

/// In the task's own process in a container: what the image has overwritten, once.
fn get_back(environment: &mut Environment, record: &Record) {
    replace(environment, &overwritten(record, |name| environment.get(name)));
    let fingerprints = fingerprints(|name| environment.get(name));
    remember(environment, &Record { fingerprints, later: Later::Kept, ..*record });
}

/// Gives a worker its device: all changes, or none.
fn narrow(environment: &mut Environment, record: &Record, worker: &Worker) {
    replace(environment, &changes(record, worker, |name| environment.get(name)));
}

fn replace(environment: &mut Environment, changes: &[(&str, Option<&[u8]>)]) {
    let changes = changes.iter().filter_map(|(name, value)| Some((*name, (*value)?)));
    let length = changes.clone().map(|(name, value)| name.len() + value.len() + 2).sum();
    let Some(mut space) = Space::of(length) else { return };
    for (name, value) in changes {
        let text = space.text(name, |put| put(value));
        environment.replace(name, text);
    }
}

/// Takes the shim, and nothing else, out of LD_PRELOAD.
fn leave(environment: &mut Environment) {
    let Some((before, after)) = environment.get(variables::LD_PRELOAD).and_then(without_shim)
    else {
        return;
    };
    if before.is_empty() && after.is_empty() {
        environment.remove(variables::LD_PRELOAD);
        return;
    }
    let length = variables::LD_PRELOAD.len() + before.len() + after.len() + 2;
    let Some(mut space) = Space::of(length) else { return };
    let text = space.text(variables::LD_PRELOAD, |put| {
        put(before);
        put(after);
    });
    environment.replace(variables::LD_PRELOAD, text);
}
