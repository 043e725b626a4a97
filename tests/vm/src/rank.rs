//! What a rank says of itself, and where its GPU is.

use std::collections::BTreeSet;

use gpubind_core::node::{IdSet, Node};

/// A shell's command that prints a line for each rank; [`Rank::all`] reads them. The GPUs
/// that it may open are those whose file is not refused: there is no driver behind them.
pub const SAY: &str = r#"
open=
for gpu in 0 1 2 3 4 5 6 7; do
    why=$( (exec 3<>/dev/nvidia$gpu) 2>&1) || :
    case $why in *"not permitted"*) ;; *) open=$open$gpu, ;; esac
done
cpus=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
echo "rank;$SLURM_LOCALID;$cpus;${CUDA_VISIBLE_DEVICES-};${GPUBIND_GPU_UUID-};${open%,};$(id -un)"
"#;

/// A rank of a step.
#[derive(Debug, Clone)]
pub struct Rank {
    /// CPUs by the kernel.
    pub cpus: IdSet,
    /// CUDA_VISIBLE_DEVICES.
    pub visible: String,
    /// UUIDs of its GPUs.
    pub uuids: Vec<String>,
    /// Numbers of the device files that it may open.
    pub open: IdSet,
    /// The user.
    pub user: String,
}

impl Rank {
    /// Reads the lines of a step's ranks, in the order of their numbers.
    pub fn all(text: &str) -> Vec<Rank> {
        let mut ranks: Vec<(usize, Rank)> = Vec::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("rank;")) {
            let fields: Vec<&str> = line.split(';').collect();
            let [rank, cpus, visible, uuids, open, user] = fields[..] else {
                panic!("{line}");
            };
            let rank = rank.parse().unwrap();
            let uuids = uuids.split(',').filter(|uuid| !uuid.is_empty()).map(str::to_owned);
            ranks.push((
                rank,
                Rank {
                    cpus: cpus.parse().unwrap(),
                    visible: visible.to_owned(),
                    uuids: uuids.collect(),
                    open: open.parse().unwrap(),
                    user: user.to_owned(),
                },
            ));
        }
        ranks.sort_by_key(|(rank, _)| *rank);
        ranks.into_iter().map(|(_, rank)| rank).collect()
    }

    /// Whether all of its GPUs are next to one of its CPUs.
    pub fn is_local(&self, node: &Node) -> bool {
        !self.uuids.is_empty()
            && self.uuids.iter().all(|uuid| near(node, uuid).common(&self.cpus) > 0)
    }
}

/// The CPUs next to a GPU, by the fixture.
fn near(node: &Node, uuid: &str) -> IdSet {
    let gpu = node.gpus.iter().find(|gpu| gpu.uuid.known().is_some_and(|known| known == uuid));
    gpu.unwrap().cpus.known().unwrap().clone()
}

/// How many of these ranks, with a GPU each, can have one next to them: as many as a NUMA
/// node has both ranks and GPUs, where every rank is on one. `None` where a rank is not.
pub fn most_local(node: &Node, ranks: &[Rank], uuids: &BTreeSet<String>) -> Option<usize> {
    let mut most = 0;
    let mut placed = 0;
    for numa in &node.numa {
        let is_on = |rank: &&Rank| rank.cpus.iter().all(|cpu| numa.cpus.contains(cpu));
        let on = ranks.iter().filter(is_on).count();
        let is_at = |uuid: &&String| near(node, uuid).common(&numa.cpus) > 0;
        most += on.min(uuids.iter().filter(is_at).count());
        placed += on;
    }
    (placed == ranks.len()).then_some(most)
}
