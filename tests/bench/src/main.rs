//! `launch-bench`: how long steps take to start and end, with gpubind and with other ways
//! to give each task a GPU, on private clusters.
//!
//! All configurations run in turn, in another order each round, so that whatever else the
//! machine does falls on all of them; each run is compared with the reference's run of the
//! same round. Figures are ratios and differences: the times themselves are this machine's.

// The bench ends by panicking where a cluster does not do what it should.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod clusters;
mod configuration;
mod helpers;
mod measure;
mod plot;
mod report;
mod settings;
mod shape;
mod statistics;

use std::fs;
use std::process::ExitCode;

use clap::Parser;
use clusters::Clusters;
use helpers::Helpers;
use settings::{Command, Settings};

fn main() -> ExitCode {
    let settings = match Settings::parse().command {
        Command::Time { file, command } => return measure::time(&file, &command),
        Command::Run(settings) => settings,
    };
    let configurations = configuration::chosen(&settings);
    let helpers = Helpers::build();
    let clusters = Clusters::start(&settings, &configurations, &helpers);
    let runs = measure::all(&settings, &configurations, &clusters, &helpers);
    let machine = report::machine(&clusters, &settings);
    drop(clusters);
    let summary = report::markdown(&machine, &configurations, &runs);
    fs::create_dir_all(&settings.out).unwrap();
    fs::write(settings.out.join("bench.csv"), report::csv(&runs)).unwrap();
    fs::write(settings.out.join("bench.md"), &summary).unwrap();
    for shape in &settings.shapes {
        let name = shape.name();
        let picture = plot::draw(shape.title(), &configurations, &report::of_shape(&runs, *shape));
        fs::write(settings.out.join(format!("bench-{name}.svg")), picture).unwrap();
    }
    print!("{summary}");
    eprintln!("all runs and plots are in {}", settings.out.display());
    ExitCode::SUCCESS
}
