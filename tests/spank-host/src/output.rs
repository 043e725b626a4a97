//! What --json prints.

use std::ffi::c_int;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;

use serde_json::{Map, Value, json};

use crate::state::{State, state};

/// In a task: appends what it has got. One write(2) to a file that all append to, so
/// that lines do not mix.
pub fn task(mut results: &File, local: u32) -> io::Result<()> {
    let env = env(&state());
    results.write_all(line(&json!({ "task": local, "env": env })).as_bytes())
}

/// In the step: appends how it ended, as a shell gives it.
pub fn ended(mut results: &File, local: u32, status: c_int) -> io::Result<()> {
    let code = if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    };
    results.write_all(line(&json!({ "task": local, "code": code })).as_bytes())
}

/// One line for each task: its two lines put together, in order.
pub fn lines(mut results: File) -> io::Result<String> {
    let mut text = String::new();
    results.rewind()?;
    results.read_to_string(&mut text)?;
    let mut tasks: Vec<Map<String, Value>> = Vec::new();
    for line in text.lines() {
        let Ok(Value::Object(object)) = serde_json::from_str(line) else { continue };
        match tasks.iter_mut().find(|task| task.get("task") == object.get("task")) {
            Some(task) => task.extend(object),
            None => tasks.push(object),
        }
    }
    tasks.sort_by_key(|task| task.get("task").and_then(Value::as_u64));
    Ok(tasks.into_iter().map(|task| line(&Value::Object(task))).collect())
}

/// A client's command line and environment, after its hooks.
pub fn client() -> String {
    let argv: Vec<String> = std::env::args_os().map(|word| lossy(word.as_bytes())).collect();
    let env: Map<String, Value> = std::env::vars_os()
        .map(|(name, value)| (lossy(name.as_bytes()), lossy(value.as_bytes()).into()))
        .collect();
    line(&json!({ "argv": argv, "env": env }))
}

fn env(state: &State) -> Map<String, Value> {
    let pairs = state.env.strings().iter().filter_map(|string| {
        let text = lossy(string.as_bytes());
        let (name, value) = text.split_once('=')?;
        Some((name.to_owned(), value.into()))
    });
    pairs.collect()
}

fn line(value: &Value) -> String {
    format!("{value}\n")
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
