//! NVIDIA's own Python bindings (nvidia-ml-py), which load the library by its
//! real name, read the same from it. Skipped where pip cannot install them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what fails here fails its test")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::Rig;
use gpubind_core::node::Link;
use serde_json::Value;

/// The folder with the bindings, installed once into cargo's folder for tests.
fn bindings() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nvidia-ml-py");
    if !folder.join("pynvml.py").is_file() {
        let pip = Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
            .arg(&folder)
            .arg("nvidia-ml-py")
            .output();
        match pip {
            Ok(output) if output.status.success() => (),
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr).into_owned();
                eprintln!("skipped: pip cannot install nvidia-ml-py: {why}");
                return None;
            }
            Err(error) => {
                eprintln!("skipped: no python3: {error}");
                return None;
            }
        }
    }
    Some(folder)
}

#[test]
fn nvidias_python_bindings_read_every_fixture() {
    let Some(bindings) = bindings() else { return };
    for file in common::fixtures() {
        let rig = Rig::new(&fs::read_to_string(&file).unwrap());
        let output = Command::new("python3")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/read.py"))
            .env("PYTHONPATH", &bindings)
            .env("LD_LIBRARY_PATH", rig.path().join("nvml"))
            .output()
            .unwrap();
        let name = &rig.machine.name;
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let read: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(read["driver"], rig.machine.driver.as_str(), "{name}");
        let (major, minor) = rig.machine.cuda;
        assert_eq!(read["cuda"], major * 1000 + minor * 10, "{name}");
        let gpus = read["gpus"].as_array().unwrap();
        assert_eq!(gpus.len(), rig.machine.gpus.len(), "{name}");
        for (at, (seen, gpu)) in gpus.iter().zip(&rig.machine.gpus).enumerate() {
            if let Some(code) = rig.machine.faults.handle(at) {
                assert_eq!(seen["error"], code, "{name} {at}");
                continue;
            }
            assert_eq!(seen["uuid"], gpu.uuid.as_str(), "{name} {at}");
            assert_eq!(seen["name"], gpu.name.as_str(), "{name} {at}");
            assert_eq!(seen["minor"], gpu.minor, "{name} {at}");
            let pci = seen["pci"].as_str().unwrap();
            assert_eq!(pci.parse(), Ok(gpu.pci), "{name} {at}");
            let cpus: Option<Vec<usize>> = gpu.cpus.as_ref().map(|cpus| cpus.iter().collect());
            assert_eq!(seen["cpus"], serde_json::json!(cpus), "{name} {at}");
            assert_eq!(seen["nodes"], serde_json::json!(gpu.place.numa), "{name} {at}");
            let slots = gpu.mig.iter().filter(|mig| mig.on).flat_map(|mig| &mig.slots);
            let uuids = slots.map(|slot| slot.as_ref().map(|instance| instance.uuid.as_str()));
            assert_eq!(seen["mig"], serde_json::json!(uuids.collect::<Vec<_>>()), "{name} {at}");
            assert_eq!(seen["links"], gpu.nvlinks.len(), "{name} {at}");
            for (other, level) in seen["levels"].as_object().unwrap() {
                let expected = match rig.machine.pcie_level(at, other.parse().unwrap()) {
                    Link::Pix => 10,
                    Link::Pxb => 20,
                    Link::Phb => 30,
                    Link::Node => 40,
                    Link::Sys => 50,
                    other => panic!("{name} {at}: {other}"),
                };
                assert_eq!(*level, expected, "{name} {at} {other}");
            }
        }
    }
}
