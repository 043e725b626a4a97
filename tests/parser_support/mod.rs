//! Each parser as a function of bytes, for inputs that a fuzzer finds: it may refuse them,
//! and neither panics nor accepts what it then cannot use.
#![allow(clippy::unwrap_used, reason = "what is accepted must be usable, or its test fails")]

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use gpubind::read_any;
use gpubind::slurm::{PlugstackFile, SlurmConf, gres_minors, read_gres, release};
use gpubind_core::SlurmRelease;
use gpubind_core::node::snapshot::Snapshot;
use gpubind_core::node::{IdSet, Node, NumaNode, PciAddress};
use gpubind_core::plan::{Shape, plan};
use gpubind_core::request::{Binding, Command, Request, read_command_line, read_script};
use gpubind_core::site::{JobInfo, Origin, PlugstackArgs, SiteFile};
use gpubind_core::step::{Ranks, names, rank_info, step_gpu_count, task_cpus};
use gpubind_machine::Machine;

pub type Parser = (&'static str, fn(&[u8]));

pub const PARSERS: [Parser; 13] = [
    ("topo-text", topo_text),
    ("snapshot", snapshot),
    ("machine", machine),
    ("site-file", site_file),
    ("items", items),
    ("command-line", command_line),
    ("script", batch_script),
    ("cpus", cpus),
    ("lists", lists),
    ("variables", variables),
    ("slurm-conf", slurm_conf),
    ("gres-conf", gres_conf),
    ("plugstack-conf", plugstack_conf),
];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whatever is accepted as a machine can be planned for.
fn plans(node: &Node) {
    let devices = node.devices();
    let _ = plan(node, &devices[..devices.len().min(16)], &[IdSet::default()], Shape::Single);
}

fn topo_text(bytes: &[u8]) {
    if let Ok((node, _)) = read_any(&text(bytes)) {
        plans(&node);
    }
}

fn snapshot(bytes: &[u8]) {
    if let Ok(snapshot) = Snapshot::parse(bytes) {
        plans(&snapshot.node);
        assert_eq!(Snapshot::parse(snapshot.to_json().as_bytes()).unwrap(), snapshot);
    }
}

fn machine(bytes: &[u8]) {
    if let Ok(machine) = Machine::parse(&text(bytes)) {
        plans(&machine.to_node());
    }
}

fn site_file(bytes: &[u8]) {
    if let Ok(file) = SiteFile::parse(&text(bytes), Path::new("/etc/gpubind.toml")) {
        let job = JobInfo::read(&|_| Some("a".to_owned()));
        let _ = PlugstackArgs::default().site(Some(&file), &job);
    }
    let text = text(bytes);
    let (arguments, _) = PlugstackArgs::read(text.split('\n'), &Origin::Plugstack(None));
    let _ = arguments.site(None, &JobInfo::default());
}

fn items(bytes: &[u8]) {
    let text = text(bytes);
    if let Ok(request) = text.parse::<Request>() {
        assert_eq!(request.to_string().parse::<Request>().unwrap(), request);
    }
    let _ = Binding::from_gpu_bind(&text);
    let _ = Binding::from_tres_bind(&text);
}

/// Words are lines; the first byte says which command, the second which release.
fn command_line(bytes: &[u8]) {
    let [command, release, rest @ ..] = bytes else { return };
    let command = [Command::Srun, Command::Sbatch, Command::Salloc][usize::from(command % 3)];
    let (year, month) = [(22, 5), (24, 11), (26, 5)][usize::from(release % 3)];
    let words = rest.split(|byte| *byte == b'\n').map(|word| OsString::from_vec(word.to_vec()));
    let argv: Vec<OsString> = [OsString::from("srun")].into_iter().chain(words).collect();
    let release = SlurmRelease::new(year, month);
    if let Ok(line) = read_command_line(command, release, &argv, &|_, _| true) {
        for (position, _) in line.replacements {
            assert!(position > 0 && position < argv.len());
        }
    }
}

fn batch_script(bytes: &[u8]) {
    let _ = read_script(SlurmRelease::new(24, 11), &text(bytes));
}

fn cpus(bytes: &[u8]) {
    let text = text(bytes);
    if let Ok(set) = text.parse::<IdSet>() {
        assert_eq!(set.to_string().parse::<IdSet>().unwrap(), set);
    }
    let _ = IdSet::from_mask(&text);
    let numa = [NumaNode { id: 0, cpus: "0-3".parse().unwrap(), distance: vec![] }];
    for kind in ["mask_cpu:", "map_cpu:", "map_ldom:", "mask_ldom:", "none", ""] {
        if let Ok(sets) = task_cpus(kind, &text, 9, &numa) {
            assert_eq!(sets.len(), 9);
        }
    }
}

fn lists(bytes: &[u8]) {
    let text = text(bytes);
    let _ = names(&text).count();
    let _ = Ranks::first_host(&text);
    let _ = release(&text);
    let _ = text.parse::<PciAddress>();
}

/// Each variable is one of these lines.
fn variables(bytes: &[u8]) {
    let text = text(bytes);
    let lines: Vec<&str> = text.split('\n').collect();
    let env = |name: &str| Some(lines[name.len() % lines.len()].to_owned());
    let found = rank_info(1, &env);
    let is_bounded = |size| size > found.local_rank && size <= 4096;
    assert!(found.local_size.is_none_or(is_bounded));
    let _ = step_gpu_count(&env);
}

/// The bytes in a file of this process's own.
fn file(name: &str, bytes: &[u8]) -> PathBuf {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().unwrap());
    let file = folder.path().join(name);
    fs::write(&file, bytes).unwrap();
    file
}

fn slurm_conf(bytes: &[u8]) {
    let conf = SlurmConf::read(&file("slurm.conf", bytes)).unwrap();
    let _ = conf.names_on("gpu-02");
    if let Some(entry) = conf.node(None, "gpu-02") {
        let _ = (entry.cores(), entry.gpu_types());
    }
    let _ = SlurmConf::from_shown(&text(bytes));
}

fn gres_conf(bytes: &[u8]) {
    static NODE: OnceLock<Node> = OnceLock::new();
    let node = NODE.get_or_init(|| {
        let text = include_str!("../machines/two-cpu.toml");
        Machine::parse(text).unwrap().to_node()
    });
    let gres_conf = file("gres.conf", bytes);
    for name in [Some("gpu-02"), None] {
        let found = read_gres(&gres_conf, name).unwrap();
        let minors = gres_minors(&found, &[], node, Path::new("/dev"));
        assert!(minors.is_none_or(|minors| minors.len() <= 4096));
    }
}

fn plugstack_conf(bytes: &[u8]) {
    assert!(PlugstackFile::read(&file("plugstack.conf", bytes)).files.len() <= 256);
}
