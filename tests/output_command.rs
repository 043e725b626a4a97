//! Commands whose output cannot be written: a full disk, a reader that has gone.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

mod nvml_support;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

use nvml_support::Fake;

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpubind");

/// What each command prints is long enough, and each has something for stderr as well.
const COMMANDS: [&[&str]; 22] = [
    &[],
    &["--help"],
    &["--version"],
    &["exec", "--help"],
    &["no-such-command"],
    &["topo"],
    &["topo", "--json"],
    &["topo", "--from", "/nonexistent"],
    &["plan", "--tasks", "16"],
    &["plan", "--tasks", "16", "--json"],
    &["plan", "--tasks", "0"],
    &["exec", "--dry-run"],
    &["exec", "--dry-run", "--json"],
    &["exec", "--no-such-option"],
    &["exec", "--verbose", "--", "/nonexistent"],
    &["snapshot"],
    &["snapshot", "--show", "--fresh"],
    &["snapshot", "--show"],
    &["report"],
    &["report", "--json", "--check", "--wait=0"],
    &["config"],
    &["check", "--slurm-conf", "/nonexistent"],
];

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

/// A pipe, as far as writers notice, that nobody reads any more.
fn unread() -> Stdio {
    let (reader, writer) = UnixStream::pair().unwrap();
    drop(reader);
    OwnedFd::from(writer).into()
}

fn command(fake: &Fake, args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(args).stdin(Stdio::null()).env("GPUBIND_LOG", "trace");
    command.env("GPUBIND_FSROOT", fake.path()).env("GPUBIND_NVML", fake.library());
    command.env("SLURM_GPUBIND", "nonsense").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn ends_in_order(args: &[&str], output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("panicked"), "{args:?}: {said}");
    // SIGPIPE ends what has default signals: `snapshot`, and `exec` once it has tried to
    // become its command.
    let has_default = args.first().is_some_and(|name| ["snapshot", "exec"].contains(name));
    let is_closed = has_default && output.status.signal() == Some(13);
    let code = output.status.code();
    assert!(is_closed || code.is_some_and(|code| code != 101), "{args:?}: {:?}", output.status);
}

#[test]
fn no_command_panics_where_its_output_cannot_be_written() {
    let fake = Fake::with("two-cpu", "").with_devices();
    for args in COMMANDS {
        for broken in [full, unread] {
            ends_in_order(args, &command(&fake, args).stdout(broken()).output().unwrap());
            ends_in_order(args, &command(&fake, args).stderr(broken()).output().unwrap());
            let both = command(&fake, args).stdout(broken()).stderr(broken()).output();
            ends_in_order(args, &both.unwrap());
        }
    }
}

#[test]
fn exec_runs_its_command_though_nothing_can_be_said() {
    let fake = Fake::with("two-cpu", "").with_devices();
    for broken in [full, unread] {
        let args = ["exec", "--verbose", "--", "echo", "ran"];
        let output = command(&fake, &args).stderr(broken()).output().unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"ran\n"[..]));
    }
}

#[test]
fn output_that_is_lost_is_an_error() {
    let fake = Fake::with("two-cpu", "");
    for args in [&["topo"][..], &["plan", "--tasks", "4"], &["snapshot"], &["report"]] {
        let output = command(&fake, args).stdout(full()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(said.contains("cannot write the output: No space left on device"), "{said}");
    }
}

#[test]
fn what_is_repeated_in_a_message_is_cut_and_nothing_in_it_is_for_the_terminal() {
    let fake = Fake::with("two-cpu", "");
    let long = "x".repeat(120_000);
    let red = "\u{1b}[31mred\u{7}";
    for text in [&long, red] {
        let option = format!("--ids={text}");
        for args in [
            &["topo", "--from", text][..],
            &["plan", "--tasks", text],
            &["plan", "--tasks", "8", "--mode", text],
            &["plan", "--tasks", "8", "--cpu-bind", text],
            &["exec", &option, "--", "true"],
            &["exec", "--", text],
            &["snapshot", &format!("--{text}")],
            &["check", "--slurm-conf", text],
            &[text],
        ] {
            let output = command(&fake, args).env_remove("GPUBIND_LOG").output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            let shown: String = said.chars().take(300).collect();
            assert!(!said.is_empty() || args[0] == "check", "{}", args[0]);
            assert!(said.chars().count() < 4100, "{}: {shown}", args[0]);
            assert!(!said.contains(['\u{1b}', '\u{7}']), "{}: {shown:?}", args[0]);
        }
    }
}
