//! The runs.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::clusters::{Cluster, Clusters};
use crate::configuration::{Configuration, Program, Visible};
use crate::helpers::{Helpers, folder};
use crate::settings::Run as Settings;
use crate::shape::Shape;

/// How long one configuration took in one round.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub shape: Shape,
    pub round: usize,
    pub configuration: String,
    pub milliseconds: f64,
}

/// Runs a command and writes how long it took.
pub fn time(file: &Path, command: &[OsString]) -> ExitCode {
    let (program, args) = command.split_first().unwrap();
    let begin = Instant::now();
    let status = Command::new(program).args(args).stdin(Stdio::null()).status().unwrap();
    let taken = begin.elapsed();
    fs::write(file, taken.as_nanos().to_string()).unwrap();
    u8::try_from(status.code().unwrap_or(1)).unwrap_or(1).into()
}

/// All shapes, all rounds, all configurations.
pub fn all(
    settings: &Settings,
    configurations: &[Configuration],
    clusters: &Clusters,
    helpers: &Helpers,
) -> Vec<Run> {
    let mut runs = Vec::new();
    for shape in &settings.shapes {
        let jobs: Vec<(&Cluster, String)> = if shape.is_in_job() {
            clusters.all().iter().map(|cluster| (cluster, allocate(cluster, *shape))).collect()
        } else {
            Vec::new()
        };
        let job_of = |cluster: &Cluster| {
            let job = jobs.iter().find(|(other, _)| std::ptr::eq(*other, cluster));
            job.map(|(_, job)| job.as_str())
        };
        for configuration in configurations {
            let cluster = clusters.of(configuration);
            Start { shape: *shape, configuration, cluster, job: job_of(cluster), helpers }.check();
        }
        for round in 0..settings.rounds {
            eprintln!("{}: round {} of {}", shape.name(), round + 1, settings.rounds);
            for configuration in in_order(configurations, round) {
                if configuration.is_slow() && round >= settings.slow_rounds {
                    continue;
                }
                let cluster = clusters.of(configuration);
                let start =
                    Start { shape: *shape, configuration, cluster, job: job_of(cluster), helpers };
                runs.push(Run {
                    shape: *shape,
                    round,
                    configuration: configuration.name.clone(),
                    milliseconds: start.time().as_secs_f64() * 1000.0,
                });
            }
        }
        for (cluster, job) in jobs {
            cluster.output(&["scancel", &job]);
        }
    }
    runs
}

/// Another order in each round: begins elsewhere, and runs backwards every other time.
fn in_order(configurations: &[Configuration], round: usize) -> Vec<&Configuration> {
    let mut order: Vec<&Configuration> = configurations.iter().collect();
    let middle = round % order.len().max(1);
    order.rotate_left(middle);
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// A job that stays, for the steps in it; gives its id.
fn allocate(cluster: &Cluster, shape: Shape) -> String {
    cluster.await_idle();
    let words = [&["salloc", "--no-shell"], shape.job_options()].concat();
    let output = cluster.command(&words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // salloc: Granted job allocation 7
    let job = said
        .split("Granted job allocation ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next());
    job.unwrap_or_else(|| panic!("no job: {said}")).to_owned()
}

/// One configuration on its cluster.
struct Start<'a> {
    shape: Shape,
    configuration: &'a Configuration,
    cluster: &'a Cluster,
    /// The job that the step runs in.
    job: Option<&'a str>,
    helpers: &'a Helpers,
}

impl Start<'_> {
    /// Everything that is not to be timed.
    fn prepare(&self) {
        if let Some(delay) = self.configuration.cold {
            self.cluster.use_library(Some(&self.cluster.slow_library(delay)));
            let _ = fs::remove_file(self.cluster.snapshot());
        }
        if self.job.is_none() {
            self.cluster.await_idle();
        }
    }

    /// srun with its options, up to the tasks' program.
    fn srun(&self) -> Vec<String> {
        let mut words = vec!["srun".to_owned()];
        words.extend(self.job.map(|job| format!("--jobid={job}")));
        let options = [self.shape.options(), self.configuration.options].concat();
        words.extend(options.iter().map(|word| (*word).to_owned()));
        let wrapper = match self.configuration.program {
            Program::Plain => None,
            Program::BashWrapper => Some(self.helpers.bash_wrapper()),
            Program::NvmlWrapper(delay) => {
                Some(self.helpers.nvml_wrapper(&self.cluster.slow_library(delay), delay))
            }
        };
        words.extend(wrapper.map(|file| file.display().to_string()));
        words
    }

    fn finish(&self) {
        if self.configuration.cold.is_some() {
            let name = &self.configuration.name;
            assert!(self.cluster.snapshot().exists(), "{name}: NVML was not read");
            self.cluster.use_library(None);
        }
    }

    /// How long the step takes, from srun's start to its end.
    fn time(&self) -> Duration {
        self.prepare();
        let file = folder().join("time");
        let own = std::env::current_exe().unwrap();
        let mut words =
            vec![own.display().to_string(), "time".to_owned(), file.display().to_string()];
        words.push("--".to_owned());
        words.extend(self.srun());
        words.push("true".to_owned());
        self.cluster.output(&words.iter().map(String::as_str).collect::<Vec<_>>());
        self.finish();
        Duration::from_nanos(fs::read_to_string(&file).unwrap().parse().unwrap())
    }

    /// That the configuration does what its name says.
    fn check(&self) {
        self.prepare();
        let mut words = self.srun();
        words.extend(["printenv", "SLURMD_NODENAME", "CUDA_VISIBLE_DEVICES"].map(str::to_owned));
        let output = self.cluster.output(&words.iter().map(String::as_str).collect::<Vec<_>>());
        self.finish();
        let lists: Vec<&str> =
            output.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).collect();
        let different: BTreeSet<&str> = lists.iter().copied().collect();
        let well = match self.configuration.visible {
            Visible::Any => true,
            Visible::All => {
                lists.len() == self.shape.tasks() && different == ["0,1,2,3,4,5,6,7"].into()
            }
            Visible::One => {
                let single = lists.iter().all(|list| !list.contains(','));
                lists.len() == self.shape.tasks() && single && different.len() == 8
            }
        };
        assert!(well, "{}: tasks find in CUDA_VISIBLE_DEVICES: {lists:?}", self.configuration.name);
    }
}
