//! `gpubind snapshot` and an NVML library that does harm: small C libraries that hang,
//! crash, eat memory and leave processes behind.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

mod nvml_support;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gpubind_core::child::ProbeError;
use gpubind_core::node::snapshot::{FailedReading, Snapshot};
use gpubind_core::node::{LoadOrProbeError, ProbeOptions, Roots, load_or_probe, refresh};
use nvml_support::Fake;
use rustix::process::{Pid, Signal, kill_process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpubind");

/// What each library begins with. `note` writes a line into the file NAME beside it.
const HEAD: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
static void note(const char *name, long value) {
    char path[4096];
    snprintf(path, sizeof path, FOLDER "/%s", name);
    FILE *file = fopen(path, "a");
    fprintf(file, "%ld\n", value);
    fclose(file);
}
static void forever(void) { for (;;) pause(); }
"#;

/// A library of this kind, and a machine's folder.
struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    fn new(code: &str) -> Host {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("nvml.c");
        fs::write(&source, format!("{HEAD}{code}")).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-w", "-O1"]);
        cc.arg(format!("-DFOLDER=\"{}\"", folder.path().display()));
        cc.arg("-o").arg(folder.path().join("nvml.so")).arg(&source);
        assert!(cc.status().unwrap().success(), "the library does not build");
        Host { folder }
    }

    fn roots(&self) -> Roots {
        Roots::new(self.folder.path())
    }

    fn args(&self, deadline: u64) -> Vec<OsString> {
        let library = self.folder.path().join("nvml.so");
        let words = ["snapshot", "--save", "--show", "--deadline"].map(OsString::from);
        let machine = ["--fsroot".into(), self.folder.path().into(), "--nvml".into()];
        [&words[..], &[deadline.to_string().into()], &machine, &[library.into()]].concat()
    }

    fn run(&self, deadline: u64) -> Output {
        Command::new(PROGRAM).args(self.args(deadline)).output().unwrap()
    }

    /// The last line of stderr of a run that must fail, and how long it took.
    fn fails(&self, deadline: u64) -> (String, Duration) {
        let begin = Instant::now();
        let output = self.run(deadline);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(output.stdout, b"");
        let said = String::from_utf8(output.stderr).unwrap();
        (said.lines().last().unwrap().to_owned(), begin.elapsed())
    }

    /// What the library has noted under a name.
    fn notes(&self, name: &str) -> Vec<i64> {
        let text = fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// The first note under a name, once it is there.
    fn awaited(&self, name: &str) -> i64 {
        soon(|| self.notes(name).first().copied()).unwrap_or_else(|| panic!("no {name}"))
    }

    fn lock_is_free(&self) -> bool {
        let lock = fs::File::open(self.roots().run().join("lock")).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
    }
}

fn soon<T>(mut found: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        match found() {
            Some(found) => return Some(found),
            None if begin.elapsed() > Duration::from_secs(10) => return None,
            None => thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn is_alive(process: i64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // A zombie waits for init; it runs no more.
    !stat.is_empty() && !stat.contains(") Z ")
}

fn ends_soon(process: i64) -> bool {
    soon(|| (!is_alive(process)).then_some(())).is_some()
}

/// A field of a process's /proc/PID/status.
fn status(process: i64, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().to_owned()
}

fn descriptors(process: i64) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let mut all: Vec<u32> = entries
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    all.sort_unstable();
    all
}

fn kill(process: i64) {
    let process = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    kill_process(process, Signal::KILL).unwrap();
}

/// What a deadline of a second may take: ending it, and a busy machine.
const BOUND: Duration = Duration::from_secs(8);

/// `None`, with a word on it, where the tests do not run as root.
fn root() -> Option<()> {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root's snapshots are valid");
    }
    root.then_some(())
}

#[test]
fn a_library_that_hangs_while_it_is_loaded_costs_the_deadline() {
    let host = Host::new(
        "__attribute__((constructor)) static void load(void) { note(\"pid\", getpid()); forever(); }",
    );
    let (said, took) = host.fails(1);
    assert_eq!(said, "gpubind: NVML did not answer within 1 s");
    assert!(took < BOUND, "{took:?}");
    assert!(!is_alive(host.awaited("pid")));
    assert!(host.lock_is_free());
}

#[test]
fn a_library_whose_destructor_waits_for_a_hanging_call_costs_the_deadline() {
    let host = Host::new(
        "int nvmlInit_v2(void) { note(\"pid\", getpid()); forever(); }\n\
         __attribute__((destructor)) static void unload(void) { note(\"unload\", 1); forever(); }",
    );
    let (said, took) = host.fails(1);
    assert_eq!(said, "gpubind: NVML did not answer within 1 s");
    assert!(took < BOUND, "{took:?}");
    assert!(!is_alive(host.awaited("pid")));
    assert_eq!(host.notes("unload"), [0; 0], "no destructor runs");
    assert!(host.lock_is_free());
}

#[test]
fn memory_is_limited() {
    let host = Host::new(
        "int nvmlInit_v2(void) {\n\
           long n = 0;\n\
           while (n < 8192 && malloc(1 << 20)) n++;\n\
           note(\"mib\", n);\n\
           return 20;\n\
         }",
    );
    let (said, _) = host.fails(60);
    assert!(said.contains("NVML failed with code 20"), "{said}");
    let mib = host.awaited("mib");
    assert!((1000..2100).contains(&mib), "{mib} MiB");
}

#[test]
fn the_size_of_files_is_limited() {
    let host = Host::new(
        "int nvmlInit_v2(void) {\n\
           int file = open(FOLDER \"/large\", O_WRONLY | O_CREAT, 0600);\n\
           pwrite(file, \"x\", 1, 1L << 30);\n\
           return 999;\n\
         }",
    );
    let (said, _) = host.fails(60);
    assert!(said.ends_with("was killed by signal 25"), "SIGXFSZ: {said}");
    assert_eq!(fs::metadata(host.folder.path().join("large")).unwrap().len(), 0);
}

const SESSIONS: &str = "static void sessions(void) {\n\
       for (int i = 0; i < 8; i++) {\n\
         if (fork() == 0) {\n\
           setsid();\n\
           signal(SIGTERM, SIG_IGN);\n\
           if (fork() == 0) { setsid(); note(\"pid\", getpid()); forever(); }\n\
           note(\"pid\", getpid());\n\
           forever();\n\
         }\n\
       }\n\
     }\n";

#[test]
fn processes_that_it_puts_into_sessions_of_their_own_are_ended() {
    for end in ["while (0);", "usleep(300000);", "forever();"] {
        let host = Host::new(&format!(
            "{SESSIONS}int nvmlInit_v2(void) {{ sessions(); {end} return 999; }}"
        ));
        let output = host.run(1);
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("NVML left processes behind, which were ended"), "{said}");
        for process in host.notes("pid") {
            assert!(!is_alive(process), "{end}");
        }
    }
}

#[test]
fn a_flood_of_processes_is_ended() {
    let host = Host::new(
        "int nvmlInit_v2(void) {\n\
           for (int i = 0; i < 7; i++) if (fork() == 0) setsid();\n\
           note(\"pid\", getpid());\n\
           forever();\n\
         }",
    );
    let (said, took) = host.fails(2);
    assert_eq!(said, "gpubind: NVML did not answer within 2 s");
    assert!(took < BOUND, "{took:?}");
    let all = host.notes("pid");
    assert!(all.len() > 64, "{} processes", all.len());
    assert!(all.into_iter().all(|process| !is_alive(process)));
}

/// A shell that starts `gpubind snapshot` as the plugin does, and waits for it.
fn shell(host: &Host, deadline: u64, before: &str) -> Child {
    let script = format!("{before} \"$@\" --parent $$; echo ended $?");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "sh", PROGRAM]).args(host.args(deadline));
    shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn only_child(process: i64) -> i64 {
    let list = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    list.trim().parse().unwrap()
}

#[test]
fn when_the_parent_is_killed_nothing_stays_and_the_lock_is_free() {
    let host = Host::new(&format!(
        "{SESSIONS}int nvmlInit_v2(void) {{ note(\"pid\", getpid()); sessions(); usleep(300000); note(\"ready\", 1); forever(); }}"
    ));
    let mut shell = shell(&host, 600, "");
    host.awaited("ready");
    kill(shell.id().into());
    shell.wait().unwrap();
    let all = host.notes("pid");
    assert!(all.len() > 8, "{all:?}");
    assert!(all.into_iter().all(ends_soon));
    assert!(soon(|| host.lock_is_free().then_some(())).is_some());
}

#[test]
fn one_that_is_started_by_a_parent_that_is_gone_does_nothing() {
    let host = Host::new("int nvmlInit_v2(void) { note(\"pid\", getpid()); return 999; }");
    // No process has this number.
    let output = Command::new(PROGRAM).args(host.args(5)).args(["--parent", "2147483647"]).output();
    let output = output.unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert_eq!(host.notes("pid"), [0; 0]);
}

#[test]
fn when_the_waiting_process_is_killed_the_one_that_reads_ends_too() {
    let host = Host::new("int nvmlInit_v2(void) { note(\"pid\", getpid()); forever(); }");
    let mut shell = shell(&host, 600, "");
    let reader = host.awaited("pid");
    kill(only_child(shell.id().into()));
    assert!(ends_soon(reader));
    shell.wait().unwrap();
    assert!(host.lock_is_free());
}

#[test]
fn it_starts_with_default_signals_and_without_other_descriptors() {
    let host = Host::new("int nvmlInit_v2(void) { note(\"pid\", getpid()); forever(); }");
    let dirty = "exec 7</dev/null 8</dev/null; \
                 env --block-signal --ignore-signal=INT,HUP,TERM,PIPE,CHLD";
    // env is found again by that name: the shell has no signals to restore.
    let mut shell = shell(&host, 600, dirty);
    let reader = host.awaited("pid");
    let waiting: i64 = status(reader, "PPid").parse().unwrap();
    assert_ne!(waiting, i64::from(shell.id()));
    for process in [reader, waiting] {
        for set in ["SigBlk", "SigIgn", "SigCgt"] {
            let signals = u64::from_str_radix(&status(process, set), 16).unwrap();
            // Signals 32 and 33 are the C library's own, which it lets nobody change.
            assert_eq!(signals & !(0b11 << 31), 0, "{set} of {process}: {signals:x}");
        }
    }
    assert_eq!(descriptors(reader), [0, 1, 2]);
    let names = |process: i64| {
        let link = |fd: &u32| fs::read_link(format!("/proc/{process}/fd/{fd}")).unwrap();
        descriptors(process).iter().map(link).collect::<Vec<PathBuf>>()
    };
    let other = |file: &&PathBuf| {
        let text = file.to_string_lossy().into_owned();
        text != "/dev/null" && !text.ends_with("/run/gpubind/lock") && !text.starts_with("pipe:")
    };
    assert_eq!(names(waiting).iter().filter(other).count(), 0, "{:?}", names(waiting));
    kill(waiting);
    shell.wait().unwrap();
}

#[test]
fn a_library_that_is_none_is_named() {
    let host = Host::new("");
    let (said, _) = host.fails(60);
    assert!(said.starts_with("gpubind: the NVML library is too old or not NVML"), "{said}");
    fs::write(host.folder.path().join("nvml.so"), "not a library").unwrap();
    let (said, _) = host.fails(60);
    assert!(said.contains("cannot load "), "{said}");
}

/// The plugin's way to a node.
fn source(folder: &Path, library: PathBuf, timeout: u64) -> ProbeOptions {
    ProbeOptions {
        roots: Roots::new(folder),
        program: PROGRAM.into(),
        nvml: Some(library),
        timeout: Duration::from_secs(timeout),
        max_age: Duration::from_secs(86_400),
    }
}

#[test]
fn a_driver_that_hangs_is_waited_for_once_and_then_remembered_for_a_while() {
    let Some(()) = root() else { return };
    let host = Host::new("int nvmlInit_v2(void) { note(\"pid\", getpid()); forever(); }");
    let source = source(host.folder.path(), host.folder.path().join("nvml.so"), 1);
    let boot_id = host.folder.path().join("proc/sys/kernel/random/boot_id");
    fs::create_dir_all(boot_id.parent().unwrap()).unwrap();
    let error = load_or_probe(&source).unwrap_err();
    let said = "cannot read this node's GPUs: NVML did not answer within 1 s";
    assert_eq!(error.to_string(), said);
    let begin = Instant::now();
    for _ in 0..20 {
        let error = load_or_probe(&source).unwrap_err();
        assert!(matches!(error, LoadOrProbeError::Remembered { .. }), "{error}");
        assert!(error.to_string().starts_with(said), "{error}");
    }
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert_eq!(host.notes("pid").len(), 1, "NVML was asked once");
    // A record that another can have written is ignored.
    let file = host.roots().failure();
    std::os::unix::fs::chown(&file, Some(1234), None).unwrap();
    assert!(matches!(load_or_probe(&source), Err(LoadOrProbeError::Reading(_))));
    assert!(matches!(load_or_probe(&source), Err(LoadOrProbeError::Remembered { .. })));
    // Another boot, another driver: worth another try.
    fs::write(boot_id, "another\n").unwrap();
    assert!(matches!(load_or_probe(&source), Err(LoadOrProbeError::Reading(_))));
    assert_eq!(host.notes("pid").len(), 3);
    // It is over after its time.
    let now = std::time::SystemTime::now();
    assert!(FailedReading::recent(&host.roots(), now).is_some());
    assert!(FailedReading::recent(&host.roots(), now + Duration::from_secs(61)).is_none());
    assert!(FailedReading::recent(&host.roots(), now - Duration::from_secs(61)).is_none());
}

#[test]
fn a_driver_that_is_well_again_is_used_and_its_failure_forgotten() {
    let Some(()) = root() else { return };
    let fake = Fake::with("two-cpu", "[faults]\nmismatch = true");
    let machine = fake.path().join("nvml/machine.toml");
    let source = source(fake.path(), fake.library(), 20);
    let error = load_or_probe(&source).unwrap_err();
    assert!(error.to_string().contains("code 18"), "{error}");
    assert!(fake.roots().failure().exists());
    let text = fs::read_to_string(&machine).unwrap();
    fs::write(&machine, text.replace("mismatch = true", "")).unwrap();
    // An admin asks.
    let mut save = Command::new(PROGRAM);
    save.args(["snapshot", "--save", "--fsroot"]).arg(fake.path());
    assert!(save.arg("--nvml").arg(fake.library()).status().unwrap().success());
    assert!(!fake.roots().failure().exists());
    load_or_probe(&source).unwrap();
}

#[test]
fn the_background_s_reading_goes_on_while_steps_wait_but_once() {
    let Some(()) = root() else { return };
    let slow = "[faults]\ncall = [{ name = \"nvmlDeviceGetCount_v2\", delay-ms = 4000 }]";
    let fake = Fake::with("two-cpu", slow);
    let source = source(fake.path(), fake.library(), 1);
    refresh(&source).unwrap();
    assert!(soon(|| fake.roots().run().join("lock").exists().then_some(())).is_some());
    thread::sleep(Duration::from_millis(200));
    let begin = Instant::now();
    let error = load_or_probe(&source).unwrap_err();
    assert!(
        error.to_string().ends_with("another process is still reading NVML after 1 s"),
        "{error}"
    );
    for _ in 0..10 {
        let error = load_or_probe(&source).unwrap_err();
        assert!(matches!(error, LoadOrProbeError::Remembered { .. }), "{error}");
    }
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    // Nothing has ended it at the steps' timeout.
    let file = fake.roots().snapshot();
    assert!(soon(|| file.exists().then_some(())).is_some());
    assert!(load_or_probe(&source).unwrap().1.is_none());
    assert!(soon(|| (!fake.roots().failure().exists()).then_some(())).is_some());
}

#[test]
fn a_hanging_background_is_replaced_by_the_next_start_and_goes_with_its_folder() {
    let Some(()) = root() else { return };
    let host = Host::new("int nvmlInit_v2(void) { note(\"pid\", getpid()); forever(); }");
    let source = source(host.folder.path(), host.folder.path().join("nvml.so"), 1);
    refresh(&source).unwrap();
    let first = host.awaited("pid");
    // slurmd is restarted.
    refresh(&source).unwrap();
    assert!(ends_soon(first));
    let second = soon(|| host.notes("pid").get(1).copied()).unwrap();
    // The driver is well again, and an admin need not wait.
    let fake = Fake::with("two-cpu", "");
    let mut save = Command::new(PROGRAM);
    save.args(["snapshot", "--save", "--fresh", "--fsroot"]).arg(host.folder.path());
    let begin = Instant::now();
    assert!(save.arg("--nvml").arg(fake.library()).status().unwrap().success());
    assert!(begin.elapsed() < BOUND && ends_soon(second));
    assert!(load_or_probe(&source).unwrap().1.is_none());
    assert!(!host.roots().failure().exists(), "one that was replaced is no failure");
    // A node that is taken down leaves no process and no folder.
    refresh(&source).unwrap();
    let third = soon(|| host.notes("pid").get(2).copied()).unwrap();
    fs::remove_dir_all(host.roots().run()).unwrap();
    assert!(ends_soon(third));
    thread::sleep(Duration::from_millis(200));
    assert!(!host.roots().run().exists());
}

#[test]
fn a_program_that_hangs_itself_is_killed_after_its_deadline() {
    let Some(()) = root() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let mut write = Command::new("sh");
    write
        .args(["-euc", "printf '#!/bin/sh\\nsleep 600\\n' >\"$0\"; chmod 755 \"$0\""])
        .arg(&program);
    assert!(write.status().unwrap().success());
    let options = ProbeOptions { program, ..source(folder.path(), PathBuf::new(), 1) };
    let begin = Instant::now();
    let error = load_or_probe(&options).unwrap_err();
    let is_killed =
        matches!(error, LoadOrProbeError::Probe(ProbeError::Timeout { reaped: true, .. }));
    assert!(is_killed, "{error}");
    assert!(begin.elapsed() < BOUND);
}

#[test]
fn an_answer_is_still_taken_where_the_library_hangs_at_the_process_s_end() {
    let fake = Fake::with("two-cpu", "");
    // Loaded beside the fake, so that its destructor runs at the very end.
    let host = Host::new("__attribute__((destructor)) static void unload(void) { forever(); }");
    let mut show = Command::new(PROGRAM);
    show.args(["snapshot", "--show", "--fresh", "--in-process", "--fsroot"]).arg(fake.path());
    show.arg("--nvml").arg(fake.library());
    show.env("LD_PRELOAD", host.folder.path().join("nvml.so"));
    let begin = Instant::now();
    let output = show.output().unwrap();
    assert!(begin.elapsed() < BOUND, "{:?}", begin.elapsed());
    assert!(output.status.success());
    assert_eq!(Snapshot::parse(&output.stdout).unwrap().node, fake.machine.to_node());
}

/// Succeeds at everything, and means nothing by it: all bits set, no text ends.
const GARBAGE: &str = r#"
typedef void *D; typedef unsigned U;
#define FILL(p, n) (memset((p), 0xff, (n)), 0)
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *s, U n) { return FILL(s, n); }
int nvmlDeviceGetCount_v2(U *n) { *n = COUNT; return 0; }
int nvmlDeviceGetHandleByIndex_v2(U i, D *d) { *d = (D)(long)(i + 1); return 0; }
int nvmlDeviceGetName(D d, char *s, U n) { return FILL(s, n); }
int nvmlDeviceGetUUID(D d, char *s, U n) { return FILL(s, n); }
int nvmlDeviceGetPciInfo_v3(D d, char *p) { return FILL(p, 68); }
int nvmlDeviceGetMinorNumber(D d, U *n) { return FILL(n, 4); }
int nvmlDeviceGetMigMode(D d, U *a, U *b) { return FILL(a, 4), FILL(b, 4); }
int nvmlDeviceGetMaxMigDeviceCount(D d, U *n) { return FILL(n, 4); }
int nvmlDeviceGetMigDeviceHandleByIndex(D d, U i, D *m) { *m = (D)(long)(i + 1); return 0; }
int nvmlDeviceGetGpuInstanceId(D d, U *n) { return FILL(n, 4); }
int nvmlDeviceGetComputeInstanceId(D d, U *n) { return FILL(n, 4); }
int nvmlDeviceGetCpuAffinityWithinScope(D d, U n, long *s, U c) { return FILL(s, n * 8); }
int nvmlDeviceGetMemoryAffinity(D d, U n, long *s, U c) { return FILL(s, n * 8); }
int nvmlDeviceGetNumaNodeId(D d, U *n) { return FILL(n, 4); }
int nvmlDeviceGetPersistenceMode(D d, U *n) { return FILL(n, 4); }
int nvmlDeviceGetTopologyCommonAncestor(D a, D b, U *l) { return FILL(l, 4); }
int nvmlDeviceGetP2PStatus(D a, D b, U i, U *s) { return FILL(s, 4); }
int nvmlDeviceGetNvLinkCapability(D d, U l, U c, U *r) { return FILL(r, 4); }
int nvmlDeviceGetNvLinkState(D d, U l, U *s) { *s = 1; return 0; }
int nvmlDeviceGetNvLinkRemoteDeviceType(D d, U l, U *t) { return FILL(t, 4); }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(D d, U l, char *p) { return FILL(p, 68); }
"#;

#[test]
fn answers_that_mean_nothing_end_in_a_line_or_in_a_node_that_is_consistent() {
    for count in ["1", "2", "4294967295u"] {
        let host = Host::new(&format!("#define COUNT {count}\n{GARBAGE}"));
        let begin = Instant::now();
        let output = host.run(20);
        assert!(begin.elapsed() < Duration::from_secs(20), "{count}: {:?}", begin.elapsed());
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => drop(Snapshot::parse(&output.stdout).unwrap()),
            code => {
                assert_eq!((code, said.lines().count()), (Some(1), 1), "{count}: {said}");
                assert!(!said.contains("crashed") && !said.contains("panicked"), "{said}");
            }
        }
    }
}

#[test]
fn a_machine_whose_gpus_are_all_lost_or_forbidden_is_described() {
    let Some(()) = root() else { return };
    let node = |faults: &str| {
        let fake = Fake::with("two-cpu", &format!("[faults]\n{faults}"));
        let source = source(fake.path(), fake.library(), 20);
        let node = load_or_probe(&source).unwrap().0;
        (node, fake.roots().snapshot().exists())
    };
    let (lost, is_kept) = node("lost = [0, 1, 2, 3, 4, 5, 6, 7]");
    assert_eq!((lost.gpus.len(), lost.unusable.len(), is_kept), (0, 8, true));
    assert!(lost.unusable.iter().all(|gpu| gpu.code == 15));
    let (forbidden, is_kept) = node("forbidden = [0, 1, 2, 3, 4, 5, 6, 7]");
    assert_eq!((forbidden.gpus.len(), forbidden.unusable.len()), (0, 8));
    assert!(!is_kept, "another process may see more");
}

#[test]
fn a_run_folder_that_is_full_or_read_only_costs_a_warning() {
    let Some(()) = root() else { return };
    let fake = Fake::with("two-cpu", "");
    let run = fake.roots().run();
    fs::create_dir_all(&run).unwrap();
    for (options, why) in [("size=4k", "No space left on device"), ("ro", "Read-only file system")]
    {
        // Mounted for this command only.
        let script = format!(
            "mount -t tmpfs -o mode=755,{options} tmpfs {0} && \
             {{ head -c 100000 /dev/zero >{0}/fill 2>/dev/null; exec \"$@\"; }}",
            run.display()
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script, "sh", PROGRAM, "snapshot"]);
        command.args(["--save", "--show", "--fsroot"]).arg(fake.path());
        let output = command.arg("--nvml").arg(fake.library()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains(why), "{options}: {said}");
        assert_eq!(Snapshot::parse(&output.stdout).unwrap().node, fake.machine.to_node());
    }
}
