//! What Slurm believes of the node's GPUs, against the machine.

use std::fmt::Display;
use std::path::PathBuf;

use super::message::{Finding, messages};
use super::setup::Setup;
use crate::slurm::{
    GresComparison, GresTypeProblem, Misplaced, NodeEntry, NodeGres, compare_gres, read_gres,
    type_problem,
};
use gpubind_core::node::{Gpu, Node, Roots};

messages! {
    UNKNOWN = Note, "gres", "not checked: {why}";

    LINES = Ok, "gres-conf", "slurmd reads it";
    LINES_NONE = Ok, "gres-conf", "there is none";
    LINES_REFUSED = Broken, "gres-conf", "slurmd does not start: gres.conf, {why}",
        "fix that line (`slurmd -G` shows what slurmd reads)";

    TYPES = Ok, "gres-types", "as in slurm.conf";
    TYPES_WRONG = Broken, "gres-types", "gres.conf: {why}",
        "write the same types in both files, upper and lower case alike, with the same counts: else Slurm counts the \
         node's GPUs as missing, or steps fail with `Invalid generic resource`";
    TYPES_MORE = Warning, "gres-types", "gres.conf lists GPUs that Slurm ignores: {why}",
        "write the same count in both files";

    DETECT = Ok, "gres-detect", "AutoDetect={kind}";
    DETECT_NONE = Ok, "gres-detect", "no AutoDetect: gres.conf lists the GPUs";
    DETECT_PLUGIN = Broken, "gres-detect", "AutoDetect=nvml, but Slurm here has no gpu_nvml.so in {folders}",
        "list the GPUs in gres.conf (Name=gpu File=/dev/nvidia[0-{last}]), or install a Slurm that is built with NVML";
    DETECT_OTHER = Warning, "gres-detect", "AutoDetect={kind} does not find NVIDIA GPUs",
        "write AutoDetect=nvml, or list the GPUs in gres.conf";
    DETECT_MIG = Warning, "gres-detect", "MIG is on for some GPUs, and gres.conf has no AutoDetect",
        "write AutoDetect=nvml: else Slurm hands out a GPU's number where programs need an instance's UUID";

    COUNT = Ok, "gres-count", "slurm.conf gives {node} {count} GPUs, as many as there are";
    COUNT_MIG = Ok, "gres-count", "slurm.conf gives {node} {count} GPUs and MIG instances, as many as there are";
    COUNT_MIG_EMPTY = Warning, "gres-count", "slurm.conf gives {node} {count} GPUs, but only {present} can be used: GPUs {gpus} have no MIG instance",
        "make instances, switch MIG off, or leave these GPUs out of gres.conf and slurm.conf: Slurm gives them to jobs";
    COUNT_NONE = Warning, "gres-count", "slurm.conf gives {node} no GPUs; the machine has {present}",
        "write Gres=gpu:{present} into its NodeName line";
    COUNT_LESS = Warning, "gres-count", "slurm.conf gives {node} {count} GPUs; the machine has {present}, which is more",
        "write Gres=gpu:{present}, unless the others are kept back on purpose";
    COUNT_MORE = Broken, "gres-count", "slurm.conf gives {node} {count} GPUs; the machine has only {present}",
        "find the missing ones (`gpubind topo`, `dmesg | grep -i nvrm`) or write Gres=gpu:{present}: slurmctld drains such a node";

    FILES = Ok, "gres-files", "{listed} listed, in PCI order";
    FILES_DETECTED = Ok, "gres-files", "none listed: AutoDetect finds them";
    FILES_NONE = Warning, "gres-files", "gres.conf names no device file for a GPU of this node",
        "write Name=gpu File=/dev/nvidia[0-{last}], or AutoDetect=nvml: without files Slurm sets no CUDA_VISIBLE_DEVICES";
    FILES_UNKNOWN = Broken, "gres-files", "gres.conf lists {files}, which is no GPU's device file",
        "list the files of the GPUs that are there: {right}";
    FILES_TWICE = Broken, "gres-files", "gres.conf lists {files} twice",
        "list each GPU's device file once: {right}";
    FILES_ABSENT = Broken, "gres-files", "gres.conf lists {files}, which is not there",
        "have it made before slurmd starts (nvidia-persistenced, or `nvidia-modprobe -c=NUMBER`): slurmd refuses to start";
    FILES_LEFT_OUT = Warning, "gres-files", "gres.conf leaves out {files}",
        "list it, unless it is kept back on purpose";
    FILES_ORDER = Warning, "gres-files", "gres.conf lists the GPUs in another order than PCI's, in which CUDA counts",
        "list them as {right}; gpubind goes by PCI order, programs without it get the wrong GPUs";

    CORES_NONE = Ok, "gres-cores", "no Cores= to compare";
    CORES = Ok, "gres-cores", "Cores= are the cores next to each GPU";
    CORES_UNKNOWN = Note, "gres-cores", "not checked: Slurm's core numbers do not follow from this machine's CPUs";
    CORES_WRONG = Warning, "gres-cores", "gres.conf is wrong: {wrong}",
        "fix gres.conf: Slurm chooses CPUs for a job by Cores=";

    LINKS_NONE = Ok, "gres-links", "no Links= to compare";
    LINKS_MALFORMED = Warning, "gres-links", "line {line} of gres.conf has Links={links}, which is not a number for each GPU with one -1",
        "fix gres.conf: Slurm ignores such a list, or reads it as a shorter one";
    LINKS = Ok, "gres-links", "Links= are the NVLinks of each GPU";
    LINKS_WRONG = Warning, "gres-links", "gres.conf is wrong: {wrong}",
        "fix gres.conf: Slurm chooses the GPUs of a job by Links=";
}

/// The checks of this file.
pub fn checks(setup: &Setup) -> Vec<Finding> {
    let (node, entry, gres) = match inputs(setup) {
        Ok(inputs) => inputs,
        Err(why) => return vec![UNKNOWN.with(&[("why", &why)])],
    };
    let comparison = compare_gres(&gres, node, entry.cores());
    vec![
        lines(setup, &gres),
        types(entry, &gres),
        detect(setup, &gres, node),
        count(entry, &gres, node, &comparison),
        files(&gres, node, &comparison, &setup.roots),
        cores(&comparison),
        links(&comparison),
    ]
}

fn inputs(setup: &Setup) -> Result<(&Node, &NodeEntry, NodeGres), String> {
    let node = setup.node().filter(|node| !node.gpus.is_empty() || !node.unusable.is_empty());
    let node = node.ok_or("no GPU can be read here")?;
    let entry = setup.entry.as_ref().ok_or("this host is no node of slurm.conf")?;
    let file = setup.beside_conf("gres.conf").ok_or("gres.conf is not on this machine")?;
    // slurm.conf alone may describe the GPUs; then there is no gres.conf.
    let gres = match file.exists() {
        true => read_gres(&file, Some(&entry.name)).map_err(|error| error.to_string())?,
        false => NodeGres::default(),
    };
    Ok((node, entry, gres))
}

fn lines(setup: &Setup, gres: &NodeGres) -> Finding {
    match &gres.refusal {
        Some(why) => LINES_REFUSED.with(&[("why", why)]),
        None if setup.beside_conf("gres.conf").is_some_and(|file| file.exists()) => LINES.plain(),
        None => LINES_NONE.plain(),
    }
}

fn types(entry: &NodeEntry, gres: &NodeGres) -> Finding {
    match type_problem(&gres.lines, gres.autodetect.is_some(), &entry.gpu_types()) {
        None => TYPES.plain(),
        Some(why @ GresTypeProblem::More { .. }) => TYPES_MORE.with(&[("why", &why)]),
        Some(why) => TYPES_WRONG.with(&[("why", &why)]),
    }
}

fn detect(setup: &Setup, gres: &NodeGres, node: &Node) -> Finding {
    let mig = node.gpus.iter().any(|gpu| !gpu.mig.is_empty());
    let Some(kind) = &gres.autodetect else {
        let message = if mig { &DETECT_MIG } else { &DETECT_NONE };
        return message.plain();
    };
    match kind.as_str() {
        "nvml" => match without_nvml(setup) {
            Some(folders) => DETECT_PLUGIN.with(&[("folders", &folders), ("last", &last(node))]),
            None => DETECT.with(&[("kind", kind)]),
        },
        // 24.11 and later: finds NVIDIA's GPUs in /proc and /sys.
        "nvidia" => DETECT.with(&[("kind", kind)]),
        _ => DETECT_OTHER.with(&[("kind", kind)]),
    }
}

/// Slurm's plugin folders, if none has what AutoDetect=nvml needs (src/interfaces/gpu.c).
fn without_nvml(setup: &Setup) -> Option<String> {
    let folders = setup.plugin_folders().ok()?;
    let has = folders.iter().any(|folder| folder.join("gpu_nvml.so").exists());
    let names = folders.iter().map(|folder| folder.display().to_string());
    (!has).then(|| names.collect::<Vec<_>>().join(", "))
}

/// The highest number of a GPU's device file.
fn last(node: &Node) -> u32 {
    let minors = node.gpus.iter().filter_map(|gpu| gpu.minor.known().copied());
    minors.chain(node.unusable.iter().filter_map(|gpu| gpu.minor)).max().unwrap_or(0)
}

fn count(entry: &NodeEntry, gres: &NodeGres, node: &Node, comparison: &GresComparison) -> Finding {
    // With AutoDetect each MIG instance is a GPU to Slurm.
    let instances: usize = node.gpus.iter().map(|gpu| gpu.mig.len()).sum();
    let split = node.gpus.iter().filter(|gpu| !gpu.mig.is_empty()).count();
    let with_mig = instances > 0 && gres.autodetect.is_some();
    let is_empty = |gpu: &&Gpu| gpu.is_in_mig_mode() && gpu.mig.is_empty();
    let empty = node.gpus.iter().filter(is_empty).map(|gpu| gpu.index.to_string());
    let empty: Vec<String> = empty.collect();
    let usable = comparison.present - empty.len();
    let present = if with_mig { usable - split + instances } else { usable };
    let count = entry.gpus().unwrap_or(0);
    let values: [(&str, &dyn Display); 4] = [
        ("node", &entry.name),
        ("count", &count),
        ("present", &present),
        ("gpus", &empty.join(", ")),
    ];
    let message = match count.cmp(&(present as u64)) {
        _ if count == 0 => &COUNT_NONE,
        std::cmp::Ordering::Greater if count <= (present + empty.len()) as u64 => &COUNT_MIG_EMPTY,
        std::cmp::Ordering::Less => &COUNT_LESS,
        std::cmp::Ordering::Greater => &COUNT_MORE,
        std::cmp::Ordering::Equal if with_mig => &COUNT_MIG,
        std::cmp::Ordering::Equal => &COUNT,
    };
    message.with(&values)
}

fn files(gres: &NodeGres, node: &Node, comparison: &GresComparison, roots: &Roots) -> Finding {
    if comparison.listed == 0 {
        return match gres.autodetect {
            Some(_) => FILES_DETECTED.plain(),
            None => FILES_NONE.with(&[("last", &last(node))]),
        };
    }
    let right = || device_files(comparison.minors.iter().copied());
    if !comparison.unknown.is_empty() {
        return FILES_UNKNOWN
            .with(&[("files", &comparison.unknown.join(", ")), ("right", &right())]);
    }
    if !comparison.repeated.is_empty() {
        return FILES_TWICE
            .with(&[("files", &comparison.repeated.join(", ")), ("right", &right())]);
    }
    let absent: Vec<&str> = gres
        .gpus
        .iter()
        .flat_map(|gpu| &gpu.files)
        .filter(|file| !device_path(file, roots).exists())
        .map(String::as_str)
        .collect();
    if !absent.is_empty() {
        return FILES_ABSENT.with(&[("files", &absent.join(", "))]);
    }
    if let Some(right) = &comparison.in_pci_order {
        return FILES_ORDER.with(&[("right", &right.join(","))]);
    }
    // MIG instances come from AutoDetect, with files of their own.
    if !comparison.unlisted.is_empty() && gres.autodetect.is_none() {
        let files = device_files(comparison.unlisted.iter().copied());
        return FILES_LEFT_OUT.with(&[("files", &files)]);
    }
    FILES.with(&[("listed", &comparison.listed)])
}

/// Where a device file is: /dev belongs to the machine that is looked at.
fn device_path(file: &str, roots: &Roots) -> PathBuf {
    match file.strip_prefix("/dev/") {
        Some(name) => roots.dev().join(name),
        None => PathBuf::from(file),
    }
}

fn device_files(minors: impl Iterator<Item = u32>) -> String {
    minors.map(|minor| format!("/dev/nvidia{minor}")).collect::<Vec<_>>().join(",")
}

fn cores(comparison: &GresComparison) -> Finding {
    match (comparison.has_cores, comparison.cores_known, comparison.cores.is_empty()) {
        (false, ..) => CORES_NONE.plain(),
        (true, false, _) => CORES_UNKNOWN.plain(),
        (true, true, true) => CORES.plain(),
        (true, true, false) => CORES_WRONG.with(&[("wrong", &wrong("Cores", &comparison.cores))]),
    }
}

fn links(comparison: &GresComparison) -> Finding {
    if let Some((line, links)) = comparison.malformed_links.first() {
        return LINKS_MALFORMED.with(&[("line", line), ("links", links)]);
    }
    match (comparison.has_links, comparison.links.is_empty()) {
        (false, _) => LINKS_NONE.plain(),
        (true, true) => LINKS.plain(),
        (true, false) => LINKS_WRONG.with(&[("wrong", &wrong("Links", &comparison.links))]),
    }
}

/// What is wrong, one GPU after the other.
fn wrong(key: &str, gpus: &[Misplaced]) -> String {
    let one = |gpu: &Misplaced| {
        let Misplaced { gpu, line, said, right } = gpu;
        format!("GPU {gpu} has {key}={said} (line {line}), but {right} would be right")
    };
    gpus.iter().map(one).collect::<Vec<_>>().join("; ")
}
