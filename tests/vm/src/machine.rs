//! A virtual node, started by scripts/vm.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gpubind_core::node::Node;
use gpubind_machine::Machine;
use serde_json::Value;

/// As for the clusters of tests/slurm: two checkouts can run tests side by side.
const PREFIX_VARIABLE: &str = "GPUBIND_TEST_PREFIX";

/// A running machine; stopped when dropped.
pub struct Vm {
    /// Its NUMA nodes.
    pub numa: usize,
    /// What its kernel says of itself.
    pub node: Node,
    name: String,
    root: PathBuf,
}

impl Vm {
    /// Boots one with what is in target/stage.
    pub fn start(numa: usize) -> Vm {
        let prefix = std::env::var(PREFIX_VARIABLE).unwrap_or_default();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let mut vm = Vm { numa, node: Node::default(), name: format!("{prefix}t-vm{numa}"), root };
        let mut start = vm.script();
        start.args(["start", "--no-build", "--name", &vm.name, "--numa", &numa.to_string()]);
        let started = start.output().unwrap();
        let said = String::from_utf8_lossy(&started.stderr);
        assert!(started.status.success(), "machine {} did not start:\n{said}", vm.name);
        let fixture = std::fs::read_to_string(vm.fixture()).unwrap();
        vm.node = Machine::parse(&fixture).unwrap().to_node();
        assert_eq!((vm.node.numa.len(), vm.node.gpus.len()), (numa, 8), "{fixture}");
        vm
    }

    /// Runs a bash script in it as root, to a good end; gives back what it printed.
    pub fn bash(&self, script: &str) -> String {
        let mut exec = self.script();
        exec.args(["exec", &self.name, "--", "bash", "-euc", script]);
        let ran = exec.output().unwrap();
        let stdout = String::from_utf8_lossy(&ran.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{:?}\n{stdout}\n{stderr}", ran.status);
        stdout
    }

    /// What `gpubind plan` says, outside the machine, of a step with srun's options.
    pub fn plan(&self, options: &[&str]) -> Value {
        let mut plan = Command::new(self.root.join("target/stage/gpubind"));
        plan.args(["plan", "--json", "--constrained", "--from"]).arg(self.fixture());
        // How firmware has numbered the threads is not in the fixture.
        plan.args(["--siblings", if self.numa == 8 { "1" } else { "2" }]);
        let planned = plan.args(options).output().unwrap();
        let said = String::from_utf8_lossy(&planned.stderr);
        assert!(planned.status.success(), "{options:?}: {said}");
        serde_json::from_slice(&planned.stdout).unwrap()
    }

    fn fixture(&self) -> PathBuf {
        self.root.join("target/vm").join(&self.name).join("share/machine.toml")
    }

    fn script(&self) -> Command {
        let mut script = Command::new(self.root.join("scripts/vm"));
        script.stdin(Stdio::null());
        script
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        // It may not have started.
        if self.fixture().exists() {
            let stopped = self.script().args(["stop", &self.name]).output().unwrap();
            if !stopped.status.success() {
                eprintln!("{}", String::from_utf8_lossy(&stopped.stderr));
            }
        }
    }
}
