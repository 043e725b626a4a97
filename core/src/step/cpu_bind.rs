//! The CPU sets of a node's tasks, from SLURM_CPU_BIND_TYPE and SLURM_CPU_BIND_LIST.
//!
//! slurmd writes the lists per node and every task sees the whole list, so all
//! tasks of a step know each other's sets without talking (src/slurmd/common/
//! slurmstepd_init.c, src/plugins/task/affinity/dist_tasks.c). Numbers are OS
//! CPU numbers.

use crate::node::{IdSet, IdSetError, NumaNode};
use crate::variables;

/// Why a CPU binding cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpuBindError {
    /// An entry that is no mask, CPU or NUMA node.
    #[error("entry {position} of the {kind} list: {source}")]
    Entry {
        /// Position in the list, from 0.
        position: usize,
        /// `mask_cpu`, `map_cpu`, …
        kind: String,
        /// What is wrong with it.
        source: IdSetError,
    },
    /// A NUMA node that the machine does not have.
    #[error("entry {position} of the {kind} list names NUMA node {id}, which the node lacks")]
    NumaNode {
        /// Position in the list, from 0.
        position: usize,
        /// `map_ldom` or `mask_ldom`.
        kind: String,
        /// The NUMA node's id.
        id: usize,
    },
}

/// The CPU set of each of `tasks` tasks, by local rank; empty where unknown.
///
/// `bind_type` is `mask_cpu:`, `map_cpu:`, `map_ldom:`, `mask_ldom:`, or
/// something without a list (`none`, `cores`, …), for which no set is known.
/// Task *i* uses entry *i* modulo the number of entries (affinity.c,
/// `get_cpuset`).
pub fn task_cpus(
    bind_type: &str,
    list: &str,
    tasks: usize,
    numa: &[NumaNode],
) -> Result<Vec<IdSet>, CpuBindError> {
    let kind = bind_type.trim_end_matches(':');
    // `kind` may carry words of the user before it: `quiet,mask_cpu`.
    let kind = kind.rsplit(',').next().unwrap_or(kind);
    let entries: Vec<&str> = list.split(',').filter(|entry| !entry.is_empty()).collect();
    if entries.is_empty() || !matches!(kind, "mask_cpu" | "map_cpu" | "map_ldom" | "mask_ldom") {
        return Ok(vec![IdSet::default(); tasks]);
    }
    let mut sets = Vec::with_capacity(entries.len());
    // Entries beyond the number of tasks are nobody's.
    for (position, entry) in entries.iter().take(tasks.max(1)).enumerate() {
        let wrong = |source| CpuBindError::Entry { position, kind: kind.to_owned(), source };
        let ids = if kind.starts_with("mask") {
            IdSet::from_mask(entry).map_err(wrong)?
        } else if entry.starts_with("0x") {
            // map_cpu takes hexadecimal numbers too (srun(1), --cpu-bind).
            number_from_hex(entry).map_err(wrong)?
        } else {
            entry.parse().map_err(wrong)?
        };
        sets.push(match kind {
            "map_ldom" | "mask_ldom" => cpus_of(&ids, numa)
                .map_err(|id| CpuBindError::NumaNode { position, kind: kind.to_owned(), id })?,
            _ => ids,
        });
    }
    Ok((0..tasks).filter_map(|task| sets.get(task % sets.len())).cloned().collect())
}

/// The CPU set of each of the `tasks` tasks of the calling task's step on this node,
/// by local rank, as SLURM_CPU_BIND_TYPE and SLURM_CPU_BIND_LIST tell; empty where
/// unknown.
///
/// # Errors
/// [`CpuBindError`].
pub fn listed_cpus(
    env: &dyn Fn(&str) -> Option<String>,
    tasks: usize,
    numa: &[NumaNode],
) -> Result<Vec<IdSet>, CpuBindError> {
    let bind_type = env(variables::CPU_BIND_TYPE).unwrap_or_default();
    let list = env(variables::CPU_BIND_LIST).unwrap_or_default();
    task_cpus(&bind_type, &list, tasks, numa)
}

/// A set of the one number that a hexadecimal text names.
fn number_from_hex(text: &str) -> Result<IdSet, IdSetError> {
    u16::from_str_radix(text.trim_start_matches("0x"), 16)
        .map(|cpu| [usize::from(cpu)].into_iter().collect())
        .map_err(|_| IdSetError::Part(text.to_owned()))
}

/// The CPUs of all these NUMA nodes; the id of one that is not there.
fn cpus_of(ids: &IdSet, numa: &[NumaNode]) -> Result<IdSet, usize> {
    let mut cpus = Vec::new();
    for id in ids.iter() {
        let node = numa.iter().find(|node| node.id as usize == id).ok_or(id)?;
        cpus.extend(node.cpus.iter());
    }
    Ok(cpus.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bind_type: &str, list: &str, tasks: usize) -> Vec<String> {
        let node = |id, cpus: &str| NumaNode { id, cpus: cpus.parse().unwrap(), distance: vec![] };
        let numa = [node(0, "0-3"), node(8, "4-7")];
        let sets = task_cpus(bind_type, list, tasks, &numa).unwrap();
        sets.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_form_that_slurm_writes_is_read() {
        assert_eq!(read("mask_cpu:", "0x0003,0x000C", 2), ["0-1", "2-3"]);
        assert_eq!(read("mask_cpu:", "3,c", 2), ["0-1", "2-3"]);
        assert_eq!(read("map_cpu:", "1,0", 2), ["1", "0"]);
        assert_eq!(read("map_cpu:", "0x1f,2", 2), ["31", "2"]);
        assert_eq!(read("map_ldom:", "8,0", 2), ["4-7", "0-3"]);
        assert_eq!(read("mask_ldom:", "0x101", 2), ["0-7", "0-7"]);
    }

    #[test]
    fn a_short_list_starts_over_and_a_long_one_is_cut() {
        assert_eq!(read("map_cpu:", "1,0", 5), ["1", "0", "1", "0", "1"]);
        assert_eq!(read("mask_cpu:", "0xF", 3), ["0-3", "0-3", "0-3"]);
        assert_eq!(read("map_cpu:", "1,0,2,3", 2), ["1", "0"]);
    }

    #[test]
    fn without_a_list_nothing_is_known() {
        for (bind_type, list) in
            [("none", ""), ("", ""), ("cores", ""), ("rank", ""), ("none", "0x1")]
        {
            assert_eq!(read(bind_type, list, 2), ["", ""], "{bind_type}");
        }
    }

    #[test]
    fn a_wrong_entry_is_named() {
        let wrong = task_cpus("mask_cpu:", "0x1,zz", 2, &[]).unwrap_err().to_string();
        assert_eq!(wrong, "entry 1 of the mask_cpu list: `zz` is not a hexadecimal CPU mask");
        let wrong = task_cpus("map_ldom:", "3", 1, &[]).unwrap_err().to_string();
        assert_eq!(wrong, "entry 0 of the map_ldom list names NUMA node 3, which the node lacks");
    }
}
