//! Init and shutdown, faults, and the call log.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpubind_machine::Machine;

use crate::code::{Answer, Code};
use crate::ffi::{Device, Target};
use crate::model::Model;
use crate::view;

struct State {
    /// How often init was called without a shutdown.
    users: u32,
    model: Option<Arc<Model>>,
    counts: BTreeMap<&'static str, u64>,
}

static STATE: Mutex<State> = Mutex::new(State { users: 0, model: None, counts: BTreeMap::new() });

fn state() -> MutexGuard<'static, State> {
    // A panic elsewhere leaves plain data, which stays usable.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One call from C: counts it, applies its faults, and turns the answer into a
/// return code. No panic leaves it.
pub fn call<const N: usize>(
    name: &'static str,
    devices: [Device; N],
    work: impl FnOnce(&Model, [Target; N]) -> Answer<()>,
) -> u32 {
    guard(|| {
        count(name);
        // The lock is not held while the call works or waits.
        let model = state().model.clone().ok_or(Code::UNINITIALIZED)?;
        let mut targets = [Target { gpu: 0, slot: None }; N];
        for (target, device) in targets.iter_mut().zip(devices) {
            *target = model.check(device.target()?)?;
        }
        model.suffer(name, &targets.map(|target| target.gpu))?;
        work(&model, targets)
    })
}

/// `nvmlInit`: reads the machine on the first call.
pub fn init(name: &'static str) -> u32 {
    guard(|| {
        count(name);
        let model = match state().model.clone() {
            Some(model) => model,
            None => Arc::new(load()?),
        };
        model.suffer(name, &[])?;
        if let Some(code) = model.machine.faults.init {
            return Err(Code(code));
        }
        let mut state = state();
        state.users += 1;
        state.model.get_or_insert(model);
        drop(state);
        log(&format!("init pid={}", std::process::id()));
        Ok(())
    })
}

/// `nvmlShutdown`: forgets the machine on the last call.
pub fn shutdown() -> u32 {
    guard(|| {
        let name = "nvmlShutdown";
        count(name);
        let model = state().model.clone().ok_or(Code::UNINITIALIZED)?;
        model.suffer(name, &[])?;
        let mut state = state();
        state.users = state.users.checked_sub(1).ok_or(Code::UNINITIALIZED)?;
        if state.users == 0 {
            state.model = None;
            let mut line = format!("shutdown pid={}", std::process::id());
            for (name, count) in std::mem::take(&mut state.counts) {
                let _ = write!(line, " {name}={count}");
            }
            drop(state);
            log(&line);
        }
        Ok(())
    })
}

fn guard(work: impl FnOnce() -> Answer<()>) -> u32 {
    let answer = catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Code::UNKNOWN));
    answer.err().unwrap_or(Code::SUCCESS).0
}

fn count(name: &'static str) {
    *state().counts.entry(name).or_default() += 1;
}

fn load() -> Answer<Model> {
    let file = std::env::var_os("FAKE_NVML_MACHINE").map(PathBuf::from);
    let file = file.or_else(|| Some(view::library_folder()?.join("machine.toml")));
    let file = file.unwrap_or_default();
    let complain = |why: String| {
        // A test with a broken fixture should see that, not a broken driver.
        eprintln!("fake nvml: {}: {why}", file.display());
        Code::UNKNOWN
    };
    let text = std::fs::read_to_string(&file).map_err(|error| complain(error.to_string()))?;
    let machine = Machine::parse(&text).map_err(|error| complain(error.to_string()))?;
    let folder = view::device_folder();
    if folder.as_deref().is_some_and(view::control_denied) {
        return Err(Code::UNKNOWN);
    }
    let may_use = |minor| folder.as_deref().is_none_or(|folder| view::may_use(folder, minor));
    let allowed = machine.gpus.iter().map(|gpu| may_use(gpu.minor)).collect();
    Ok(Model::new(machine, allowed))
}

/// One write per line, so that processes do not mix their lines.
fn log(line: &str) {
    let Some(file) = std::env::var_os("FAKE_NVML_CALLS") else {
        return;
    };
    let opened = OpenOptions::new().append(true).create(true).open(&file);
    if let Err(error) =
        opened.and_then(|mut opened| opened.write_all(format!("{line}\n").as_bytes()))
    {
        let file = PathBuf::from(file);
        eprintln!("fake nvml: {}: {error}", file.display());
    }
}
