//! `gpubind report --table` and `--merge`: a step's ranks in one table.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

mod nvml_support;

use std::io::Write;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nvml_support::Fake;
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpubind");

/// A task of a step with two tasks on each of some nodes, and what gpubind has set in it.
fn task(fake: &Fake, node: &str, rank: usize, mode: &str, args: &[&str]) -> Command {
    let numbers = [("SLURM_PROCID", rank), ("SLURM_LOCALID", rank % 2), ("SLURM_NODEID", rank / 2)];
    let mut command = Command::new(PROGRAM);
    command.args(["exec", mode, "--", PROGRAM, "report"]).args(args);
    command.env_clear().env("PATH", "/usr/bin:/bin");
    command.envs(numbers.map(|(name, value)| (name, value.to_string())));
    command.env("SLURMD_NODENAME", node).env("SLURM_JOB_ID", std::process::id().to_string());
    command.env("SLURM_STEP_ID", "0").env("SLURM_STEP_TASKS_PER_NODE", "2(x2)");
    command.env("SLURM_STEP_GPUS", "0,1").env("CUDA_VISIBLE_DEVICES", "0,1");
    command.env("GPUBIND_FSROOT", fake.path()).env("GPUBIND_NVML", fake.library());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn merge(lines: &str, args: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["report", "--merge"]).args(args).env_clear();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// A rank's line of a step with eight ranks on each node.
fn line(rank: usize, host: &str) -> Value {
    let local = rank % 8;
    let pci = format!("0000:{:02x}:00.0", local + 1);
    let uuid = format!("GPU-{host:0>8}-0000-{local}");
    let device = json!({
        "index": local, "minor": local, "uuid": uuid, "pci": pci, "name": "H100",
        "numa": [local / 4], "cpus": "0-15", "mig": null, "own": true, "locality": "local",
        "reachable": true
    });
    json!({
        "schema": 1, "host": host, "rank": rank, "size": null, "local_rank": local, "local_size": 8,
        "rank_from": "Slurm", "visible": local.to_string(), "assigned": local.to_string(),
        "share": false, "devices": [device], "peers": {"count": 7, "reachable": 7},
        "cpus": local.to_string(), "why": "local to its CPUs"
    })
}

fn joined(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_first_rank_of_a_node_prints_one_sorted_table() {
    let fake = Fake::with("two-cpu", "").with_devices().with_snapshot(PROGRAM);
    let args = ["--table", "--wait=60"];
    let start =
        |rank: usize| -> Child { task(&fake, "n1", rank, "--mode=single", &args).spawn().unwrap() };
    let outputs = [1, 0].map(start).map(|child| child.wait_with_output().unwrap());
    let [second, first] = outputs.map(|it| (text(&it.stdout), text(&it.stderr)));
    assert_eq!(second, (String::new(), String::new()));
    assert_eq!(first.1, "");
    let lines: Vec<&str> = first.0.lines().collect();
    assert_eq!(lines.len(), 5, "{}", first.0);
    assert!(lines[0].starts_with("RANK  NODE  LOCAL  GPU"), "{}", first.0);
    assert!(lines[1].starts_with("0     n1    0      0    0000:01:00.0"), "{}", first.0);
    assert!(lines[2].starts_with("1     n1    1 "), "{}", first.0);
    assert!(lines[4].starts_with("2 ranks on 1 node use 2 GPUs; "), "{}", first.0);
}

#[test]
fn with_json_it_is_one_document_and_with_check_the_reasons_are_said_once() {
    let fake = Fake::with("two-cpu", "").with_devices().with_snapshot(PROGRAM);
    let args = ["--table", "--json", "--check", "--wait=60"];
    let start = |rank: usize| -> Child {
        let mut command = task(&fake, "n2", rank, "", &[]);
        let words: Vec<_> = command.get_args().skip(4).map(ToOwned::to_owned).collect();
        let env: Vec<_> = command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        // Not by exec: unbound.
        command = Command::new(PROGRAM);
        command.args(words).args(args).env_clear().envs(env);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let outputs = [0, 1].map(start).map(|child| child.wait_with_output().unwrap());
    assert!(outputs.iter().all(|output| output.status.code() == Some(1)));
    let step: Value = serde_json::from_slice(&outputs[0].stdout).unwrap();
    assert_eq!(step["schema"], 1);
    assert_eq!(step["summary"]["shared"], 2);
    assert_eq!(step["summary"]["unbound"], 2);
    assert_eq!(step["ranks"].as_array().unwrap().len(), 2);
    let said = outputs.map(|output| text(&output.stderr)).concat();
    assert_eq!(said.matches("are shared by ranks 0-1, ").count(), 1, "{said}");
}

#[test]
fn short_lines_that_srun_has_shuffled_become_whole_reports() {
    let fake = Fake::with("two-cpu", "").with_devices().with_snapshot(PROGRAM);
    let print = |rank: usize| {
        let mut command = task(&fake, ["n1", "n2"][rank / 2], rank, "--mode=ordered", &["--lines"]);
        command.args(["--check", "--wait=1"]).env("SLURM_STEP_NUM_TASKS", "4");
        command.env("SLURM_STEP_GPUS", "0,1,2,3").env("CUDA_VISIBLE_DEVICES", "0,1,2,3");
        text(&command.output().unwrap().stdout)
    };
    let printed: Vec<String> = (0..4).map(print).collect();
    let mut lines: Vec<&str> = printed.iter().flat_map(|printed| printed.lines()).collect();
    assert!(lines.len() > 4, "a report is several lines: {lines:?}");
    assert!(lines.iter().all(|line| line.len() < 1000), "{lines:?}");
    // As srun --label passes them on.
    lines.sort_by_key(|line| line.bytes().rev().map(u32::from).sum::<u32>());
    let labelled: String = lines.iter().map(|line| format!("12: {line}\n")).collect();
    let output = merge(&labelled, &["--json"]);
    assert_eq!(text(&output.stderr), "");
    let step: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ranks = step["ranks"].as_array().unwrap();
    let numbers: Vec<Option<u64>> = ranks.iter().map(|rank| rank["rank"].as_u64()).collect();
    assert_eq!(numbers, [0, 1, 2, 3].map(Some));
    assert_eq!(ranks[0]["size"], 4);
    // A part that is lost, and a rank that is.
    let output = merge(&printed[..3].concat(), &[]);
    assert_eq!(text(&output.stderr), "gpubind: standard input: no report of rank 3\n");
    let cut: String = printed[0].lines().skip(1).map(|line| format!("{line}\n")).collect();
    let output = merge(&format!("{cut}{}", printed[1]), &[]);
    let said = text(&output.stderr);
    assert!(said.contains("1 report cannot be read; have them printed with --lines"), "{said}");
    assert!(said.contains("no report of ranks 0,2-3"), "{said}");
}

#[test]
fn lines_of_many_nodes_become_one_sorted_table() {
    let mut lines: Vec<Value> = (0..16).map(|rank| line(rank, ["a", "b"][rank / 8])).collect();
    lines.reverse();
    // What else a step prints, and srun's labels.
    let printed = format!("a program's line\n{}{{\"other\": 1}}\n", joined(&lines));
    let output = merge(&printed, &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    let ranks: Vec<&str> = table.lines().filter_map(|line| line.split("  ").next()).collect();
    let expected: Vec<String> = (0..16).map(|rank| rank.to_string()).collect();
    assert_eq!(ranks[1..17], expected, "{table}");
    let summary = "\n\n16 ranks on 2 nodes use 8 GPUs on each; 16 of 16 are local to theirs\n";
    assert!(table.ends_with(summary), "{table}");
    let document: Value = serde_json::from_slice(&merge(&printed, &["--json"]).stdout).unwrap();
    assert_eq!(document["ranks"].as_array().unwrap().len(), 16);
    assert_eq!(document["ranks"][9]["devices"][0]["locality"], "local");
}

#[test]
fn a_thousand_ranks_are_a_block_for_each_kind_of_node_in_a_second() {
    let host = |rank: usize| format!("gpu{:03}", rank / 8 + 1);
    let mut lines: Vec<Value> = (0..1000).map(|rank| line(rank, &host(rank))).collect();
    for line in &mut lines[80..88] {
        line["devices"][0]["locality"] = "remote".into();
    }
    lines[999]["devices"][0]["uuid"] = lines[998]["devices"][0]["uuid"].clone();
    lines[999]["devices"][0]["index"] = 6.into();
    let begin = Instant::now();
    let output = merge(&joined(&lines), &["--check"]);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert_eq!(output.status.code(), Some(1));
    let table = text(&output.stdout);
    let headings: Vec<&str> = table.lines().filter(|line| line.contains("each")).collect();
    assert_eq!(headings[0], "gpu[001-010,012-124]: 8 ranks each", "{table}");
    assert!(table.contains("\ngpu011: 8 ranks\n80 "), "{table}");
    assert!(table.contains("\ngpu125: 8 ranks\n992 "), "{table}");
    assert!(table.contains("\n*  "), "ranks of 123 nodes follow no rule: {table}");
    let summary = "1000 ranks on 125 nodes use 7 to 8 GPUs on each; 992 of 1000 are local to \
                   theirs; 2 share a GPU with another rank\n";
    assert!(table.ends_with(summary), "{table}");
    assert!(table.lines().count() < 40, "{table}");
    let said = text(&output.stderr);
    let shared = "gpubind: check failed: 2 ranks share GPUs, and nobody asked for `share`\n";
    assert_eq!(said, shared);
    // Alike, all of them.
    let even: Vec<Value> = (0..64).map(|rank| line(rank, &host(rank))).collect();
    let table = text(&merge(&joined(&even), &[]).stdout);
    assert!(
        table.contains("\ngpu[001-008]: 8 ranks each\n0-56:8  *     0      0    0000:01:00.0  *"),
        "{table}"
    );
}

#[test]
fn uuids_that_begin_alike_are_told_apart() {
    let mut lines: Vec<Value> = (0..2).map(|rank| line(rank, "n")).collect();
    for (rank, line) in lines.iter_mut().enumerate() {
        line["devices"][0]["uuid"] = format!("GPU-12345678-abc{rank}-77").into();
    }
    let table = text(&merge(&joined(&lines), &[]).stdout);
    assert!(
        table.contains(" GPU-12345678-abc0  ") && table.contains(" GPU-12345678-abc1  "),
        "{table}"
    );
}

#[test]
fn what_ranks_have_found_is_said_once_with_their_numbers() {
    let mut lines: Vec<Value> = (0..8).map(|rank| line(rank, "n")).collect();
    for rank in [1, 2, 5] {
        lines[rank]["check"] = json!({"wrong": ["it is odd"], "no_reply": []});
    }
    let output = merge(&joined(&lines), &["--check"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "gpubind: check failed: ranks 1-2,5: it is odd\n");
    assert!(merge(&joined(&lines), &[]).status.success(), "only where it is asked for");
}

#[test]
fn text_without_a_report_says_how_to_make_one() {
    let output = merge("hello\n", &[]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("srun … gpubind report --lines | gpubind report --merge"), "{said}");
}
