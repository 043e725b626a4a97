//! What Slurm itself would do with `--gpu-bind=single:1`, for comparison.
//!
//! src/interfaces/gres.c (`_foreach_gres_to_task` and its callers, 23.02 and
//! later) walks the tasks in order and never looks back: a task takes the first
//! free GPU whose Cores hold all its CPUs, else the first free one whose Cores
//! hold some of them, else the first free one. A GPU without Cores is near to
//! everyone. When all GPUs are taken, all become free again. 22.05 chooses among
//! near GPUs only and may pile tasks up; that is not modelled.

use gpubind_core::bind::Locality;
use gpubind_core::node::{Device, IdSet, Node};

/// The position in `devices` that each task would get. The GPUs' local CPUs
/// stand for Cores, which is what AutoDetect=nvml makes of them. A task of
/// unknown CPUs counts as one that may run anywhere, as it does in Slurm without
/// task/affinity. Empty without devices.
pub fn slurm_single(node: &Node, devices: &[Device], tasks: &[IdSet]) -> Vec<usize> {
    if devices.is_empty() {
        return Vec::new();
    }
    let mut taken = vec![false; devices.len()];
    let mut list = Vec::with_capacity(tasks.len());
    for cpus in tasks {
        if !taken.contains(&false) {
            taken.fill(false);
        }
        let free = taken.iter().zip(devices).enumerate().filter(|(_, (taken, _))| !**taken);
        let best = free.min_by_key(|(_, (_, device))| preference(node, **device, cpus));
        let Some(position) = best.map(|(position, _)| position) else { break };
        if let Some(taken) = taken.get_mut(position) {
            *taken = true;
        }
        list.push(position);
    }
    list
}

/// How well a GPU suits a task; the smallest is taken.
fn preference(node: &Node, device: Device, cpus: &IdSet) -> u8 {
    let gpu = node.gpu(device).filter(|gpu| gpu.cpus.known().is_some());
    match gpu.map(|gpu| Locality::of(cpus, gpu)) {
        None | Some(Locality::Local) => 0,
        Some(Locality::Partly | Locality::Unknown) => 1,
        Some(Locality::Remote) => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpubind_core::node::{Gpu, Probed};

    fn node(cores: &[Option<&str>]) -> (Node, Vec<Device>) {
        let gpu = |(index, cores): (u32, &Option<&str>)| Gpu {
            index,
            minor: Probed::Unsupported,
            uuid: Probed::Unsupported,
            pci: format!("0000:{:02x}:00.0", index + 1).parse().unwrap(),
            name: Probed::Unsupported,
            cpus: cores.map(|cores| cores.parse().unwrap()).into(),
            numa: Probed::Unsupported,
            gpu_numa_id: Probed::Unsupported,
            mig_mode: Probed::Unsupported,
            mig: vec![],
            persistence: Probed::Unsupported,
        };
        let gpus = (0..).zip(cores).map(gpu).collect();
        let devices = (0..cores.len()).map(|gpu| Device { gpu, mig: None }).collect();
        (Node { gpus, ..Node::default() }, devices)
    }

    fn single(cores: &[Option<&str>], tasks: &[&str]) -> Vec<usize> {
        let (node, devices) = node(cores);
        let tasks: Vec<IdSet> = tasks.iter().map(|cpus| cpus.parse().unwrap()).collect();
        slurm_single(&node, &devices, &tasks)
    }

    #[test]
    fn the_first_free_gpu_that_holds_all_cpus_goes_before_one_that_holds_some() {
        assert_eq!(single(&[Some("0-1"), Some("0-7")], &["0-3", "0-3"]), [1, 0]);
        assert_eq!(single(&[Some("8-9"), Some("0-1")], &["0-3", "0-3"]), [1, 0]);
        assert_eq!(single(&[Some("8-9"), Some("10")], &["0-3", "0-3"]), [0, 1]);
    }

    #[test]
    fn an_early_task_takes_the_only_good_gpu_of_a_later_one() {
        // Task 0 fits nowhere and takes GPU 0, the only one of task 1.
        assert_eq!(single(&[Some("0-3"), Some("4-7")], &["8-9", "0-3"]), [0, 1]);
    }

    #[test]
    fn when_all_are_taken_another_round_begins() {
        let cores = [Some("0-3"), Some("4-7")];
        assert_eq!(single(&cores, &["4-7", "4-7", "4-7", "0-3", "0-3"]), [1, 0, 1, 0, 0]);
    }

    #[test]
    fn a_gpu_without_cores_is_near_to_everyone() {
        assert_eq!(single(&[Some("4-7"), None], &["0-3", "0-3"]), [1, 0]);
        assert_eq!(single(&[Some("4-7"), None], &["", ""]), [1, 0]);
        assert_eq!(single(&[Some("4-7"), Some("0-3")], &["", ""]), [0, 1]);
        assert_eq!(single(&[], &["0-3"]), [0; 0]);
    }
}
