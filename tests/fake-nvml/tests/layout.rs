//! The file-system root that `fake-machine` lays out says the same as the
//! machine, for every fixture.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what fails here fails its test")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpubind_core::node::{IdSet, Link, PciAddress};
use gpubind_machine::{Machine, Place};
use serde_json::Value;
use tempfile::TempDir;

struct Layout {
    folder: TempDir,
    machine: Machine,
    output: String,
}

fn lay_out(fixture: &Path, options: &[&str]) -> Layout {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fake-machine"))
        .args(options)
        .args([fixture, folder.path()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let machine = Machine::parse(&fs::read_to_string(fixture).unwrap()).unwrap();
    Layout { folder, machine, output: String::from_utf8(output.stdout).unwrap() }
}

impl Layout {
    fn read(&self, path: &str) -> String {
        let file = self.folder.path().join(path);
        let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        text.trim_end().to_owned()
    }

    fn device(&self, pci: PciAddress) -> PathBuf {
        let link = self.folder.path().join(format!("sys/bus/pci/devices/{pci}"));
        link.canonicalize().unwrap()
    }

    /// How NCCL reads a level from two sysfs paths (src/graph/topo.cc): by how
    /// many folders they share, of how many there are.
    fn level(&self, a: PciAddress, b: PciAddress) -> Option<Link> {
        let root = self.folder.path().canonicalize().unwrap().join("sys/devices");
        let parts = |pci| -> Vec<PathBuf> {
            let path = self.device(pci);
            path.strip_prefix(&root).unwrap().iter().map(PathBuf::from).collect()
        };
        let (a, b) = (parts(a), parts(b));
        let shared = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
        match shared {
            0 => None,
            1 => Some(Link::Phb),
            _ if shared + 2 == a.len() && a.len() == b.len() => Some(Link::Pix),
            _ => Some(Link::Pxb),
        }
    }
}

#[test]
fn every_layout_says_what_its_machine_says() {
    for fixture in common::fixtures() {
        let layout = lay_out(&fixture, &[]);
        sysfs_tells_cpus_and_nodes(&layout);
        bridges_lie_as_the_levels_say(&layout);
        proc_lists_every_gpu_and_mig_instance(&layout);
    }
}

fn sysfs_tells_cpus_and_nodes(layout: &Layout) {
    let machine = &layout.machine;
    let name = &machine.name;
    let possible: IdSet = layout.read("sys/devices/system/cpu/possible").parse().unwrap();
    assert_eq!(possible, machine.cpus(), "{name}");
    for node in &machine.numa {
        let folder = format!("sys/devices/system/node/node{}", node.id);
        assert_eq!(layout.read(&format!("{folder}/cpulist")), node.cpus.to_string());
        if !node.distance.is_empty() {
            let row = layout.read(&format!("{folder}/distance"));
            let row: Vec<u32> = row.split(' ').map(|cell| cell.parse().unwrap()).collect();
            assert_eq!(row, node.distance, "{name}");
        }
    }
    for gpu in &machine.gpus {
        let folder = format!("sys/bus/pci/devices/{}", gpu.pci);
        let expected = gpu.cpus.clone().unwrap_or_else(|| machine.cpus()).to_string();
        assert_eq!(layout.read(&format!("{folder}/local_cpulist")), expected, "{name}");
        let ids = gpu.place.numa.as_ref().map(|ids| machine.cpu_nodes(ids)[0].to_string());
        let node = ids.unwrap_or_else(|| "-1".into());
        assert_eq!(layout.read(&format!("{folder}/numa_node")), node, "{name}");
    }
    for nic in machine.nics.iter().filter(|nic| nic.pci.is_some()) {
        let device = format!("sys/class/infiniband/{}/device", nic.name);
        let device = layout.folder.path().join(device).canonicalize().unwrap();
        assert_eq!(device, layout.device(nic.pci.unwrap()), "{name}");
    }
}

fn bridges_lie_as_the_levels_say(layout: &Layout) {
    let machine = &layout.machine;
    let gpus = machine.gpus.iter().map(|gpu| (gpu.pci, &gpu.place));
    let nics = machine.nics.iter().filter_map(|nic| Some((nic.pci?, &nic.place)));
    let devices: Vec<(PciAddress, &Place)> = gpus.chain(nics).collect();
    for (at, (a, place_a)) in devices.iter().enumerate() {
        for (b, place_b) in devices.iter().skip(at + 1) {
            let same_slot = (a.domain, a.bus, a.device) == (b.domain, b.bus, b.device);
            if same_slot || place_a.pcie.is_none() || place_b.pcie.is_none() {
                continue;
            }
            let expected = match place_a.level(place_b, Link::Unknown) {
                level @ (Link::Pix | Link::Pxb | Link::Phb) => Some(level),
                _ => None,
            };
            assert_eq!(layout.level(*a, *b), expected, "{} {a} {b}", machine.name);
        }
    }
}

fn proc_lists_every_gpu_and_mig_instance(layout: &Layout) {
    let machine = &layout.machine;
    assert!(layout.read("proc/driver/nvidia/version").contains(&machine.driver));
    let listed = fs::read_dir(layout.folder.path().join("proc/driver/nvidia/gpus")).unwrap();
    assert_eq!(listed.count(), machine.gpus.len(), "{}", machine.name);
    for gpu in &machine.gpus {
        let text = layout.read(&format!("proc/driver/nvidia/gpus/{}/information", gpu.pci));
        let value = |key: &str| {
            let line = text.lines().find(|line| line.starts_with(key)).unwrap();
            line.split_once(':').unwrap().1.trim().to_owned()
        };
        assert_eq!(value("GPU UUID"), gpu.uuid);
        assert_eq!(value("Device Minor"), gpu.minor.to_string());
        assert_eq!(value("Bus Location"), gpu.pci.to_string());
        for instance in gpu.mig.iter().flat_map(|mig| mig.slots.iter().flatten()) {
            let (gi, ci) = (instance.gi, instance.ci);
            let folder = format!("proc/driver/nvidia/capabilities/gpu{}/mig", gpu.minor);
            layout.read(&format!("{folder}/gi{gi}/access"));
            layout.read(&format!("{folder}/gi{gi}/ci{ci}/access"));
        }
    }
}

#[test]
fn the_list_of_gpus_is_for_scripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../machines");
    let lines = lay_out(&folder.join("minors-reordered.toml"), &[]);
    let uuid = &lines.machine.gpus[0].uuid;
    let first = format!("0\t2\t0000:25:00.0\t{uuid}\tNVIDIA A40\t0\t0-23,48-71");
    assert_eq!(lines.output.lines().next(), Some(first.as_str()));
    assert_eq!(lines.output.lines().count(), 4);
    let vm = lay_out(&folder.join("vm-no-affinity.toml"), &[]);
    assert!(vm.output.lines().all(|line| line.ends_with("\t-\t-")), "{}", vm.output);
    let json = lay_out(&folder.join("lost-gpu.toml"), &["--json"]);
    let gpus: Value = serde_json::from_str(&json.output).unwrap();
    assert_eq!(gpus[3]["fault"], 15);
    assert_eq!((&gpus[4]["fault"], &gpus[4]["cpus"]), (&Value::Null, &"64-127,192-255".into()));
}

#[test]
fn a_second_layout_leaves_nothing_of_the_first() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../machines");
    let layout = lay_out(&folder.join("dgx-a100.toml"), &[]);
    let root = layout.folder.path();
    let again = Command::new(env!("CARGO_BIN_EXE_fake-machine"))
        .args([folder.join("gh200-4.toml"), root.to_path_buf()])
        .output()
        .unwrap();
    assert!(again.status.success());
    assert_eq!(fs::read_dir(root.join("proc/driver/nvidia/gpus")).unwrap().count(), 4);
}

#[test]
fn mistakes_are_told() {
    let tell = |arguments: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_fake-machine")).args(arguments).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(tell(&["one"]).contains("needs two paths"));
    assert!(tell(&["--jsn", "a", "b"]).contains("unknown option `--jsn`"));
    assert!(tell(&["/nonexistent/x.toml", "b"]).contains("/nonexistent/x.toml: "));
}
