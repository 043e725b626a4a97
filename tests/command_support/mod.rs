//! Running programs in a test: `gpubind`, and scripts.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs a command of `gpubind` with this on its standard input.
pub fn gpubind(command: &str, args: &[&str], input: &str) -> Output {
    gpubind_with(command, args, input, &[])
}

/// The same with these variables.
pub fn gpubind_with(command: &str, args: &[&str], input: &str, env: &[(&str, &str)]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gpubind"))
        .arg(command)
        .args(args)
        .env_remove("COLUMNS")
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses its arguments does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// Writes a shell script that can be run at once. Another process writes it: what
/// this one has open for writing, the fork of another test's thread holds open
/// too, and then it cannot be executed.
pub fn write_script(file: &Path, body: &str) {
    let mut writer = Command::new("sh")
        .args(["-euc", r#"printf '#!/bin/sh\n%s\n' "$1" >"$0"; chmod 755 "$0"; echo done"#])
        .arg(file)
        .arg(body)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = io::read_to_string(writer.stdout.take().unwrap()).unwrap();
    assert_eq!(said, "done\n");
    // Fails where SIGCHLD is ignored, and has nothing to tell anyway.
    let _ = writer.wait();
}
