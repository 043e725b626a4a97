//! Files that the bench makes: the empty plugin, an NVML client, wrapper scripts.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where they are.
pub struct Helpers {
    pub empty_plugin: PathBuf,
    client: PathBuf,
}

impl Helpers {
    /// Compiles what is C.
    pub fn build() -> Helpers {
        fs::create_dir_all(folder()).unwrap();
        let helpers = Helpers {
            empty_plugin: folder().join("empty.so"),
            client: folder().join("nvml-client"),
        };
        let empty = root().join("tests/spank-host/plugins/empty.c");
        cc(&["-O2", "-shared", "-fPIC"], &empty, &helpers.empty_plugin);
        cc(&["-O2"], &root().join("tests/bench/nvml-client.c"), &helpers.client);
        helpers
    }

    /// A script in front of the program, as users write it: by SLURM_LOCALID.
    pub fn bash_wrapper(&self) -> PathBuf {
        script("bash-wrapper", "export CUDA_VISIBLE_DEVICES=$SLURM_LOCALID")
    }

    /// The same, with an NVML client that looks for the GPU nearest to the task's CPU.
    pub fn nvml_wrapper(&self, library: &Path, delay: u64) -> PathBuf {
        let (client, library) = (self.client.display(), library.display());
        let line = format!("export CUDA_VISIBLE_DEVICES=$({client} {library} \"$SLURM_LOCALID\")");
        script(&format!("nvml-wrapper-{delay}"), &line)
    }
}

fn script(name: &str, line: &str) -> PathBuf {
    let file = folder().join(name);
    fs::write(&file, format!("#!/bin/bash\n{line}\nexec \"$@\"\n")).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    file
}

fn cc(options: &[&str], source: &Path, output: &Path) {
    let mut cc = Command::new("cc");
    cc.args(options).arg("-o").arg(output).arg(source).arg("-ldl");
    assert!(cc.status().unwrap().success(), "{cc:?} failed");
}

/// The checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub fn folder() -> PathBuf {
    root().join("target/bench")
}
