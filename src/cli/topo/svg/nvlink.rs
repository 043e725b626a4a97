//! NVLinks: curves between GPUs, or one bar where NVSwitches join them all.

use super::canvas::{Area, Canvas, INK, NVSWITCH, Style, text_width};
use super::layout::{DrawingLayout, NORMAL};
use gpubind_core::node::{Link, Node};

/// No GPU has more NVLinks (NVIDIA's data sheets up to Blackwell); where the
/// direct links to all others would be more, there are switches between.
const MOST_DIRECT: u32 = 18;

/// Depth of the flattest curve, and what each curve inside another adds.
const DEPTH: (f64, f64) = (26.0, 20.0);

/// With more curves than this their labels would be in each other's way.
const MOST_LABELS: usize = 6;

/// The numbers of NVLinks that a node's pairs have, each once.
pub(super) fn counts(node: &Node) -> Vec<u32> {
    let mut counts: Vec<u32> = pairs(node).iter().map(|(_, _, count)| *count).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Pairs of GPUs with NVLinks between them, by position.
fn pairs(node: &Node) -> Vec<(usize, usize, u32)> {
    let gpus = node.gpus.len();
    let all = (0..gpus).flat_map(|a| (a + 1..gpus).map(move |b| (a, b)));
    let links = all.filter_map(|(a, b)| match node.link(a, b) {
        Link::NvLink(count) => Some((a, b, count)),
        _ => None,
    });
    links.collect()
}

/// The number of links of every pair, where that can only be with NVSwitches.
pub(super) fn switched(node: &Node) -> Option<u32> {
    let pairs = pairs(node);
    let gpus = node.gpus.len();
    let (_, _, count) = *pairs.first()?;
    let is_uniform =
        pairs.len() == gpus * (gpus - 1) / 2 && pairs.iter().all(|pair| pair.2 == count);
    let direct = u64::from(count) * (gpus as u64 - 1);
    (is_uniform && gpus > 2 && direct > u64::from(MOST_DIRECT)).then_some(count)
}

/// Width and colour of a curve.
pub(super) fn stroke(node: &Node, count: u32) -> (f64, &'static str) {
    const SHADES: [&str; 3] = ["#8cc63f", "#4f8f00", "#2c5500"];
    let counts = counts(node);
    let rank = counts.iter().position(|known| *known == count).unwrap_or(0);
    let shade = SHADES.get(rank).copied().unwrap_or("#2c5500");
    let shade = if counts.len() == 1 { "#4f8f00" } else { shade };
    (2.0 + 2.0 * rank.min(3) as f64, shade)
}

/// Draws the NVLinks below the GPUs and tells how far down they reach.
pub(super) fn draw(canvas: &mut Canvas, node: &Node, layout: &DrawingLayout) -> f64 {
    match switched(node) {
        Some(count) => draw_bar(canvas, layout, count),
        None => draw_arcs(canvas, node, layout),
    }
}

fn draw_bar(canvas: &mut Canvas, layout: &DrawingLayout, count: u32) -> f64 {
    let label = format!("NVSwitches: {count} NVLinks from every GPU, NV{count} between all pairs");
    let left = layout.gpus.iter().map(|(_, area)| area.x).fold(f64::MAX, f64::min);
    let right = layout.gpus.iter().map(|(_, area)| area.x + area.width).fold(0.0, f64::max);
    let width = (right - left).max(text_width(&label, NORMAL) + 20.0);
    let bar = Area { x: left, y: layout.bottom + 24.0, width, height: 30.0 };
    for (_, gpu) in &layout.gpus {
        let colour = NVSWITCH.outline;
        canvas.line((gpu.middle(), gpu.bottom()), (gpu.middle(), bar.y), colour, 5.0);
    }
    canvas.area(bar, NVSWITCH);
    let style = Style { size: NORMAL, bold: true, colour: INK, centred: true };
    canvas.text(&label, bar.middle(), bar.y + 19.0, style);
    bar.bottom()
}

/// A curve between two GPUs; ends are places from left to right.
struct Arc {
    left: usize,
    right: usize,
    count: u32,
    depth: f64,
}

fn draw_arcs(canvas: &mut Canvas, node: &Node, layout: &DrawingLayout) -> f64 {
    let mut order: Vec<(usize, Area)> = layout.gpus.clone();
    order.sort_by(|a, b| a.1.x.total_cmp(&b.1.x));
    let place = |gpu: usize| order.iter().position(|(other, _)| *other == gpu);
    let mut arcs: Vec<Arc> = Vec::new();
    for (a, b, count) in pairs(node) {
        if let (Some(a), Some(b)) = (place(a), place(b)) {
            arcs.push(Arc { left: a.min(b), right: a.max(b), count, depth: 0.0 });
        }
    }
    arcs.sort_by_key(|arc| (arc.right - arc.left, arc.left));
    nest(&mut arcs);
    let labels = arcs.len() <= MOST_LABELS;
    let mut lowest = layout.bottom;
    let below = layout.bottom - layout.gpu_bottom;
    for arc in arcs.iter().rev() {
        let (Some(from), Some(to)) =
            (port(&arcs, &order, arc, arc.left), port(&arcs, &order, arc, arc.right))
        else {
            continue;
        };
        let (width, colour) = stroke(node, arc.count);
        let depth = below + arc.depth;
        canvas.arc(from, to, layout.gpu_bottom, depth, colour, width);
        lowest = lowest.max(layout.gpu_bottom + depth);
    }
    for arc in arcs.iter().filter(|_| labels) {
        let (Some(from), Some(to)) =
            (port(&arcs, &order, arc, arc.left), port(&arcs, &order, arc, arc.right))
        else {
            continue;
        };
        let label = format!("NV{}", arc.count);
        let y = layout.gpu_bottom + below + arc.depth;
        let style = Style { size: NORMAL, bold: true, colour: INK, centred: true };
        let width = text_width(&label, NORMAL) + 6.0;
        let middle = (from + to) / 2.0;
        let ground = Area { x: middle - width / 2.0, y: y - 8.0, width, height: 16.0 };
        canvas.area(ground, super::canvas::Paint { fill: "#ffffff", outline: "#ffffff" });
        canvas.text(&label, middle, y + 4.0, style);
    }
    if arcs.is_empty() { layout.bottom } else { lowest + if labels { 8.0 } else { 4.0 } }
}

/// Hangs every curve below those that it encloses.
fn nest(arcs: &mut [Arc]) {
    for at in 0..arcs.len() {
        let (done, rest) = arcs.split_at_mut(at);
        let Some(arc) = rest.first_mut() else { return };
        let inside = |other: &&Arc| {
            let span = other.right - other.left;
            arc.left <= other.left && other.right <= arc.right && span < arc.right - arc.left
        };
        let deepest = done.iter().filter(inside).map(|other| other.depth).fold(0.0, f64::max);
        arc.depth = if deepest > 0.0 { deepest + DEPTH.1 } else { DEPTH.0 };
    }
}

/// Where a curve leaves a GPU's lower edge. From left to right: curves to the
/// left, the shortest first, then curves to the right, the longest first; so
/// curves of one GPU do not cross each other.
fn port(arcs: &[Arc], order: &[(usize, Area)], arc: &Arc, end: usize) -> Option<f64> {
    let (_, area) = order.get(end)?;
    let mut own: Vec<&Arc> =
        arcs.iter().filter(|other| other.left == end || other.right == end).collect();
    own.sort_by_key(|other| match other.right == end {
        true => (0, other.right - other.left),
        false => (1, usize::MAX - (other.right - other.left)),
    });
    let nth = own.iter().position(|other| other.left == arc.left && other.right == arc.right)?;
    let step = area.width / (own.len() as f64 + 1.0);
    Some(area.x + step * (nth as f64 + 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_any;

    fn all_to_all(gpus: usize, links: u32) -> Node {
        let mut text = String::new();
        let names: Vec<String> = (0..gpus).map(|gpu| format!("GPU{gpu}")).collect();
        text += &format!("\t{}\n", names.join("\t"));
        for (row, name) in names.iter().enumerate() {
            let cell = |column| if row == column { "X".to_owned() } else { format!("NV{links}") };
            text += &format!("{name}\t{}\n", (0..gpus).map(cell).collect::<Vec<_>>().join("\t"));
        }
        read_any(&text).unwrap().0
    }

    #[test]
    fn switches_are_told_from_direct_links_by_their_number() {
        assert_eq!(switched(&all_to_all(8, 12)), Some(12));
        assert_eq!(switched(&all_to_all(4, 18)), Some(18));
        assert_eq!(switched(&all_to_all(4, 6)), None);
        assert_eq!(switched(&all_to_all(2, 12)), None);
        assert_eq!(switched(&all_to_all(1, 12)), None);
    }

    #[test]
    fn curves_hang_below_those_they_enclose() {
        let arc = |left, right| Arc { left, right, count: 1, depth: 0.0 };
        let mut arcs = [arc(0, 1), arc(2, 3), arc(0, 2), arc(0, 3)];
        nest(&mut arcs);
        let depths: Vec<f64> = arcs.iter().map(|arc| arc.depth).collect();
        assert_eq!(depths, [26.0, 26.0, 46.0, 66.0]);
    }
}
