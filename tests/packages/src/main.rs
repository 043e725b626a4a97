//! Tests of what scripts/package and scripts/install make, without a Slurm: the
//! same files in the same places, what they need of the machine, and that an admin's
//! changes survive. How a node does with the package is scripts/walkthrough's.

// Tests end by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod files;
mod install;
mod needs;
mod version_word;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Trial};

/// One test: its name, and what it does.
type Test = (&'static str, fn());

fn main() -> ExitCode {
    let tests = [files::TESTS, install::TESTS, needs::TESTS, version_word::TESTS].concat();
    let trials = tests.into_iter().map(|(name, body)| {
        Trial::test(name, move || {
            body();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// What is to be installed, as scripts/package has left it.
fn dist() -> PathBuf {
    root().join("target/dist")
}

/// The one package of a kind.
fn package(extension: &str) -> PathBuf {
    let folder = root().join("target/packages");
    let files = folder.read_dir().unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let files = files.map(|entry| entry.unwrap().path());
    let mut of_kind = files.filter(|path| path.extension().is_some_and(|end| end == extension));
    let found = of_kind.next().unwrap_or_else(|| panic!("no .{extension} in {}", folder.display()));
    assert_eq!(of_kind.next(), None, "one of them is old");
    found
}

/// What a command prints on stdout, and on stderr; it must end well.
fn run(command: &mut Command) -> (String, String) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{stdout}{stderr}", output.status);
    (stdout, stderr)
}
