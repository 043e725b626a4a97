//! Where Slurm puts tasks, and what that means for their GPUs.

use super::message::{Finding, messages};
use super::setup::Setup;
use crate::slurm::Distribution;
use crate::slurm::{self, SlurmConf, task_plugins};
use gpubind_core::words::count;

messages! {
    UNKNOWN = Note, "tasks", "not checked: {why}";

    CGROUP = Ok, "cgroup", "ConstrainDevices=yes: a step reaches only its own GPUs";
    CGROUP_OFF = Note, "cgroup", "ConstrainDevices is not on: a step can open GPUs of other jobs",
        "gpubind works either way; on nodes that jobs share, write ConstrainDevices=yes into cgroup.conf and \
         task/cgroup into TaskPlugin";
    CGROUP_UNKNOWN = Note, "cgroup", "not checked: {why}";
    CGROUP_NO_PLUGIN = Warning, "cgroup", "ConstrainDevices=yes has no effect: TaskPlugin has no task/cgroup",
        "write TaskPlugin={right}";

    PLUGINS = Ok, "task-plugin", "TaskPlugin={plugins}";
    PLUGINS_NO_AFFINITY = Warning, "task-plugin", "TaskPlugin={plugins} binds no task to CPUs",
        "write TaskPlugin={right}: a task that may run anywhere is near to no GPU";
    PLUGINS_ORDER = Warning, "task-plugin", "TaskPlugin={plugins} is in the wrong order for Slurm {release}",
        "write TaskPlugin={right}: in the other order task/cgroup may widen what task/affinity has set";

    BINDING = Ok, "cpu-binding", "tasks are bound to CPUs by default";
    BINDING_OFF = Note, "cpu-binding", "{place} switches the binding to CPUs off by default",
        "take it out, or tell users to write --cpu-bind=cores: a task that may run anywhere is near to no GPU";

    PLACEMENT = Ok, "placement",
        "one rank on each of {gpus} GPUs, dealt {way} to {sockets}: {naive} not local without gpubind, {planned} with it";
    PLACEMENT_UNKNOWN = Note, "placement", "not checked: {why}";
    PLACEMENT_FAR = Note, "placement",
        "one rank on each of {gpus} GPUs, dealt {way} to {sockets}: {planned} not local even with gpubind ({naive} without)",
        "CPUs and GPUs are not evenly spread over this machine; `gpubind plan --tasks {gpus}` shows the ranks";
}

/// The checks of this file.
pub fn checks(setup: &Setup) -> Vec<Finding> {
    let mut findings = match &setup.slurm {
        Ok(conf) => vec![cgroup(setup, conf), plugins(setup, conf), binding(setup, conf)],
        Err(_) => vec![UNKNOWN.with(&[("why", &"slurm.conf is not known")])],
    };
    findings.push(placement(setup));
    findings
}

fn cgroup(setup: &Setup, conf: &SlurmConf) -> Finding {
    // What scontrol shows has cgroup.conf's settings too.
    let file = setup.beside_conf("cgroup.conf").filter(|file| file.exists());
    let read = match file.map(|file| SlurmConf::read(&file)) {
        Some(Err(error)) => return CGROUP_UNKNOWN.with(&[("why", &error)]),
        Some(Ok(read)) => Some(read),
        None => None,
    };
    let value = read.as_ref().unwrap_or(conf).value("ConstrainDevices").unwrap_or("no");
    // As Slurm reads a boolean (src/common/parse_config.c, s_p_handle_boolean).
    let is_on = ["yes", "true", "up", "1"].iter().any(|word| word.eq_ignore_ascii_case(value));
    let plugins = conf.list("TaskPlugin");
    match (is_on, plugins.iter().any(|plugin| plugin == "task/cgroup")) {
        (false, _) => CGROUP_OFF.plain(),
        (true, true) => CGROUP.plain(),
        (true, false) => CGROUP_NO_PLUGIN.with(&[("right", &right(setup, &plugins))]),
    }
}

/// What TaskPlugin should be; of an unknown release, in the order of today's.
fn right(setup: &Setup, plugins: &[String]) -> String {
    task_plugins(plugins, *setup.release.as_ref().unwrap_or(&(u32::MAX, 0))).join(",")
}

fn plugins(setup: &Setup, conf: &SlurmConf) -> Finding {
    let found = conf.list("TaskPlugin");
    let right = right(setup, &found);
    let shown = if found.is_empty() { "task/none".to_owned() } else { found.join(",") };
    let at = |name: &str| found.iter().position(|plugin| plugin == name);
    let in_order = |first: Option<usize>, second: Option<usize>| match (first, second) {
        (Some(first), Some(second)) => first < second,
        _ => true,
    };
    let affinity = at("task/affinity");
    let Ok((major, minor)) = &setup.release else {
        let message = if affinity.is_some() { &PLUGINS } else { &PLUGINS_NO_AFFINITY };
        return message.with(&[("plugins", &shown), ("right", &right)]);
    };
    let cgroup_first = right.starts_with("task/cgroup");
    match (affinity, at("task/cgroup")) {
        (None, _) => PLUGINS_NO_AFFINITY.with(&[("plugins", &shown), ("right", &right)]),
        (affinity, cgroup)
            if (cgroup_first && in_order(cgroup, affinity))
                || (!cgroup_first && in_order(affinity, cgroup)) =>
        {
            PLUGINS.with(&[("plugins", &shown)])
        }
        _ => PLUGINS_ORDER.with(&[
            ("plugins", &shown),
            ("release", &format_args!("{major}.{minor:02}")),
            ("right", &right),
        ]),
    }
}

fn binding(setup: &Setup, conf: &SlurmConf) -> Finding {
    let of_node = setup.entry.as_ref().and_then(|entry| entry.value("CpuBind"));
    let place = match of_node {
        Some(kind) if kind.eq_ignore_ascii_case("none") => "CpuBind=none of the node's entry",
        // A node's own setting wins (slurm.conf(5), CpuBind).
        None if conf.list("TaskPluginParam").iter().any(|word| word == "none") => {
            "TaskPluginParam=none"
        }
        _ => return BINDING.plain(),
    };
    BINDING_OFF.with(&[("place", &place)])
}

fn placement(setup: &Setup) -> Finding {
    let Some(node) = setup.node().filter(|node| !node.gpus.is_empty()) else {
        return PLACEMENT_UNKNOWN.with(&[("why", &"no GPU can be read here")]);
    };
    let distribution = setup.slurm.as_ref().map(SlurmConf::distribution).unwrap_or_default();
    let placed = match slurm::placement(node, distribution) {
        Ok(placed) => placed,
        Err(why) => return PLACEMENT_UNKNOWN.with(&[("why", &why)]),
    };
    let way = match distribution {
        Distribution::Block => "block by block",
        Distribution::Cyclic | Distribution::FullCyclic => "in turn",
    };
    let message = if placed.planned == 0 { &PLACEMENT } else { &PLACEMENT_FAR };
    message.with(&[
        ("gpus", &placed.ranks),
        ("way", &way),
        ("sockets", &count(placed.sockets, "socket")),
        ("naive", &placed.naive),
        ("planned", &placed.planned),
    ])
}
