//! The stand-in runs hooks in Slurm's order and offers what Slurm offers there, shown by
//! a plugin that says what it finds.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

fn plugin() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, plugin) = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/plugins/trace.c");
        let cc =
            Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&file).arg(source).status();
        assert!(cc.unwrap().success());
        (folder, file)
    });
    plugin
}

fn host(options: &[&str], command: &[&str]) -> Output {
    let mut host = Command::new(env!("CARGO_BIN_EXE_spank-host"));
    host.args(options).arg(plugin());
    if !command.is_empty() {
        host.arg("--").args(command);
    }
    host.output().unwrap()
}

/// What the plugin said, with the programs' output behind it.
fn said(output: &Output) -> Vec<String> {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let all = text(&output.stderr) + &text(&output.stdout);
    all.lines().map(str::to_owned).collect()
}

#[test]
fn a_step_runs_all_hooks_in_slurmstepds_order() {
    let output = host(
        &["--tasks=2", "--first-rank=4", "--in-turn", "--arg=verbose", "--option=trace=x"],
        &[],
    );
    // A task says more of itself: its process runs beside the parent.
    let (tasks, parent): (Vec<_>, Vec<_>) =
        said(&output).into_iter().partition(|line| line.contains(" own=1 "));
    let expected = [
        "arguments 1 verbose",
        "init context=2 tasks=2",
        "option 7=x remote=1",
        "init_post_opt context=2 tasks=2",
        "user_init context=2 tasks=2",
        "task_post_fork context=2 tasks=2 task=0 rank=4 own=0 status=0",
        "task_post_fork context=2 tasks=2 task=1 rank=5 own=0 status=0",
        "task_exit context=2 tasks=2 task=0 rank=4 own=0 status=0",
        "task_exit context=2 tasks=2 task=1 rank=5 own=0 status=0",
        "exit context=2 tasks=2",
    ];
    assert_eq!(parent, expected);
    for (task, rank) in [(0, 4), (1, 5)] {
        let facts = format!("context=2 tasks=2 task={task} rank={rank} own=1 status=0");
        let own = tasks.iter().filter(|line| line.contains(&format!(" task={task} ")));
        let expected =
            [format!("task_init_privileged {facts}"), format!("task_init {facts} localid={task}")];
        assert!(own.eq(&expected), "{tasks:?}");
    }
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn json_shows_the_environment_that_each_task_starts_with() {
    let output = host(
        &["--json", "--tasks=2", "--set=A=1", "--set=B=2", "--task-set=A", "--task-set=C=3"],
        &[],
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let tasks: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(tasks.len(), 2);
    for (number, task) in tasks.iter().enumerate() {
        assert_eq!(task["task"], number);
        assert_eq!(task["code"], 0);
        let env = &task["env"];
        assert_eq!(
            (&env["A"], &env["B"], &env["C"]),
            (&serde_json::Value::Null, &"2".into(), &"3".into())
        );
        assert_eq!(env["TRACE"], "was here");
        assert_eq!(env["SLURM_PROCID"], number.to_string());
    }
}

#[test]
fn tasks_become_their_program_with_that_environment() {
    let output = host(&["--log-level=-1"], &["sh", "-c", "echo $TRACE $SLURM_LOCALID; exit 5"]);
    assert_eq!(said(&output), ["was here 0"]);
}

#[test]
fn a_client_is_started_with_its_own_command_line() {
    let output = host(&["--as=srun", "--json", "--option=trace=y"], &["srun", "-n2", "prog"]);
    let said = said(&output);
    let expected = [
        "arguments 0 -",
        "init context=1",
        "option 7=y remote=0",
        "init_post_opt context=1",
        "local_user_init context=1",
        "exit context=1",
    ];
    assert_eq!(said[..6], expected);
    assert!(said[6].starts_with(r#"{"argv":["srun","-n2","prog"],"#), "{said:?}");
}

#[test]
fn slurmd_and_the_processes_around_a_job_run_their_own_hooks() {
    let hooks = |program: &str| said(&host(&[&format!("--as={program}")], &[]));
    assert_eq!(hooks("slurmd"), ["arguments 0 -", "init context=4", "slurmd_exit context=4"]);
    assert_eq!(hooks("prolog"), ["job_prolog context=5", "exit context=5"]);
    assert_eq!(hooks("epilog"), ["job_epilog context=5", "exit context=5"]);
}

#[test]
fn a_hook_that_fails_is_named_and_the_steps_end_with_3_or_1() {
    let output = host(&["--set=FAIL=1", "--log-level=-1"], &[]);
    assert_eq!(said(&output), ["spank-host: slurm_spank_task_exit returned -1"]);
    assert_eq!(output.status.code(), Some(3));
    let output = host(&["--set=FAIL=1", "--log-level=-1", "--steps=3"], &[]);
    assert_eq!(said(&output).len(), 3);
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_plugin_of_another_release_is_refused() {
    for release in ["22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05"] {
        let output = host(&["--slurm", release], &[]);
        assert_eq!(output.status.code(), Some(0), "{release}");
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, file) = (folder.path().join("old.c"), folder.path().join("old.so"));
    let text = r#"const char plugin_name[] = "old", plugin_type[] = "spank";
        const unsigned int plugin_version = 0x150800;"#;
    std::fs::write(&source, text).unwrap();
    let cc = Command::new("cc").args(["-shared", "-o"]).args([&file, &source]).status().unwrap();
    assert!(cc.success());
    let output = Command::new(env!("CARGO_BIN_EXE_spank-host")).arg(&file).output().unwrap();
    let said = said(&output);
    assert_eq!(said, ["spank-host: the plugin is for version 0x150800, this Slurm has 0x160500"]);
    assert_eq!(output.status.code(), Some(1));
}
