//! slurm.conf: the settings that matter to GPUs, and the entry of one node.

use std::path::{Path, PathBuf};

use super::gres_line::parse_count;
use super::hosts::hosts;
use super::lines::{Line, Lines, ReadError};
use crate::slurm::Distribution;

/// Lines that begin with these describe one thing each; their keys are not the
/// cluster's (slurm.conf(5)).
const THINGS: [&str; 5] = ["NodeName", "PartitionName", "NodeSet", "DownNodes", "FrontendName"];

/// Where slurm.conf is unless something else is said: Debian's and most sites' place; a
/// node's copy where slurmctld hands out the configuration; the source's default.
const PLACES: [&str; 3] =
    ["/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/usr/local/etc/slurm.conf"];

/// slurm.conf, or what `scontrol show config` says of it.
#[derive(Debug, Default)]
pub struct SlurmConf {
    /// The file; `None` where only Slurm's own words are known.
    pub file: Option<PathBuf>,
    /// Included files that cannot be read.
    pub missing: Vec<ReadError>,
    lines: Vec<Line>,
}

/// A node's entry in slurm.conf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEntry {
    /// The node's name.
    pub name: String,
    /// The lines that describe it: defaults first, its own last.
    lines: Vec<Line>,
}

impl NodeEntry {
    /// The value of a key: the node's own, else the defaults'.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.lines.iter().rev().find_map(|line| line.value(key))
    }

    /// How many GPUs `Gres=` gives the node; `None` where it says nothing of GPUs.
    pub fn gpus(&self) -> Option<u64> {
        let entries = self.value("Gres")?.split(',');
        entries.filter_map(gpu_count).reduce(u64::saturating_add)
    }

    /// What `Gres=` says of GPUs: their types and counts.
    pub fn gpu_types(&self) -> Vec<(Option<String>, u64)> {
        let entries = self.value("Gres").unwrap_or_default().split(',');
        entries.filter_map(|entry| Some((gpu_type(entry), gpu_count(entry)?))).collect()
    }

    /// How many cores the node has by its entry, where that says how many each
    /// socket has.
    pub fn cores(&self) -> Option<usize> {
        let number = |key: &str| self.value(key)?.parse::<usize>().ok();
        let sockets = match number("Sockets") {
            Some(sockets) => sockets,
            None => number("Boards").unwrap_or(1).checked_mul(number("SocketsPerBoard")?)?,
        };
        sockets.checked_mul(number("CoresPerSocket")?)
    }
}

/// The count in an element of `Gres=`: `gpu`, `gpu:4`, `gpu:a100:4(S:0-1)`,
/// `gpu:a100:no_consume:4`.
fn gpu_count(element: &str) -> Option<u64> {
    let element = element.split('(').next().unwrap_or_default();
    let mut parts = element.trim().split(':');
    if !parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gpu")) {
        return None;
    }
    Some(parts.next_back().and_then(|count| count.parse().ok()).unwrap_or(1))
}

/// The type in such an element: `a100` in `gpu:a100:4`.
fn gpu_type(element: &str) -> Option<String> {
    let element = element.split('(').next().unwrap_or_default();
    let kind = element.trim().split(':').nth(1)?;
    let is_type = kind != "no_consume" && parse_count(kind).is_none();
    is_type.then(|| kind.to_owned())
}

impl SlurmConf {
    /// Reads a file and what it includes.
    ///
    /// # Errors
    /// [`ReadError`] if the file itself cannot be read.
    pub fn read(path: &Path) -> Result<SlurmConf, ReadError> {
        let Lines { lines, missing, .. } = Lines::read(path)?;
        Ok(SlurmConf { file: Some(path.to_owned()), missing, lines })
    }

    /// The first of the usual places, and the first that has a file.
    pub fn usual_places() -> (&'static Path, Option<&'static Path>) {
        let there = PLACES.into_iter().map(Path::new).find(|path| path.exists());
        (Path::new(PLACES[0]), there)
    }

    /// Where Slurm looks for its plugstack.conf: what PlugStackConfig names, else beside
    /// slurm.conf; `None` where neither is known.
    pub fn plugstack(&self) -> Option<PathBuf> {
        let named = self.value("PlugStackConfig").map(PathBuf::from);
        named.or_else(|| self.file.as_ref().map(|file| file.with_file_name("plugstack.conf")))
    }

    /// What `scontrol show config` prints: `Key = value` lines. Nodes are not in it.
    pub fn from_shown(text: &str) -> SlurmConf {
        let shown = |(number, line): (usize, &str)| {
            let (key, value) = line.split_once('=')?;
            let (key, value) = (key.trim(), value.trim());
            // Not set, as Slurm writes it.
            let said = !key.is_empty() && !key.contains(char::is_whitespace) && value != "(null)";
            said.then(|| Line {
                file: PathBuf::from("scontrol show config"),
                number,
                pairs: vec![(key.to_owned(), value.to_owned())],
                stray: Vec::new(),
            })
        };
        let lines = (1..).zip(text.lines()).filter_map(shown).collect();
        SlurmConf { file: None, missing: Vec::new(), lines }
    }

    /// A setting of the cluster; the last one counts, as in Slurm.
    pub fn value(&self, key: &str) -> Option<&str> {
        let general = |line: &&Line| !THINGS.iter().any(|thing| line.begins_with(thing));
        self.lines.iter().rev().filter(general).find_map(|line| line.value(key))
    }

    /// A setting that is a list, in small letters.
    pub fn list(&self, key: &str) -> Vec<String> {
        let value = self.value(key).unwrap_or_default().to_ascii_lowercase();
        value
            .split(',')
            .map(|word| word.trim().to_owned())
            .filter(|word| !word.is_empty())
            .collect()
    }

    /// How tasks are dealt to sockets where srun has no option for it
    /// (src/plugins/task/affinity/dist_tasks.c, `lllp_distribution`).
    pub fn distribution(&self) -> Distribution {
        match self
            .list("SelectTypeParameters")
            .iter()
            .any(|word| word == "cr_core_default_dist_block")
        {
            true => Distribution::Block,
            false => Distribution::Cyclic,
        }
    }

    /// The names of the partitions, but DEFAULT.
    pub fn partitions(&self) -> Vec<String> {
        let names = self.lines.iter().filter(|line| line.begins_with("PartitionName"));
        let names =
            names.flat_map(|line| line.value("PartitionName").unwrap_or_default().split(','));
        let names = names.map(str::trim).filter(|name| !name.eq_ignore_ascii_case("DEFAULT"));
        names.map(str::to_owned).collect()
    }

    /// The entry of the node with this name, or of the first one on this host: a
    /// node's name and its host's differ where NodeHostname says so.
    pub fn node(&self, name: Option<&str>, host: &str) -> Option<NodeEntry> {
        let host = host.split('.').next().unwrap_or_default();
        let mut defaults: Vec<Line> = Vec::new();
        for line in self.lines.iter().filter(|line| line.begins_with("NodeName")) {
            let list = line.value("NodeName").unwrap_or_default();
            if list.eq_ignore_ascii_case("DEFAULT") {
                defaults.push(line.clone());
                continue;
            }
            let names = hosts(list);
            let found = match (name, line.value("NodeHostname")) {
                (Some(name), _) => names.into_iter().find(|found| found == name),
                (None, None) => names.into_iter().find(|found| short(found) == host),
                (None, Some(of)) => {
                    let mut of = hosts(of).into_iter();
                    let at = of.position(|found| short(&found) == host);
                    at.and_then(|at| names.get(at).or(names.first()).cloned())
                }
            };
            if let Some(name) = found {
                defaults.push(line.clone());
                return Some(NodeEntry { name, lines: defaults });
            }
        }
        None
    }

    /// The names of all nodes on a host: there are several where it runs several slurmd.
    pub fn names_on(&self, host: &str) -> Vec<String> {
        let host = short(host);
        let lines = self.lines.iter().filter(|line| line.begins_with("NodeName"));
        let names = lines.flat_map(|line| {
            let names = hosts(line.value("NodeName").unwrap_or_default());
            let of = line.value("NodeHostname").map_or_else(|| names.clone(), hosts);
            let is_here = |at: usize| {
                // One host for all of them, or one for each.
                of.get(at)
                    .or(of.first().filter(|_| of.len() == 1))
                    .is_some_and(|it| short(it) == host)
            };
            names
                .into_iter()
                .enumerate()
                .filter(|(at, _)| is_here(*at))
                .map(|(_, name)| name)
                .collect::<Vec<_>>()
        });
        names.filter(|name| !name.eq_ignore_ascii_case("DEFAULT")).collect()
    }
}

fn short(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(text: &str) -> SlurmConf {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slurm.conf");
        std::fs::write(&file, text).unwrap();
        SlurmConf::read(&file).unwrap()
    }

    #[test]
    fn a_setting_is_the_clusters_own_and_the_last_one_counts() {
        let conf = conf(
            "taskplugin=task/affinity\nNodeName=a TaskPlugin=x\n\
             TaskPlugin = task/Cgroup, # here\nSelectTypeParameters=CR_Core,CR_Core_Default_Dist_Block\n",
        );
        assert_eq!(conf.value("TaskPlugin"), Some("task/Cgroup,"));
        assert_eq!(conf.list("TASKPLUGIN"), ["task/cgroup"]);
        assert_eq!(conf.distribution(), Distribution::Block);
        assert_eq!(conf.value("PlugStackConfig"), None);
        assert_eq!(SlurmConf::default().distribution(), Distribution::Cyclic);
    }

    #[test]
    fn a_host_may_run_several_nodes() {
        let conf = conf(
            "NodeName=DEFAULT Gres=gpu:1\nNodeName=gpu[1-2]\nNodeName=a[0-1] NodeHostname=box\n\
             NodeName=b[0-1] NodeHostname=box.site,gpu2.site\nNodeName=gpu2-extra NodeHostname=gpu2\n",
        );
        assert_eq!(conf.names_on("gpu1.site"), ["gpu1"]);
        assert_eq!(conf.names_on("box"), ["a0", "a1", "b0"]);
        assert_eq!(conf.names_on("gpu2"), ["gpu2", "b1", "gpu2-extra"]);
        assert_eq!(conf.names_on("none"), [""; 0]);
    }

    #[test]
    fn what_scontrol_shows_is_read() {
        let conf = SlurmConf::from_shown(
            "Configuration data as of 2026-12-01T02:00:00\nPlugStackConfig         = (null)\n\
             PluginDir               = /usr/lib/slurm\nSLURM_CONF = /run/slurm/conf/slurm.conf\n\n\
             Cgroup Support Configuration:\nConstrainDevices        = yes\n",
        );
        assert_eq!(conf.value("PlugStackConfig"), None);
        assert_eq!(conf.value("PluginDir"), Some("/usr/lib/slurm"));
        assert_eq!(conf.value("slurm_conf"), Some("/run/slurm/conf/slurm.conf"));
        assert_eq!(conf.value("ConstrainDevices"), Some("yes"));
    }

    #[test]
    fn a_node_is_found_by_its_name_or_by_its_host() {
        let conf = conf(
            "NodeName=DEFAULT Sockets=2 Gres=gpu:a100:4\n\
             NodeName=gpu-[01-03] CoresPerSocket=8\n\
             NodeName=test-[0-1] NodeHostname=box[7-8] Gres=gpu:b:2,shard:8,gpu:a:2(S:0-1)\n\
             NodeName=cpu Gres=shard:2\nNodeName=one Gres=gpu\n",
        );
        let by_host = |host: &str| conf.node(None, host);
        let gpu = by_host("gpu-02.cluster.example").unwrap();
        assert_eq!(
            (gpu.name.as_str(), gpu.value("sockets"), gpu.gpus()),
            ("gpu-02", Some("2"), Some(4))
        );
        let test = by_host("box8").unwrap();
        assert_eq!((test.name.as_str(), test.gpus()), ("test-1", Some(4)));
        assert_eq!((gpu.cores(), test.cores()), (Some(16), None));
        assert_eq!(test.value("CoresPerSocket"), None);
        assert_eq!(conf.node(Some("test-0"), "box8").unwrap().name, "test-0");
        let types = |node: NodeEntry| {
            let types = node.gpu_types().into_iter();
            types.map(|(kind, count)| format!("{kind:?} {count}")).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(types(gpu), "Some(\"a100\") 4");
        assert_eq!(types(test), "Some(\"b\") 2, Some(\"a\") 2");
        assert_eq!(types(by_host("one").unwrap()), "None 1");
        assert_eq!(by_host("cpu").unwrap().gpus(), None);
        assert_eq!(by_host("one").unwrap().gpus(), Some(1));
        assert_eq!(by_host("login"), None);
    }
}
