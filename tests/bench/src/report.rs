//! Tables for people and for programs.

use std::fmt::Write;
use std::fs;

use crate::clusters::Clusters;
use crate::configuration::{Configuration, REFERENCES};
use crate::measure::Run;
use crate::settings::Run as Settings;
use crate::shape::Shape;
use crate::statistics::{median_interval, quantile, sorted};

/// What the figures were taken on.
pub fn machine(clusters: &Clusters, settings: &Settings) -> String {
    let slurm = clusters.all().first().map(|cluster| cluster.output(&["srun", "--version"]));
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Vec<&str> = load.split(' ').take(3).collect();
    format!(
        "{}, {cpus} CPUs, {} rounds, load at the end {}",
        slurm.unwrap_or_default().trim(),
        settings.rounds,
        load.join(" ")
    )
}

pub fn csv(runs: &[Run]) -> String {
    let mut text = "shape;round;configuration;milliseconds\n".to_owned();
    for Run { shape, round, configuration, milliseconds } in runs {
        let _ = writeln!(text, "{shape};{round};{configuration};{milliseconds:.3}");
    }
    text
}

pub fn of_shape(runs: &[Run], shape: Shape) -> Vec<Run> {
    runs.iter().filter(|run| run.shape == shape).cloned().collect()
}

/// A configuration's times, sorted.
pub fn times(runs: &[Run], configuration: &str) -> Vec<f64> {
    let runs = runs.iter().filter(|run| run.configuration == configuration);
    sorted(runs.map(|run| run.milliseconds).collect())
}

pub fn markdown(machine: &str, configurations: &[Configuration], runs: &[Run]) -> String {
    let mut text = format!("{machine}\n");
    for shape in Shape::ALL {
        let runs = of_shape(runs, shape);
        if runs.is_empty() {
            continue;
        }
        let [none, empty] = REFERENCES;
        let _ = writeln!(text, "\n{}\n", shape.title());
        let _ = writeln!(
            text,
            "| configuration | median ms (quartiles) | against {none}: ratio | added ms (95 %) | against {empty}: ratio | added ms (95 %) |"
        );
        let _ = writeln!(text, "|---|---|---|---|---|---|");
        for configuration in configurations {
            let name = &configuration.name;
            let times = times(&runs, name);
            let at = |share| quantile(&times, share);
            let _ =
                write!(text, "| {name} | {:.0} ({:.0} to {:.0}) |", at(0.5), at(0.25), at(0.75));
            for reference in REFERENCES {
                let _ = write!(text, " {} |", against(&runs, name, reference));
            }
            let _ = writeln!(text);
        }
    }
    text
}

/// Median ratio and median difference to the reference's run of the same round.
fn against(runs: &[Run], name: &str, reference: &str) -> String {
    if name == reference {
        return "1 | 0".to_owned();
    }
    let pairs: Vec<(f64, f64)> = runs
        .iter()
        .filter(|run| run.configuration == name)
        .filter_map(|run| {
            let same = |other: &&Run| other.configuration == reference && other.round == run.round;
            Some((run.milliseconds, runs.iter().find(same)?.milliseconds))
        })
        .collect();
    let ratios = sorted(pairs.iter().map(|(own, other)| own / other).collect());
    let added = sorted(pairs.iter().map(|(own, other)| own - other).collect());
    let interval = match median_interval(&added) {
        Some((low, high)) => format!("{low:.1} to {high:.1}"),
        None => "too few".to_owned(),
    };
    format!("{:.3} | {:.1} ({interval})", quantile(&ratios, 0.5), quantile(&added, 0.5))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(round: usize, configuration: &str, milliseconds: f64) -> Run {
        let configuration = configuration.to_owned();
        Run { shape: Shape::Job1, round, configuration, milliseconds }
    }

    /// A load that doubles all times of a round changes no ratio: only runs of the same
    /// round are compared.
    #[test]
    fn runs_are_compared_within_their_round() {
        let mut runs = Vec::new();
        for round in 0..8 {
            let load = if round < 4 { 1.0 } else { 2.0 };
            runs.push(run(round, "a", 100.0 * load));
            runs.push(run(round, "b", 110.0 * load));
        }
        assert_eq!(against(&runs, "b", "a"), "1.100 | 15.0 (10.0 to 20.0)");
        assert_eq!(against(&runs, "a", "a"), "1 | 0");
    }
}
