//! What the checks look at, gathered once: Slurm's configuration, the line that loads
//! the plugin, and the machine.

use gpubind_core::variables;
use std::cell::OnceCell;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, Instant};

use super::args::CheckArgs;
use super::child;
use crate::cli::snapshot::VERSION_MISMATCH;
use crate::slurm::{NodeEntry, ReadError, SlurmConf};
use crate::slurm::{PluginLine, PlugstackFile, release};
use gpubind_core::child::{ProbeError, SELF};
use gpubind_core::node::snapshot::{Snapshot, SnapshotError};
use gpubind_core::node::{Node, Roots, procfs};
use gpubind_core::site::{
    self, JobInfo, LoadError, Origin, PlugstackArgs, PlugstackError, SiteFile,
};

/// How much longer than its deadline the program that reads NVML may take.
const GRACE: Duration = Duration::from_secs(2);

/// This machine and its Slurm.
pub struct Setup {
    /// slurm.conf, or why it is not known.
    pub slurm: Result<SlurmConf, String>,
    /// Slurm's major and minor release, or why it is not known.
    pub release: Result<(u32, u32), String>,
    /// This host's entry in slurm.conf.
    pub entry: Option<NodeEntry>,
    /// The plugstack.conf that is looked at; `None` where nothing tells which.
    pub plugstack: Option<(PathBuf, PlugstackFile)>,
    /// Whether Slurm itself reads that one.
    pub is_slurms: bool,
    /// What the site sets: the plugin's arguments over the site file.
    pub site: site::Site,
    /// The site file that was looked for, and whether it counts.
    pub site_file: (PathBuf, Result<Option<SiteFile>, LoadError>),
    /// The plugin's arguments.
    pub plugin_args: PlugstackArgs,
    /// Words that are no arguments of the plugin.
    pub wrong_args: Vec<PlugstackError>,
    /// The machine's file tree.
    pub roots: Roots,
    /// What NVML says, and how long it took.
    pub reading: Result<(Node, Duration), ReadingError>,
    /// Asked for once: slurmctld may not answer.
    folders: OnceCell<Result<Vec<PathBuf>, String>>,
}

/// Why the machine's GPUs are not known.
#[derive(Debug, thiserror::Error)]
pub enum ReadingError {
    #[error("{}", .0.program_message().map_or_else(|| .0.to_string(), str::to_owned))]
    Probe(#[from] ProbeError),
    #[error(transparent)]
    Answer(#[from] SnapshotError),
}

impl ReadingError {
    /// Whether library and kernel module of the driver are of different versions.
    pub fn is_version_mismatch(&self) -> bool {
        let code = i32::from(VERSION_MISMATCH);
        matches!(self, ReadingError::Probe(ProbeError::Exit { code: found, .. }) if *found == code)
    }
}

impl Setup {
    /// Looks at everything.
    ///
    /// # Errors
    /// A file that is named cannot be read.
    pub fn gather(args: &CheckArgs) -> Result<Setup, ReadError> {
        let slurm = match &args.slurm_conf {
            Some(named) => Ok(SlurmConf::read(named)?),
            None => slurm_conf(),
        };
        let conf = slurm.as_ref().ok();
        let name = env::var(variables::NODE_NAME).ok();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let entry = conf.and_then(|conf| conf.node(name.as_deref(), &host));
        let of_slurm = conf.and_then(SlurmConf::plugstack);
        let path = args.plugstack.clone().or_else(|| of_slurm.clone());
        let is_slurms = path.is_some() && path == of_slurm;
        let plugstack = path.map(|path| {
            let file = PlugstackFile::read(&path);
            (path, file)
        });
        let line = plugstack.as_ref().and_then(|(_, file)| file.gpubind().next());
        let origin = Origin::Plugstack(line.map(|line| (line.file.clone(), line.line)));
        let words = line.map(|line| line.args.iter().map(String::as_str)).into_iter().flatten();
        let (plugin, wrong_args) = PlugstackArgs::read(words, &origin);
        // What holds for a job of no partition in particular.
        let job = JobInfo::default();
        let path = args.config.clone().unwrap_or_else(|| plugin.site(None, &job).config);
        let file = site::load(&path);
        let site = plugin.site(file.as_ref().ok().and_then(Option::as_ref), &job);
        // As the plugin sees the machine, unless something else is said here.
        let roots = match args.machine.fsroot == Path::new("/") {
            true => Roots::new(site.fsroot.clone()),
            false => args.machine.roots(),
        };
        let nvml = args.machine.nvml.clone().or_else(|| site.nvml.clone());
        let release = slurm_release(conf.and_then(|conf| conf.file.as_deref()));
        let reading = read(&roots, nvml.as_deref(), site.probe_timeout);
        Ok(Setup {
            slurm,
            release,
            entry,
            plugstack,
            is_slurms,
            site,
            site_file: (path, file),
            plugin_args: plugin,
            wrong_args,
            roots,
            reading,
            folders: OnceCell::new(),
        })
    }

    /// The line that loads the plugin.
    pub fn line(&self) -> Option<&PluginLine> {
        self.plugstack.as_ref().and_then(|(_, file)| file.gpubind().next())
    }

    /// slurm.conf's path, where there is such a file.
    pub fn conf_file(&self) -> Option<&Path> {
        self.slurm.as_ref().ok()?.file.as_deref()
    }

    /// A file beside slurm.conf.
    pub fn beside_conf(&self, name: &str) -> Option<PathBuf> {
        self.conf_file().map(|conf| conf.with_file_name(name))
    }

    /// The machine as NVML tells it.
    pub fn node(&self) -> Option<&Node> {
        self.reading.as_ref().ok().map(|(node, _)| node)
    }

    /// Whether this machine has GPUs, or ought to.
    pub fn has_gpus(&self) -> bool {
        self.node().is_some_and(|node| !node.gpus.is_empty() || !node.unusable.is_empty())
            || procfs::driver(&self.roots).is_some()
            || self.entry.as_ref().and_then(NodeEntry::gpus).is_some_and(|count| count > 0)
    }

    /// Where Slurm looks for plugins that are named without a path, or why that is
    /// not known.
    pub fn plugin_folders(&self) -> Result<&[PathBuf], &str> {
        let folders = self.folders.get_or_init(|| {
            let said = |conf: &SlurmConf| conf.value("PluginDir").map(str::to_owned);
            let folders = match self.slurm.as_ref().ok().and_then(said) {
                Some(folders) => folders,
                None => said(&shown(self.conf_file())?).ok_or("scontrol shows no PluginDir")?,
            };
            Ok(folders.split(':').map(PathBuf::from).collect())
        });
        folders.as_deref().map_err(String::as_str)
    }
}

fn slurm_conf() -> Result<SlurmConf, String> {
    let read = |path: &Path| SlurmConf::read(path).map_err(|error| error.to_string());
    let variable =
        env::var_os(variables::SLURM_CONF).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = variable {
        return read(&path);
    }
    let (usual, there) = SlurmConf::usual_places();
    if let Some(path) = there {
        return read(path);
    }
    let missing = |why| format!("there is no {}, and {why}", usual.display());
    let shown = shown(None).map_err(missing)?;
    match shown.value(variables::SLURM_CONF).map(Path::new).filter(|path| path.exists()) {
        Some(path) => read(path),
        None => Ok(shown),
    }
}

/// The configuration that slurmctld runs with.
fn shown(conf: Option<&Path>) -> Result<SlurmConf, String> {
    let output = child::slurm("scontrol", &["show", "config"], conf, &[])
        .map_err(|why| format!("`scontrol show config` gives nothing: {why}"))?;
    Ok(SlurmConf::from_shown(&String::from_utf8_lossy(&output.stdout)))
}

/// slurmd tells it without any configuration; login nodes have only srun.
fn slurm_release(conf: Option<&Path>) -> Result<(u32, u32), String> {
    let output = child::slurm("slurmd", &["-V"], conf, &[])
        .or_else(|_| child::slurm("srun", &["--version"], conf, &[]))?;
    let text = String::from_utf8_lossy(&output.stdout);
    release(&text).ok_or_else(|| format!("`{}` is no version of Slurm", text.trim()))
}

/// Reads NVML in a child: a driver may hang or crash. Nothing is kept.
fn read(
    roots: &Roots,
    nvml: Option<&Path>,
    deadline: Duration,
) -> Result<(Node, Duration), ReadingError> {
    let words = ["snapshot", "--fresh", "--show", "--fsroot"].map(OsString::from);
    let mut args = [&words[..], &[roots.fsroot().into(), "--deadline".into()]].concat();
    args.push(deadline.as_secs().max(1).to_string().into());
    args.extend(["--parent".into(), process::id().to_string().into()]);
    args.extend(nvml.map(|nvml| ["--nvml".into(), nvml.into()]).into_iter().flatten());
    let begin = Instant::now();
    // It keeps the deadline itself, and ends what hangs.
    let answer = gpubind_core::child::run(Path::new(SELF), &args, deadline + GRACE)?;
    let took = begin.elapsed();
    Ok((Snapshot::parse(&answer)?.node, took))
}
