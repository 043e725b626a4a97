//! Slurm's order of this machine's GPUs, for the description.

use std::env;
use std::path::{Path, PathBuf};

use crate::slurm::{NodeEntry, SlurmConf, gres_minors, read_gres};
use gpubind_core::node::{Node, Roots};
use gpubind_core::variables;

/// What gres.conf says of a node, and the files that say it.
#[derive(Default, PartialEq, Eq)]
pub(super) struct GresOrder {
    /// N of /dev/nvidiaN by Slurm's index, where that is certain.
    pub minors: Option<Vec<u32>>,
    /// gres.conf, whether or not it is there, and what it includes.
    pub files: Vec<PathBuf>,
}

impl GresOrder {
    /// Reads gres.conf beside the slurm.conf that SLURM_CONF names, as slurmd has it, or
    /// that is in the usual place.
    pub(super) fn read(node: &Node, roots: &Roots) -> GresOrder {
        let named = env::var_os(variables::SLURM_CONF).filter(|path| !path.is_empty());
        let usual = || SlurmConf::usual_places().1.map(Path::to_owned);
        match named.map(PathBuf::from).or_else(usual) {
            Some(slurm_conf) => GresOrder::beside(&slurm_conf, node, roots),
            None => GresOrder::default(),
        }
    }

    fn beside(slurm_conf: &Path, node: &Node, roots: &Roots) -> GresOrder {
        let path = slurm_conf.with_file_name("gres.conf");
        let conf = SlurmConf::read(slurm_conf).ok();
        let nodes = conf.map(|conf| nodes(&conf)).unwrap_or_default();
        let name = match nodes.as_slice() {
            [only] => Some(only.name.as_str()),
            // Lines for some nodes only leave a doubt.
            _ => None,
        };
        let gres = match read_gres(&path, name) {
            Ok(gres) => gres,
            Err(why) => {
                tracing::debug!("Slurm's order of GPUs is not known: {why}");
                return GresOrder { minors: None, files: vec![path] };
            }
        };
        let types = nodes.first().map(NodeEntry::gpu_types).unwrap_or_default();
        let is_same = nodes.iter().all(|node| node.gpu_types() == types);
        let minors = gres_minors(&gres, &types, node, &roots.dev()).filter(|_| is_same);
        tracing::debug!("Slurm's order of GPUs by {}: {minors:?}", path.display());
        GresOrder { minors, files: gres.files }
    }
}

/// This machine's entry in slurm.conf, or those of all nodes on it.
fn nodes(conf: &SlurmConf) -> Vec<NodeEntry> {
    let name = env::var(variables::NODE_NAME).ok();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let names = name.map_or_else(|| conf.names_on(&host), |name| vec![name]);
    names.iter().filter_map(|name| conf.node(Some(name), &host)).collect()
}
