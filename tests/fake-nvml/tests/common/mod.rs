//! A fake library with its machine in a folder of its own, so that tests in
//! one process do not share anything.

#![allow(dead_code, reason = "each test file uses a part")]

use std::fs;
use std::path::{Path, PathBuf};

use gpubind_machine::Machine;
use nvml_wrapper::Nvml;
use nvml_wrapper_sys::bindings::NvmlLib;
use tempfile::TempDir;

/// Two GPUs linked to each other, for tests of one thing.
pub const PAIR: &str = r#"
name = "pair"
description = "two GPUs"
source = "made up"
driver = "535.104.05"
cuda = "12.2"
nvlink = [[0, 1, 4]]
numa = [{ id = 0, cpus = "0-69" }, { id = 1, cpus = "70-139" }]
gpu = [
  { pci = "0000:01:00.0", numa = [0] },
  { pci = "0000:02:00.0", numa = [1] },
]
[gpus]
name = "NVIDIA A40"
compute = "8.6"
"#;

pub struct Rig {
    folder: TempDir,
    pub machine: Machine,
}

impl Rig {
    pub fn new(text: &str) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let nvml = folder.path().join("nvml");
        fs::create_dir(&nvml).unwrap();
        fs::write(nvml.join("machine.toml"), text).unwrap();
        let library = nvidia_ml::library().expect("cargo builds the library with this test");
        fs::copy(library, nvml.join("libnvidia-ml.so.1")).unwrap();
        Rig { folder, machine: Machine::parse(text).unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn library(&self) -> PathBuf {
        self.path().join("nvml/libnvidia-ml.so.1")
    }

    /// Makes the device folder: only these minors may be used.
    pub fn allow(&self, minors: &[u32]) {
        let dev = self.path().join("dev");
        fs::create_dir(&dev).unwrap();
        for minor in minors {
            fs::write(dev.join(format!("nvidia{minor}")), "").unwrap();
        }
    }

    /// The library through the crate that gpubind uses.
    pub fn nvml(&self) -> Nvml {
        Nvml::builder().lib_path(self.library().as_os_str()).init().unwrap()
    }

    /// The library's C functions.
    pub fn raw(&self) -> NvmlLib {
        // SAFETY: the fake's initialisers do nothing.
        unsafe { NvmlLib::new(self.library()) }.unwrap()
    }
}

/// The file of every fixture.
pub fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../machines");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|end| end == "toml")).collect();
    files.sort();
    assert!(files.len() >= 20, "the fixtures are found");
    files
}

/// A fixture by name, as text.
pub fn fixture(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../machines/{name}.toml"));
    fs::read_to_string(file).unwrap()
}
