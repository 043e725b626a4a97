//! A node as a table for people, in the form of `nvidia-smi topo -m` so far as
//! that goes: `gpubind topo --from` reads it back.

use std::fmt::Write;

use comfy_table::{Attribute, Cell, Color, Table};

use crate::cli::output::Form;
use gpubind_core::node::{Gpu, IdSet, Link, Nic, Node, PciAddress, Probed};

/// Adapter names longer than this stand in a legend and not above a column.
const LONGEST_NAME: usize = 8;

/// The links, CPUs and NUMA nodes of a node, then what else is known of its
/// devices.
pub(super) fn text(node: &Node, form: Form) -> String {
    let nics_at = 1 + node.gpus.len();
    let starts = [nics_at, nics_at + node.nics.len()];
    let mut text = form.grouped_table(matrix(node, form.colour), &starts);
    let legend = legend(node);
    if !legend.is_empty() {
        text += &format!("\nLegend:\n\n{legend}");
    }
    let rows = devices(node);
    if !rows.is_empty() {
        let plain = device_table(&rows, false);
        let table = if form.fits(&plain) { plain } else { device_table(&rows, true) };
        text += &format!("\n{}", form.table(table));
    }
    let nics = nic_legend(node);
    if !nics.is_empty() {
        text += &format!("\nNIC Legend:\n\n{nics}");
    }
    let unusable = unusable(node, form);
    if !unusable.is_empty() {
        text += &match form.colour {
            true => format!("\n\u{1b}[31m{unusable}\u{1b}[0m"),
            false => format!("\n{unusable}"),
        };
    }
    text
}

fn matrix(node: &Node, colour: bool) -> Table {
    let mut table = Table::new();
    let cpu_column = node.gpus.iter().any(|gpu| gpu.cpus.known().is_some());
    let numa_column = node.gpus.iter().any(|gpu| gpu.numa.known().is_some());
    let own_column = node.gpus.iter().any(|gpu| gpu.gpu_numa_id.known().is_some());
    let mut names = vec![String::new()];
    names.extend(node.gpus.iter().map(|gpu| format!("GPU{}", gpu.index)));
    names.extend(nic_columns(node));
    let mut affinity = Vec::new();
    affinity.extend(cpu_column.then_some("CPU Affinity"));
    affinity.extend(numa_column.then_some("NUMA Affinity"));
    affinity.extend(own_column.then_some("GPU NUMA ID"));
    names.extend(affinity.into_iter().map(str::to_owned));
    let bold = |name: String| match colour {
        true => Cell::new(name).add_attribute(Attribute::Bold),
        false => Cell::new(name),
    };
    table.set_header(names.into_iter().map(bold));
    for (at, gpu) in node.gpus.iter().enumerate() {
        let mut row = vec![bold(format!("GPU{}", gpu.index))];
        let links = node.links.get(at).into_iter().flatten();
        row.extend(links.map(|link| link_cell(*link)));
        row.extend(
            node.nics
                .iter()
                .map(|nic| link_cell(nic.links.get(at).copied().unwrap_or(Link::Unknown))),
        );
        let numa = |ids: &Vec<u32>| id_list(ids);
        let cpus = or_unknown(gpu.cpus.known().filter(|cpus| !cpus.is_empty()));
        let own = gpu.gpu_numa_id.known().map_or_else(|| "N/A".to_owned(), u32::to_string);
        row.extend(cpu_column.then(|| Cell::new(cpus)));
        row.extend(numa_column.then(|| Cell::new(or_unknown(gpu.numa.known().map(numa)))));
        row.extend(own_column.then(|| Cell::new(own)));
        table.add_row(row);
    }
    table
}

fn link_cell(link: Link) -> Cell {
    let cell = Cell::new(match link {
        Link::Same => " X".to_owned(),
        link => link.to_string(),
    });
    match link {
        Link::Same | Link::Unknown => cell.add_attribute(Attribute::Dim),
        Link::NvLink(_) => cell.fg(Color::DarkGreen),
        Link::Pix | Link::Pxb => cell.fg(Color::DarkCyan),
        Link::Phb | Link::Node => cell.fg(Color::DarkYellow),
        Link::Sys => cell,
    }
}

fn or_unknown(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "?".to_owned(), |value| value.to_string())
}

/// `0,3-9` for a list of ids in rising order.
pub(super) fn id_list(ids: &[u32]) -> String {
    let ids = ids.iter().filter_map(|id| usize::try_from(*id).ok());
    ids.collect::<IdSet>().to_string()
}

/// The names above the adapters' columns: their own, or NIC*n* with a legend
/// where those are long or could be taken for something else.
fn nic_columns(node: &Node) -> Vec<String> {
    let own = uses_own_names(node);
    let name = |(at, nic): (usize, &Nic)| match own {
        true => nic.name.clone(),
        false => format!("NIC{at}"),
    };
    node.nics.iter().enumerate().map(name).collect()
}

fn uses_own_names(node: &Node) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = node.nics.iter().map(|nic| nic.name.as_str());
    names.clone().all(|name| {
        name.len() <= LONGEST_NAME
            && name.contains('_')
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.ends_with(|c: char| c.is_ascii_digit())
            && name.chars().all(plain)
            && names.clone().filter(|other| *other == name).count() == 1
    })
}

/// The adapters behind the names NIC0, NIC1, …, as `nvidia-smi` lists them.
fn nic_legend(node: &Node) -> String {
    if uses_own_names(node) {
        return String::new();
    }
    let mut text = String::new();
    for (nic, column) in node.nics.iter().zip(nic_columns(node)) {
        let pci = nic.pci.and_then(PciAddress::known).map(|pci| format!("  {pci}"));
        let _ = writeln!(text, "  {column}: {}{}", nic.name, pci.unwrap_or_default());
    }
    text
}

/// What the link words of this matrix mean.
fn legend(node: &Node) -> String {
    let nic_links = node.nics.iter().flat_map(|nic| &nic.links);
    let links: Vec<Link> = node.links.iter().flatten().chain(nic_links).copied().collect();
    let mut text = String::new();
    for (link, meaning) in [
        (Link::NvLink(1), "# NVLinks, direct or through NVSwitches"),
        (Link::Pix, "one PCIe switch at most"),
        (Link::Pxb, "several PCIe switches, no host bridge"),
        (Link::Phb, "through one PCIe host bridge"),
        (Link::Node, "through several host bridges of one NUMA node"),
        (Link::Sys, "between NUMA nodes"),
        (Link::Unknown, "not known"),
    ] {
        let word = match link {
            Link::NvLink(_) => "NV#".to_owned(),
            link => link.to_string(),
        };
        let is_word = |other: &Link| std::mem::discriminant(other) == std::mem::discriminant(&link);
        if links.iter().any(is_word) {
            let _ = writeln!(text, "  {word:<4} = {meaning}");
        }
    }
    text
}

/// A GPU, an instance or an adapter: what it is called where it needs a name, and its cells.
struct DeviceRow {
    /// An instance's name; its place below its GPU says as much in a table that is whole.
    instance: Option<String>,
    cells: [String; 5],
}

fn device_table(rows: &[DeviceRow], is_folded: bool) -> Table {
    let mut table = Table::new();
    table.set_header(["", "PCI", "minor", "UUID", "name"]);
    for DeviceRow { instance, cells } in rows {
        let mut cells = cells.clone();
        if let (Some(name), [first, ..]) = (instance.as_ref().filter(|_| is_folded), &mut cells) {
            first.clone_from(name);
        }
        table.add_row(cells);
    }
    table
}

/// GPUs, MIG instances and adapters with what is known besides the matrix;
/// nothing if nothing is.
fn devices(node: &Node) -> Vec<DeviceRow> {
    let tells = |gpu: &Gpu| gpu.pci.known().is_some() || gpu.uuid.known().is_some();
    if !node.gpus.iter().any(tells) {
        return Vec::new();
    }
    let mut rows = Vec::new();
    for gpu in &node.gpus {
        let name = match (&gpu.mig_mode, or_unknown(gpu.name.known())) {
            (Probed::Known(true), name) => format!("{name} (MIG on)"),
            (_, name) => name,
        };
        let cells = [
            format!("GPU{}", gpu.index),
            or_unknown(gpu.pci.known()),
            or_unknown(gpu.minor.known()),
            or_unknown(gpu.uuid.known()),
            name,
        ];
        rows.push(DeviceRow { instance: None, cells });
        for mig in &gpu.mig {
            let profile = mig.profile.as_deref().unwrap_or("MIG instance");
            let name = format!("{profile} (GI {}, CI {})", mig.gi, mig.ci);
            let instance = Some(format!("{}:{}/{}", gpu.index, mig.gi, mig.ci));
            let blank = String::new;
            let cells = [blank(), blank(), blank(), mig.uuid.clone(), name];
            rows.push(DeviceRow { instance, cells });
        }
    }
    if uses_own_names(node) {
        let blank = String::new;
        let pci = |nic: &Nic| or_unknown(nic.pci.and_then(PciAddress::known));
        let nic = |nic: &Nic| DeviceRow {
            instance: None,
            cells: [nic.name.clone(), pci(nic), blank(), blank(), blank()],
        };
        rows.extend(node.nics.iter().map(nic));
    }
    rows
}

fn unusable(node: &Node, form: Form) -> String {
    let mut text = String::new();
    for unusable in &node.unusable {
        let at = unusable.pci.and_then(PciAddress::known).map(|pci| format!(" at {pci}"));
        let file = unusable.minor.map(|minor| format!(" (/dev/nvidia{minor})"));
        let (at, file) = (at.unwrap_or_default(), file.unwrap_or_default());
        let why = why_unusable(unusable.code);
        let line = format!("GPU{}{at}{file} cannot be used: {why}", unusable.index);
        let _ = writeln!(text, "{}", form.text(&line, "  "));
    }
    text
}

/// What an `nvmlReturn_t` code of a GPU's handle means (nvml.h).
pub(super) fn why_unusable(code: u32) -> String {
    match fault_of(code) {
        Some((meaning, _)) => format!("{meaning} (NVML code {code})"),
        None => format!("NVML code {code}"),
    }
}

/// The same in a few letters.
pub(super) fn short_why_unusable(code: u32) -> String {
    fault_of(code).map_or_else(|| format!("code {code}"), |(_, short)| short.to_owned())
}

fn fault_of(code: u32) -> Option<(&'static str, &'static str)> {
    Some(match code {
        4 => ("no permission", "no permission"),
        6 => ("not found", "not found"),
        8 => ("its power cables are not attached", "no power"),
        9 => ("its driver is not loaded", "no driver"),
        10 => ("its interrupts do not work", "no interrupts"),
        15 => ("it has fallen off the bus", "lost"),
        16 => ("it needs a reset", "needs a reset"),
        _ => return None,
    })
}
