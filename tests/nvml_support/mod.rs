//! A fake machine in a folder: file tree and NVML library, laid out from a
//! fixture by the `fake-machine` program.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use gpubind_core::node::Roots;
use gpubind_machine::Machine;

/// The folder that stands for `/`, and the machine that it shows.
pub struct Fake {
    folder: tempfile::TempDir,
    pub machine: Machine,
}

impl Fake {
    /// The machine of `tests/machines/NAME.toml`, with a text at its end
    /// (`[faults]`).
    pub fn with(name: &str, end: &str) -> Fake {
        let file = machines().join(format!("{name}.toml"));
        let text = fs::read_to_string(&file).unwrap();
        Fake::new(&format!("{text}\n{end}"))
    }

    /// The machine that a fixture's text describes.
    pub fn new(text: &str) -> Fake {
        let machine = Machine::parse(text).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let fixture = folder.path().join("fixture.toml");
        fs::write(&fixture, text).unwrap();
        let built = built();
        let done = Command::new(&built.program)
            .arg("--library")
            .arg(&built.library)
            .arg(&fixture)
            .arg(folder.path())
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Fake { folder, machine }
    }

    /// Gives it device files that anybody may open.
    #[allow(dead_code, reason = "not every test asks what can be reached")]
    pub fn with_devices(self) -> Fake {
        let dev = self.roots().dev();
        fs::create_dir_all(&dev).unwrap();
        for gpu in &self.machine.to_node().gpus {
            let file = dev.join(format!("nvidia{}", gpu.minor.known().unwrap()));
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        }
        self
    }

    /// Has it described in a snapshot, so that NVML need not be read over and over;
    /// only root's are trusted.
    #[allow(dead_code, reason = "not every test has the program")]
    pub fn with_snapshot(self, program: &str) -> Fake {
        let mut save = Command::new(program);
        save.args(["snapshot", "--save", "--fsroot"]).arg(self.path());
        assert!(save.arg("--nvml").arg(self.library()).output().unwrap().status.success());
        self
    }

    #[allow(dead_code, reason = "not every test looks into it")]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn roots(&self) -> Roots {
        Roots::new(self.folder.path())
    }

    pub fn library(&self) -> PathBuf {
        self.folder.path().join("nvml/libnvidia-ml.so.1")
    }
}
pub fn machines() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines")
}

/// The names of all fixtures.
#[allow(dead_code, reason = "not every test goes over all of them")]
pub fn names() -> Vec<String> {
    let files = fs::read_dir(machines()).unwrap();
    let mut names: Vec<String> = files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

struct Built {
    program: PathBuf,
    library: PathBuf,
}

/// The fake's program and library. Cargo builds neither along with the tests of
/// another package, so it is asked to, once; it is done at once if they are there.
fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| {
        // target/PROFILE/deps/TEST
        let test = std::env::current_exe().unwrap();
        let profile = test.ancestors().nth(2).unwrap();
        let release = profile.file_name().is_some_and(|name| name == "release");
        let done = Command::new(env!("CARGO"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["build", "--quiet", "--package", "fake-nvml"])
            .args(release.then_some("--release"))
            .arg("--target-dir")
            .arg(profile.parent().unwrap())
            .status()
            .unwrap();
        assert!(done.success(), "the fake does not build");
        Built { program: profile.join("fake-machine"), library: profile.join("libnvidia_ml.so") }
    })
}
