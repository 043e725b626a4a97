//! The plugin: whether Slurm loads it, and what comes before and after it.

use std::path::{Path, PathBuf};

use super::child;
use super::message::{Finding, messages};
use super::setup::Setup;
use crate::cli::site_policy::idle_tables;
use crate::slurm::{PluginLine, PlugstackProblem, release_version};
use gpubind_core::step::is_mounted_by_enroot;
use gpubind_core::trusted::{ROOT, trusted_program};
use gpubind_core::variables;

messages! {
    CONF = Ok, "slurm-conf", "read from {file}";
    CONF_SHOWN = Ok, "slurm-conf", "read from `scontrol show config`; gres.conf and nodes are not in it";
    CONF_UNKNOWN = Note, "slurm-conf", "not checked: {why}",
        "on a machine with Slurm, name the file: --slurm-conf FILE";
    CONF_INCLUDE = Warning, "slurm-conf", "{file} includes a file that is not there: {why}",
        "fix the Include line, or make the file readable";

    RELEASE = Ok, "slurm-release", "Slurm {release}, for which plugin_version is {word}";
    RELEASE_UNKNOWN = Note, "slurm-release", "not checked: {why}";
    RELEASE_OLD = Broken, "slurm-release",
        "Slurm {release} has no plugin_version that gpubind knows",
        "use Slurm 22.05 or later; for a later one that is not numbered by May and November, a newer gpubind";

    LINE = Ok, "plugin-line", "{place} loads {plugin}";
    LINE_NO_FILE = Note, "plugin-line", "not checked: nothing tells where plugstack.conf is",
        "name it: --plugstack FILE";
    LINE_MISSING = Broken, "plugin-line", "no line of {file} or of its includes loads spank_gpubind.so",
        "add `optional spank_gpubind.so` to it, on login nodes too";
    LINE_LOST = Broken, "plugin-line", "no line of {file} loads spank_gpubind.so, and {problem}",
        "fix that, or add `optional spank_gpubind.so`, on login nodes too";
    LINE_UNREADABLE = Broken, "plugin-line", "plugstack.conf cannot be read: {problem}",
        "make the file readable by everyone: srun of every user reads it";
    LINE_REQUIRED = Broken, "plugin-line", "{place} says `required`",
        "write `optional`: a required plugin that cannot be loaded, after an upgrade of Slurm say, drains nodes";
    LINE_TWICE = Warning, "plugin-line", "{place} loads the plugin, and {other} loads it again",
        "remove one of the lines: Slurm runs both";
    LINE_PROBLEM = Warning, "plugin-line", "{place} loads {plugin}; {problem}",
        "fix that line of plugstack.conf";

    ARGUMENTS = Ok, "plugin-arguments", "all understood";
    ARGUMENTS_WRONG = Warning, "plugin-arguments", "not understood: {error}",
        "fix {place}; until then such a word is ignored";

    POLICY = Ok, "site-policy", "{file} is understood";
    POLICY_IDLE = Warning, "site-policy", "without effect: {why}",
        "fix the table's name, or take the argument out of plugstack.conf";
    POLICY_NONE = Ok, "site-policy", "there is no {file}, so the built-in settings hold";
    POLICY_WRONG = Warning, "site-policy", "ignoring {file}: {why}",
        "fix that line; until then the plugin acts as if there were no such file";

    FILE = Ok, "plugin-file", "{file} is root's, and only root can write it";
    FILE_UNKNOWN = Note, "plugin-file", "not checked: {plugin} is looked for in Slurm's PluginDir, and {why}";
    FILE_MISSING = Broken, "plugin-file", "{plugin} is in none of Slurm's plugin folders: {folders}",
        "install spank_gpubind.so there, or write its whole path into {place}";
    FILE_UNSAFE = Broken, "plugin-file", "not safe: {why}",
        "install it anew as root's, mode 0755: its code runs as root in slurmd";

    LOADS = Ok, "plugin-loads", "`srun --help` offers --gpubind";
    LOADS_UNKNOWN = Note, "plugin-loads", "not checked: {why}";
    LOADS_NOT = Broken, "plugin-loads", "`srun --help` does not offer --gpubind: {why}",
        "see what `srun --help` says on stderr; a file of another architecture or for a newer glibc must be replaced";

    PYXIS_NONE = Ok, "pyxis", "not in plugstack.conf";
    PYXIS_BEFORE = Ok, "pyxis", "{pyxis} comes before gpubind, as it should";
    PYXIS_AFTER = Warning, "pyxis", "{pyxis} comes after gpubind",
        "put gpubind's line after it: pyxis writes the image's variables and LOCAL_RANK over those of the task, \
         and only after it can gpubind see which GPUs are in the container";

    SHIM_IN_IMAGES = Ok, "enroot", "{file} is brought into each container";
    SHIM_NOT_IN_IMAGES = Note, "enroot",
        "nothing brings {file} into containers, so workers of torchrun and mpirun in there see all GPUs of their task",
        "put gpubind's 50-gpubind.fstab into /etc/enroot/mounts.d; or mount its folder by --container-mounts";
}

/// The checks of this file.
pub fn checks(setup: &Setup) -> Vec<Finding> {
    let mut findings = vec![conf(setup), slurm_release(setup), policy(setup), line(setup)];
    if let Some(line) = setup.line() {
        findings.extend([
            arguments(setup, line),
            file(setup, line),
            loads(setup, line),
            pyxis(setup, line),
        ]);
        findings.extend(shim_in_images(setup));
    }
    findings
}

fn conf(setup: &Setup) -> Finding {
    let conf = match &setup.slurm {
        Ok(conf) => conf,
        Err(why) => return CONF_UNKNOWN.with(&[("why", why)]),
    };
    match (&conf.file, conf.missing.first()) {
        (None, _) => CONF_SHOWN.plain(),
        (Some(file), None) => CONF.with(&[("file", &file.display())]),
        (Some(file), Some(why)) => CONF_INCLUDE.with(&[("file", &file.display()), ("why", why)]),
    }
}

fn slurm_release(setup: &Setup) -> Finding {
    let (major, minor) = match &setup.release {
        Ok(release) => *release,
        Err(why) => return RELEASE_UNKNOWN.with(&[("why", why)]),
    };
    let name = format!("{major}.{minor:02}");
    match release_version(major, minor) {
        Some(word) => RELEASE.with(&[("release", &name), ("word", &format_args!("{word:#08x}"))]),
        None => RELEASE_OLD.with(&[("release", &name)]),
    }
}

fn line(setup: &Setup) -> Finding {
    let Some((path, found)) = &setup.plugstack else { return LINE_NO_FILE.plain() };
    let unreadable = |problem: &&PlugstackProblem| matches!(problem, PlugstackProblem::Read { .. });
    if let Some(problem) = found.problems.iter().find(unreadable) {
        return LINE_UNREADABLE.with(&[("problem", problem)]);
    }
    let mut lines = found.gpubind();
    let Some(line) = lines.next() else {
        let file = path.display();
        return match found.problems.first() {
            None => LINE_MISSING.with(&[("file", &file)]),
            Some(problem) => LINE_LOST.with(&[("file", &file), ("problem", problem)]),
        };
    };
    let (place, plugin) = (place(line), &line.plugin);
    if let Some(required) = found.gpubind().find(|line| line.required) {
        return LINE_REQUIRED.with(&[("place", &self::place(required))]);
    }
    if let Some(other) = lines.next() {
        return LINE_TWICE.with(&[("place", &place), ("other", &self::place(other))]);
    }
    match found.problems.first() {
        Some(problem) => {
            LINE_PROBLEM.with(&[("place", &place), ("plugin", plugin), ("problem", problem)])
        }
        None => LINE.with(&[("place", &place), ("plugin", plugin)]),
    }
}

fn place(line: &PluginLine) -> String {
    format!("{}:{}", line.file.display(), line.line)
}

fn arguments(setup: &Setup, line: &PluginLine) -> Finding {
    if setup.wrong_args.is_empty() {
        return ARGUMENTS.plain();
    }
    let errors: Vec<String> = setup.wrong_args.iter().map(ToString::to_string).collect();
    ARGUMENTS_WRONG.with(&[("error", &errors.join("; ")), ("place", &place(line))])
}

fn policy(setup: &Setup) -> Finding {
    let (path, file) = &setup.site_file;
    match file {
        Ok(Some(file)) => {
            let slurm = setup.slurm.as_ref().ok();
            let idle = idle_tables(path, file, &setup.plugin_args, slurm);
            let idle: Vec<String> = idle.iter().map(ToString::to_string).collect();
            match idle.is_empty() {
                true => POLICY.with(&[("file", &path.display())]),
                false => POLICY_IDLE.with(&[("why", &idle.join("; "))]),
            }
        }
        Ok(None) => POLICY_NONE.with(&[("file", &path.display())]),
        Err(error) => POLICY_WRONG.with(&[("file", &path.display()), ("why", &error.why)]),
    }
}

fn file(setup: &Setup, line: &PluginLine) -> Finding {
    let file = match located(setup, line) {
        Ok(file) => file,
        Err(finding) => return finding,
    };
    match trusted_program(&file, ROOT) {
        Ok(_) => FILE.with(&[("file", &file.display())]),
        Err(why) => FILE_UNSAFE.with(&[("why", &why)]),
    }
}

/// The plugin's file; one that is named without a path is in a plugin folder of Slurm.
fn located(setup: &Setup, line: &PluginLine) -> Result<PathBuf, Finding> {
    if line.plugin.starts_with('/') {
        return Ok(PathBuf::from(&line.plugin));
    }
    let folders = setup
        .plugin_folders()
        .map_err(|why| FILE_UNKNOWN.with(&[("plugin", &line.plugin), ("why", &why)]))?;
    let mut files = folders.iter().map(|folder| folder.join(&line.plugin));
    files.find(|file| file.exists()).ok_or_else(|| {
        let names = folders.iter().map(|folder| folder.display().to_string());
        FILE_MISSING.with(&[
            ("plugin", &line.plugin),
            ("folders", &names.collect::<Vec<_>>().join(", ")),
            ("place", &place(line)),
        ])
    })
}

/// Slurm itself says whether it can load the plugin: only in its own programs are the
/// symbols that the plugin needs, and only there is the version word compared.
fn loads(setup: &Setup, line: &PluginLine) -> Finding {
    if !setup.is_slurms {
        let why = "--plugstack names another file than the one that Slurm reads";
        return LOADS_UNKNOWN.with(&[("why", &why)]);
    }
    let output = match child::slurm("srun", &["--help"], setup.conf_file(), &[]) {
        Ok(output) => output,
        Err(why) => {
            let why = format!("`srun --help` gives nothing: {why}");
            return LOADS_UNKNOWN.with(&[("why", &why)]);
        }
    };
    if String::from_utf8_lossy(&output.stdout).contains("--gpubind=") {
        return LOADS.plain();
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let of_ours = said.lines().find(|line| line.contains("gpubind"));
    let why = of_ours.or(said.lines().next()).map(str::to_owned);
    let why = why.or_else(|| linker_says(setup, line));
    LOADS_NOT.with(&[("why", &why.as_deref().unwrap_or("it does not say why").trim())])
}

/// Why the plugin cannot be loaded into srun, from the dynamic linker itself: from
/// 25.11 on srun keeps that to itself for an `optional` plugin.
fn linker_says(setup: &Setup, line: &PluginLine) -> Option<String> {
    let file = trusted_program(&located(setup, line).ok()?, ROOT).ok()?;
    let env = [(variables::LD_PRELOAD, file.into_os_string())];
    match child::slurm("srun", &["--version"], setup.conf_file(), &env) {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            said.lines().next().map(str::to_owned)
        }
        Err(why) => Some(why),
    }
}

/// SPANK runs each hook in the file's order (src/common/spank.c, `_do_call_stack`).
/// In its task_init pyxis (pyxis_slurmstepd.c) overwrites the task's environment with
/// the image's, sets LOCAL_RANK for images of PyTorch, and enters the container.
fn pyxis(setup: &Setup, ours: &PluginLine) -> Finding {
    let at = |wanted: &PluginLine| plugins(setup).position(|line| std::ptr::eq(line, wanted));
    match plugins(setup).find(is_pyxis) {
        None => PYXIS_NONE.plain(),
        Some(pyxis) if at(pyxis) < at(ours) => PYXIS_BEFORE.with(&[("pyxis", &place(pyxis))]),
        Some(pyxis) => PYXIS_AFTER.with(&[("pyxis", &place(pyxis))]),
    }
}

fn plugins(setup: &Setup) -> impl Iterator<Item = &PluginLine> {
    setup.plugstack.iter().flat_map(|(_, file)| &file.plugins)
}

fn is_pyxis(line: &&PluginLine) -> bool {
    let name = Path::new(&line.plugin).file_name().unwrap_or_default();
    name.to_string_lossy().contains("pyxis")
}

/// Where there is pyxis, whether enroot mounts the worker shim.
fn shim_in_images(setup: &Setup) -> Option<Finding> {
    plugins(setup).find(is_pyxis)?;
    let worker = &setup.site.worker;
    let message = match is_mounted_by_enroot(&setup.roots, worker) {
        true => SHIM_IN_IMAGES,
        false => SHIM_NOT_IN_IMAGES,
    };
    Some(message.with(&[("file", &worker.display())]))
}
