//! The programs and libraries that the plugin starts or hands to tasks.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use super::child;
use super::message::{Finding, messages};
use super::setup::Setup;
use gpubind_core::child::find_program;
use gpubind_core::trusted::{ROOT, trusted_program};
use gpubind_core::variables;

messages! {
    PROGRAM = Ok, "program", "{file} is root's, and of this version ({version})";
    PROGRAM_NONE = Note, "program", "not checked: no line of plugstack.conf loads the plugin";
    PROGRAM_UNSAFE = Broken, "program", "the plugin will not run it: {why}",
        "install gpubind there as root's, mode 0755, or name another place in plugstack.conf: program=PATH";
    PROGRAM_FAILS = Broken, "program", "{file} does not run: {why}",
        "install the gpubind that belongs to the plugin";
    PROGRAM_OTHER = Warning, "program", "{file} is {found}; this is {version}",
        "install plugin and program from one package";

    SHIM = Ok, "worker-shim", "{file} can be loaded into any program";
    SHIM_MISSING = Warning, "worker-shim", "there is no {file}",
        "install libgpubind_worker.so there, or say in plugstack.conf where it is: worker=PATH; without it \
         processes that a launcher starts below a task all see the task's GPUs";
    SHIM_FAILS = Broken, "worker-shim", "a program with LD_PRELOAD={file} complains: {why}",
        "install the libgpubind_worker.so of this machine's architecture, readable by everyone: every \
         program below a task would say that";
    SHIM_UNSAFE = Broken, "worker-shim", "not safe: {why}",
        "install it anew as root's, mode 0755: it is loaded into programs of every user";
    SHIM_OFF = Ok, "worker-shim", "not used: the site has workers=off";
    SHIM_UNKNOWN = Note, "worker-shim", "not checked: {why}";
}

/// How long a program that does nothing may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The checks of this file.
pub fn checks(setup: &Setup) -> Vec<Finding> {
    if setup.line().is_none() {
        return vec![PROGRAM_NONE.plain()];
    }
    let shim = match setup.site.request.workers {
        Some(false) => SHIM_OFF.plain(),
        _ => shim(&setup.site.worker),
    };
    vec![program(&setup.site.program), shim]
}

fn program(file: &Path) -> Finding {
    let name = file.display();
    if let Err(why) = trusted_program(file, ROOT) {
        return PROGRAM_UNSAFE.with(&[("why", &why)]);
    }
    let output = match child::run(file, &["--version"], &[], PATIENCE) {
        Ok(output) => output,
        Err(why) => return PROGRAM_FAILS.with(&[("file", &name), ("why", &why)]),
    };
    let (found, version) = (String::from_utf8_lossy(&output.stdout), env!("CARGO_PKG_VERSION"));
    match found.trim().strip_prefix("gpubind ") == Some(version) {
        true => PROGRAM.with(&[("file", &name), ("version", &version)]),
        false => {
            PROGRAM_OTHER.with(&[("file", &name), ("found", &found.trim()), ("version", &version)])
        }
    }
}

/// The dynamic linker tells on stderr what it cannot preload, and goes on.
fn shim(file: &Path) -> Finding {
    let name = file.display();
    if !file.exists() {
        return SHIM_MISSING.with(&[("file", &name)]);
    }
    // Before it is loaded into a program that may be root's.
    if let Err(why) = trusted_program(file, ROOT) {
        return SHIM_UNSAFE.with(&[("why", &why)]);
    }
    let Some(program) = find_program("true") else {
        return SHIM_UNKNOWN.with(&[("why", &"there is no program `true` to load it into")]);
    };
    let env = [(variables::LD_PRELOAD, OsString::from(file))];
    match child::run(&program, &[], &env, PATIENCE) {
        Err(why) => SHIM_FAILS.with(&[("file", &name), ("why", &why)]),
        Ok(output) if output.stderr.is_empty() && output.stdout.is_empty() => {
            SHIM.with(&[("file", &name)])
        }
        Ok(output) => {
            let said = [output.stderr, output.stdout].concat();
            let said = String::from_utf8_lossy(&said).trim().to_owned();
            SHIM_FAILS.with(&[("file", &name), ("why", &said)])
        }
    }
}
