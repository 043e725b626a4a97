//! What this process has, from its environment and what it can reach.

use std::env;

use serde::{Deserialize, Serialize};

use crate::cli::device_json::{DeviceJson, MigJson};
use crate::cli::host::host;
use gpubind_core::bind::Locality;
use gpubind_core::node::{Device, IdSet, Node};
use gpubind_core::request::request_of_process;
use gpubind_core::step::{
    Access, Allocation, RankInfo, RankSource, Reach, names, own_cpus, step_gpu_count,
};
use gpubind_core::variables;

/// The version of the JSON form.
pub const SCHEMA: u32 = 1;

/// One process, as `--json` prints it; what is not known is null.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The version of this form: docs/json.md.
    pub schema: u32,
    pub host: String,
    pub rank: Option<u32>,
    /// Ranks in all.
    pub size: Option<u32>,
    pub local_rank: Option<usize>,
    /// Ranks on this node.
    pub local_size: Option<usize>,
    /// Where the numbers were read: a launcher's name, `Slurm`, or `alone`.
    pub rank_from: String,
    pub visible: Option<String>,
    /// CUDA_VISIBLE_DEVICES as gpubind has set it.
    pub assigned: Option<String>,
    /// Whether several ranks on one device are wanted.
    pub share: bool,
    pub devices: Vec<DeviceReport>,
    pub peers: Option<Peers>,
    /// Whether the machine is known.
    #[serde(skip)]
    pub is_known: bool,
    pub cpus: IdSet,
    /// Why gpubind gave these devices, as it told the process.
    pub why: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeviceReport {
    #[serde(flatten)]
    pub device: DeviceJson,
    pub mig: Option<MigJson>,
    /// Whether it is the rank's own, where it sees others too.
    pub own: bool,
    /// `local`, `partly local`, `remote`, or null.
    #[serde(with = "known_locality")]
    pub locality: Locality,
    /// Whether the process may open its device file.
    pub reachable: bool,
}

/// The step's devices besides the process's own, which it may see as well.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Peers {
    pub count: usize,
    /// How many of them its device cgroup lets through.
    pub reachable: usize,
    /// How many GPUs of the machine it may open, but nobody can use.
    #[serde(skip)]
    pub unusable: usize,
}

impl Report {
    /// The devices that the process is to use.
    pub fn own(&self) -> impl Iterator<Item = &DeviceReport> {
        self.devices.iter().filter(|device| device.own)
    }

    /// The devices that a program uses: the process's own; the first where nothing tells
    /// them from others, since that is what a program uses which does not choose.
    pub fn used(&self) -> Vec<&DeviceReport> {
        let is_undecided = self.assigned.is_none() && self.local_size != Some(1);
        self.own().take(if is_undecided { 1 } else { usize::MAX }).collect()
    }
}

/// A locality by its word, and null where it is not known.
mod known_locality {
    use super::{Deserialize, Locality, Serialize};
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(locality: &Locality, to: S) -> Result<S::Ok, S::Error> {
        let known = Some(locality).filter(|locality| **locality != Locality::Unknown);
        known.map(Locality::to_string).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Locality, D::Error> {
        let word = Option::<String>::deserialize(from)?;
        let all = [Locality::Local, Locality::Partly, Locality::Remote];
        let known = all.into_iter().find(|it| word.as_deref() == Some(it.to_string().as_str()));
        Ok(known.unwrap_or(Locality::Unknown))
    }
}

/// What is known of the machine.
pub struct NodeView<'a> {
    pub node: &'a Node,
    pub reach: &'a Reach,
}

/// Gathers the report.
pub fn gather(machine: Option<&NodeView>, rank_info: &RankInfo) -> Report {
    let visible = env::var(variables::CUDA_VISIBLE_DEVICES).ok();
    let cpus = own_cpus();
    let seen = machine.map_or_else(Vec::new, |machine| {
        Allocation::seen(machine.node, machine.reach, visible.as_deref())
    });
    let mut report = Report {
        schema: SCHEMA,
        share: is_sharing_wanted(),
        host: host(),
        rank: rank_info.rank,
        size: size(rank_info, &|name| env::var(name).ok()),
        local_rank: rank_info.is_numbered().then_some(rank_info.local_rank),
        local_size: rank_info.local_size,
        rank_from: rank_info.source.to_string(),
        assigned: env::var(variables::ASSIGNED_LIST).ok(),
        devices: Vec::new(),
        peers: None,
        is_known: machine.is_some(),
        visible,
        cpus: cpus.clone(),
        why: env::var(variables::WHY).ok(),
    };
    if let Some(machine) = machine {
        let uuids = assigned_uuids(&report, &|name| env::var(name).ok());
        let own = own(&seen, |device| machine.node.uuid(*device).map(str::to_owned), &uuids);
        report.peers = peers(machine, &own);
        let described = seen
            .iter()
            .filter_map(|device| describe(machine, *device, &cpus, own.contains(device)));
        report.devices = described.collect();
    }
    report
}

/// How many ranks there are in all, by who has numbered them.
fn size(rank_info: &RankInfo, env: &dyn Fn(&str) -> Option<String>) -> Option<u32> {
    let name = match rank_info.source {
        RankSource::Slurm => variables::STEP_NUM_TASKS,
        RankSource::Launcher(launcher) if launcher.local_rank == variables::LOCAL_RANK => {
            variables::WORLD_SIZE
        }
        RankSource::Launcher(_) | RankSource::Alone => return None,
    };
    // No step has more; a mistyped number must not fill the memory.
    env(name)?.trim().parse().ok().filter(|size| (1..=10_000_000).contains(size))
}

/// Whether several ranks on one device are wanted.
fn is_sharing_wanted() -> bool {
    request_of_process(&|name| env::var(name).ok()).is_ok_and(|request| request.share == Some(true))
        || env::var(variables::SHARING_WANTED).is_ok_and(|on| on == "on")
}

fn describe(machine: &NodeView, device: Device, cpus: &IdSet, own: bool) -> Option<DeviceReport> {
    let gpu = machine.node.gpu(device)?;
    let (json, mig) = DeviceJson::of(machine.node, device)?;
    Some(DeviceReport {
        device: json,
        mig,
        own,
        locality: Locality::of(cpus, gpu),
        reachable: machine.reach.gpus.get(device.gpu).is_none_or(|access| *access == Access::Open),
    })
}

/// The UUIDs that gpubind has assigned to the process; empty where its list is not
/// gpubind's any more, since they need not be true then.
pub fn assigned_uuids(report: &Report, env: &dyn Fn(&str) -> Option<String>) -> String {
    let is_unchanged = report.assigned.is_some() && report.assigned == report.visible;
    env(variables::GPU_UUID).filter(|_| is_unchanged).unwrap_or_default()
}

/// The devices that a process is to use: of those that it sees the assigned ones, and where
/// none is, all.
fn own<D: Clone>(seen: &[D], uuid: impl Fn(&D) -> Option<String>, assigned: &str) -> Vec<D> {
    let is_own =
        |device: &&D| uuid(device).is_some_and(|uuid| names(assigned).any(|own| own == uuid));
    let own: Vec<D> = seen.iter().filter(is_own).cloned().collect();
    if own.is_empty() { seen.to_vec() } else { own }
}

/// How many other devices the step has, as Slurm tells, else the machine; and how many of
/// the machine's others the process can reach, which are the step's where Slurm closes
/// the rest. Of MIG instances it is not known.
fn peers(machine: &NodeView, own: &[Device]) -> Option<Peers> {
    if own.iter().any(|device| device.mig.is_some()) {
        return None;
    }
    let all = Allocation::seen(machine.node, machine.reach, None);
    let others = all.iter().filter(|device| !own.contains(device)).count();
    let step = step_gpu_count(&|name| env::var(name).ok());
    let count = step.map_or(others, |step| step.saturating_sub(own.len()));
    let unusable = machine.reach.unusable.iter().filter(|access| **access == Access::Open).count();
    Some(Peers { count, reachable: others.min(count), unusable })
}
