//! What this process has, from its environment and what it can reach.

use std::env;

use serde::Serialize;

use crate::cli::device_json::{DeviceJson, MigJson};
use crate::cli::host::host;
use gpubind_core::bind::Locality;
use gpubind_core::node::{Device, IdSet, Node};
use gpubind_core::request::Request;
use gpubind_core::step::{Allocation, RankInfo, Reach, names, own_cpus, step_gpu_count};
use gpubind_core::variables;

/// One process, as `--json` prints it; what is not known is null.
#[derive(Debug, Serialize)]
pub struct Report {
    pub host: String,
    pub rank: Option<u32>,
    pub local_rank: Option<usize>,
    /// Ranks on this node.
    pub local_size: Option<usize>,
    /// Where the numbers were read: a launcher's name, `Slurm`, or `alone`.
    pub rank_from: String,
    pub visible: Option<String>,
    /// CUDA_VISIBLE_DEVICES as gpubind has set it.
    pub given: Option<String>,
    pub devices: Vec<DeviceReport>,
    pub peers: Option<Peers>,
    /// Whether the machine is known.
    #[serde(skip)]
    pub is_known: bool,
    pub cpus: String,
    /// Why gpubind gave these devices, as it told the process.
    pub why: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct DeviceReport {
    #[serde(flatten)]
    pub device: DeviceJson,
    pub mig: Option<MigJson>,
    /// `local`, `partly local`, `remote`, or null.
    pub locality: Option<String>,
    /// Whether the process may open its device file.
    pub reachable: bool,
}

/// The step's devices besides the process's own, which it may see as well.
#[derive(Debug, Serialize)]
pub struct Peers {
    pub count: usize,
    /// How many of them its device cgroup lets through.
    pub reachable: usize,
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
    let describe = |device: &Device| describe(machine?, *device, &cpus);
    let given = env::var(variables::ASSIGNED_LIST).ok();
    let own = machine.map_or_else(Vec::new, |machine| {
        let facts = facts(given.as_deref(), visible.as_deref(), &|name| env::var(name).ok());
        own(&seen, |device| machine.node.uuid(*device).map(str::to_owned), &facts)
    });
    Report {
        host: host(),
        rank: rank_info.rank,
        local_rank: rank_info.is_numbered().then_some(rank_info.local_rank),
        local_size: rank_info.local_size,
        rank_from: rank_info.source.to_string(),
        given,
        devices: seen.iter().filter_map(describe).collect(),
        peers: machine.and_then(|machine| peers(machine, &own)),
        is_known: machine.is_some(),
        visible,
        cpus: cpus.to_string(),
        why: env::var(variables::WHY).ok(),
    }
}

/// Whether several ranks on one device are wanted.
pub fn is_sharing_wanted() -> bool {
    let request = env::var(variables::REQUEST).unwrap_or_default().parse::<Request>();
    request.is_ok_and(|request| request.share)
        || env::var(variables::SHARING_WANTED).is_ok_and(|on| on == "on")
}

fn describe(machine: &NodeView, device: Device, cpus: &IdSet) -> Option<DeviceReport> {
    let gpu = machine.node.gpu(device)?;
    let locality = Some(Locality::of(cpus, gpu)).filter(|known| *known != Locality::Unknown);
    let (json, mig) = DeviceJson::of(machine.node, device)?;
    Some(DeviceReport {
        device: json,
        mig,
        locality: locality.map(|locality| locality.to_string()),
        reachable: machine.reach.gpus.get(device.gpu).copied().unwrap_or(true),
    })
}

/// The UUIDs that gpubind has given the process for its own; empty where its list is not
/// gpubind's any more, since they need not be true then.
pub fn facts(
    given: Option<&str>,
    visible: Option<&str>,
    env: &dyn Fn(&str) -> Option<String>,
) -> String {
    let is_as_given = given.is_some() && given == visible;
    env(variables::GPU_UUID).filter(|_| is_as_given).unwrap_or_default()
}

/// The devices that a process is to use: of those that it sees the ones among `facts`, and
/// where none is, all.
pub fn own<D: Clone>(seen: &[D], uuid: impl Fn(&D) -> Option<String>, facts: &str) -> Vec<D> {
    let is_own = |device: &&D| uuid(device).is_some_and(|uuid| names(facts).any(|own| own == uuid));
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
    Some(Peers { count, reachable: others.min(count) })
}
