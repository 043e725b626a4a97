//! A node as a drawing to put on a wall: sockets, NUMA nodes, PCIe switches,
//! GPUs, network adapters and NVLinks.
//!
//! | file | what lives there |
//! |---|---|
//! | `groups` | what is drawn inside what |
//! | `layout` | where it is drawn |
//! | `nvlink` | the NVLinks |
//! | `canvas` | shapes and colours |

mod canvas;
mod groups;
mod layout;
mod nvlink;

use canvas::{Area, Canvas, FAINT, INK, Paint, Style, text_width, wrap};
use groups::Groups;
use layout::{DrawingLayout, HEADING, MARGIN, NORMAL, SMALL, TITLE};

pub(in crate::cli) use layout::tag_lines;

use super::matrix::short_why_unusable;
use gpubind_core::node::{Node, PciAddress};
use gpubind_core::words;

/// The title is wrapped to at least this width.
const NARROWEST: f64 = 560.0;

/// What is written below a GPU: who has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Tag {
    /// In larger letters.
    pub title: String,
    /// Below that.
    pub lines: Vec<String>,
    /// Whether it is one of those to look at.
    pub is_marked: bool,
}

/// What tags are, for the legend.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct TagWords {
    /// Those that are not marked.
    pub plain: &'static str,
    /// Those that are.
    pub marked: &'static str,
}

/// Draws a node; `title` is the paragraph above the drawing. GPUs, by position in the node,
/// may have tags.
pub(in crate::cli) fn draw(
    node: &Node,
    title: &str,
    tags: &[Option<Tag>],
    words: Option<TagWords>,
) -> String {
    let groups = Groups::of(node);
    let width = DrawingLayout::of(node, &groups, tags, 0.0).right.max(NARROWEST);
    let lines = wrap(title, TITLE, width - MARGIN);
    let top = MARGIN + lines.len() as f64 * (TITLE + 6.0) + 12.0;
    let layout = DrawingLayout::of(node, &groups, tags, top);

    let mut canvas = Canvas::default();
    let style = Style { size: TITLE, bold: true, colour: INK, centred: false };
    for (nth, line) in lines.iter().enumerate() {
        canvas.text(line, MARGIN, MARGIN + TITLE + nth as f64 * (TITLE + 6.0), style);
    }
    boxes(&mut canvas, &layout);
    let links_end = nvlink::draw(&mut canvas, node, &layout);
    devices(&mut canvas, node, &layout);
    draw_tags(&mut canvas, tags, &layout);
    let mut entries = entries(node, &layout);
    let mut tag = |is_marked: bool, text: &str| {
        if tags.iter().flatten().any(|tag| tag.is_marked == is_marked) {
            entries.push((Sample::Fill(tag_paint(is_marked)), text.to_owned()));
        }
    };
    if let Some(words) = words {
        tag(false, words.plain);
        tag(true, words.marked);
    }
    let bottom = legend(&mut canvas, entries, links_end + 36.0, width);
    canvas.finish(title, width + MARGIN, bottom + MARGIN)
}

/// Sockets, NUMA nodes, wires and switches.
fn boxes(canvas: &mut Canvas, layout: &DrawingLayout) {
    let heading = Style { size: HEADING, bold: true, colour: INK, centred: false };
    let normal = Style { size: NORMAL, bold: false, colour: FAINT, centred: false };
    for (area, title) in &layout.sockets {
        canvas.area(*area, canvas::SOCKET);
        canvas.text(title, area.x + 12.0, area.y + 18.0, heading);
    }
    for (area, title, lines) in &layout.places {
        canvas.area(*area, canvas::NUMA);
        canvas.text(title, area.x + 12.0, area.y + 19.0, heading);
        for (nth, line) in lines.iter().enumerate() {
            canvas.text(line, area.x + 12.0, area.y + 35.0 + nth as f64 * 15.0, normal);
        }
    }
    for (x, from, to) in &layout.wires {
        canvas.line((*x, *from), (*x, *to), canvas::WIRE, 1.6);
    }
    for (area, name) in &layout.switches {
        canvas.area(*area, canvas::SWITCH);
        let fits = text_width(name, NORMAL) <= area.width;
        let name = if fits { name } else { "PCIe" };
        let style = Style { size: NORMAL, bold: false, colour: INK, centred: true };
        canvas.text(name, area.middle(), area.y + 15.5, style);
    }
}

/// GPUs, adapters and unusable GPUs.
fn devices(canvas: &mut Canvas, node: &Node, layout: &DrawingLayout) {
    for (gpu, area) in &layout.gpus {
        let index = node.gpus.get(*gpu).map_or(0, |gpu| gpu.index);
        let lines = layout::gpu_lines(node, *gpu);
        device(canvas, *area, canvas::GPU, &format!("GPU{index}"), &lines);
    }
    for (nth, area) in &layout.unusable {
        let Some(unusable) = node.unusable.get(*nth) else { continue };
        let pci = unusable.pci.and_then(PciAddress::known).map(|pci| pci.to_string());
        let mut lines: Vec<String> = pci.into_iter().collect();
        lines.push(short_why_unusable(unusable.code));
        device(canvas, *area, canvas::UNUSABLE, &format!("GPU{}", unusable.index), &lines);
    }
    for (nic, area) in &layout.nics {
        let name = node.nics.get(*nic).map_or("?", |nic| nic.name.as_str());
        canvas.area(*area, canvas::NIC);
        let style = Style { size: NORMAL, bold: false, colour: INK, centred: true };
        canvas.text(name, area.middle(), area.y + 16.5, style);
    }
}

fn device(canvas: &mut Canvas, area: Area, paint: Paint, name: &str, lines: &[String]) {
    canvas.area(area, paint);
    let bold = Style { size: TITLE, bold: true, colour: INK, centred: true };
    let small = Style { size: SMALL, bold: false, colour: FAINT, centred: true };
    let height = 16.0 + lines.len() as f64 * 14.0;
    let first = area.y + (area.height - height) / 2.0 + 14.0;
    canvas.text(name, area.middle(), first, bold);
    for (nth, line) in lines.iter().enumerate() {
        canvas.text(line, area.middle(), first + 15.0 + nth as f64 * 13.0, small);
    }
}

fn tag_paint(is_marked: bool) -> Paint {
    if is_marked { canvas::MARKED } else { canvas::TAG }
}

/// What is below the GPUs.
fn draw_tags(canvas: &mut Canvas, tags: &[Option<Tag>], layout: &DrawingLayout) {
    let bold = Style { size: NORMAL, bold: true, colour: INK, centred: true };
    let small = Style { size: SMALL, bold: false, colour: INK, centred: true };
    for (gpu, area) in &layout.tags {
        let Some(Some(tag)) = tags.get(*gpu) else { continue };
        canvas.area(*area, tag_paint(tag.is_marked));
        let mut y = area.y + 15.0;
        canvas.text(&tag.title, area.middle(), y, bold);
        for line in &tag.lines {
            y += layout::TAG_LINE;
            canvas.text(line, area.middle(), y, small);
        }
    }
}

/// One entry of the legend.
enum Sample {
    Fill(Paint),
    Stroke(f64, &'static str),
}

/// What colours and lines mean.
fn entries(node: &Node, layout: &DrawingLayout) -> Vec<(Sample, String)> {
    let mut entries: Vec<(Sample, String)> = Vec::new();
    let mut fill = |used: bool, paint: Paint, text: &str| {
        if used {
            entries.push((Sample::Fill(paint), text.to_owned()));
        }
    };
    let own_memory = node.gpus.iter().any(|gpu| gpu.gpu_numa_id.known().is_some());
    let gpu = if own_memory { "GPU (memory: its own NUMA node)" } else { "GPU" };
    fill(!layout.sockets.is_empty(), canvas::SOCKET, "CPU socket");
    fill(!layout.places.is_empty(), canvas::NUMA, "NUMA node");
    fill(!layout.gpus.is_empty(), canvas::GPU, gpu);
    fill(!layout.unusable.is_empty(), canvas::UNUSABLE, "GPU that cannot be used");
    fill(!layout.nics.is_empty(), canvas::NIC, "network adapter");
    fill(!layout.switches.is_empty(), canvas::SWITCH, "PCIe switch");
    if nvlink::switched(node).is_some() {
        entries.push((Sample::Stroke(5.0, canvas::NVSWITCH.outline), "NVLinks".to_owned()));
    } else {
        for count in nvlink::counts(node) {
            let (width, colour) = nvlink::stroke(node, count);
            entries.push((Sample::Stroke(width, colour), words::count(count as usize, "NVLink")));
        }
    }
    entries
}

/// Draws the legend and tells how far down it reaches.
fn legend(canvas: &mut Canvas, entries: Vec<(Sample, String)>, top: f64, width: f64) -> f64 {
    let style = Style { size: NORMAL, bold: false, colour: INK, centred: false };
    let (mut x, mut y) = (MARGIN, top);
    for (sample, text) in entries {
        let room = 34.0 + text_width(&text, NORMAL);
        if x + room > width && x > MARGIN {
            x = MARGIN;
            y += 24.0;
        }
        match sample {
            Sample::Fill(paint) => {
                canvas.area(Area { x, y: y - 11.0, width: 24.0, height: 14.0 }, paint);
            }
            Sample::Stroke(stroke, colour) => {
                canvas.line((x, y - 4.0), (x + 24.0, y - 4.0), colour, stroke);
            }
        }
        canvas.text(&text, x + 30.0, y, style);
        x += room + 16.0;
    }
    y
}
