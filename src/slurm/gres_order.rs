//! Which GPU each of Slurm's indices means, where its configuration leaves no doubt.
//!
//! The order is gres.conf's own, of lines and of the numbers in a bracket; with AutoDetect
//! Slurm sorts by the files' numbers and then, where it knows links, as NVML does, which is
//! PCI order (src/plugins/gpu/common, `_merge_system_gres_conf`; src/interfaces/gres.c).

use std::path::Path;

use super::gres::{GresGpu, NodeGres};
use gpubind_core::node::{Node, PciAddress};

/// N of /dev/nvidiaN of each GPU by Slurm's index; `None` wherever that is not certain.
/// `slurm` is what slurm.conf gives the node: types and counts; `dev` is where device files
/// are besides /dev.
pub fn gres_minors(
    gres: &NodeGres,
    slurm: &[(Option<String>, u64)],
    node: &Node,
    dev: &Path,
) -> Option<Vec<u32>> {
    let has_mig =
        node.gpus.iter().any(|gpu| !gpu.mig.is_empty() || gpu.mig_mode.known() == Some(&true));
    if gres.refusal.is_some() || gres.passed_over || has_mig {
        return None;
    }
    // With several types the order is slurm.conf's, type by type.
    let [(_, count)] = slurm else { return None };
    let mut types = gres.lines.iter().map(|line| &line.kind);
    let first = types.next();
    if types.any(|kind| Some(kind) != first) {
        return None;
    }
    let minors = match &gres.autodetect {
        None => listed(gres, dev)?,
        Some(kind) => detected(gres, kind, node, dev)?,
    };
    let mut unique = minors.clone();
    unique.sort_unstable();
    unique.dedup();
    (unique.len() == minors.len() && minors.len() as u64 == *count).then_some(minors)
}

/// The numbers in the lines' own order.
fn listed(gres: &NodeGres, dev: &Path) -> Option<Vec<u32>> {
    gres.gpus.iter().map(|gpu| minor(gpu, dev)).collect()
}

/// The number in a name such as /dev/nvidia3, of a line with `File=`.
fn minor(gpu: &GresGpu, dev: &Path) -> Option<u32> {
    let [file] = gpu.files.as_slice() else { return None };
    let path = Path::new(file);
    let folder = path.parent()?;
    let digits = path.file_name()?.to_str()?.strip_prefix("nvidia")?;
    let number: u32 = digits.parse().ok()?;
    let is_plain = number.to_string() == digits && (folder == dev || folder == Path::new("/dev"));
    is_plain.then_some(number)
}

/// The numbers in the order that Slurm makes of what it finds itself.
fn detected(gres: &NodeGres, kind: &str, node: &Node, dev: &Path) -> Option<Vec<u32>> {
    // Whether Slurm finds a GPU that does not answer is not known.
    if !node.unusable.is_empty() {
        return None;
    }
    let gpus = node.gpus.iter().map(|gpu| Some((gpu.pci, *gpu.minor.known()?)));
    let mut gpus = gpus.collect::<Option<Vec<(PciAddress, u32)>>>()?;
    gpus.sort_unstable();
    let by_pci: Vec<u32> = gpus.into_iter().map(|(_, minor)| minor).collect();
    let mut by_file = by_pci.clone();
    by_file.sort_unstable();
    if !gres.gpus.is_empty() {
        let mut listed = listed(gres, dev)?;
        listed.sort_unstable();
        // Those that are not listed are found all the same, or not.
        return (listed == by_file && by_file == by_pci).then_some(by_pci);
    }
    match kind {
        "nvml" => Some(by_pci),
        "nvidia" => Some(by_file),
        _ => (by_file == by_pci).then_some(by_pci),
    }
}

#[cfg(test)]
mod tests {
    use super::super::gres::read;
    use super::*;
    use gpubind_machine::Machine;

    /// The order on a machine of eight GPUs, or on one where files count otherwise than PCI
    /// addresses.
    fn order(machine: &str, gres_conf: &str, slurm: &[(Option<&str>, u64)]) -> Option<Vec<u32>> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gres.conf");
        std::fs::write(&file, gres_conf).unwrap();
        let gres = read(&file, Some("n1")).unwrap();
        let machines = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/machines");
        let text = std::fs::read_to_string(format!("{machines}/{machine}.toml")).unwrap();
        let node = Machine::parse(&text).unwrap().to_node();
        let slurm: Vec<_> =
            slurm.iter().map(|(kind, count)| (kind.map(str::to_owned), *count)).collect();
        gres_minors(&gres, &slurm, &node, Path::new("/x/dev"))
    }

    fn eight(gres_conf: &str) -> Option<Vec<u32>> {
        order("hgx-h100", gres_conf, &[(None, 8)])
    }

    fn of(machine: &str, count: u64, gres_conf: &str) -> Option<Vec<u32>> {
        order(machine, gres_conf, &[(None, count)])
    }

    #[test]
    fn plain_lines_keep_their_order() {
        let all = Some((0..8).collect());
        assert_eq!(eight("Name=gpu File=/dev/nvidia[0-7]"), all);
        assert_eq!(eight("Name=gpu File=/x/dev/nvidia[0-7]"), all);
        let lines = "NodeName=n[1-2] Name=gpu Type=a File=/dev/nvidia[4-7]\n\
             NodeName=n1 Name=gpu Type=a File=/dev/nvidia[1,0,3],/dev/nvidia2\n\
             NodeName=n2 Name=gpu File=/dev/nvidia0\n";
        assert_eq!(order("hgx-h100", lines, &[(Some("a"), 8)]), Some(vec![4, 5, 6, 7, 1, 0, 3, 2]));
        // One is kept back.
        let seven = order("hgx-h100", "Name=gpu File=/dev/nvidia[1-7]", &[(None, 7)]);
        assert_eq!(seven, Some((1..8).collect()));
    }

    #[test]
    fn what_is_not_certain_is_none() {
        for gres_conf in [
            "",
            "Name=gpu Count=8",
            "Name=gpu File=/dev/nvidia[0-6]",
            "Name=gpu File=/dev/nvidia[0-6,6]",
            "Name=gpu File=/dev/nvidia[00-07]",
            "Name=gpu File=/dev/dri/card[0-7]",
            "Name=gpu File=/other/nvidia[0-7]",
            "Name=gpu MultipleFiles=/dev/nvidia[0-7]",
            "Name=gpu File=/dev/nvidia[0-7] Shared=no",
            "Name=gpu Type=a File=/dev/nvidia[0-3]\nName=gpu Type=b File=/dev/nvidia[4-7]",
        ] {
            assert_eq!(eight(gres_conf), None, "{gres_conf}");
        }
        let plain = "Name=gpu File=/dev/nvidia[0-7]";
        assert_eq!(order("hgx-h100", plain, &[]), None, "not in slurm.conf");
        assert_eq!(order("hgx-h100", plain, &[(Some("a"), 4), (Some("b"), 4)]), None);
        assert_eq!(of("a100-mig-mixed", 8, plain), None);
    }

    #[test]
    fn autodetect_sorts_by_file_or_as_nvml_does() {
        // The files' numbers in PCI order are 2, 3, 0, 1.
        let reordered = |gres_conf| of("minors-reordered", 4, gres_conf);
        assert_eq!(reordered("Name=gpu File=/dev/nvidia[3,2,1,0]"), Some(vec![3, 2, 1, 0]));
        assert_eq!(reordered("AutoDetect=nvml"), Some(vec![2, 3, 0, 1]));
        assert_eq!(reordered("AutoDetect=nvidia"), Some(vec![0, 1, 2, 3]));
        assert_eq!(reordered("AutoDetect=other"), None);
        let listed = "AutoDetect=nvml\nName=gpu File=/dev/nvidia[0-3]";
        assert_eq!(reordered(listed), None, "with or without NVML's links?");
        assert_eq!(
            reordered(
                "NodeName=n1 AutoDetect=off\nAutoDetect=nvml\nName=gpu File=/dev/nvidia[3,2,1,0]"
            ),
            Some(vec![3, 2, 1, 0])
        );
        let all = Some((0..8).collect());
        assert_eq!(eight("AutoDetect=nvml"), all);
        assert_eq!(eight("AutoDetect=nvml\nName=gpu File=/dev/nvidia[7,0-6]"), all);
        let seven = "AutoDetect=nvml\nName=gpu File=/dev/nvidia[1-7]";
        assert_eq!(order("hgx-h100", seven, &[(None, 7)]), None);
    }
}
