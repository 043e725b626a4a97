//! Whether the site's tables can take effect: `gpubind check` and `gpubind config` say so.

use std::path::{Path, PathBuf};

use crate::slurm::SlurmConf;
use gpubind_core::site::{KEYS, Origin, PlugstackArgs, SiteFile};

/// A part of gpubind.toml that changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum IdleTable {
    #[error("{} has [partition.{name}], but slurm.conf has no such partition ({})",
            file.display(), known.join(", "))]
    NoPartition { file: PathBuf, name: String, known: Vec<String> },
    #[error("{place} sets {key} for all jobs, so {key} in [{table}] of {} has no effect",
            file.display())]
    Shadowed { file: PathBuf, table: String, key: &'static str, place: Origin },
}

/// All of them; partitions are compared where slurm.conf is known and lists any.
pub(super) fn idle_tables(
    path: &Path,
    file: &SiteFile,
    plugstack: &PlugstackArgs,
    slurm: Option<&SlurmConf>,
) -> Vec<IdleTable> {
    let known = slurm.map(SlurmConf::partitions).unwrap_or_default();
    let mut idle = Vec::new();
    for name in
        file.partitions().filter(|name| !known.is_empty() && !known.iter().any(|it| it == name))
    {
        let (file, name) = (path.to_owned(), name.to_owned());
        idle.push(IdleTable::NoPartition { file, name, known: known.clone() });
    }
    for (table, layer) in file.tables() {
        let shadowed = KEYS.iter().filter(|key| layer.get(key.name).is_some());
        let shadowed = shadowed.filter_map(|key| {
            let place = plugstack.layer.get(key.name)?.origin.clone();
            let (file, table) = (path.to_owned(), table.clone());
            Some(IdleTable::Shadowed { file, table, key: key.name, place })
        });
        idle.extend(shadowed);
    }
    idle
}
