//! Every form in which srun binds tasks to CPUs.

use std::collections::BTreeSet;

use crate::machine::Vm;
use crate::rank::{Rank, SAY, most_local};

/// srun's options, and gpubind plan's.
const FORMS: &[&str] = &[
    "-n8 -c2",
    "-n8 -c2 -m block",
    "-n8 -c2 -m block:block",
    "-n8 -c2 -m block:cyclic",
    "-n8 -c2 -m cyclic:cyclic",
    "-n8 -c2 -m plane=2",
    "-n8 -c2 -m block:fcyclic",
    "-n4 -c4",
    "-n4 -c4 -m block:block",
    "-n5 -c2",
    "-n2 -c8",
    "-n8 --cpu-bind=cores",
    "-n4 --cpu-bind=cores -m block:block",
    "-n8 --cpu-bind=threads",
    "-n8 -c2 --cpu-bind=sockets",
    "-n8 --cpu-bind=sockets -m block:block",
    "-n8 --cpu-bind=ldoms",
    "-n8 -c2 --cpu-bind=ldoms",
    "-n8 --cpu-bind=rank_ldom",
    "-n8 --cpu-bind=none",
    "-n8 --cpu-bind=map_cpu:15,14,13,12,3,2,1,0",
    "-n8 --cpu-bind=mask_cpu:0xff00*4,0xff*4",
    "-n8 --cpu-bind=map_ldom:1,0",
    "-n8 --cpu-bind=mask_ldom:0x2,0x1",
    "-n8 --hint=nomultithread",
    "-n4 -c2 --hint=nomultithread",
    "-n8 --threads-per-core=1 -m block:block",
    // Two ranks for each GPU.
    "-n16 --cpu-bind=threads",
];

/// A job with the whole node runs all of them. Before, `gpubind plan` has said with the
/// same options which CPUs and which GPUs each rank will have.
pub fn the_plan_before_equals_the_job_after(vm: &Vm) {
    let plans = FORMS.iter().map(|form| {
        let options: Vec<&str> = form.split(' ').collect();
        vm.plan(&options)
    });
    let plans: Vec<_> = plans.collect();
    let steps = FORMS.iter().map(|form| {
        format!(
            "echo \"form;{form}\"\nsrun {form} --gpu-bind=spank:share bash /tmp/say </dev/null\n"
        )
    });
    let script: String = steps.collect();
    let printed = vm.bash(&format!(
        "cat >/tmp/say <<'END'\n{SAY}\nEND\ncat >/tmp/forms <<'END'\n#!/bin/bash\n{script}\nEND\n\
         sbatch --quiet --wait --exclusive --gpus=8 --output=/tmp/forms.out /tmp/forms || true\n\
         cat /tmp/forms.out"
    ));
    let printed: Vec<&str> = printed.split("form;").skip(1).collect();
    assert_eq!(printed.len(), FORMS.len(), "{printed:?}");
    let mut wrong = Vec::new();
    for ((form, plan), text) in FORMS.iter().zip(&plans).zip(printed) {
        let ranks = Rank::all(text);
        let tasks = plan["tasks"].as_array().unwrap();
        let planned: Vec<String> =
            tasks.iter().map(|task| format!("{} on {}", task["visible"], task["cpus"])).collect();
        let had: Vec<String> =
            ranks.iter().map(|rank| format!("{:?} on \"{}\"", rank.visible, rank.cpus)).collect();
        if planned != had {
            wrong.push(format!("{form}: planned {planned:?}, had {had:?}, said\n{text}"));
            continue;
        }
        let uuids: BTreeSet<String> = ranks.iter().flat_map(|rank| rank.uuids.clone()).collect();
        let each = ranks.iter().map(|rank| rank.uuids.len()).max().unwrap_or(0);
        if uuids.len() != (each * ranks.len()).min(8) {
            wrong.push(format!("{form}: {} GPUs are used: {had:?}", uuids.len()));
        }
        let all: BTreeSet<String> =
            vm.node.gpus.iter().map(|gpu| gpu.uuid.known().unwrap().clone()).collect();
        let local = ranks.iter().filter(|rank| rank.is_local(&vm.node)).count();
        if each == 1
            && ranks.len() <= 8
            && most_local(&vm.node, &ranks, &all).is_some_and(|most| most != local)
        {
            wrong.push(format!("{form}: {local} ranks are local to their GPUs: {had:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
