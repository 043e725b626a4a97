//! The plans for each machine of tests/machines, kept in tests/plans for review.
//!
//! A change of a plan is a change of a file: `GPUBIND_WRITE_PLANS=1 cargo test
//! --test plan_golden` writes them anew, and the diff shows what became of whom.
#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::path::PathBuf;

use gpubind_core::node::{Device, IdSet, Node};
use gpubind_core::plan::{Shape, plan};

mod plan_support;
use plan_support::{all_devices, block, cyclic, machines};

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/plans"))
}

fn name_of(device: Device) -> String {
    match device.mig {
        Some(instance) => format!("{}.{instance}", device.gpu),
        None => device.gpu.to_string(),
    }
}

fn names(devices: impl IntoIterator<Item = Device>) -> String {
    devices.into_iter().map(name_of).collect::<Vec<_>>().join(",")
}

/// One step as text: a line of what it is, a line per task, a line of costs.
fn step(title: &str, node: &Node, devices: &[Device], tasks: &[IdSet]) -> String {
    let plan = plan(node, devices, tasks, Shape::Auto).unwrap();
    let mut text = format!("\n{title}: {} tasks on {}\n", tasks.len(), names(devices.to_vec()));
    for (task, (share, cpus)) in plan.shares.iter().zip(tasks).enumerate() {
        let own = names(share.iter().map(|&device| devices[device]));
        writeln!(text, "  {task}: {own}  from {cpus}: {}", plan.why(task)).unwrap();
    }
    for (which, cost) in [("cost", plan.cost), ("in order", plan.naive)] {
        writeln!(text, "  {which}: numa {}, links {}", cost.numa, cost.links).unwrap();
    }
    text
}

fn plans(name: &str, node: &Node) -> String {
    let all = all_devices(node);
    let half: Vec<Device> = all[..all.len().div_ceil(2)].to_vec();
    let odd: Vec<Device> = all.iter().copied().skip(1).step_by(2).collect();
    let mut backwards = block(node, all.len());
    backwards.reverse();
    let mut text = format!("{name}: task: devices from CPUs: why\n");
    text += &step("block", node, &all, &block(node, all.len()));
    text += &step("cyclic", node, &all, &cyclic(node, all.len()));
    text += &step("backwards", node, &all, &backwards);
    text += &step("half of the devices", node, &half, &block(node, all.len()));
    if !odd.is_empty() {
        text += &step("odd devices, tasks with shares", node, &odd, &cyclic(node, 2));
    }
    text
}

#[test]
fn plans_are_as_reviewed() {
    let write = std::env::var_os("GPUBIND_WRITE_PLANS").is_some();
    let mut expected: Vec<PathBuf> = Vec::new();
    for (name, node) in machines() {
        let file = folder().join(format!("{name}.txt"));
        let text = plans(&name, &node);
        if write {
            std::fs::create_dir_all(folder()).unwrap();
            std::fs::write(&file, &text).unwrap();
        }
        let kept = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(text, kept, "{} differs; see the head of this test", file.display());
        expected.push(file);
    }
    let mut kept: Vec<PathBuf> =
        std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    kept.sort();
    expected.sort();
    assert_eq!(kept, expected, "a file in tests/plans belongs to no machine");
}
