//! A make-believe machine with a saved snapshot: eight GPUs at two CPUs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// GPUs of the fixture.
pub const GPUS: usize = 8;

/// The machine's folder.
pub struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    /// Lays it out, and has `gpubind` save its snapshot.
    pub fn new() -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine { folder };
        let mut lay_out = Command::new(stage().join("fake-machine"));
        lay_out.arg("--library").arg(stage().join("libnvidia-ml.so.1"));
        lay_out.arg(root().join("tests/machines/two-cpu.toml")).arg(machine.path());
        run(&mut lay_out);
        let dev = machine.path().join("dev");
        fs::create_dir_all(&dev).unwrap();
        for minor in 0..GPUS {
            let file = dev.join(format!("nvidia{minor}"));
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        }
        let mut save = Command::new(stage().join("gpubind"));
        save.args(["snapshot", "--save", "--fsroot"]).arg(machine.path());
        save.arg("--nvml").arg(machine.library());
        run(&mut save);
        machine
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    fn library(&self) -> PathBuf {
        self.path().join("nvml/libnvidia-ml.so.1")
    }

    /// The plugin's arguments on this machine, as in plugstack.conf. The site file is an
    /// empty one: a machine's own must not reach into tests.
    pub fn plugin_args(&self) -> Vec<String> {
        let site = self.path().join("gpubind.toml");
        fs::write(&site, "").unwrap();
        vec![
            format!("program={}", stage().join("gpubind").display()),
            format!("worker={}", stage().join("libgpubind_worker.so").display()),
            format!("config={}", site.display()),
            format!("fsroot={}", self.path().display()),
            format!("nvml={}", self.library().display()),
        ]
    }
}

/// Runs a command that must end well; gives its standard output.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}:\n{said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// What scripts/lib/stage.sh has built.
pub fn stage() -> PathBuf {
    root().join("target/stage")
}
