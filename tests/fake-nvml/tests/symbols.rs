//! The library's names: all that a caller looks up, and nothing that is not
//! listed; and libraries of older drivers, which lack some.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what fails here fails its test")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use common::{PAIR, Rig};
use gpubind_machine::CALLS;
use libloading::Library;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

#[test]
fn the_listed_functions_are_those_of_the_sources_and_of_the_library() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/exports");
    let mut written = BTreeSet::new();
    for file in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let after = text.split("extern \"C\" fn ").skip(1);
        written.extend(after.map(|rest| rest.split('(').next().unwrap().to_owned()));
    }
    let listed: BTreeSet<String> = CALLS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(written, listed);
    assert!(CALLS.is_sorted());
    // SAFETY: the fake's initialisers do nothing.
    let library = unsafe { Library::new(Rig::new(PAIR).library()) }.unwrap();
    for name in CALLS {
        // SAFETY: the function is only looked up, not called.
        let found = unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) };
        assert!(found.is_ok(), "{name}");
    }
}

#[test]
fn the_library_calls_itself_what_programs_ask_for() {
    // The name is in the string table for nothing but DT_SONAME.
    let bytes = fs::read(nvidia_ml::library().unwrap()).unwrap();
    assert!(bytes.split(|byte| *byte == 0).any(|text| text == b"libnvidia-ml.so.1"));
}

#[test]
fn fake_machine_takes_absent_functions_out_of_the_library() {
    let rig = Rig::new(&format!("{PAIR}\n[faults]\nabsent = [\"nvmlDeviceGetMemoryAffinity\"]"));
    let layout = rig.path().join("root");
    let status = Command::new(env!("CARGO_BIN_EXE_fake-machine"))
        .arg("--library")
        .args([rig.library(), rig.path().join("nvml/machine.toml"), layout.clone()])
        .output()
        .unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    let library = layout.join("nvml/libnvidia-ml.so.1");
    let nvml = Nvml::builder().lib_path(library.as_os_str()).init().unwrap();
    let device = nvml.device_by_index(0).unwrap();
    assert!(matches!(device.memory_affinity(4, 0), Err(NvmlError::FailedToLoadSymbol(_))));
    assert_eq!(device.cpu_affinity(3).unwrap(), [u64::MAX, 0x3f, 0]);
}
