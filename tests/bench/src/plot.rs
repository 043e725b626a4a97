//! A picture of the distributions: for each configuration a dot for each run, a box from
//! quartile to quartile and a line at the median, along a logarithmic axis.

use svg::Document;
use svg::node::element::{Circle, Line, Rectangle, Text};

use crate::configuration::Configuration;
use crate::measure::Run;
use crate::report::times;
use crate::statistics::quantile;

const LEFT: f64 = 250.0;
const WIDTH: f64 = 620.0;
const RIGHT: f64 = 30.0;
const ROW: f64 = 34.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 40.0;
/// Where a logarithmic axis has numbers, in each decade.
const STEPS: [f64; 7] = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0];

pub fn draw(title: &str, configurations: &[Configuration], runs: &[Run]) -> String {
    let rows: Vec<(&str, Vec<f64>)> = configurations
        .iter()
        // One that takes seconds would press all others together.
        .filter(|configuration| !configuration.is_slow())
        .map(|configuration| (configuration.name.as_str(), times(runs, &configuration.name)))
        .filter(|(_, times)| !times.is_empty())
        .collect();
    let all = || rows.iter().flat_map(|(_, times)| times.iter().copied());
    let axis =
        Axis { low: all().fold(f64::MAX, f64::min) * 0.95, high: all().fold(1.0, f64::max) * 1.05 };
    let bottom = TOP + ROW * rows.len() as f64;
    let size = (LEFT + WIDTH + RIGHT, bottom + BOTTOM);
    let mut picture = Document::new()
        .set("viewBox", (0, 0, size.0, size.1))
        .set("font-family", "sans-serif")
        .set("font-size", 12)
        .add(Rectangle::new().set("width", size.0).set("height", size.1).set("fill", "white"))
        .add(text(10.0, 20.0, title).set("font-size", 15));
    for value in axis.numbers() {
        let x = axis.x(value);
        picture = picture
            .add(line(x, TOP - 8.0, x, bottom, "#ddd"))
            .add(text(x, bottom + 16.0, &format!("{value}")).set("text-anchor", "middle"));
    }
    let caption = "milliseconds from srun's start to its end (logarithmic)";
    picture =
        picture.add(text(LEFT + WIDTH / 2.0, bottom + 32.0, caption).set("text-anchor", "middle"));
    for (row, (name, times)) in rows.iter().enumerate() {
        let middle = TOP + ROW * (row as f64 + 0.5);
        picture = picture.add(text(LEFT - 12.0, middle + 4.0, name).set("text-anchor", "end"));
        let at = |share| axis.x(quantile(times, share));
        let (low, median, high) = (at(0.25), at(0.5), at(0.75));
        let quartiles = Rectangle::new()
            .set("x", low)
            .set("y", middle - 10.0)
            .set("width", (high - low).max(1.0))
            .set("height", 20)
            .set("fill", "#cfe0f5");
        picture = picture.add(quartiles);
        for (number, time) in times.iter().enumerate() {
            // Dots side by side do not hide each other.
            let off = ((number * 7) % 5) as f64 * 3.0 - 6.0;
            let dot = Circle::new().set("cx", axis.x(*time)).set("cy", middle + off);
            picture = picture.add(dot.set("r", 2).set("fill", "#3568a8").set("fill-opacity", 0.55));
        }
        picture = picture.add(line(median, middle - 12.0, median, middle + 12.0, "#b03020"));
    }
    format!("{picture}\n")
}

struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn x(&self, value: f64) -> f64 {
        let share = (value / self.low).ln() / (self.high / self.low).ln();
        // A tenth of a pixel is enough.
        ((LEFT + WIDTH * share) * 10.0).round() / 10.0
    }

    fn numbers(&self) -> Vec<f64> {
        let decades = (0..6).map(|decade| 10_f64.powi(decade));
        let numbers = decades.flat_map(|decade| STEPS.map(|step| step * decade));
        numbers.filter(|value| (self.low..=self.high).contains(value)).collect()
    }
}

fn text(x: f64, y: f64, content: &str) -> Text {
    Text::new(content).set("x", x).set("y", y)
}

fn line(x1: f64, y1: f64, x2: f64, y2: f64, colour: &str) -> Line {
    Line::new().set("x1", x1).set("y1", y1).set("x2", x2).set("y2", y2).set("stroke", colour)
}
