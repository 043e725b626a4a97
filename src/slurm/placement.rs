//! Where Slurm puts tasks, and what that means for their GPUs.

use crate::slurm::{Distribution, layout};
use gpubind_core::bind::Locality;
use gpubind_core::node::Node;
use gpubind_core::plan::{Shape, plan};

/// The release from which on task/cgroup comes first (slurm.conf(5), TaskPlugin;
/// in later ones a cgroup that comes second may widen the CPU mask again).
const CGROUP_FIRST: (u32, u32) = (23, 11);

/// The task plugins that a site should have: those that bind tasks to CPUs and
/// constrain them, in the order that the release's manual wants, then the site's
/// others. `present` is TaskPlugin in small letters.
pub fn task_plugins(present: &[String], release: (u32, u32)) -> Vec<String> {
    let pair = match release < CGROUP_FIRST {
        true => ["task/affinity", "task/cgroup"],
        false => ["task/cgroup", "task/affinity"],
    };
    let is_other = |word: &&String| !pair.contains(&word.as_str()) && *word != "task/none";
    pair.map(str::to_owned).into_iter().chain(present.iter().filter(is_other).cloned()).collect()
}

/// A step that has the whole node and one rank for each GPU, placed by Slurm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Ranks, and GPUs.
    pub ranks: usize,
    /// Sockets that the ranks are dealt to.
    pub sockets: usize,
    /// Ranks that are not local to GPU *i* of the node, *i* being their number.
    pub naive: usize,
    /// Ranks that are not local to the GPU that gpubind gives them.
    pub planned: usize,
}

/// Why nothing can be said of a node's placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// NVML and the kernel do not tell which CPUs are next to a GPU.
    #[error("the machine does not tell which CPUs are next to its GPUs")]
    Affinity,
    /// Slurm binds no task where the CPUs do not suffice.
    #[error("there are fewer CPUs than GPUs, or the CPUs are not known")]
    Cpus,
    /// No GPU, or more than a plan takes.
    #[error("there is no plan for this machine")]
    Plan,
}

/// Places one rank for each GPU or MIG instance that can be used, as srun does by default.
///
/// # Errors
/// [`PlacementError`].
pub fn placement(node: &Node, distribution: Distribution) -> Result<Placement, PlacementError> {
    if !node.gpus.iter().any(|gpu| gpu.cpus.known().is_some()) {
        return Err(PlacementError::Affinity);
    }
    let devices = node.devices();
    let ranks = devices.len();
    let placed = layout(node, ranks, None, distribution).map_err(|_| PlacementError::Cpus)?;
    if placed.cpus_per_task.is_none() {
        return Err(PlacementError::Cpus);
    }
    let plan =
        plan(node, &devices, &placed.tasks, Shape::Single).map_err(|_| PlacementError::Plan)?;
    let away = |list: &mut dyn Iterator<Item = usize>| {
        let is_away = |(cpus, device): (_, usize)| {
            devices.get(device).and_then(|device| node.gpu(*device)).is_some_and(|gpu| {
                matches!(Locality::of(cpus, gpu), Locality::Partly | Locality::Remote)
            })
        };
        placed.tasks.iter().zip(list).map(is_away).filter(|away| *away).count()
    };
    Ok(Placement {
        ranks,
        sockets: placed.sockets,
        naive: away(&mut (0..ranks)),
        planned: away(&mut plan.shares.iter().filter_map(|share| share.first().copied())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpubind_machine::Machine;

    fn node(name: &str) -> Node {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/machines");
        let text = std::fs::read_to_string(format!("{folder}/{name}.toml")).unwrap();
        Machine::parse(&text).unwrap().to_node()
    }

    #[test]
    fn the_order_of_task_plugins_depends_on_the_release() {
        let present = ["task/none", "task/cgroup", "task/site"].map(str::to_owned);
        assert_eq!(task_plugins(&present, (23, 2)), ["task/affinity", "task/cgroup", "task/site"]);
        assert_eq!(task_plugins(&present, (23, 11)), ["task/cgroup", "task/affinity", "task/site"]);
    }

    #[test]
    fn slurms_default_puts_every_other_rank_far_from_its_gpu() {
        let cyclic = placement(&node("hgx-h100"), Distribution::Cyclic).unwrap();
        assert_eq!(cyclic, Placement { ranks: 8, sockets: 2, naive: 4, planned: 0 });
        let block = placement(&node("hgx-h100"), Distribution::Block).unwrap();
        assert_eq!(block, Placement { ranks: 8, sockets: 2, naive: 0, planned: 0 });
        // Three GPUs at one socket, five at the other.
        let uneven = placement(&node("pcie-uneven-3-5"), Distribution::Cyclic).unwrap();
        assert!(uneven.planned == 1 && uneven.naive > 1, "{uneven:?}");
    }

    #[test]
    fn what_is_not_known_is_not_judged() {
        let of = |name: &str| placement(&node(name), Distribution::Cyclic).unwrap_err();
        assert_eq!(of("vm-no-affinity"), PlacementError::Affinity);
        assert_eq!(of("two-cpu"), PlacementError::Cpus);
        let empty = placement(&Node::default(), Distribution::Cyclic).unwrap_err();
        assert_eq!(empty, PlacementError::Affinity);
    }
}
