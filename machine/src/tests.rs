//! What is true for every fixture, and what is refused.

use std::fs;
use std::path::Path;

use super::{Machine, MachineError, MachineProblem as Problem};
use gpubind_core::node::{Link, Probed};

fn fixtures() -> Vec<Machine> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/machines");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let tomls = files.filter(|file| file.extension().is_some_and(|end| end == "toml"));
    let machines = tomls.map(|file| {
        let text = fs::read_to_string(&file).unwrap();
        let machine = Machine::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        assert_eq!(Some(machine.name.as_str()), file.file_stem().unwrap().to_str());
        machine
    });
    machines.collect()
}

fn fixture(name: &str) -> Machine {
    let mut all = fixtures().into_iter();
    all.find(|machine| machine.name == name).unwrap()
}

#[test]
fn every_fixture_makes_a_sound_node() {
    let all = fixtures();
    assert!(all.len() >= 20, "the fixtures are found");
    for machine in all {
        let (name, node) = (&machine.name, machine.to_node());
        assert_eq!(node.gpus.len() + node.unusable.len(), machine.gpus.len(), "{name}");
        assert!(node.gpus.is_sorted_by_key(|gpu| gpu.pci), "{name}");
        assert_eq!(node.links.len(), node.gpus.len(), "{name}");
        for (a, row) in node.links.iter().enumerate() {
            assert_eq!(row.len(), node.gpus.len(), "{name}");
            for (b, link) in row.iter().enumerate() {
                assert_eq!(*link == Link::Same, a == b, "{name} {a} {b}");
                assert_eq!(*link, node.links[b][a], "{name} {a} {b}");
                assert_ne!(*link, Link::Unknown, "{name} {a} {b}");
            }
        }
        for gpu in &node.gpus {
            let Probed::Known(ids) = &gpu.numa else { continue };
            let cpus = gpu.cpus.known().unwrap();
            let nodes = node.numa.iter().filter(|numa| ids.contains(&numa.id));
            let of_nodes = nodes.flat_map(|numa| numa.cpus.iter()).collect();
            assert_eq!(*cpus, of_nodes, "{name}");
        }
        for nic in &node.nics {
            assert_eq!(nic.links.len(), node.gpus.len(), "{name}");
        }
        // A snapshot of it reads back as the same node.
        let json = serde_json::to_string(&node).unwrap();
        assert_eq!(
            serde_json::from_str::<gpubind_core::node::Node>(&json).unwrap(),
            node,
            "{name}"
        );
    }
}

#[test]
fn known_machines_come_out_as_nvidia_smi_shows_them() {
    let row = |name: &str, gpu: usize| {
        let node = fixture(name).to_node();
        let cells: Vec<String> = node.links[gpu].iter().map(ToString::to_string).collect();
        cells.join(" ")
    };
    assert_eq!(row("dgx-a100", 0), "X NV12 NV12 NV12 NV12 NV12 NV12 NV12");
    assert_eq!(row("dgx1-v100", 0), "X NV1 NV1 NV2 NV2 SYS SYS SYS");
    assert_eq!(row("dgx1-v100", 6), "SYS SYS NV1 SYS NV1 NV2 X NV2");
    assert_eq!(row("a100-pcie-bridges", 0), "X NODE NODE NV12 SYS SYS");
    assert_eq!(row("pcie-uneven-3-5", 5), "NV12 SYS SYS NODE NODE X NODE NODE");
    assert_eq!(row("l40s-pcie", 1), "PIX X NODE NODE");
    assert_eq!(row("vm-no-affinity", 2), "PHB PHB X PHB");
    assert_eq!(row("power9-4v100", 2), "SYS SYS X NV3");
    let nic = |name: &str, nic: usize| {
        let node = fixture(name).to_node();
        let cells: Vec<String> = node.nics[nic].links.iter().map(ToString::to_string).collect();
        cells.join(" ")
    };
    assert_eq!(nic("dgx1-v100", 0), "PIX PIX PHB PHB SYS SYS SYS SYS");
    assert_eq!(nic("dgx-a100", 2), "SYS SYS PXB PXB SYS SYS SYS SYS");
    assert_eq!(nic("hgx-h100", 5), "SYS SYS SYS SYS NODE PIX NODE NODE");
    assert_eq!(nic("gb200-4", 2), "SYS SYS SYS SYS");
    assert_eq!(row("lost-gpu", 3), "NV18 NV18 NV18 X NV18 NV18 NV18");
}

#[test]
fn numa_nodes_of_a_gpu_are_those_with_cpus() {
    let gb200 = fixture("gb200-4").to_node();
    assert_eq!(gb200.gpus[3].numa, Probed::Known(vec![1]));
    assert_eq!(gb200.gpus[3].cpus.known().unwrap().to_string(), "72-143");
    assert_eq!(gb200.gpus[3].gpu_numa_id, Probed::Known(26));
    let vm = fixture("vm-no-affinity").to_node();
    assert_eq!(vm.gpus[0].numa, Probed::Unsupported);
    assert_eq!(vm.gpus[0].cpus, Probed::Unsupported);
}

#[test]
fn a_lost_gpu_is_sick_and_the_others_keep_their_numbers() {
    let node = fixture("lost-gpu").to_node();
    let unusable = &node.unusable[0];
    assert_eq!(
        (node.unusable.len(), unusable.index, unusable.minor, unusable.code),
        (1, 3, Some(3), 15)
    );
    let indices: Vec<u32> = node.gpus.iter().map(|gpu| gpu.index).collect();
    assert_eq!(indices, [0, 1, 2, 4, 5, 6, 7]);
}

#[test]
fn mig_instances_come_in_id_order_whatever_their_slots() {
    let node = fixture("a100-mig-mixed").to_node();
    let ids = |gpu: usize| -> Vec<(u32, u32)> {
        node.gpus[gpu].mig.iter().map(|mig| (mig.gi, mig.ci)).collect()
    };
    assert_eq!(ids(1), [(3, 0), (3, 1), (7, 0), (9, 0)]);
    assert_eq!((ids(2), &node.gpus[2].mig_mode), (vec![], &Probed::Known(false)));
    assert_eq!((ids(3), &node.gpus[3].mig_mode), (vec![], &Probed::Known(true)));
    assert!(node.gpus[0].mig[0].uuid.starts_with("MIG-"));
}

#[test]
fn the_example_of_the_readme_is_a_machine() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/machines/README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let example = readme.split("```toml").nth(1).unwrap().split("```").next().unwrap();
    let machine = Machine::parse(example).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(machine.gpus.len(), 2);
    assert_eq!(machine.gpus[0].nvlinks.len(), 20);
}

/// A machine of two GPUs, with more keys at the top and at the end.
fn text(top: &str, end: &str) -> String {
    format!(
        r#"name = "t"
description = "t"
source = "t"
driver = "535.1"
cuda = "12.2"
{top}
numa = [{{ id = 0, cpus = "0-3" }}, {{ id = 1, cpus = "4-7" }}, {{ id = 2 }}]
[gpus]
name = "G"
[[gpu]]
pci = "0000:01:00.0"
[[gpu]]
pci = "0000:02:00.0"
{end}
"#
    )
}

fn refused(top: &str, end: &str) -> MachineError {
    Machine::parse(&text(top, end)).unwrap_err()
}

fn problem(end: &str) -> Problem {
    refused("", end).problem
}

#[test]
fn errors_name_the_line() {
    assert!(Machine::parse(&text("", "")).is_ok());
    let unknown = refused("nvswich = 1", "");
    assert_eq!(unknown.line, 6);
    assert!(unknown.to_string().contains("unknown field `nvswich`"), "{unknown}");
    let unknown = refused("", "mindr = 1");
    assert_eq!(unknown.line, 14);
    let form = refused("", "cpus = \"3-1\"");
    assert_eq!(form.line, 14);
    assert!(form.to_string().contains("the CPU range `3-1` runs backwards"), "{form}");
    let syntax = refused("nvlink = [[0, 1", "");
    assert!((6..=7).contains(&syntax.line), "{syntax}");
    let numa = refused("", "numa = [5]");
    assert_eq!(numa, MachineError { line: 14, problem: Problem::NoSuchNuma(5) });
    assert_eq!(numa.to_string(), "line 14: NUMA node 5 is not described in any [[numa]]");
    assert!(matches!(Machine::parse("").unwrap_err().problem, Problem::Toml(_)));
}

#[test]
fn gpus_that_contradict_each_other_are_refused() {
    assert_eq!(problem("minor = 0"), Problem::MinorTwice(0));
    let more = |pci: &str, more: &str| problem(&format!("[[gpu]]\npci = \"{pci}\"\n{more}"));
    assert!(matches!(more("0000:02:00.0", ""), Problem::PciTwice(_)));
    assert!(matches!(more("0000:00:00.0", ""), Problem::Order(_)));
    let uuid = "uuid = \"GPU-1\"";
    assert_eq!(
        problem(&format!("{uuid}\n[[gpu]]\npci = \"0000:03:00.0\"\n{uuid}")),
        Problem::UuidTwice("GPU-1".into())
    );
    assert!(matches!(problem("uuid = \"1\""), Problem::UuidPrefix { .. }));
    assert_eq!(problem("numa = [2]"), Problem::NoCpus);
    assert_eq!(problem("numa = []"), Problem::NoCpus);
    assert_eq!(problem("gpu-numa-id = 1"), Problem::NotGpuMemory(1));
    assert_eq!(problem("gpu-numa-id = 3"), Problem::NoSuchNuma(3));
    assert!(matches!(problem("pcie = \"a//b\""), Problem::Pcie(_)));
    let nameless = text("", "").replace("name = \"G\"", "");
    assert_eq!(Machine::parse(&nameless).unwrap_err().problem, Problem::NoName);
}

#[test]
fn a_host_bridge_is_in_one_place() {
    let two = |first: &str, second: &str| problem(&format!("{first}\n[[gpu]]\n{second}"));
    let root = "pcie = \"r0\"";
    assert_eq!(
        two(&format!("{root}\nnuma = [0]"), &format!("pci = \"0:3:0.0\"\n{root}\nnuma = [1]")),
        Problem::RootNuma("r0".into())
    );
    assert_eq!(two(root, &format!("pci = \"1:3:0.0\"\n{root}")), Problem::RootDomain("r0".into()));
}

#[test]
fn numa_nodes_that_contradict_each_other_are_refused() {
    let with = |numa: &str| {
        let text = text("", "").replace("{ id = 2 }", numa);
        Machine::parse(&text).unwrap_err().problem
    };
    assert_eq!(with("{ id = 1 }"), Problem::NumaTwice(1));
    assert_eq!(with("{ id = 3, cpus = \"7-9\" }"), Problem::CpuTwice(7));
    let row = |row: &str| with(&format!("{{ id = 2, distance = {row} }}"));
    assert_eq!(row("[20, 20, 10]"), Problem::Distances { id: 0, expected: 3, found: 0 });
    let all = |first: &str| {
        text("", "")
            .replace("cpus = \"0-3\"", &format!("distance = {first}"))
            .replace("cpus = \"4-7\"", "distance = [20, 10, 20]")
            .replace("id = 2", "id = 2, distance = [20, 20, 10]")
    };
    let refused = |text: String| Machine::parse(&text).unwrap_err().problem;
    assert!(Machine::parse(&all("[10, 20, 20]")).is_ok());
    assert_eq!(refused(all("[11, 20, 20]")), Problem::SelfDistance(0));
    assert_eq!(refused(all("[10, 20]")), Problem::Distances { id: 0, expected: 3, found: 2 });
}

#[test]
fn links_faults_and_instances_must_be_about_what_is_there() {
    let top = |top: &str| refused(top, "").problem;
    assert_eq!(top("nvlink = [[0, 2, 1]]"), Problem::NoSuchGpu { gpu: 2, count: 2 });
    assert_eq!(top("nvlink = [[1, 1, 1]]"), Problem::SelfLink(1));
    let many = Problem::TooManyLinks { gpu: 0, links: 3, slots: 2 };
    assert_eq!(top("nvlink = [[0, 1, 3]]\nnvlink-slots = 2"), many);
    assert_eq!(top("level = \"NV4\""), Problem::Level(Link::NvLink(4)));
    let faults = |faults: &str| problem(&format!("[faults]\n{faults}"));
    assert_eq!(faults("lost = [2]"), Problem::NoSuchGpu { gpu: 2, count: 2 });
    assert_eq!(faults("lost = [1]\nforbidden = [1]"), Problem::TwoHandleFaults(1));
    assert_eq!(faults("absent = [\"nvmlX\"]"), Problem::NoSuchCall("nvmlX".into()));
    let call = |more: &str| faults(&format!("call = [{{ name = \"nvmlShutdown\"{more} }}]"));
    assert_eq!(call(""), Problem::EmptyFault("nvmlShutdown".into()));
    assert_eq!(call(", gpu = 2, code = 3"), Problem::NoSuchGpu { gpu: 2, count: 2 });
    assert_eq!(faults("link = [{ gpu = 0, link = 0 }]"), Problem::NoSuchLink { gpu: 0, link: 0 });
    let mig = |mig: &str| problem(&format!("mig = {{ {mig} }}"));
    assert_eq!(mig("mode = \"off\", instances = [{ gi = 1, ci = 0 }]"), Problem::MigOff);
    let one = "{ gi = 1, ci = 0 }";
    let twice = mig(&format!("mode = \"on\", instances = [{one}, {one}]"));
    assert_eq!(twice, Problem::MigTwice { gi: 1, ci: 0 });
    let beyond =
        mig(&format!("mode = \"on\", slots = 1, instances = [{one}, {{ gi = 2, ci = 0 }}]"));
    assert_eq!(beyond, Problem::MigSlot { slot: 1, slots: 1 });
}

#[test]
fn what_is_left_out_follows_from_the_rest() {
    let described = |driver: &str| {
        let text = text("", "mig = { mode = \"on\", instances = [{ gi = 1, ci = 0 }] }");
        Machine::parse(&text.replace("535.1", driver)).unwrap().to_node()
    };
    let (new, old) = (described("470.1"), described("460.1"));
    let gpu = new.gpus[1].uuid.known().unwrap();
    assert_eq!(old.gpus[1].mig[0].uuid, format!("MIG-{gpu}/1/0"));
    assert!(!new.gpus[1].mig[0].uuid.contains('/'));
    assert_ne!(new.gpus[0].uuid, new.gpus[1].uuid);
    assert_eq!(new.gpus[1].minor, Probed::Known(1));
    assert_eq!(new.links[0][1], Link::Unknown);
}

#[test]
fn a_broken_link_counts_at_neither_end() {
    let node = |end: &str| {
        let parsed = Machine::parse(&text("nvlink = [[0, 1, 4]]", end));
        parsed.unwrap().to_node().links[0][1]
    };
    assert_eq!(node(""), Link::NvLink(4));
    assert_eq!(node("[faults]\nlink = [{ gpu = 1, link = 2 }]"), Link::NvLink(3));
}
