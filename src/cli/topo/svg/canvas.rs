//! Drawing: the few shapes that the picture is made of, and its colours.

use svg::Document;
use svg::node::element::{Line, Path, Rectangle, Text};

/// Fonts that are there on most systems, of similar width.
const FONTS: &str = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif";

/// Width of a letter in font sizes; wide enough for capitals and digits.
const LETTER: f64 = 0.64;

/// Fill and outline of a box.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint {
    /// Fill colour.
    pub fill: &'static str,
    /// Outline colour.
    pub outline: &'static str,
}

pub(super) const SOCKET: Paint = Paint { fill: "#f1f4f8", outline: "#b6c0cc" };
pub(super) const NUMA: Paint = Paint { fill: "#ffffff", outline: "#8795a6" };
pub(super) const SWITCH: Paint = Paint { fill: "#dfe4ea", outline: "#6b7684" };
pub(super) const GPU: Paint = Paint { fill: "#e6f3cf", outline: "#5d8a00" };
pub(super) const NIC: Paint = Paint { fill: "#dce9fb", outline: "#2f66b3" };
pub(super) const UNUSABLE: Paint = Paint { fill: "#fde2e0", outline: "#b3261e" };
pub(super) const TAG: Paint = Paint { fill: "#fff4d6", outline: "#a86f14" };
pub(super) const MARKED: Paint = Paint { fill: "#fbd3c5", outline: "#b3261e" };
pub(super) const NVSWITCH: Paint = Paint { fill: "#cfe8a4", outline: "#4a7300" };
pub(super) const INK: &str = "#1f2933";
pub(super) const FAINT: &str = "#52606d";
pub(super) const WIRE: &str = "#6b7684";

/// A rectangle on the canvas, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Area {
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

impl Area {
    /// The middle between left and right.
    pub fn middle(&self) -> f64 {
        self.x + self.width / 2.0
    }

    /// The lower edge.
    pub fn bottom(&self) -> f64 {
        self.y + self.height
    }
}

/// How a text is set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    /// Font size in pixels.
    pub size: f64,
    /// Whether it is bold.
    pub bold: bool,
    /// Its colour.
    pub colour: &'static str,
    /// Whether its place is its middle and not its start.
    pub centred: bool,
}

/// Width that a text takes at most.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * LETTER
}

/// A text in lines of at most a width, broken at blanks and behind commas.
pub(super) fn wrap(text: &str, size: f64, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_inclusive([' ', ',']) {
        match lines.last_mut() {
            Some(line) if text_width(&format!("{line}{}", word.trim_end()), size) <= width => {
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// The picture as it grows; later shapes lie over earlier ones.
#[derive(Debug, Default)]
pub(super) struct Canvas(Vec<Box<dyn svg::Node>>);

impl Canvas {
    /// A box with slightly round corners.
    pub fn area(&mut self, area: Area, paint: Paint) {
        let shape = Rectangle::new()
            .set("x", round(area.x))
            .set("y", round(area.y))
            .set("width", round(area.width))
            .set("height", round(area.height))
            .set("rx", 5)
            .set("fill", paint.fill)
            .set("stroke", paint.outline)
            .set("stroke-width", 1.2);
        self.add(shape);
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
        let shape = Line::new()
            .set("x1", round(from.0))
            .set("y1", round(from.1))
            .set("x2", round(to.0))
            .set("y2", round(to.1))
            .set("stroke", colour)
            .set("stroke-width", round(width));
        self.add(shape);
    }

    /// A curve that hangs from two points of the same height.
    pub fn arc(&mut self, from: f64, to: f64, y: f64, depth: f64, colour: &str, width: f64) {
        // A Bézier curve reaches three quarters of its control points' depth.
        let low = round(y + depth / 0.75);
        let (from, to, y) = (round(from), round(to), round(y));
        let shape = Path::new()
            .set("d", format!("M {from} {y} C {from} {low}, {to} {low}, {to} {y}"))
            .set("fill", "none")
            .set("stroke", colour)
            .set("stroke-width", round(width));
        self.add(shape);
    }

    /// One line of text; `y` is its base line.
    pub fn text(&mut self, text: &str, x: f64, y: f64, style: Style) {
        let shape = Text::new(text)
            .set("x", round(x))
            .set("y", round(y))
            .set("font-size", style.size)
            .set("font-weight", if style.bold { "bold" } else { "normal" })
            .set("text-anchor", if style.centred { "middle" } else { "start" })
            .set("fill", style.colour);
        self.add(shape);
    }

    fn add(&mut self, shape: impl Into<Box<dyn svg::Node>>) {
        self.0.push(shape.into());
    }

    /// The picture's text, with a light background of this size.
    pub fn finish(self, title: &str, width: f64, height: f64) -> String {
        let background = Rectangle::new()
            .set("width", round(width))
            .set("height", round(height))
            .set("fill", "#ffffff");
        let document = Document::new()
            .set("viewBox", (0, 0, round(width), round(height)))
            .set("width", round(width))
            .set("height", round(height))
            .set("font-family", FONTS)
            .add(svg::node::element::Title::new(title))
            .add(background);
        let document = self.0.into_iter().fold(document, |document, shape| document.add(shape));
        format!("{document}\n")
    }
}

/// Tenths of a pixel are enough.
fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_behind_commas_and_blanks() {
        let lines = wrap("CPUs 0-15,128-143,256-271", 10.0, 12.0 * 6.4);
        assert_eq!(lines, ["CPUs 0-15,", "128-143,", "256-271"]);
        assert_eq!(wrap("", 10.0, 50.0), Vec::<String>::new());
    }
}
