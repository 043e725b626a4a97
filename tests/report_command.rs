//! `gpubind report` and `--check`: real processes that meet.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

mod nvml_support;

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nvml_support::Fake;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpubind");

fn machine(name: &str) -> Fake {
    Fake::with(name, "").with_devices().with_snapshot(PROGRAM)
}

/// A command of `gpubind` on a fake machine, without anything of this test's own
/// environment.
fn gpubind(fake: &Fake, env: &[(&str, &str)], words: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(words).env_clear().env("PATH", "/usr/bin:/bin").envs(env.iter().copied());
    command.env("GPUBIND_FSROOT", fake.path()).env("GPUBIND_NVML", fake.library());
    command
}

fn report(fake: &Fake, env: &[(&str, &str)], args: &[&str]) -> Output {
    gpubind(fake, env, &[&["report"], args].concat()).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Starts `count` workers of one launch at the same time, and waits for all. `words`
/// are what each runs; `run` tells this launch from others.
fn workers(
    fake: &Fake,
    run: &str,
    count: usize,
    words: impl Fn(usize) -> Vec<&'static str>,
) -> Vec<Output> {
    let (size, run) = (count.to_string(), format!("{run}-{}", std::process::id()));
    let start = |rank: usize| -> Child {
        let rank_text = rank.to_string();
        let env = [
            ("LOCAL_RANK", rank_text.as_str()),
            ("LOCAL_WORLD_SIZE", &size),
            ("RANK", &rank_text),
            // All are children of this process, but not peers.
            ("SLURMD_NODENAME", &run),
        ];
        let mut command = gpubind(fake, &env, &words(rank));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let children: Vec<Child> = (0..count).map(start).collect();
    children.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

/// A bound worker's check; it waits long, since many may be started on few CPUs.
const CHECKED: [&str; 6] = ["exec", "--", PROGRAM, "report", "--check", "--wait=60"];

#[test]
fn a_worker_s_line_has_the_launcher_s_numbers_and_the_gpu_s() {
    let fake = machine("two-cpu");
    let outputs = workers(&fake, "line", 2, |_| vec!["exec", "--", PROGRAM, "report"]);
    let lines: Vec<String> = outputs.iter().map(|output| text(&output.stdout)).collect();
    let node = fake.machine.to_node();
    for (rank, line) in lines.iter().enumerate() {
        let cells: Vec<&str> = line.trim_end().split("  ").map(str::trim).collect();
        let cells: Vec<&str> = cells.into_iter().filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells.len(), 12, "{line}");
        assert_eq!((cells[0], cells[2]), (&*rank.to_string(), &*rank.to_string()), "{line}");
        let gpu = &node.gpus[cells[3].parse::<usize>().unwrap()];
        assert_eq!(cells[4], gpu.pci.known().unwrap().to_string());
        assert!(gpu.uuid.known().unwrap().starts_with(cells[5]), "{line}");
        assert_eq!(cells[10..], ["7 of 7", "torchrun"]);
    }
    assert_ne!(lines[0][6..], lines[1][6..]);
    let header = text(&report(&fake, &[], &["--header"]).stdout);
    assert!(header.starts_with("RANK  NODE") && header.lines().count() == 2, "{header}");
    assert!(header.lines().next().unwrap().ends_with("PEERS    RANK FROM"), "{header}");
}

#[test]
fn the_step_s_other_gpus_are_peers_where_the_task_sees_them_too() {
    let fake = machine("two-cpu");
    let node = fake.machine.to_node();
    let own = node.gpus[3].uuid.known().unwrap().as_str();
    let peers = |visible: &str, given: &str, step: &str| {
        let env = [
            ("SLURM_LOCALID", "1"),
            ("SLURM_STEP_GPUS", step),
            ("CUDA_VISIBLE_DEVICES", visible),
            ("GPUBIND_VISIBLE", given),
            ("GPUBIND_GPU_UUID", own),
        ];
        let found = json(&report(&fake, &env, &["--json"]));
        (found["peers"]["count"].as_u64(), found["peers"]["reachable"].as_u64())
    };
    // Modes ordered and first, and single beside them.
    assert_eq!(peers("2,3,6", "2,3,6", "2,3,6"), (Some(2), Some(2)));
    assert_eq!(peers("3,2,6", "3,2,6", "2,3,6"), (Some(2), Some(2)));
    assert_eq!(peers("3", "3", "2,3,6"), (Some(2), Some(2)));
    // Of a list that is not gpubind's any more, nothing is known to be its own.
    assert_eq!(peers("2,6", "2,3,6", "2,3,6"), (Some(1), Some(1)));
}

#[test]
fn the_json_has_all_and_null_for_what_is_not_known() {
    let fake = machine("two-cpu");
    let env = [
        ("SLURM_LOCALID", "1"),
        ("SLURM_PROCID", "5"),
        ("SLURM_NODEID", "0"),
        ("SLURM_STEP_TASKS_PER_NODE", "4"),
        ("SLURM_STEP_GPUS", "2,3,6"),
        ("SLURMD_NODENAME", "n7"),
        ("CUDA_VISIBLE_DEVICES", "6,3"),
        ("GPUBIND_WHY", "because"),
    ];
    let found = json(&report(&fake, &env, &["--json"]));
    for (key, value) in [
        ("host", Value::from("n7")),
        ("rank", 5.into()),
        ("local_rank", 1.into()),
        ("local_size", 4.into()),
        ("rank_from", "Slurm".into()),
        ("visible", "6,3".into()),
        ("assigned", Value::Null),
        ("why", "because".into()),
        ("peers", serde_json::json!({"count": 1, "reachable": 1})),
    ] {
        assert_eq!(found[key], value, "{key}");
    }
    let indices = found["devices"].as_array().unwrap().iter().map(|gpu| gpu["index"].as_u64());
    assert_eq!(indices.collect::<Vec<_>>(), [Some(6), Some(3)]);
    assert_eq!(found["devices"][0]["mig"], Value::Null);
    assert!(found.get("check").is_none());
    let alone = json(&report(&fake, &[], &["--json"]));
    assert_eq!((&alone["rank"], &alone["local_rank"]), (&Value::Null, &Value::Null));
    assert_eq!((&alone["rank_from"], &alone["peers"]["count"]), (&"alone".into(), &0.into()));
}

#[test]
fn mig_instances_are_told() {
    let fake = machine("a100-mig-mixed");
    let node = fake.machine.to_node();
    let gpu = node.gpus.iter().find(|gpu| !gpu.mig.is_empty()).unwrap();
    let env = [("CUDA_VISIBLE_DEVICES", gpu.mig[1].uuid.as_str())];
    let found = json(&report(&fake, &env, &["--json"]));
    let (instance, mig) = (&found["devices"][0]["mig"], &gpu.mig[1]);
    assert_eq!((&instance["gi"], &instance["ci"]), (&mig.gi.into(), &mig.ci.into()));
    assert_eq!(instance["profile"].as_str(), mig.profile.as_deref());
    assert_eq!(found["devices"][0]["uuid"], gpu.mig[1].uuid.as_str());
    let line = text(&report(&fake, &env, &[]).stdout);
    assert!(line.contains(&format!("{} MIG {}/{}  ", gpu.index, gpu.mig[1].gi, gpu.mig[1].ci)));
    assert!(line.contains(&format!("  {}  ", gpu.mig[1].uuid)), "instances begin alike: {line}");
    assert_eq!(report(&fake, &env, &["--check"]).status.code(), Some(0));
}

#[test]
fn bound_workers_pass() {
    let fake = machine("two-cpu");
    for count in [1, 2, 8] {
        for output in workers(&fake, &format!("pass{count}"), count, |_| CHECKED.to_vec()) {
            assert_eq!((output.status.code(), &*text(&output.stderr)), (Some(0), ""));
        }
    }
}

#[test]
fn two_launches_at_once_are_not_peers_and_shells_between_do_not_part_ranks() {
    let fake = machine("two-cpu");
    // A launcher that starts each rank through a shell of its own, which stays.
    let each =
        format!("{PROGRAM} exec --mode=single -- {PROGRAM} report --check --wait=60; exit $?");
    let script = "for rank in 0 1; do LOCAL_RANK=$rank sh -c \"$1\" & pids=\"$pids $!\"; done; \
                  code=0; for pid in $pids; do wait $pid || code=1; done; exit $code";
    let launch = || {
        let mut launcher = Command::new("sh");
        launcher.args(["-c", script, "launcher", &each]).env_clear().env("PATH", "/usr/bin:/bin");
        launcher.env("GPUBIND_FSROOT", fake.path()).env("GPUBIND_NVML", fake.library());
        launcher.env("LOCAL_WORLD_SIZE", "2").stdout(Stdio::piped()).stderr(Stdio::piped());
        launcher.spawn().unwrap()
    };
    for launcher in [launch(), launch()] {
        let output = launcher.wait_with_output().unwrap();
        assert_eq!((output.status.code(), &*text(&output.stderr)), (Some(0), ""));
        assert_eq!(text(&output.stdout).lines().count(), 2);
    }
}

#[test]
fn of_many_ranks_all_compare_and_share_only_if_asked() {
    let fake = machine("two-cpu");
    let begin = Instant::now();
    let asked =
        workers(&fake, "asked", 128, |_| [&["exec", "--mode=share"], &CHECKED[1..]].concat());
    for output in asked {
        assert_eq!((output.status.code(), &*text(&output.stderr)), (Some(0), ""));
    }
    let unasked = workers(&fake, "unasked", 16, |_| CHECKED.to_vec());
    let mut first = Vec::new();
    for (rank, output) in unasked.iter().enumerate() {
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let Some(line) = said.lines().find(|line| line.contains("check failed")) else { continue };
        assert!(
            line.starts_with(&format!("gpubind: check failed: ranks {rank}-{} on ", rank + 1)),
            "{said}"
        );
        assert_eq!(line.matches(" is shared by ranks ").count(), 1, "one other has it: {said}");
        first.push(rank);
    }
    assert_eq!(first.len(), 8, "one says it for both: {first:?}");
    assert!(begin.elapsed() < Duration::from_secs(60), "nobody waited for nobody");
}

#[test]
fn two_that_have_the_same_gpu_fail_and_the_others_pass() {
    let fake = machine("two-cpu");
    let words = |rank| -> Vec<&'static str> {
        let list = ["--mode=single", "--mode=single", "--mode=off"][rank];
        [&["exec", list], &CHECKED[1..]].concat()
    };
    // The third is not bound, and so sees what the others have.
    let outputs = workers(&fake, "same", 3, words);
    let said: Vec<String> = outputs.iter().map(|output| text(&output.stderr)).collect();
    for rank in [0, 1] {
        let ranks = ["0,2", "1-2"][rank];
        let shared = format!("is shared by ranks {ranks}, and nobody asked for `share`\n");
        assert!(said[rank].ends_with(&shared), "{}", said[rank]);
    }
    assert!(!said[2].contains("check failed: rank"), "the others have said it: {}", said[2]);
    assert!(outputs.iter().all(|output| output.status.code() == Some(1)));
}

#[test]
fn what_all_ranks_have_in_common_is_said_once() {
    let fake = machine("two-cpu");
    let outputs = workers(&fake, "unbound", 8, |_| CHECKED[3..].to_vec());
    let said: String = outputs.iter().map(|output| text(&output.stderr)).collect();
    let shared = "GPUs 0-7 are shared by ranks 0-7, and nobody asked for `share`\n";
    assert!(said.starts_with("gpubind: check failed: ranks 0-7 on unbound-"), "{said}");
    assert!(said.ends_with(shared) && said.len() < 150, "{said}");
    assert!(outputs.iter().all(|output| output.status.code() == Some(1)));
    // Each knows it, all the same.
    let json_too = || [&CHECKED[3..], &["--json"]].concat();
    for output in workers(&fake, "unbound-json", 8, |_| json_too()) {
        let found = json(&output)["check"]["wrong"].clone();
        assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn ranks_that_see_all_gpus_have_their_own_all_the_same() {
    let fake = machine("two-cpu");
    for mode in ["--mode=ordered", "--mode=first"] {
        for output in workers(&fake, mode, 8, |_| [&["exec", mode], &CHECKED[1..]].concat()) {
            assert_eq!((output.status.code(), &*text(&output.stderr)), (Some(0), ""), "{mode}");
        }
    }
}

#[test]
fn a_list_that_was_changed_is_told() {
    let fake = machine("two-cpu");
    let words = ["exec", "--mode=single", "--", "env", "CUDA_VISIBLE_DEVICES=5,6", PROGRAM];
    let output = gpubind(&fake, &[], &[&words[..], &["report", "--check"]].concat()).output();
    let output = output.unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("CUDA_VISIBLE_DEVICES is \"5,6\", but gpubind has set "), "{said}");
    let words = ["exec", "--mode=single", "--", "env", "-u", "CUDA_VISIBLE_DEVICES", PROGRAM];
    let output = gpubind(&fake, &[], &[&words[..], &["report", "--check"]].concat()).output();
    assert!(text(&output.unwrap().stderr).contains("CUDA_VISIBLE_DEVICES is unset, but"));
    // What torchrun --virtual-local-rank does is no change.
    let env = [
        ("LOCAL_RANK", "0"),
        ("LOCAL_WORLD_SIZE", "1"),
        ("CUDA_VISIBLE_DEVICES", "6"),
        ("GPUBIND_VISIBLE", "5,6"),
    ];
    assert_eq!(report(&fake, &env, &["--check"]).status.code(), Some(0));
}

#[test]
fn gpus_that_cannot_be_reached_and_lists_that_name_none_are_told() {
    let fake = machine("two-cpu");
    let node = fake.machine.to_node();
    let uuid = node.gpus[2].uuid.known().unwrap().as_str();
    let failed = |list: &str| {
        let output = report(&fake, &[("CUDA_VISIBLE_DEVICES", list)], &["--check", "--json"]);
        assert_eq!(output.status.code(), Some(1), "{list}");
        let found = json(&output);
        let wrong = found["check"]["wrong"].as_array().unwrap().clone();
        assert!(text(&output.stderr).contains(wrong[0].as_str().unwrap()));
        wrong[0].as_str().unwrap().to_owned()
    };
    assert!(failed("8").ends_with("names no GPU that this process can reach"));
    assert!(failed("").ends_with("names no GPU that this process can reach"));
    assert!(failed("1,9,2").contains("entry 2 names no GPU that works, so CUDA shows 1 of 3"));
    fs::remove_file(fake.roots().dev().join("nvidia2")).unwrap();
    assert!(failed(uuid).starts_with("GPU 2 is not reachable: "), "{}", failed(uuid));
    assert!(failed("7").ends_with("names no GPU that this process can reach"), "seven are left");
    // A number that gpubind has set, before its GPU went: now it is another one's.
    let env = [("CUDA_VISIBLE_DEVICES", "2"), ("GPUBIND_VISIBLE", "2"), ("GPUBIND_GPU_UUID", uuid)];
    let output = report(&fake, &env, &["--check"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains(&format!("has assigned {uuid}, but")), "{said}");
}

/// What `--check` finds wrong with a process that has these variables.
fn findings(fake: &Fake, env: &[(&str, &str)]) -> Vec<String> {
    let output = report(fake, env, &["--check", "--json"]);
    let wrong = json(&output)["check"]["wrong"].as_array().unwrap().clone();
    let code = if wrong.is_empty() { 0 } else { 1 };
    assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    wrong.iter().map(|finding| finding.as_str().unwrap().to_owned()).collect()
}

/// A step's only task on its node, with these variables more.
fn task<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let task = [
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_PROCID", "0"),
        ("SLURM_NODEID", "0"),
        ("SLURM_STEP_TASKS_PER_NODE", "1"),
        ("SLURM_STEP_NUM_TASKS", "1"),
        ("SLURMD_NODENAME", "n1"),
    ];
    [&task[..], more].concat()
}

#[test]
fn a_task_that_asked_for_gpubind_and_was_not_bound_is_told() {
    let fake = machine("two-cpu");
    let gpus = [("SLURM_STEP_GPUS", "0,1"), ("CUDA_VISIBLE_DEVICES", "0,1")];
    let asked = |request| task(&[&gpus[..], &[("SLURM_GPUBIND", request)]].concat());
    let found = findings(&fake, &asked("auto"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("gpubind was asked for (SLURM_GPUBIND=auto), but has not bound"));
    // Nobody asked, it was switched off, it has bound, or Slurm has.
    assert_eq!(findings(&fake, &asked("off")), [""; 0]);
    assert_eq!(findings(&fake, &asked("")), [""; 0]);
    let bound = [asked("auto"), vec![("GPUBIND_VISIBLE", "0,1")]].concat();
    assert_eq!(findings(&fake, &bound), [""; 0]);
    let by_slurm = [asked("auto"), vec![("SLURM_GPUS_ON_NODE", "8")]].concat();
    assert_eq!(findings(&fake, &by_slurm), [""; 0]);
    let no_gpus = task(&[("SLURM_GPUBIND", "auto"), ("CUDA_VISIBLE_DEVICES", "3")]);
    assert_eq!(findings(&fake, &no_gpus), [""; 0]);
}

#[test]
fn an_environment_that_was_emptied_in_a_step_is_told() {
    let fake = machine("two-cpu");
    // A step's process, as its name tells.
    let slurmstepd = fake.path().join("slurmstepd");
    fs::copy("/bin/sh", &slurmstepd).unwrap();
    let check = |env: &[(&str, &str)]| {
        let script = format!("{PROGRAM} report --check; exit $?");
        let mut command = Command::new(&slurmstepd);
        command.args(["-c", &script]).env_clear().envs(env.iter().copied());
        command.env("GPUBIND_FSROOT", fake.path()).env("GPUBIND_NVML", fake.library());
        command.output().unwrap()
    };
    let output = check(&[]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("is in a step of Slurm's, but has none of its variables"), "{said}");
    let output = check(&task(&[("CUDA_VISIBLE_DEVICES", "3")]));
    assert_eq!((output.status.code(), &*text(&output.stderr)), (Some(0), ""));
}

#[test]
fn lists_that_cuda_reads_otherwise_and_local_ranks_without_a_gpu_are_told() {
    let fake = machine("two-cpu");
    let found = findings(&fake, &[("CUDA_VISIBLE_DEVICES", "0,1,2,3,0")]);
    let twice = "CUDA_VISIBLE_DEVICES=\"0,1,2,3,0\" has the entry 0 twice, so CUDA shows no GPU";
    assert_eq!(found, [twice]);
    let unset = task(&[("SLURM_STEP_GPUS", "2,3")]);
    let sees = "CUDA_VISIBLE_DEVICES is unset: the process sees 8 GPUs, but the step has 2";
    assert_eq!(findings(&fake, &unset), [sees]);
    // As pyxis's hook for PyTorch sets it, over gpubind's 0.
    let bound = [
        ("CUDA_VISIBLE_DEVICES", "3"),
        ("GPUBIND_VISIBLE", "3"),
        ("LOCAL_RANK", "3"),
        ("LOCAL_WORLD_SIZE", "4"),
    ];
    let found = findings(&fake, &[&bound[..], &[("SLURMD_NODENAME", "pyxis")]].concat());
    let none = "LOCAL_RANK=3 names none of the 1 GPU that the process sees";
    assert!(found.iter().any(|finding| finding.starts_with(none)), "{found:?}");
    // They are Slurm's numbers, so nobody waits for workers that do not exist.
    let env = [
        ("SLURM_LOCALID", "3"),
        ("SLURM_PROCID", "3"),
        ("SLURM_STEP_NUM_TASKS", "4"),
        ("SLURM_STEP_TASKS_PER_NODE", "4"),
        ("RANK", "3"),
        ("WORLD_SIZE", "4"),
    ];
    let env = [&task(&bound)[..], &env].concat();
    let found = json(&report(&fake, &env, &["--check", "--json", "--wait=1"]));
    assert_eq!(found["rank_from"], "Slurm");
    assert_eq!(found["check"]["no_reply"], serde_json::json!([0, 1, 2]), "in a step of 4");
    let kept = [&bound[..], &[("SLURM_GPUBIND", "local-rank=keep")]].concat();
    let kept = findings(&fake, &kept);
    assert!(!kept.iter().any(|finding| finding.starts_with("LOCAL_RANK")), "{kept:?}");
}

#[test]
fn peers_behind_a_device_cgroup_are_told_with_the_way_out() {
    let fake = machine("two-cpu");
    for gpu in [0, 1, 4, 5, 6, 7] {
        fs::remove_file(fake.roots().dev().join(format!("nvidia{gpu}"))).unwrap();
    }
    let env = |step| task(&[("SLURM_GPUS_ON_NODE", step), ("CUDA_VISIBLE_DEVICES", "0")]);
    assert_eq!(findings(&fake, &env("2")), [""; 0], "both are in reach");
    fs::remove_file(fake.roots().dev().join("nvidia3")).unwrap();
    let found = findings(&fake, &env("2"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("this process can reach 0 of the step's 1 other GPUs"));
    assert!(found[0].ends_with("--gpu-bind=spank keeps them in reach"), "{found:?}");
}

#[test]
fn ranks_that_were_moved_to_other_cpus_are_told() {
    let fake = machine("two-cpu");
    // CPU 0 is next to GPUs 0 to 3, CPU 1 to the others.
    let moved = |to: &str| {
        let words = ["-c", "0", PROGRAM, "exec", "--mode=single", "--", "taskset", "-c", to];
        let mut command = Command::new("taskset");
        command.args(words).args([PROGRAM, "report", "--check"]);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("GPUBIND_FSROOT", fake.path());
        command.env("GPUBIND_NVML", fake.library()).output().unwrap()
    };
    assert_eq!(moved("0").status.code(), Some(0));
    let output = moved("1");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let was = "GPU 0 was local to this rank's CPUs when gpubind chose it, but is remote to those that it has now (1)";
    assert!(said.contains(was), "{said}");
}

#[test]
fn ranks_that_are_crowded_on_the_same_cpus_are_told() {
    let fake = machine("two-cpu");
    let outputs = workers(&fake, "apart", 2, |_| CHECKED.to_vec());
    assert!(outputs.iter().all(|output| output.status.success()), "both have two CPUs");
    let on_one = || [&["exec", "--", "taskset", "-c", "0"], &CHECKED[2..]].concat();
    let outputs = workers(&fake, "crowded", 2, |_| on_one());
    let said = text(&outputs[0].stderr);
    assert!(said.contains("ranks 0-1 on crowded-"), "{said}");
    assert!(said.contains("2 ranks are on 1 CPU (0), though there are "), "{said}");
    assert_eq!(text(&outputs[1].stderr), "", "the first has said it");
    assert!(outputs.iter().all(|output| output.status.code() == Some(1)));
    // Four ranks on two CPUs: there are no more.
    let outputs = workers(&fake, "few", 4, |_| CHECKED.to_vec());
    assert!(outputs.iter().all(|output| output.status.success()));
}

#[test]
fn ranks_with_cpus_in_common_are_told_where_cpus_local_is_to_part_them() {
    let fake = machine("two-cpu");
    let local = || [&["exec", "--mode=cpus=local"], &CHECKED[1..]].concat();
    let text_of = "have CPUs in common, though cpus=local is in effect";
    // GPUs 0 and 4, of which each has a CPU of its own.
    let apart = |rank: usize| match rank {
        0 => [&["exec", "--mode=single,cpus=local", "--", "taskset", "-c", "0"], &CHECKED[2..]]
            .concat(),
        _ => [&["exec", "--mode=single,cpus=local", "--", "taskset", "-c", "1"], &CHECKED[2..]]
            .concat(),
    };
    for output in workers(&fake, "local-apart", 2, apart) {
        assert!(!text(&output.stderr).contains(text_of), "{}", text(&output.stderr));
    }
    // Four workers at two CPUs.
    let outputs = workers(&fake, "local-few", 4, |_| local());
    assert!(outputs.iter().all(|output| output.status.code() == Some(1)));
    assert!(text(&outputs[0].stderr).contains(text_of), "{}", text(&outputs[0].stderr));
}

#[test]
fn in_mode_ordered_the_line_shows_the_rank_s_own_gpu() {
    let fake = machine("two-cpu");
    let node = fake.machine.to_node();
    let env = [
        ("CUDA_VISIBLE_DEVICES", "0,1,4,5"),
        ("GPUBIND_VISIBLE", "0,1,4,5"),
        ("GPUBIND_GPU_UUID", node.gpus[4].uuid.known().unwrap()),
    ];
    let line = text(&report(&fake, &env, &[]).stdout);
    assert!(line.contains("  4 (sees 4)  "), "{line}");
    assert!(line.contains(&node.gpus[4].pci.known().unwrap().to_string()), "{line}");
    let found = json(&report(&fake, &env, &["--json"]));
    let own = found["devices"].as_array().unwrap().iter().map(|device| device["own"].as_bool());
    assert_eq!(own.collect::<Vec<_>>(), [false, false, true, false].map(Some));
}

#[test]
fn a_rank_that_does_not_come_is_named_after_the_wait() {
    let fake = machine("two-cpu");
    let begin = Instant::now();
    let outputs = workers(&fake, "missing", 4, |rank| match rank {
        2 => vec!["--version"],
        _ => vec!["exec", "--", PROGRAM, "report", "--check", "--wait=2"],
    });
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    assert!(outputs.iter().all(|output| output.status.success()));
    let said = text(&outputs[0].stderr);
    let missing = "no answer from local ranks 2 within 2 s; cannot tell whether they share GPUs\n";
    assert!(said.ends_with(missing), "{said}");
    assert_eq!([1, 3].map(|rank| text(&outputs[rank].stderr)), ["", ""], "the first has said it");
    let env = [("PMIX_LOCAL_RANK", "0"), ("CUDA_VISIBLE_DEVICES", "3")];
    let output = report(&fake, &env, &["--check"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("PMIx does not tell how many ranks"));
}

#[test]
fn a_machine_that_cannot_be_read_is_reported_without_a_gpu_and_does_not_pass() {
    let fault = |fault: &str| {
        format!("[faults]\ncall = [{{ name = \"nvmlDeviceGetHandleByIndex_v2\", {fault} }}]")
    };
    for (fault, reason) in [
        (fault("hang = true"), "NVML did not answer within 1 s"),
        (fault("crash = true"), "was killed by signal 6"),
    ] {
        let fake = Fake::with("two-cpu", &fault).with_devices();
        let env = [("CUDA_VISIBLE_DEVICES", "3")];
        let args = ["--json", "--deadline=1", "--check"];
        let begin = Instant::now();
        let output = report(&fake, &env, &args);
        assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains(reason) && said.contains("GPUs are unknown"), "{said}");
        let found = json(&output);
        assert_eq!((&found["visible"], &found["peers"]), (&"3".into(), &Value::Null));
        assert_eq!(report(&fake, &env, &args[..2]).status.code(), Some(0));
    }
}
