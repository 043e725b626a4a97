//! docs/json.md against what the program prints: each field and type that is printed is on
//! the page, and each on the page is printed somewhere.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

mod check_support;
mod command_support;
mod json_support;
mod nvml_support;

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

use check_support::{Host, PROGRAM, well};
use json_support::{Page, difference, seen};
use nvml_support::{Fake, machines, names};
use serde_json::{Value, json};

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// Checks that these outputs are as the page says below this heading.
fn compare(heading: &str, documents: &[Value]) {
    let page = Page::read();
    let fields = page.fields(heading);
    let wrong = difference(&fields, &seen(documents, &fields));
    assert!(wrong.is_empty(), "docs/json.md, {heading}:\n{}", wrong.join("\n"));
    let version = documents[0]["schema"].as_u64().unwrap();
    assert!(documents.iter().all(|document| document["schema"] == version), "{heading}");
    let (_, section) = page.text.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    assert!(section.contains(&format!("Schema {version}.")), "{heading}: schema {version}");
    assert!(section.contains(&format!("| `schema` | integer | {version} |")), "{heading}");
}

/// A command that reads a machine from its standard input.
fn on(input: &str, command: &str, args: &[&str]) -> Value {
    let output = command_support::gpubind(command, &[&["--from", "-"], args].concat(), input);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command} {args:?}: {errors}");
    parsed(&output.stdout)
}

fn machine(name: &str) -> String {
    fs::read_to_string(machines().join(format!("{name}.toml"))).unwrap()
}

/// A snapshot of a fake machine, as the program prints it.
fn snapshot(fake: &Fake, args: &[&str], env: &[(&str, &str)]) -> Value {
    let mut command = Command::new(PROGRAM);
    command.args(["snapshot", "--show", "--fsroot"]).arg(fake.path()).args(args);
    command.arg("--nvml").arg(fake.library()).env_remove("SLURM_CONF").envs(env.iter().copied());
    parsed(&command.output().unwrap().stdout)
}

/// A snapshot of which hardly anything is known.
fn unknown() -> String {
    let mut snapshot = snapshot(&Fake::with("a100-mig-mixed", ""), &["--fresh"], &[]);
    let node = &mut snapshot["node"];
    for gpu in node["gpus"].as_array_mut().unwrap() {
        for key in ["minor", "uuid", "name", "cpus", "numa", "mig_mode"] {
            gpu[key] = "unsupported".into();
        }
        for mig in gpu["mig"].as_array_mut().unwrap() {
            mig["profile"] = Value::Null;
        }
    }
    for numa in node["numa"].as_array_mut().unwrap() {
        numa["distance"] = json!([]);
    }
    node["driver"] = Value::Null;
    node["unusable"] = json!([{"index": 9, "pci": null, "minor": null, "code": 15}]);
    snapshot.to_string()
}

/// Text in which nothing is known but the links, and of those not all.
const TEXT: &str = "\tGPU0\tGPU1\tNIC0\nGPU0\t X \t?\tPIX\nGPU1\t?\t X \t?\nNIC0\tPIX\t?\t X \n";

#[test]
fn topo() {
    let mut all: Vec<Value> =
        names().iter().map(|name| on(&machine(name), "topo", &["--json"])).collect();
    all.extend([TEXT, &unknown()].map(|text| on(text, "topo", &["--json"])));
    compare("gpubind topo --json", &all);
}

#[test]
fn plan() {
    let mut all: Vec<Value> =
        names().iter().map(|name| on(&machine(name), "plan", &["--json"])).collect();
    all.push(on(&machine("dgx-a100"), "plan", &["--json", "--compare"]));
    all.push(on(&unknown(), "plan", &["--json"]));
    all.push(on(TEXT, "plan", &["--json", "--ids=uuid"]));
    compare("gpubind plan --json", &all);
}

fn report(fake: &Fake, env: &[(&str, &str)], args: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("report").args(args).env_clear().env("PATH", "/usr/bin:/bin");
    command.env("GPUBIND_FSROOT", fake.path()).env("GPUBIND_NVML", fake.library());
    command.envs(env.iter().copied()).output().unwrap()
}

/// The outputs of processes, and of a step that has them as its ranks.
fn reports() -> (Vec<Value>, Vec<Value>) {
    let fake = Fake::with("two-cpu", "").with_devices();
    let bare = Fake::with("vm-no-affinity", "");
    let mig = Fake::with("a100-mig-mixed", "").with_devices();
    let instance = mig.machine.to_node().gpus[0].mig[0].uuid.clone();
    let task = [
        ("SLURM_LOCALID", "0"),
        ("SLURM_PROCID", "0"),
        ("SLURM_STEP_NUM_TASKS", "1"),
        ("SLURM_STEP_TASKS_PER_NODE", "1"),
        ("CUDA_VISIBLE_DEVICES", "2"),
        ("GPUBIND_VISIBLE", "3"),
        ("GPUBIND_WHY", "local to its CPUs"),
    ];
    let worker = [("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "2"), ("RANK", "0")];
    let outputs = [
        report(&fake, &task, &["--json", "--check", "--wait=1"]),
        report(&fake, &worker, &["--json", "--check", "--wait=1"]),
        report(&fake, &[("MPI_LOCALRANKID", "0")], &["--json"]),
        report(&fake, &[], &["--json"]),
        report(&bare, &[], &["--json"]),
        report(&mig, &[("CUDA_VISIBLE_DEVICES", &instance)], &["--json"]),
        report(&fake, &[("GPUBIND_NVML", "/nonexistent")], &["--json", "--deadline=5"]),
    ];
    let mut lines: Vec<Value> = outputs.iter().map(|output| parsed(&output.stdout)).collect();
    // Where this process runs, and what is not known, is not for the test to choose.
    for (word, known) in [("local", true), ("partly local", true), ("remote", true), ("", false)] {
        let mut line = lines[0].clone();
        let device = &mut line["devices"][0];
        device["locality"] = if known { word.into() } else { Value::Null };
        for key in ["minor", "uuid", "pci", "name", "numa", "cpus"] {
            let value = device[key].clone();
            device[key] = if known { value } else { Value::Null };
        }
        device["mig"] = match known {
            true => Value::Null,
            false => json!({"gi": 1, "ci": 0, "uuid": "MIG-1", "profile": null}),
        };
        device["reachable"] = known.into();
        device["own"] = known.into();
        line["share"] = known.into();
        lines.push(line);
    }
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let merged = command_support::gpubind("report", &["--merge", "--json"], &text);
    let step = parsed(&merged.stdout);
    // The whole goes through the program, so all of it is its output.
    (step["ranks"].as_array().unwrap().clone(), vec![step])
}

#[test]
fn report_of_a_process_and_of_a_step() {
    let (ranks, steps) = reports();
    compare("gpubind report --json", &ranks);
    compare("gpubind report --table --json", &steps);
}

#[test]
fn exec() {
    let fake = Fake::with("two-cpu", "").with_devices();
    let mut command = Command::new(PROGRAM);
    command.args(["exec", "--dry-run", "--json"]).env_clear().env("PATH", "/usr/bin:/bin");
    command.env("GPUBIND_FSROOT", fake.path()).env("GPUBIND_NVML", fake.library());
    command.envs([("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "8"), ("GPUBIND_SHARE", "on")]);
    compare("gpubind exec --dry-run --json", &[parsed(&command.output().unwrap().stdout)]);
}

#[test]
fn check() {
    let Some(host) = well() else { return };
    let run = |host: &Host| parsed(&host.command(&["--json"]).output().unwrap().stdout);
    let mut all = vec![run(&host)];
    host.change("etc/plugstack.conf", "optional", "required");
    all.push(run(&host));
    let young = Host::new().unwrap();
    all.push(run(&young));
    host.change("etc/plugstack.conf", "required", "optional");
    host.change("etc/cgroup.conf", "yes", "no");
    all.push(run(&host));
    let results: BTreeSet<&str> = all.iter().map(|it| it["result"].as_str().unwrap()).collect();
    assert_eq!(results.len(), 4, "{results:?}");
    compare("gpubind check --json", &all);
}

#[test]
fn metrics() {
    let Some(host) = well() else { return };
    let output = host.command(&["--prometheus"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let page = Page::read();
    let mut said = BTreeSet::new();
    for (metric, labels) in page.rows("gpubind check --prometheus") {
        let (label, values) = labels.split_once(": ").unwrap();
        let label = label.trim_matches('`');
        match values.split_once(", ") {
            None => drop(said.insert(format!("{metric} {label}"))),
            Some(_) => {
                said.extend(values.split(", ").map(|value| format!("{metric} {label} {value}")));
            }
        }
    }
    let printed = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (metric, rest) = line.split_once('{').unwrap();
        let (label, rest) = rest.split_once("=\"").unwrap();
        let (value, number) = rest.split_once("\"} ").unwrap();
        assert!(number.parse::<u32>().is_ok(), "{line}");
        match label {
            "check" => format!("{metric} {label}"),
            _ => format!("{metric} {label} {value}"),
        }
    });
    assert_eq!(printed.collect::<BTreeSet<_>>(), said);
}

#[test]
fn config() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root's site file is trusted");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("gpubind.toml"), "mode = \"single\"\nexclude = [\"GPU-1\"]\n").unwrap();
    let line = format!("optional spank_gpubind.so config={} verbose\n", path("gpubind.toml"));
    fs::write(path("plugstack.conf"), line).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["config", "--json", "--plugstack", &path("plugstack.conf")]).env_clear();
    command.env("SLURM_GPUBIND", "ids=uuid").env("SLURM_CONF", path("slurm.conf"));
    compare("gpubind config --json", &[parsed(&command.output().unwrap().stdout)]);
}

#[test]
fn the_snapshot() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root's snapshot is trusted");
        return;
    }
    let fresh = |fake: &Fake, env: &[(&str, &str)]| snapshot(fake, &["--fresh"], env);
    let mut all: Vec<Value> =
        names().iter().map(|name| fresh(&Fake::with(name, ""), &[])).collect();
    for call in ["MinorNumber", "UUID", "Name", "MigMode", "PersistenceMode", "NumaNodeId"] {
        let fault = format!("[faults]\nabsent = [\"nvmlDeviceGet{call}\"]");
        all.push(fresh(&Fake::with("a100-mig-mixed", &fault), &[]));
    }
    // Slurm's order of GPUs, and a gres.conf that is not there.
    let fake = Fake::with("two-cpu", "").with_devices();
    let conf = fake.path().join("slurm.conf");
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    fs::write(&conf, format!("NodeName=n1 NodeHostname={host} Gres=gpu:8\n")).unwrap();
    let env = [("SLURM_CONF", conf.to_str().unwrap())];
    all.push(fresh(&fake, &env));
    fs::write(conf.with_file_name("gres.conf"), "Name=gpu File=/dev/nvidia[7,0-6]\n").unwrap();
    all.push(fresh(&fake, &env));
    // A driver that says nothing in /proc.
    fs::remove_file(fake.path().join("proc/sys/kernel/random/boot_id")).unwrap();
    fs::remove_file(fake.path().join("proc/driver/nvidia/version")).unwrap();
    all.push(fresh(&fake, &[]));
    // A kept one, of which less is known.
    let fake = Fake::with("a100-mig-mixed", "");
    let mut kept = snapshot(&fake, &["--save"], &[]);
    let node = &mut kept["node"];
    node["driver"] = Value::Null;
    node["gpus"][0]["mig"][0]["profile"] = Value::Null;
    node["unusable"] = json!([{"index": 9, "pci": null, "minor": null, "code": 15}]);
    let links: Vec<&str> = node["gpus"].as_array().unwrap().iter().map(|_| "?").collect();
    node["nics"] = json!([{"name": "mlx5_0", "pci": null, "links": links}]);
    fs::write(fake.roots().snapshot(), kept.to_string()).unwrap();
    all.push(snapshot(&fake, &[], &[]));
    assert_eq!(all.last(), Some(&kept));
    compare("gpubind snapshot --show", &all);
}

#[test]
fn each_command_that_prints_json_is_on_the_page() {
    let page = Page::read();
    let headings = page.headings();
    let program = gpubind::cli::command();
    let mut count = 0;
    for command in program.get_subcommands() {
        if command.get_arguments().any(|it| it.get_long() == Some("json")) {
            let name = format!("gpubind {} ", command.get_name());
            assert!(headings.iter().any(|heading| heading.starts_with(&name)), "no {name}");
            count += 1;
        }
    }
    assert!(count >= 6, "{count}");
}
