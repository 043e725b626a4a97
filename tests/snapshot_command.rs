//! `gpubind snapshot`, run as a program against fake machines.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

mod nvml_support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use gpubind_core::child::ProbeError;
use gpubind_core::node::snapshot::Snapshot;
use nvml_support::Fake;

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpubind");

/// A fake machine and the log of its NVML.
struct Host {
    fake: Fake,
    log: PathBuf,
}

impl Host {
    fn new(name: &str, faults: &str) -> Host {
        let fake = Fake::with(name, faults);
        let log = fake.path().join("calls.log");
        Host { fake, log }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("snapshot").args(args).args(self.machine()).env("FAKE_NVML_CALLS", &self.log);
        command
    }

    fn machine(&self) -> [std::ffi::OsString; 4] {
        let (root, library) = (self.fake.path().into(), self.fake.library().into());
        ["--fsroot".into(), root, "--nvml".into(), library]
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// What a command that must succeed prints.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{args:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a command that must fail says.
    fn fails(&self, args: &[&str]) -> String {
        self.fails_with(1, args)
    }

    fn fails_with(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        stderr(&output)
    }

    /// How often NVML was initialised, by whatever process.
    fn reads(&self) -> usize {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().filter(|line| line.starts_with("init")).count()
    }

    fn file(&self) -> PathBuf {
        self.fake.roots().snapshot()
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Only root's snapshots are trusted.
fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root's snapshots are trusted");
    }
    root
}

#[test]
fn without_options_it_prints_one_line_and_keeps_nothing() {
    let host = Host::new("dgx-a100", "");
    let line = host.ok(&[]);
    assert_eq!(
        line,
        "8 GPUs (8x NVIDIA A100-SXM4-40GB), driver 535.104.05, 8 NUMA nodes with CPUs\n"
    );
    assert!(!host.fake.roots().run().exists());
}

#[test]
fn the_line_names_what_cannot_be_used_and_counts_mig_instances() {
    let line = Host::new("a100-mig-mixed", "[faults]\nlost = [2]").ok(&[]);
    assert!(line.starts_with("3 GPUs (3x NVIDIA A100-SXM4-40GB), 6 MIG instances, "), "{line}");
    assert!(line.ends_with("; GPU 2 at 0000:81:00.0 cannot be used (NVML code 15)\n"), "{line}");
}

#[test]
fn what_is_saved_is_shown_and_not_read_again() {
    if !root() {
        return;
    }
    let host = Host::new("dgx-a100", "");
    let line = host.ok(&["--save"]);
    assert!(line.ends_with(&format!("; saved as {}\n", host.file().display())), "{line}");
    assert_eq!((mode(&host.file()), mode(&host.fake.roots().run())), (0o644, 0o755));
    assert_eq!(mode(&host.fake.roots().run().join("lock")), 0o600, "nobody else can hold it");
    assert_eq!(host.reads(), 1);

    let shown = host.ok(&["--show"]);
    assert_eq!(shown, fs::read_to_string(host.file()).unwrap());
    let snapshot = Snapshot::parse(shown.as_bytes()).unwrap();
    assert_eq!(snapshot.node, host.fake.machine.to_node());

    let line = host.ok(&["--save"]);
    assert!(line.contains("; already described by "), "{line}");
    assert_eq!(host.ok(&["--save", "--show"]), shown);
    assert_eq!(host.reads(), 1, "a valid one is used");

    let line = host.ok(&["--save", "--fresh"]);
    assert!(line.contains("; saved as "), "{line}");
    assert_eq!(host.reads(), 2);
}

#[test]
fn a_stale_one_is_read_again_and_not_shown() {
    if !root() {
        return;
    }
    let host = Host::new("two-cpu", "");
    let error = host.fails(&["--show"]);
    assert!(error.starts_with("gpubind: there is no "), "{error}");
    assert!(error.ends_with("`gpubind snapshot --save` takes a new one\n"), "{error}");
    host.ok(&["--save"]);
    let boot_id = host.fake.path().join("proc/sys/kernel/random/boot_id");
    fs::write(boot_id, "another\n").unwrap();
    let error = host.fails(&["--show"]);
    assert!(error.contains("stale: the boot id changed"), "{error}");
    assert_eq!(host.reads(), 1);
    host.ok(&["--save"]);
    assert_eq!(host.reads(), 2);
    host.ok(&["--show"]);
}

#[test]
fn it_is_shown_even_if_it_cannot_be_kept() {
    let host = Host::new("two-cpu", "");
    // A file where the run folder should be.
    fs::create_dir_all(host.fake.path().join("run")).unwrap();
    fs::write(host.fake.roots().run(), "in the way").unwrap();
    let output = host.run(&["--save", "--show"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let snapshot = Snapshot::parse(&output.stdout).unwrap();
    assert_eq!(snapshot.node, host.fake.machine.to_node());
    assert!(stderr(&output).contains("the description was not kept: "), "{}", stderr(&output));

    let error = host.fails(&["--save"]);
    assert!(error.contains("the description was not kept: "), "without --show it is an error");
}

#[test]
fn of_many_at_once_one_reads_nvml_and_the_others_take_its_file() {
    if !root() {
        return;
    }
    let slow = "[faults]\ncall = [{ name = \"nvmlDeviceGetCount_v2\", delay-ms = 500 }]";
    let host = Host::new("dgx-a100", slow);
    let start = |_| host.command(&["--save", "--show"]).stdout(Stdio::piped()).spawn().unwrap();
    let children: Vec<_> = (0..6).map(start).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let snapshot = Snapshot::parse(&output.stdout).unwrap();
        assert_eq!(snapshot.node, host.fake.machine.to_node());
    }
    assert_eq!(host.reads(), 1);
}

#[test]
fn a_driver_that_does_not_start_is_an_error_and_nothing_is_kept() {
    let host = Host::new("two-cpu", "[faults]\nmismatch = true");
    for args in [&[][..], &["--save"], &["--save", "--show"]] {
        let error = host.fails_with(3, args);
        assert!(error.starts_with("gpubind: NVML failed with code 18: "), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert!(!host.file().exists());
}

#[test]
fn fresh_needs_to_be_told_what_for_and_shows_without_keeping() {
    let host = Host::new("two-cpu", "");
    assert_eq!(host.run(&["--fresh"]).status.code(), Some(2));
    let shown = host.ok(&["--fresh", "--show"]);
    assert_eq!(Snapshot::parse(shown.as_bytes()).unwrap().node, host.fake.machine.to_node());
    assert!(!host.file().exists());
}

/// A slurm.conf and a gres.conf for this machine.
fn slurm(host: &Host, slurm_conf: &str, gres_conf: &str) -> PathBuf {
    let folder = host.fake.path().join("slurm");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("slurm.conf"), slurm_conf).unwrap();
    fs::write(folder.join("gres.conf"), gres_conf).unwrap();
    folder
}

#[test]
fn slurms_order_of_gpus_is_kept_and_another_gres_conf_makes_it_stale() {
    if !root() {
        return;
    }
    let host = Host::new("hgx-h100", "");
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let conf = format!("NodeName=n1 NodeHostname={name} Gres=gpu:7\n");
    let folder = slurm(&host, &conf, "include more.conf\n");
    let more = folder.join("more.conf");
    fs::write(&more, "Name=gpu File=/dev/nvidia[1-7]\n").unwrap();
    let take = |args: &[&str]| {
        let slurm_conf = folder.join("slurm.conf");
        let output = host.command(args).env("SLURM_CONF", slurm_conf).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        Snapshot::parse(&output.stdout).unwrap().node.gres_minors
    };
    assert_eq!(take(&["--save", "--show"]), Some((1..8).collect()));
    // Whoever reads it needs no SLURM_CONF.
    host.ok(&["--show"]);
    assert_eq!(host.reads(), 1);
    fs::write(&more, "Name=gpu File=/dev/nvidia[7,0-3,6-5,4,5]\n").unwrap();
    let error = host.fails(&["--show"]);
    assert!(error.contains("stale: gres.conf changed"), "{error}");
    assert_eq!(take(&["--save", "--show"]), Some(vec![7, 0, 1, 2, 3, 4, 5]));
    // In a container there may be no such file.
    fs::rename(&folder, folder.with_file_name("gone")).unwrap();
    host.ok(&["--show"]);
    assert_eq!(host.reads(), 2);
    let mut hidden = host.command(&["--save", "--fresh", "--show"]);
    let output = hidden.env("SLURM_CONF", folder.join("slurm.conf")).output().unwrap();
    assert_eq!(Snapshot::parse(&output.stdout).unwrap().node.gres_minors, None);
    fs::rename(folder.with_file_name("gone"), &folder).unwrap();
    let error = host.fails(&["--show"]);
    assert!(error.contains("stale: gres.conf changed"), "it has appeared: {error}");
}

#[test]
fn of_several_nodes_on_a_host_only_what_is_common_is_known() {
    let host = Host::new("hgx-h100", "");
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let minors = |gres: [u32; 2], gres_conf: &str, of: Option<&str>| {
        let line =
            |at: usize| format!("NodeName=n{at} NodeHostname={name} Gres=gpu:{}\n", gres[at]);
        let folder = slurm(&host, &[line(0), line(1)].concat(), gres_conf);
        let mut command = host.command(&["--fresh", "--show"]);
        command.env("SLURM_CONF", folder.join("slurm.conf")).env_remove("SLURMD_NODENAME");
        command.envs(of.map(|name| ("SLURMD_NODENAME", name)));
        let output = command.output().unwrap();
        Snapshot::parse(&output.stdout).unwrap().node.gres_minors
    };
    let for_all = "Name=gpu File=/dev/nvidia[0-7]\n";
    assert_eq!(minors([8, 8], for_all, None), Some((0..8).collect()));
    assert_eq!(minors([8, 7], for_all, None), None);
    assert_eq!(minors([8, 7], for_all, Some("n0")), Some((0..8).collect()));
    assert_eq!(minors([8, 7], for_all, Some("n1")), None);
    let for_each =
        "NodeName=n0 Name=gpu File=/dev/nvidia[0-3]\nNodeName=n1 Name=gpu File=/dev/nvidia[4-7]\n";
    assert_eq!(minors([4, 4], for_each, None), None);
    assert_eq!(minors([4, 4], for_each, Some("n1")), Some(vec![4, 5, 6, 7]));
}

/// As the plugin runs it.
fn probe(host: &Host, deadline: Duration) -> Result<Vec<u8>, ProbeError> {
    let mut args = vec!["snapshot".into(), "--save".into(), "--show".into()];
    args.extend(host.machine());
    gpubind_core::child::run(Path::new(PROGRAM), &args, deadline)
}

#[test]
fn a_probe_gives_the_snapshot() {
    if !root() {
        return;
    }
    let host = Host::new("gh200-4", "");
    let answer = probe(&host, Duration::from_secs(60)).unwrap();
    assert_eq!(Snapshot::parse(&answer).unwrap().node, host.fake.machine.to_node());
    assert!(host.file().exists());
}

#[test]
fn a_driver_that_hangs_costs_the_deadline_and_leaves_the_lock_free() {
    if !root() {
        return;
    }
    let hang = "[faults]\ncall = [{ name = \"nvmlDeviceGetHandleByIndex_v2\", hang = true }]";
    let host = Host::new("two-cpu", hang);
    let begin = Instant::now();
    for _ in 0..2 {
        let error = probe(&host, Duration::from_millis(1500)).unwrap_err();
        assert!(matches!(error, ProbeError::Timeout { reaped: true, .. }), "{error}");
    }
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert!(!host.file().exists());
    let lock = fs::File::open(host.fake.roots().run().join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
}

#[test]
fn a_driver_that_crashes_is_the_child_s_end_only() {
    if !root() {
        return;
    }
    let crash = "[faults]\ncall = [{ name = \"nvmlDeviceGetHandleByIndex_v2\", crash = true }]";
    let host = Host::new("two-cpu", crash);
    let error = probe(&host, Duration::from_secs(60)).unwrap_err();
    assert!(matches!(error, ProbeError::Exit { code: 1, .. }), "{error}");
    assert!(
        error
            .to_string()
            .ends_with("NVML crashed: the process that read it was killed by signal 6")
    );
}
