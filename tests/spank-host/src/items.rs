//! spank_get_item: facts of the job, by number (enum spank_item).

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use crate::exports::{BAD_ARG, NOEXIST, NOT_REMOTE, NOT_TASK, SUCCESS, is_handle};
use crate::state::{Context, State, Task, state};

/// A job that is no array has this array task number.
const NO_VAL: u32 = 0xffff_fffe;

/// What an item is, in the type that spank.h says.
enum Value {
    U16(u16),
    U32(u32),
    U64(u64),
    Int(c_int),
    Text(*const c_char),
    Array(*mut c_void),
    Counted(c_int, *mut c_void),
}

/// Called by variadic.c with the arguments that the item takes.
#[unsafe(no_mangle)]
extern "C" fn spank_host_item(
    spank: *mut c_void,
    item: c_int,
    key: u32,
    first: *mut c_void,
    second: *mut c_void,
) -> c_int {
    if !is_handle(spank) || first.is_null() {
        return BAD_ARG;
    }
    match value(&mut state(), item, key) {
        // SAFETY: the plugin's own variables, of the types that spank.h says.
        Ok(value) => unsafe { store(value, first, second) },
        Err(error) => return error,
    }
    SUCCESS
}

/// # Safety
/// Both point to what spank.h says of the item.
unsafe fn store(value: Value, first: *mut c_void, second: *mut c_void) {
    // SAFETY: see above.
    unsafe {
        match value {
            Value::U16(number) => *first.cast() = number,
            Value::U32(number) => *first.cast() = number,
            Value::U64(number) => *first.cast() = number,
            Value::Int(number) => *first.cast() = number,
            Value::Text(text) => *first.cast() = text,
            Value::Array(array) => *first.cast() = array,
            Value::Counted(count, array) => {
                *first.cast() = count;
                if !second.is_null() {
                    *second.cast() = array;
                }
            }
        }
    }
}

fn value(state: &mut State, item: c_int, key: u32) -> Result<Value, c_int> {
    let version = |part: usize| {
        let text = state.version.get(part).map_or(c"".as_ptr(), |text| text.as_ptr());
        Ok(Value::Text(text))
    };
    match item {
        20 => return version(0),
        21 => return version(1),
        22 => return version(2),
        23 => return version(3),
        _ if state.context != Context::Remote => return Err(NOT_REMOTE),
        _ => {}
    }
    let task = state.task;
    let task = move || task.ok_or(NOT_TASK);
    let global = |state: &State, task: Task| state.first_rank + task.local;
    Ok(match item {
        0 => Value::U32(state.uid),
        1 => Value::U32(state.gid),
        2 => Value::U32(state.job_id),
        3 => Value::U32(state.step_id),
        4 => Value::U32(state.nodes),
        5 => Value::U32(state.node_id),
        6 => Value::U32(state.tasks),
        7 => Value::U32(state.total_tasks),
        8 => Value::U16(1),
        9 => Value::Counted(count(state.argv.len()), state.argv.as_array().cast()),
        10 => Value::Array(state.env.as_array().cast()),
        11 => Value::Int(c_int::try_from(task()?.local).unwrap_or(c_int::MAX)),
        12 => Value::U32(global(state, task()?)),
        13 => Value::Int(task()?.status),
        14 => Value::Int(task()?.pid),
        15 => Value::U32(state.first_rank + of_pid(state, key)?),
        16 => Value::U32(of_pid(state, key)?),
        17 if key < state.tasks => Value::U32(state.first_rank + key),
        18 if (state.first_rank..state.first_rank + state.tasks).contains(&key) => {
            Value::U32(key - state.first_rank)
        }
        17 | 18 => return Err(NOEXIST),
        19 => Value::Counted(0, null_mut()),
        24 => Value::U32(1),
        25 | 27 => Value::Text(c"0".as_ptr()),
        26 | 28 => Value::U64(0),
        29 => Value::U32(0),
        30 => Value::U32(state.job_id),
        31 => Value::U32(NO_VAL),
        _ => return Err(BAD_ARG),
    })
}

/// The local number of the task with this process id.
fn of_pid(state: &State, pid: u32) -> Result<u32, c_int> {
    let position = state.pids.iter().position(|known| u32::try_from(*known) == Ok(pid));
    position.and_then(|position| u32::try_from(position).ok()).ok_or(NOEXIST)
}

fn count(number: usize) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}
