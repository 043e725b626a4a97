//! The call log, by which a test can tell how often NVML was asked; in a child,
//! because the log is named by the environment.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what fails here fails its test")]

mod common;

use std::fs;
use std::process::Command;

use common::{PAIR, Rig};
use nvml_wrapper::Nvml;

#[test]
fn the_log_has_a_line_for_each_init_and_the_counts_at_the_end() {
    let rig = Rig::new(PAIR);
    let log = rig.path().join("calls");
    for _ in 0..2 {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_reads_names", "--ignored"])
            .env("FAKE_NVML_TEST_LIBRARY", rig.library())
            .env("FAKE_NVML_CALLS", &log)
            .env("FAKE_NVML_MACHINE", rig.path().join("nvml/machine.toml"))
            .output()
            .unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    }
    let text = fs::read_to_string(log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].starts_with("init pid=") && lines[2].starts_with("init pid="), "{text}");
    assert!(lines[1].starts_with("shutdown pid="), "{text}");
    assert!(lines[1].split(' ').any(|part| part == "nvmlDeviceGetName=3"), "{text}");
    assert!(lines[1].split(' ').any(|part| part == "nvmlInit_v2=1"), "{text}");
}

#[test]
#[ignore = "the other half of the log's test"]
fn child_that_reads_names() {
    let library = std::env::var_os("FAKE_NVML_TEST_LIBRARY").unwrap();
    let nvml = Nvml::builder().lib_path(&library).init().unwrap();
    for index in [0, 1, 0] {
        nvml.device_by_index(index).unwrap().name().unwrap();
    }
}

#[test]
fn the_environment_names_the_machine_before_the_folder_does() {
    let rig = Rig::new(PAIR);
    let other = rig.path().join("other.toml");
    fs::write(&other, "not a machine").unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_reads_names", "--ignored", "--nocapture"])
        .env("FAKE_NVML_TEST_LIBRARY", rig.library())
        .env("FAKE_NVML_MACHINE", &other)
        .output()
        .unwrap();
    assert!(!child.status.success());
    let stderr = String::from_utf8_lossy(&child.stderr);
    assert!(stderr.contains("other.toml: line 1: "), "{stderr}");
}
