//! What NVML refuses, gets wrong or does not have, and the wrapper's own
//! faults: each costs one value or one GPU, never the others.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

mod nvml_support;

use std::fs;

use gpubind::nvml::{self, NvmlError};
use gpubind_core::node::{Link, Node, Probed};
use nvml_support::Fake;

fn read(fake: &Fake) -> Node {
    let node = nvml::read(Some(&fake.library()), &fake.roots()).unwrap();
    node.check().unwrap();
    node
}

/// The fixture with a fault, as it is read, and as it is described.
fn faulty(name: &str, faults: &str) -> (Node, Node) {
    let fake = Fake::with(name, &format!("[faults]\n{faults}"));
    (read(&fake), fake.machine.to_node())
}

/// Two GPUs with NVLinks as described.
fn pair(links: &str, end: &str) -> Fake {
    Fake::new(&format!(
        r#"
        name = "pair"
        description = "two GPUs"
        source = "made up for a test"
        driver = "580.82.07"
        cuda = "13.0"
        {links}
        numa = [{{ id = 0, cpus = "0-7" }}]
        gpu = [
          {{ pci = "0000:01:00.0", numa = [0], pcie = "r0/s0" }},
          {{ pci = "0000:02:00.0", numa = [0], pcie = "r0/s1" }},
        ]
        [gpus]
        name = "GPU"
        compute = "9.0"
        {end}
        "#
    ))
}

#[test]
fn unusable_gpus_are_listed_and_the_others_are_complete() {
    let (node, described) = faulty("dgx-a100", "lost = [2]\nreset-required = [5]\nforbidden = [0]");
    assert_eq!(node, described);
    let unusable: Vec<_> = node
        .unusable
        .iter()
        .map(|unusable| (unusable.index, unusable.minor.unwrap(), unusable.code))
        .collect();
    assert_eq!(unusable, [(0, 0, 4), (2, 2, 15), (5, 5, 16)]);
    assert_eq!(node.unusable[1].pci.unwrap().to_string(), "0000:47:00.0");
    assert_eq!(node.gpus.len(), 5);
    assert!(node.links[0][1..].iter().all(|link| *link == Link::NvLink(12)));
}

#[test]
fn a_gpu_that_is_lost_behind_its_handle_is_unusable_too() {
    let fault = "call = [{ name = \"nvmlDeviceGetUUID\", gpu = 1, code = 15 }]";
    let (node, described) = faulty("two-cpu", fault);
    let others: Vec<_> = described.gpus.iter().filter(|gpu| gpu.index != 1).cloned().collect();
    assert_eq!(node.gpus, others);
    assert_eq!((node.unusable[0].index, node.unusable[0].code), (1, 15));
    assert_eq!(node.unusable[0].pci, Some(described.gpus[1].pci));
    assert_eq!(Probed::from(node.unusable[0].minor), described.gpus[1].minor);
}

/// Each value of a GPU, the call that reads it, and what a refusal leaves.
type Value = (&'static str, fn(&mut Node, Probed<()>));

const VALUES: [Value; 5] = [
    ("nvmlDeviceGetMinorNumber", |node, no| node.gpus[1].minor = no.map(|()| 0)),
    ("nvmlDeviceGetName", |node, no| node.gpus[1].name = no.map(|()| String::new())),
    ("nvmlDeviceGetMigMode", |node, no| node.gpus[1].mig_mode = no.map(|()| false)),
    ("nvmlDeviceGetPersistenceMode", |node, no| node.gpus[1].persistence = no.map(|()| false)),
    ("nvmlDeviceGetNumaNodeId", |node, no| node.gpus[1].gpu_numa_id = no.map(|()| 0)),
];

#[test]
fn a_refused_value_is_unsupported_or_failed_and_costs_nothing_else() {
    // From 23 on the wrapper mixes codes up with unknown enum values.
    for code in [999, 23, 28, 7, 3, 25] {
        for (call, refuse) in VALUES {
            let fault = format!("call = [{{ name = \"{call}\", gpu = 1, code = {code} }}]");
            let (node, mut described) = faulty("gh200-4", &fault);
            let no =
                if matches!(code, 3 | 25) { Probed::Unsupported } else { Probed::Failed(code) };
            refuse(&mut described, no);
            assert_eq!(node, described, "{call} {code}");
        }
    }
}

#[test]
fn a_missing_symbol_is_an_unsupported_value_and_costs_nothing_else() {
    for (call, refuse) in VALUES {
        let (node, mut described) = faulty("gh200-4", &format!("absent = [\"{call}\"]"));
        let gpus = described.gpus.clone();
        refuse(&mut described, Probed::Unsupported);
        // It is missing for all GPUs, not only for the one that `refuse` changes.
        let changed = described.gpus[1].clone();
        for (gpu, before) in described.gpus.iter_mut().zip(gpus) {
            *gpu = before;
            match call {
                "nvmlDeviceGetMinorNumber" => gpu.minor = changed.minor,
                "nvmlDeviceGetName" => gpu.name = changed.name.clone(),
                "nvmlDeviceGetMigMode" => gpu.mig_mode = changed.mig_mode,
                "nvmlDeviceGetPersistenceMode" => gpu.persistence = changed.persistence,
                _ => gpu.gpu_numa_id = changed.gpu_numa_id,
            }
        }
        assert_eq!(node, described, "{call}");
    }
}

#[test]
fn a_library_without_shutdown_is_left_loaded_without_a_panic() {
    let (node, described) = faulty("two-cpu", "absent = [\"nvmlShutdown\"]");
    assert_eq!(node, described);
}

#[test]
fn refused_affinity_comes_from_sysfs() {
    // Each call has a mate; sysfs is asked when both refuse.
    let cpus = ["nvmlDeviceGetCpuAffinityWithinScope", "nvmlDeviceGetCpuAffinity"];
    let memory = "nvmlDeviceGetMemoryAffinity";
    for name in ["two-cpu", "dgx-a100", "gh200-4"] {
        for faults in [
            format!("absent = [\"{}\"]", cpus[0]),
            format!("absent = [\"{}\", \"{}\", \"{memory}\"]", cpus[0], cpus[1]),
            format!(
                "call = [{}]",
                [cpus[0], cpus[1], memory]
                    .map(|call| format!("{{ name = \"{call}\", code = 999 }}"))
                    .join(", ")
            ),
        ] {
            let (node, described) = faulty(name, &faults);
            assert_eq!(node, described, "{name} {faults}");
        }
    }
}

#[test]
fn affinity_that_nobody_tells_is_unsupported_or_failed_never_node_0() {
    let fault = "call = [{ name = \"nvmlDeviceGetMemoryAffinity\", gpu = 0, code = 999 }]";
    let (node, described) = faulty("vm-no-affinity", fault);
    assert_eq!(
        (&node.gpus[0].numa, &node.gpus[1].numa),
        (&Probed::Failed(999), &Probed::Unsupported)
    );
    assert_eq!(described.gpus[0].cpus, Probed::Unsupported);
    assert_eq!(
        node.gpus[0].cpus,
        Probed::Unsupported,
        "the kernel's list of all CPUs says nothing"
    );
}

#[test]
fn memory_only_nodes_are_never_cpu_nodes() {
    for name in ["gh200-4", "gb200-4"] {
        let fake = Fake::with(name, "");
        for gpu in read(&fake).gpus {
            let own = *gpu.gpu_numa_id.known().unwrap();
            let numa = gpu.numa.known().unwrap();
            assert_eq!(numa.len(), 1, "{name}");
            let cpus = |id: u32| &fake.machine.numa.iter().find(|node| node.id == id).unwrap().cpus;
            assert!(cpus(own).is_empty() && !cpus(numa[0]).is_empty(), "{name}");
        }
    }
}

#[test]
fn pcie_levels_that_nvml_refuses_come_from_sysfs() {
    for name in ["a100-pcie-bridges", "two-cpu", "l40s-pcie", "pcie-10", "pcie-uneven-3-5"] {
        for fault in [
            "absent = [\"nvmlDeviceGetTopologyCommonAncestor\"]",
            "call = [{ name = \"nvmlDeviceGetTopologyCommonAncestor\", code = 999 }]",
        ] {
            let (node, described) = faulty(name, fault);
            assert_eq!(node.links, described.links, "{name} {fault}");
        }
    }
}

#[test]
fn links_are_counted_until_the_driver_says_that_there_are_no_more() {
    // More than the 18 of the wrapper's constant.
    let node = read(&pair("nvlink = [[0, 1, 20]]", ""));
    assert_eq!(node.links[0][1], Link::NvLink(20));
    let node = read(&pair("nvswitch = 36", ""));
    assert_eq!(node.links[1][0], Link::NvLink(36));
}

#[test]
fn the_state_of_a_later_link_is_read_with_its_own_number() {
    // The state call is gone, so the field is read, which the wrapper can only
    // ask of link 0.
    let faults =
        "[faults]\nlink = [{ gpu = 0, link = 3 }]\nabsent = [\"nvmlDeviceGetNvLinkState\"]";
    assert_eq!(read(&pair("nvlink = [[0, 1, 6]]", faults)).links[0][1], Link::NvLink(5));
    let faults =
        "[faults]\nlink = [{ gpu = 0, link = 0 }]\nabsent = [\"nvmlDeviceGetNvLinkState\"]";
    assert_eq!(read(&pair("nvlink = [[0, 1, 6]]", faults)).links[0][1], Link::NvLink(5));
}

#[test]
fn without_the_field_the_state_call_tells() {
    let faults =
        "[faults]\nlink = [{ gpu = 0, link = 3 }]\nabsent = [\"nvmlDeviceGetFieldValues\"]";
    assert_eq!(read(&pair("nvlink = [[0, 1, 6]]", faults)).links[0][1], Link::NvLink(5));
}

#[test]
fn the_kind_of_the_far_end_is_really_asked() {
    // Without addresses only the kind is left; the wrapper's always says
    // unknown, which would make a switch of the CPU.
    let gone = "[faults]\nabsent = [\"nvmlDeviceGetNvLinkRemotePciInfo_v2\"]";
    assert_eq!(read(&pair("nvlink-cpu = 3", gone)).links[0][1], Link::Phb);
    assert_eq!(read(&pair("nvswitch = 18", gone)).links[0][1], Link::NvLink(18));
}

#[test]
fn without_the_kind_the_address_tells() {
    let gone = "[faults]\nabsent = [\"nvmlDeviceGetNvLinkRemoteDeviceType\"]";
    assert_eq!(read(&pair("nvlink-cpu = 3", gone)).links[0][1], Link::Phb);
    assert_eq!(read(&pair("nvlink = [[0, 1, 4]]", gone)).links[0][1], Link::NvLink(4));
    // Switches without an address (all F), and such as sysfs knows.
    assert_eq!(read(&pair("nvswitch = 18", gone)).links[0][1], Link::NvLink(18));
    let seen = "nvswitch = 12\nnvswitches = [\"0000:c4:00.0\"]";
    assert_eq!(read(&pair(seen, gone)).links[0][1], Link::NvLink(12));
}

#[test]
fn a_library_that_cannot_walk_links_counts_those_into_switches() {
    let gone =
        "[faults]\nabsent = [\"nvmlDeviceGetNvLinkCapability\", \"nvmlDeviceGetNvLinkState\"]";
    // Ampere: the state field is not there either, the count is.
    let (node, described) = {
        let fake = Fake::with("dgx-a100", gone);
        (read(&fake), fake.machine.to_node())
    };
    assert_eq!(node, described);
}

#[test]
fn a_hidden_peer_is_no_switch() {
    // Four GPUs in a ring of direct links; the cgroup leaves 0 and 2, which
    // have no link with each other but the same two hidden neighbours.
    for hidden in ["renumber", "holes"] {
        let fake = Fake::new(&format!(
            r#"
            name = "ring"
            description = "four GPUs"
            source = "made up for a test"
            driver = "580.82.07"
            cuda = "13.0"
            hidden = "{hidden}"
            nvlink = [[0, 1, 2], [1, 2, 2], [2, 3, 2], [3, 0, 2]]
            numa = [{{ id = 0, cpus = "0-7" }}]
            gpu = [
              {{ pci = "0000:01:00.0", numa = [0], pcie = "r0/s0" }},
              {{ pci = "0000:02:00.0", numa = [0], pcie = "r0/s0" }},
              {{ pci = "0000:03:00.0", numa = [0], pcie = "r0/s1", minor = 3 }},
              {{ pci = "0000:04:00.0", numa = [0], pcie = "r0/s1", minor = 2 }},
            ]
            [gpus]
            name = "GPU"
            "#
        ));
        allow(&fake, &[0, 2]);
        let node = read(&fake);
        assert_eq!(node.links, [[Link::Same, Link::Phb], [Link::Phb, Link::Same]], "{hidden}");
        let index: Vec<_> = node.gpus.iter().map(|gpu| gpu.index).collect();
        assert_eq!(index, [0, 2], "{hidden}: numbered on the whole node");
        let unusable: Vec<_> = node.unusable.iter().map(|s| (s.index, s.minor, s.code)).collect();
        assert_eq!(unusable, [(1, Some(1), 4), (3, Some(2), 4)], "{hidden}");
        let described = fake.machine.to_node();
        assert_eq!(node.gpus[1], described.gpus[2], "{hidden}");
    }
}

/// Leaves only the device files of these GPUs, as a device cgroup would.
fn allow(fake: &Fake, gpus: &[usize]) {
    let dev = fake.path().join("dev");
    fs::create_dir(&dev).unwrap();
    fs::write(dev.join("nvidiactl"), "").unwrap();
    for gpu in gpus {
        let minor = fake.machine.gpus[*gpu].minor;
        fs::write(dev.join(format!("nvidia{minor}")), "").unwrap();
    }
}

/// One A100 with slots 0, 2 and 5 in use, in no order.
fn mig(driver: &str, faults: &str) -> Fake {
    Fake::new(&format!(
        r#"
        name = "mig"
        description = "one A100 in MIG mode"
        source = "made up for a test"
        driver = "{driver}"
        cuda = "11.0"
        numa = [{{ id = 0, cpus = "0-7" }}]
        [[gpu]]
        pci = "0000:01:00.0"
        name = "NVIDIA A100-SXM4-40GB"
        numa = [0]
        [gpu.mig]
        mode = "on"
        instances = [
          {{ gi = 9, ci = 0, profile = "1g.5gb" }},
          {{ gi = 3, ci = 1, profile = "1c.2g.10gb", slot = 2 }},
          {{ gi = 3, ci = 0, profile = "1c.2g.10gb", slot = 5 }},
        ]
        {faults}
        "#
    ))
}

#[test]
fn mig_instances_come_in_order_past_empty_slots_in_both_spellings() {
    for (driver, old) in [("535.104.05", false), ("450.80.02", true)] {
        let node = read(&mig(driver, ""));
        let gpu = &node.gpus[0];
        assert_eq!(gpu.mig_mode, Probed::Known(true));
        let ids: Vec<_> = gpu.mig.iter().map(|mig| (mig.gi, mig.ci)).collect();
        assert_eq!(ids, [(3, 0), (3, 1), (9, 0)]);
        let profiles: Vec<_> = gpu.mig.iter().map(|mig| mig.profile.as_deref().unwrap()).collect();
        assert_eq!(profiles, ["1c.2g.10gb", "1c.2g.10gb", "1g.5gb"]);
        for mig in &gpu.mig {
            let parent = gpu.uuid.known().unwrap();
            let spelled = format!("MIG-{parent}/{}/{}", mig.gi, mig.ci);
            assert_eq!(mig.uuid == spelled, old, "{}", mig.uuid);
        }
    }
}

#[test]
fn without_the_id_calls_old_uuids_tell_the_ids() {
    let gone =
        "[faults]\nabsent = [\"nvmlDeviceGetGpuInstanceId\", \"nvmlDeviceGetComputeInstanceId\"]";
    let fake = mig("450.80.02", gone);
    assert_eq!(read(&fake), fake.machine.to_node());
}

#[test]
fn without_a_name_the_profile_is_made_of_the_attributes() {
    let fault = "[faults]\ncall = [{ name = \"nvmlDeviceGetName\", code = 999 }]";
    let fake = mig("535.104.05", fault);
    let node = read(&fake);
    let expected = fake.machine.to_node();
    assert_eq!(node.gpus[0].mig, expected.gpus[0].mig);
}

#[test]
fn a_start_that_fails_says_what_to_do() {
    let fake = Fake::with("two-cpu", "[faults]\nmismatch = true");
    let error = nvml::read(Some(&fake.library()), &fake.roots()).unwrap_err();
    assert!(matches!(error, NvmlError::Failed { code: 18 }), "{error}");
    assert!(error.to_string().contains("reload the module or reboot"), "{error}");

    let count = "[faults]\ncall = [{ name = \"nvmlDeviceGetCount_v2\", code = 999 }]";
    let fake = Fake::with("two-cpu", count);
    let error = nvml::read(Some(&fake.library()), &fake.roots()).unwrap_err();
    assert!(error.to_string().contains("/dev/nvidiactl"), "{error}");

    let fake = Fake::with("two-cpu", "[faults]\nabsent = [\"nvmlDeviceGetCount_v2\"]");
    let error = nvml::read(Some(&fake.library()), &fake.roots()).unwrap_err();
    assert!(matches!(error, NvmlError::Symbol(_)), "{error}");
}

#[test]
fn a_library_that_is_not_there_is_named() {
    let fake = Fake::with("two-cpu", "");
    let nowhere = fake.path().join("libnothing.so");
    let error = nvml::read(Some(&nowhere), &fake.roots()).unwrap_err();
    assert!(matches!(error, NvmlError::Library { .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with(&format!("cannot load {}: ", nowhere.display())), "{text}");
}

#[test]
fn handles_are_asked_for_by_index_only() {
    // By PCI address or UUID, other GPUs could be woken.
    let calls = ["nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByUUID"];
    let faults = calls.map(|call| format!("{{ name = \"{call}\", crash = true }}")).join(", ");
    let (node, described) = faulty("dgx-a100", &format!("call = [{faults}]"));
    assert_eq!(node, described);
}
