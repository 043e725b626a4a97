//! Where everything is drawn.

use super::Tag;
use super::canvas::{Area, text_width, wrap};
use super::groups::{Cluster, Groups, Region};
use gpubind_core::node::{Node, PciAddress};

pub(super) const MARGIN: f64 = 24.0;
pub(super) const TITLE: f64 = 15.0;
pub(super) const HEADING: f64 = 13.0;
pub(super) const NORMAL: f64 = 12.0;
pub(super) const SMALL: f64 = 10.0;
const PADDING: f64 = 12.0;
const GAP: f64 = 12.0;
const GPU: (f64, f64) = (96.0, 58.0);
/// What a tag has above and below its lines, together.
const TAG_PADDING: f64 = 10.0;
/// Between the lines of a tag.
pub(super) const TAG_LINE: f64 = 13.0;
const NIC_HEIGHT: f64 = 24.0;
const NIC_GAP: f64 = 6.0;
/// A column of adapters is at most this high before another one is added.
const NIC_ROWS: usize = 4;
const SWITCH_HEIGHT: f64 = 22.0;
/// Between adapters and switch, and between switch and GPUs.
const WIRE: f64 = 16.0;
const LINE: f64 = 15.0;
const CPU_LINES: usize = 3;

/// The picture's parts with their places.
#[derive(Debug, Clone, Default)]
pub(super) struct DrawingLayout {
    /// Sockets to be drawn, with their titles.
    pub sockets: Vec<(Area, String)>,
    /// NUMA nodes with their titles and the lines below those.
    pub places: Vec<(Area, String, Vec<String>)>,
    /// PCIe switches with their names.
    pub switches: Vec<(Area, &'static str)>,
    /// GPUs, by position in the node.
    pub gpus: Vec<(usize, Area)>,
    /// What is below a GPU, by its position in the node.
    pub tags: Vec<(usize, Area)>,
    /// Network adapters, by position in the node.
    pub nics: Vec<(usize, Area)>,
    /// Unusable GPUs, by position in the node's list of those.
    pub unusable: Vec<(usize, Area)>,
    /// Wires between devices and switches: x, and both ends' y.
    pub wires: Vec<(f64, f64, f64)>,
    /// Lower edge of the GPUs and of what is below them.
    pub gpu_bottom: f64,
    /// Right and lower edge of all that.
    pub right: f64,
    /// Lower edge of all that.
    pub bottom: f64,
}

/// Heights that all NUMA nodes share, so that their parts are in line.
struct Rows {
    top: f64,
    nics: f64,
    switch: f64,
    gpus: f64,
    bottom: f64,
}

/// Sizes of devices, the same for all of a kind.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    gpu: f64,
    tag: f64,
    nic: f64,
}

struct Builder<'n> {
    node: &'n Node,
    sizes: Sizes,
    tags: &'n [Option<Tag>],
    rows: Rows,
    layout: DrawingLayout,
}

impl DrawingLayout {
    /// Places a node's parts, and a tag for each GPU that has one, below `top`.
    pub fn of(node: &Node, groups: &Groups, tags: &[Option<Tag>], top: f64) -> DrawingLayout {
        let sizes = sizes(node, tags);
        let has_title = groups.sockets.iter().any(|socket| socket.title.is_some());
        let places: Vec<&Region> =
            groups.sockets.iter().flat_map(|socket| &socket.places).collect();
        let widths = |place: &&Region| place_lines(place, place_width(place, sizes)).len();
        let lines = places.iter().map(widths).max().unwrap_or(0);
        let clusters = || places.iter().flat_map(|place| &place.clusters);
        let nic_rows = clusters().map(|cluster| nic_grid(cluster, sizes).1).max().unwrap_or(0);
        let top = top + if has_title { PADDING + LINE } else { 0.0 };
        let nics = top + PADDING + LINE + lines as f64 * LINE;
        let below = nics + nic_rows as f64 * (NIC_HEIGHT + NIC_GAP);
        let (switch, gpus) = match clusters().any(|cluster| cluster.switch.is_some()) {
            true => (below + WIRE, below + WIRE + SWITCH_HEIGHT + WIRE),
            false => (below, below + NIC_GAP),
        };
        let rows = Rows { top, nics, switch, gpus, bottom: gpus + GPU.1 + sizes.tag + PADDING };
        let mut builder = Builder { node, sizes, tags, rows, layout: DrawingLayout::default() };
        builder.sockets(groups, has_title);
        builder.elsewhere(groups);
        builder.layout.gpu_bottom = gpus + GPU.1 + sizes.tag;
        builder.layout
    }
}

impl Builder<'_> {
    fn sockets(&mut self, groups: &Groups, has_title: bool) {
        let mut x = MARGIN;
        for socket in &groups.sockets {
            let left = x;
            x += if has_title { PADDING } else { 0.0 };
            for place in &socket.places {
                let width = place_width(place, self.sizes);
                self.place(place, x, width);
                x += width + GAP;
            }
            x -= GAP;
            let mut bottom = self.rows.bottom;
            if let Some(title) = &socket.title {
                x += PADDING;
                bottom += PADDING;
                let y = self.rows.top - PADDING - LINE;
                let area = Area { x: left, y, width: x - left, height: bottom - y };
                self.layout.sockets.push((area, title.clone()));
            }
            self.layout.right = x;
            self.layout.bottom = self.layout.bottom.max(bottom);
            x += 2.0 * GAP;
        }
    }

    fn place(&mut self, place: &Region, x: f64, width: f64) {
        let rows = &self.rows;
        let area = Area { x, y: rows.top, width, height: rows.bottom - rows.top };
        let lines = place_lines(place, width);
        self.layout.places.push((area, place.title.clone(), lines));
        let used: f64 = place.clusters.iter().map(|c| cluster_width(c, self.sizes) + GAP).sum();
        let mut x = x + (width - (used - GAP).max(0.0)) / 2.0;
        for cluster in &place.clusters {
            self.cluster(cluster, x);
            x += cluster_width(cluster, self.sizes) + GAP;
        }
    }

    fn cluster(&mut self, cluster: &Cluster, x: f64) {
        let width = cluster_width(cluster, self.sizes);
        let switch = Area { x, y: self.rows.switch, width, height: SWITCH_HEIGHT };
        let (columns, rows) = nic_grid(cluster, self.sizes);
        let grid = columns as f64 * (self.sizes.nic + NIC_GAP) - NIC_GAP;
        let nics_end = match cluster.gpus.is_empty() || cluster.switch.is_none() {
            true => self.rows.nics + rows as f64 * (NIC_HEIGHT + NIC_GAP),
            false => self.rows.switch - WIRE,
        };
        for (nth, nic) in cluster.nics.iter().enumerate() {
            let (column, row) = (nth % columns.max(1), nth / columns.max(1));
            let area = Area {
                x: x + (width - grid) / 2.0 + column as f64 * (self.sizes.nic + NIC_GAP),
                y: nics_end - (rows - row) as f64 * (NIC_HEIGHT + NIC_GAP) + NIC_GAP,
                width: self.sizes.nic,
                height: NIC_HEIGHT,
            };
            self.layout.nics.push((*nic, area));
            if cluster.switch.is_some() {
                self.layout.wires.push((area.middle(), area.bottom(), switch.y));
            }
        }
        let each = self.sizes.gpu + GAP;
        let gpus = cluster.gpus.len() as f64 * each - GAP;
        for (nth, gpu) in cluster.gpus.iter().enumerate() {
            let x = x + (width - gpus) / 2.0 + nth as f64 * each;
            let area = Area { x, y: self.rows.gpus, width: self.sizes.gpu, height: GPU.1 };
            self.layout.gpus.push((*gpu, area));
            if let Some(Some(tag)) = self.tags.get(*gpu) {
                let tag = Area { y: area.bottom(), height: tag_height(tag), ..area };
                self.layout.tags.push((*gpu, tag));
            }
            if cluster.switch.is_some() {
                self.layout.wires.push((area.middle(), switch.bottom(), area.y));
            }
        }
        if let Some(name) = cluster.switch {
            self.layout.switches.push((switch, name));
        }
    }

    /// Adapters that are in no place, and unusable GPUs, in a box on the right.
    fn elsewhere(&mut self, groups: &Groups) {
        let nics = groups.elsewhere.len();
        let unusable = self.node.unusable.len();
        if nics + unusable == 0 {
            return;
        }
        let rows = &self.rows;
        let room = (rows.bottom - rows.top - PADDING - LINE) / (NIC_HEIGHT + NIC_GAP);
        let per_column = room.floor().max(1.0) as usize;
        let columns = nics.div_ceil(per_column);
        let title = match (nics, unusable) {
            (0, _) => "cannot be used".to_owned(),
            (_, 0) => groups.elsewhere_title.to_owned(),
            _ => format!("{}, or unusable", groups.elsewhere_title),
        };
        let devices = unusable as f64 * (GPU.0 + GAP) + columns as f64 * (self.sizes.nic + NIC_GAP);
        let width = devices.max(text_width(&title, HEADING)) + 2.0 * PADDING;
        let x = self.layout.right + 2.0 * GAP;
        let area = Area { x, y: rows.top, width, height: rows.bottom - rows.top };
        let first = rows.top + PADDING + LINE;
        self.layout.places.push((area, title, Vec::new()));
        for (nth, nic) in groups.elsewhere.iter().enumerate() {
            let (column, row) = (nth / per_column, nth % per_column);
            let area = Area {
                x: x + PADDING + column as f64 * (self.sizes.nic + NIC_GAP),
                y: first + row as f64 * (NIC_HEIGHT + NIC_GAP),
                width: self.sizes.nic,
                height: NIC_HEIGHT,
            };
            self.layout.nics.push((*nic, area));
        }
        let x = x + PADDING + columns as f64 * (self.sizes.nic + NIC_GAP);
        for nth in 0..unusable {
            let x = x + nth as f64 * (GPU.0 + GAP);
            let area = Area { x, y: rows.gpus, width: GPU.0, height: GPU.1 };
            self.layout.unusable.push((nth, area));
        }
        self.layout.right = area.x + width;
    }
}

/// A text in lines that fit below a GPU.
pub(in crate::cli) fn tag_lines(text: &str) -> Vec<String> {
    wrap(text, SMALL, GPU.0)
}

fn sizes(node: &Node, tags: &[Option<Tag>]) -> Sizes {
    let widest = |texts: &mut dyn Iterator<Item = f64>, least: f64| {
        texts.map(|it| it + 12.0).fold(least, f64::max)
    };
    let tags = || tags.iter().flatten();
    let lines = tags().flat_map(|tag| tag.lines.iter().map(|line| text_width(line, SMALL)));
    let titles = tags().map(|tag| text_width(&tag.title, NORMAL));
    Sizes {
        gpu: widest(&mut lines.chain(titles), GPU.0),
        tag: tags().map(tag_height).fold(0.0, f64::max),
        nic: widest(&mut node.nics.iter().map(|nic| text_width(&nic.name, NORMAL)), 56.0),
    }
}

fn tag_height(tag: &Tag) -> f64 {
    TAG_PADDING + (1 + tag.lines.len()) as f64 * TAG_LINE
}

/// Columns and rows of a cluster's adapters.
fn nic_grid(cluster: &Cluster, sizes: Sizes) -> (usize, usize) {
    let count = cluster.nics.len();
    let gpus = cluster.gpus.len() as f64 * (sizes.gpu + GAP);
    let fitting = (gpus / (sizes.nic + NIC_GAP)).floor() as usize;
    let columns = fitting.max(count.div_ceil(NIC_ROWS)).max(1).min(count.max(1));
    (columns, count.div_ceil(columns))
}

fn cluster_width(cluster: &Cluster, sizes: Sizes) -> f64 {
    let gpus = cluster.gpus.len() as f64 * (sizes.gpu + GAP) - GAP;
    let columns = nic_grid(cluster, sizes).0.min(cluster.nics.len());
    let nics = columns as f64 * (sizes.nic + NIC_GAP) - NIC_GAP;
    gpus.max(nics).max(0.0)
}

fn place_width(place: &Region, sizes: Sizes) -> f64 {
    let devices: f64 = place.clusters.iter().map(|c| cluster_width(c, sizes) + GAP).sum();
    let title = text_width(&place.title, HEADING).max(text_width("CPUs 128-143,", NORMAL));
    (devices - GAP).max(title) + 2.0 * PADDING
}

/// What stands below the title of a NUMA node of this width.
fn place_lines(place: &Region, width: f64) -> Vec<String> {
    let width = width - 2.0 * PADDING;
    let mut lines = match &place.cpus {
        Some(cpus) => wrap(&format!("CPUs {cpus}"), NORMAL, width),
        None if place.clusters.is_empty() => Vec::new(),
        None => vec!["CPUs not known".to_owned()],
    };
    if let Some(cpus) = place.cpus.as_ref().filter(|_| lines.len() > CPU_LINES) {
        lines.truncate(CPU_LINES - 1);
        lines.push(format!("… {} in all", cpus.count()));
    }
    if let Some(link) = place.between {
        lines.extend(wrap(&format!("{link} between GPUs"), NORMAL, width));
    }
    if let Some(link) = place.to_adapters {
        lines.extend(wrap(&format!("{link} to adapters"), NORMAL, width));
    }
    lines
}

/// The lines inside a GPU's box.
pub(super) fn gpu_lines(node: &Node, gpu: usize) -> Vec<String> {
    let Some(gpu) = node.gpus.get(gpu) else { return Vec::new() };
    let mut lines: Vec<String> = Vec::new();
    lines.extend(gpu.pci.known().map(|pci: PciAddress| pci.to_string()));
    match (gpu.mig_mode.known(), gpu.gpu_numa_id.known()) {
        (Some(true), _) => lines.push(format!("MIG: {}", gpu.mig.len())),
        (_, Some(id)) => lines.push(format!("memory: {id}")),
        _ => {}
    }
    lines
}
