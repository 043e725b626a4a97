//! What is compared.

use std::path::PathBuf;

use crate::settings::Run;

/// Which plugin a cluster has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plugin {
    None,
    Empty,
    Gpubind,
    /// Given by --beside.
    Other(PathBuf),
}

/// What each task starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// The program itself.
    Plain,
    /// A shell script that picks a GPU by SLURM_LOCALID.
    BashWrapper,
    /// A shell script that asks an NVML client; milliseconds that NVML needs for each GPU.
    NvmlWrapper(u64),
}

/// What tasks must find in CUDA_VISIBLE_DEVICES.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visible {
    /// All GPUs of the step.
    All,
    /// One each, each another.
    One,
    /// Whatever it is.
    Any,
}

/// One way to start a step.
#[derive(Debug, Clone)]
pub struct Configuration {
    pub name: String,
    pub plugin: Plugin,
    /// srun's options.
    pub options: &'static [&'static str],
    pub program: Program,
    /// Whether the node's snapshot is removed before each run, and milliseconds that NVML
    /// then needs for each GPU.
    pub cold: Option<u64>,
    pub visible: Visible,
}

impl Configuration {
    fn new(name: &str, plugin: Plugin, visible: Visible) -> Configuration {
        let name = name.to_owned();
        Configuration { name, plugin, options: &[], program: Program::Plain, cold: None, visible }
    }

    /// Whether a run takes seconds.
    pub fn is_slow(&self) -> bool {
        self.cold.is_some_and(|each| each >= 1000)
    }

    fn is_reference(&self) -> bool {
        REFERENCES.contains(&self.name.as_str())
    }
}

/// What all others are compared with.
pub const REFERENCES: [&str; 2] = ["no plugin", "empty C plugin"];

const ASKED: &[&str] = &["--gpu-bind=spank:single"];

fn all(beside: &[PathBuf]) -> Vec<Configuration> {
    let asked = |name: &str, cold| Configuration {
        options: ASKED,
        cold,
        ..Configuration::new(name, Plugin::Gpubind, Visible::One)
    };
    let wrapped = |name: &str, program| Configuration {
        program,
        ..Configuration::new(name, Plugin::None, Visible::One)
    };
    let mut all = vec![
        Configuration::new(REFERENCES[0], Plugin::None, Visible::All),
        Configuration::new(REFERENCES[1], Plugin::Empty, Visible::All),
        Configuration::new("gpubind, not asked for", Plugin::Gpubind, Visible::All),
        asked("gpubind, warm", None),
        asked("gpubind, cold, NVML 0 ms per GPU", Some(0)),
        asked("gpubind, cold, NVML 30 ms per GPU", Some(30)),
        asked("gpubind, cold, NVML 1 s per GPU", Some(1000)),
        wrapped("bash wrapper", Program::BashWrapper),
        wrapped("NVML wrapper, 0 ms per GPU", Program::NvmlWrapper(0)),
        wrapped("NVML wrapper, 30 ms per GPU", Program::NvmlWrapper(30)),
        Configuration {
            options: &["--gpu-bind=single:1"],
            ..Configuration::new("Slurm's single:1", Plugin::None, Visible::One)
        },
    ];
    for file in beside {
        let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
        all.push(Configuration::new(&name, Plugin::Other(file.clone()), Visible::Any));
    }
    all
}

/// Those that the command line asks for.
pub fn chosen(settings: &Run) -> Vec<Configuration> {
    let is_chosen = |configuration: &Configuration| {
        let name = &configuration.name;
        let asked = settings.only.is_empty()
            || settings.only.iter().any(|word| name.contains(word.as_str()));
        asked || configuration.is_reference()
    };
    all(&settings.beside).into_iter().filter(is_chosen).collect()
}
