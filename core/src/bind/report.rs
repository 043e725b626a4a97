//! What a rank got, and what a node's ranks got, in one line each for people.

use std::fmt;

use crate::node::{Device, IdSet, Node};
use crate::plan::{Plan, Why};
use crate::words::count;

use super::locality::{Locality, numa_list};
use super::rank::Rank;

/// What a rank got and why; displayed as its `verbose` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankReport {
    /// The task's number on the node.
    pub local_rank: usize,
    /// Its CPUs; empty where unknown.
    pub cpus: IdSet,
    /// Whether these are what `cpus=local` has left of more.
    pub is_narrowed: bool,
    /// Its own devices.
    pub own: Vec<OwnDevice>,
    /// CUDA_VISIBLE_DEVICES.
    pub visible: String,
    /// Why these devices.
    pub why: Why,
}

/// A rank's own device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnDevice {
    /// NVML's index of a whole GPU.
    pub index: Option<usize>,
    /// What it is called: `GPU 3`, `GPU 0 instance 1/0`, or as Slurm's list has it.
    pub name: String,
    /// UUID and PCI address.
    pub ids: Vec<String>,
    /// Product name, where known.
    pub model: Option<String>,
    /// NUMA nodes with CPUs that are local to it; empty where unknown.
    pub numa: Vec<u32>,
    /// Whether the rank's CPUs are local to it.
    pub locality: Locality,
}

impl OwnDevice {
    /// A device of a known node.
    pub(super) fn of(node: &Node, device: Device, cpus: &IdSet) -> Option<OwnDevice> {
        let gpu = node.gpu(device)?;
        let instance = device.mig.and_then(|mig| gpu.mig.get(mig));
        let part = instance.map(|it| format!(" instance {}/{}", it.gi, it.ci));
        let uuid = node.uuid(device).unwrap_or("UUID unknown").to_owned();
        let pci = gpu.pci.known().map_or("PCI address unknown".to_owned(), |pci| pci.to_string());
        Some(OwnDevice {
            index: usize::try_from(gpu.index).ok().filter(|_| instance.is_none()),
            name: format!("GPU {}{}", gpu.index, part.unwrap_or_default()),
            ids: vec![uuid, pci],
            model: gpu.name.known().cloned(),
            numa: gpu.numa.known().cloned().unwrap_or_default(),
            locality: Locality::of(cpus, gpu),
        })
    }

    /// A device that only Slurm's list names.
    pub(super) fn listed(name: String) -> OwnDevice {
        let (index, ids, model, numa) = (None, Vec::new(), None, Vec::new());
        OwnDevice { index, name, ids, model, numa, locality: Locality::Unknown }
    }
}

impl fmt::Display for RankReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "local rank {}: ", self.local_rank)?;
        let mut rest = self.own.as_slice();
        let mut separator = "";
        while let Some(first) = rest.first() {
            let is_like =
                |own: &OwnDevice| own.locality == first.locality && own.model == first.model;
            let like = rest.iter().take_while(|own| is_like(own)).count();
            let (group, others) = rest.split_at_checked(like).unwrap_or((rest, &[]));
            write!(f, "{separator}{}", Group(group))?;
            match (first.locality, self.cpus.is_empty()) {
                (Locality::Unknown, _) => write!(f, ", {}", first.locality)?,
                (_, true) => {}
                (locality, false) => {
                    let left = if self.is_narrowed { ", left by cpus=local" } else { "" };
                    write!(f, ", {locality} to CPUs {}{left}", self.cpus)?;
                }
            }
            separator = " + ";
            rest = others;
        }
        write!(f, "; CUDA_VISIBLE_DEVICES={}; {}", self.visible, self.why)
    }
}

/// Devices of one model that are equally local. UUIDs and addresses are told of one alone:
/// of several, GPUBIND_GPU_UUID and GPUBIND_GPU_PCI tell them.
struct Group<'a>(&'a [OwnDevice]);

impl fmt::Display for Group<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Group(own) = self;
        let mut numa: Vec<u32> = own.iter().flat_map(|own| own.numa.iter().copied()).collect();
        numa.sort_unstable();
        numa.dedup();
        let numa = match numa.as_slice() {
            [] => "NUMA node unknown".to_owned(),
            [one] => format!("NUMA node {one}"),
            several => format!("NUMA nodes {}", numa_list(several)),
        };
        let model = own.first().and_then(|own| own.model.clone());
        if let [one] = own {
            write!(f, "{}", one.name)?;
            let about: Vec<String> = one.ids.iter().cloned().chain(model).collect();
            return if about.is_empty() {
                Ok(())
            } else {
                write!(f, " ({}, {numa})", about.join(", "))
            };
        }
        match own.iter().map(|own| own.index).collect::<Option<IdSet>>() {
            Some(indices) => write!(f, "GPUs {indices}")?,
            None => {
                let names: Vec<&str> = own.iter().map(|own| own.name.as_str()).collect();
                write!(f, "{}", names.join(", "))?;
            }
        }
        match model {
            Some(model) => write!(f, " ({} x {model}, {numa})", own.len()),
            None if own.iter().all(|own| own.ids.is_empty()) => Ok(()),
            None => write!(f, " ({numa})"),
        }
    }
}

/// What all ranks of a node got, with these CPUs, as the first of them tells it under
/// `verbose`.
pub(super) fn summary(rank: &Rank, cpus: &[IdSet], plan: &Plan) -> String {
    let (ranks, devices) = (rank.tasks.count(), &rank.allocation.entries);
    let mut given: Vec<usize> = plan.shares.list().to_vec();
    given.sort_unstable();
    given.dedup();
    let used = match devices.len() {
        1 => "the one GPU".to_owned(),
        all => format!("{} of {all} GPUs", given.len()),
    };
    let locality = |(cpus, share): (&IdSet, &[usize])| {
        let node = rank.node.ok()?;
        let gpu = |at: &usize| node.gpu(devices.get(*at)?.device?);
        share.iter().map(|at| Some(Locality::of(cpus, gpu(at)?))).collect::<Option<Vec<_>>>()
    };
    let all: Option<Vec<Vec<Locality>>> =
        cpus.iter().zip(plan.shares.iter()).map(locality).collect();
    let is_local = |own: &&Vec<Locality>| own.iter().all(|it| *it == Locality::Local);
    let is_partly =
        |own: &&Vec<Locality>| !is_local(own) && own.iter().any(|it| *it != Locality::Remote);
    let local = match all {
        Some(all) if !all.iter().flatten().any(|it| *it == Locality::Unknown) => {
            let local = all.iter().filter(is_local).count();
            let partly = all.iter().filter(is_partly).count();
            let partly = if partly > 0 { format!(", {partly} partly") } else { String::new() };
            format!("{local} of {ranks} ranks are local to their CPUs{partly}")
        }
        _ => "whether they are local is not known".to_owned(),
    };
    let verb = if ranks == 1 { "uses" } else { "use" };
    format!("{} {verb} {used} of the step; {local}", count(ranks, "rank"))
}
