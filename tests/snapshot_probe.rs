//! Running a child with a deadline, against small shell scripts.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use gpubind_core::child::{MAX_OUTPUT, ProbeError};

mod command_support;
use command_support::write_script;

struct Script {
    folder: tempfile::TempDir,
}

impl Script {
    /// `None`, with a word on it, where the tests do not run as root: the
    /// program must be root's.
    fn new(body: &str) -> Option<Script> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can own the program");
            return None;
        }
        let script = Script { folder: tempfile::tempdir().unwrap() };
        write_script(&script.path(), body);
        Some(script)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("program")
    }

    fn run(&self, args: &[&str], deadline: Duration) -> Result<Vec<u8>, ProbeError> {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        gpubind_core::child::run(&self.path(), &args, deadline)
    }
}

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(300);
/// Deadline, half a second for reaping, and what a busy machine adds.
const BOUND: Duration = Duration::from_secs(5);

fn alive(pid_file: &Path) -> bool {
    let pid = fs::read_to_string(pid_file).unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    // A zombie waits for init; it runs no more.
    !stat.is_empty() && !stat.contains(") Z ")
}

fn gone_soon(pid_file: &Path) -> bool {
    (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        !alive(pid_file)
    })
}

#[test]
fn the_output_comes_back_whole() {
    let Some(script) = Script::new("printf 'one %s\\n' \"$@\"; printf end") else { return };
    let output = script.run(&["a", "b c"], LONG).unwrap();
    assert_eq!(output, b"one a\none b c\nend");
}

#[test]
fn output_larger_than_a_pipe_comes_back_whole() {
    let Some(script) = Script::new("head -c 3000000 /dev/zero") else { return };
    assert_eq!(script.run(&[], LONG).unwrap().len(), 3_000_000);
}

#[test]
fn the_environment_is_empty_but_for_path_and_stdin_is_closed() {
    let Some(script) = Script::new("env; pwd; cat; echo eof") else { return };
    let output = String::from_utf8(script.run(&[], LONG).unwrap()).unwrap();
    let ours = ["PATH=", "PWD=", "SHLVL=", "_="];
    let (lines, end) = output.trim().rsplit_once("/\neof").unwrap();
    assert_eq!(end, "");
    for line in lines.lines() {
        assert!(ours.iter().any(|name| line.starts_with(name)), "{line}");
    }
    assert!(lines.lines().any(|line| line.starts_with("PATH=/usr/local/sbin:")), "{lines}");
}

#[test]
fn a_child_that_hangs_is_killed_at_the_deadline() {
    let Some(script) = Script::new("echo $$ > \"$1\"; sleep 600") else { return };
    let pid = script.folder.path().join("pid");
    let begin = Instant::now();
    let error = script.run(&[pid.to_str().unwrap()], SHORT).unwrap_err();
    assert!(matches!(error, ProbeError::Timeout { reaped: true, .. }), "{error}");
    assert!(begin.elapsed() >= SHORT && begin.elapsed() < BOUND, "{:?}", begin.elapsed());
    assert!(error.to_string().ends_with("did not finish within 0.3 s and was killed"), "{error}");
    assert!(!alive(&pid));
}

#[test]
fn a_child_that_closes_its_output_and_hangs_is_killed_too() {
    let Some(script) = Script::new("exec >&- 2>&-; sleep 600") else { return };
    let error = script.run(&[], SHORT).unwrap_err();
    assert!(matches!(error, ProbeError::Timeout { .. }), "{error}");
}

#[test]
fn a_background_process_that_holds_the_output_is_not_waited_for() {
    let Some(script) = Script::new("sleep 600 & echo $! > \"$1\"; echo done") else { return };
    let pid = script.folder.path().join("pid");
    let begin = Instant::now();
    assert_eq!(script.run(&[pid.to_str().unwrap()], LONG).unwrap(), b"done\n");
    assert!(begin.elapsed() < BOUND, "{:?}", begin.elapsed());
    assert!(gone_soon(&pid), "it is killed with the child's process group");
}

#[test]
fn a_crash_names_the_signal() {
    let Some(script) = Script::new("echo half; kill -SEGV $$") else { return };
    let error = script.run(&[], LONG).unwrap_err();
    assert!(matches!(error, ProbeError::Signal { signal: 11, .. }), "{error}");
}

#[test]
fn a_failure_has_its_code_and_the_last_line_of_stderr() {
    let Some(script) = Script::new("echo first >&2; echo 'what is wrong' >&2; echo >&2; exit 3")
    else {
        return;
    };
    let error = script.run(&[], LONG).unwrap_err();
    let ProbeError::Exit { code: 3, ref message, .. } = error else { panic!("{error}") };
    assert_eq!(message, "what is wrong");

    drop(script);
    let Some(script) = Script::new("exit 1") else { return };
    let error = script.run(&[], LONG).unwrap_err();
    assert!(error.to_string().ends_with("failed with exit code 1: it wrote no message"), "{error}");
}

#[test]
fn a_flood_on_stderr_neither_blocks_nor_stays_in_memory() {
    let body = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done >&2; exit 5";
    let Some(script) = Script::new(body) else { return };
    let error = script.run(&[], LONG).unwrap_err();
    let ProbeError::Exit { code: 5, ref message, .. } = error else { panic!("{error}") };
    assert_eq!(message, "line 19999");
}

#[test]
fn endless_output_is_cut_off() {
    let Some(script) = Script::new("cat /dev/zero") else { return };
    let begin = Instant::now();
    let error = script.run(&[], LONG).unwrap_err();
    assert!(matches!(error, ProbeError::TooMuchOutput(_)), "{error}");
    assert!(error.to_string().contains(&MAX_OUTPUT.to_string()), "{error}");
    assert!(begin.elapsed() < BOUND, "{:?}", begin.elapsed());
}

#[test]
fn only_a_file_that_root_alone_can_write_is_run() {
    let Some(script) = Script::new("echo ran > \"$1\"") else { return };
    let proof = script.folder.path().join("ran");
    let refused = |program: &Path, why: &str| {
        let args = [proof.clone().into_os_string()];
        let error = gpubind_core::child::run(program, &args, LONG).unwrap_err();
        assert!(matches!(error, ProbeError::Untrusted { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
        assert!(!proof.exists(), "it was run");
    };
    let path = script.path();
    fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
    refused(&path, "writable by others than its owner (mode 0777)");
    fs::set_permissions(&path, Permissions::from_mode(0o775)).unwrap();
    refused(&path, "writable by others than its owner (mode 0775)");
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    chown(&path, Some(1234), None).unwrap();
    refused(&path, "belongs to user 1234");
    refused(script.folder.path(), "not a regular file");
    refused(&script.folder.path().join("nothing"), "there is no ");
    // A link is asked about the file that it names.
    let link = script.folder.path().join("link");
    symlink(&path, &link).unwrap();
    refused(&link, "belongs to user 1234");
    chown(&path, Some(0), None).unwrap();
    gpubind_core::child::run(&link, &[proof.clone().into_os_string()], LONG).unwrap();
    assert!(proof.exists());
}

#[test]
fn what_cannot_be_started_says_so() {
    let Some(script) = Script::new("") else { return };
    fs::set_permissions(script.path(), Permissions::from_mode(0o644)).unwrap();
    let error = script.run(&[], LONG).unwrap_err();
    assert!(matches!(error, ProbeError::Start { .. }), "{error}");
}

/// Slurm's daemons are free to ignore SIGCHLD: children are then reaped by the
/// kernel, and nobody can ask how they ended.
#[test]
fn a_process_that_ignores_sigchld_still_gets_the_output() {
    const INNER: &str = "GPUBIND_TEST_SIGCHLD_IGNORED";
    if std::env::var_os(INNER).is_some() {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
        // Bit 16: SIGCHLD is signal 17.
        assert_ne!(u64::from_str_radix(ignored, 16).unwrap() & 1 << 16, 0, "not ignored");
        let script = Script::new("echo fine").unwrap();
        assert_eq!(script.run(&[], LONG).unwrap(), b"fine\n");
        drop(script);
        let script = Script::new("sleep 600").unwrap();
        assert!(matches!(script.run(&[], SHORT), Err(ProbeError::Timeout { reaped: true, .. })));
        return;
    }
    if Script::new("").is_none() {
        return;
    }
    // An ignored signal stays ignored through exec.
    let inner = Command::new("env")
        .arg("--ignore-signal=CHLD")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_that_ignores_sigchld_still_gets_the_output"])
        .env(INNER, "1")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&inner.stdout);
    assert!(output.contains("1 passed"), "{output}");
}

/// A daemon that is out of descriptors gets an error, and loses none of those it has.
#[test]
fn a_process_that_is_out_of_descriptors_is_told_so() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const INNER: &str = "GPUBIND_TEST_FEW_DESCRIPTORS";
    const NAME: &str = "a_process_that_is_out_of_descriptors_is_told_so";
    if std::env::var_os(INNER).is_none() {
        if Script::new("").is_some() {
            let inner = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", NAME])
                .env(INNER, "1")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&inner.stdout);
            assert!(said.contains("1 passed"), "{said}");
        }
        return;
    }
    let script = Script::new("echo fine").unwrap();
    let open = || fs::read_dir("/proc/self/fd").unwrap().count() as u64 - 1;
    let (before, limit) = (open(), getrlimit(Resource::Nofile));
    for more in 0..6 {
        setrlimit(Resource::Nofile, Rlimit { current: Some(before + more), ..limit }).unwrap();
        let ran = script.run(&[], LONG);
        setrlimit(Resource::Nofile, limit).unwrap();
        match ran {
            // The child has the limit, too: a shell needs more than it has got.
            Ok(_) | Err(ProbeError::Exit { .. }) => assert!(more > 0, "it needs at least one"),
            Err(error) => assert!(error.to_string().contains("Too many open files"), "{error}"),
        }
        assert_eq!(open(), before);
    }
    assert_eq!(script.run(&[], LONG).unwrap(), b"fine\n");
}
