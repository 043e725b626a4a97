//! `gpubind topo` as a program: its text, JSON and drawing.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

mod command_support;

const TWO: &str = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n\
                   GPU0\t X \tPIX\t0-3\t0\nGPU1\tPIX\t X \t0-3\t0\n";

fn topo(args: &[&str], input: &str) -> Output {
    command_support::gpubind("topo", args, input)
}

fn out(args: &[&str], input: &str) -> String {
    let output = topo(args, input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str], input: &str) -> Value {
    serde_json::from_str(&out(&[&["--json"], args].concat(), input)).unwrap()
}

/// All machines that are described in this repository.
fn machines() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let fixtures = files.filter(|path| path.extension().is_some_and(|e| e == "toml"));
    let read = |path: std::path::PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    let machines: BTreeMap<String, String> = fixtures.map(read).collect();
    assert!(machines.len() > 3, "no machines found");
    machines
}

/// What text can carry of a node.
fn in_text(node: &Value) -> Value {
    let gpu = |gpu: &Value| {
        let cpus = match &gpu["cpus"] {
            Value::String(cpus) if cpus.is_empty() => &Value::Null,
            cpus => cpus,
        };
        json!([gpu["index"], cpus, gpu["numa"], gpu["gpu_numa_id"]])
    };
    let nic = |nic: &Value| json!([nic["name"], nic["links"]]);
    let all = |key: &str, map: &dyn Fn(&Value) -> Value| -> Vec<Value> {
        node[key].as_array().unwrap().iter().map(map).collect()
    };
    json!([all("gpus", &gpu), node["links"], all("nics", &nic)])
}

#[test]
fn its_own_text_is_read_back_as_the_same_node() {
    for (name, machine) in machines() {
        let text = out(&["--from", "-"], &machine);
        let before = json(&["--from", "-"], &machine);
        let after = json(&["--from", "-"], &text);
        assert_eq!(in_text(&after), in_text(&before), "{name}\n{text}");
        let output = topo(&["--from", "-"], &text);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!errors.contains("another matrix"), "{name}: {errors}");
    }
}

#[test]
fn json_has_the_agreed_form() {
    let node = json(&["--from", "-"], &machines()["a100-mig-mixed"]);
    let gpu = &node["gpus"][0];
    assert_eq!(gpu["index"], 0);
    assert_eq!(gpu["minor"], 0);
    assert!(gpu["uuid"].as_str().unwrap().starts_with("GPU-"));
    assert_eq!(gpu["pci"], "0000:01:00.0");
    assert_eq!(gpu["name"], "NVIDIA A100-SXM4-40GB");
    assert_eq!(gpu["cpus"], "0-31,64-95");
    assert_eq!(gpu["numa"], json!([0]));
    assert!(gpu["mig"][0]["uuid"].as_str().unwrap().starts_with("MIG-"));
    assert_eq!(node["gpus"][2]["mig"], json!([]));
    assert_eq!(node["links"][0][0], "X");
    assert_eq!(node["links"][0][1], "NV4");
    let text = json(&["--from", "-"], TWO);
    assert_eq!(text["gpus"][0]["pci"], Value::Null);
    assert_eq!(text["gpus"][0]["mig"], Value::Null);
    assert_eq!(text["driver"], Value::Null);
    assert_eq!(text["links"], json!([["X", "PIX"], ["PIX", "X"]]));
}

#[test]
fn the_paragraph_says_what_an_admin_should_know() {
    let machines = machines();
    let first = |name: &str| {
        let text = out(&["--from", "-"], &machines[name]);
        text.lines().next().unwrap().to_owned()
    };
    assert_eq!(
        first("dgx-a100"),
        "8 GPUs (NVIDIA A100-SXM4-40GB) in 4 NUMA pairs, all-to-all NVLink 12; GPU order is not \
         NUMA order. NUMA nodes 0,2,4,6 have none. 12 network adapters, 8 behind a PCIe switch \
         with a GPU."
    );
    assert!(first("dgx1-v100").contains("NVLink 1 to 2 between 16 of 28 pairs"));
    assert!(first("gh200-4").contains("NUMA nodes 4,12,20,28 are the GPUs' own memory"));
    assert!(first("lost-gpu").contains("GPU3 cannot be used: it has fallen off the bus"));
    assert!(first("a100-mig-mixed").contains("MIG is on: GPU0 (2 instances)"));
}

#[test]
fn unusable_gpus_and_mig_instances_are_listed_below_the_matrix() {
    let machines = machines();
    let unusable = out(&["--from", "-"], &machines["lost-gpu"]);
    assert!(
        unusable.contains("\nGPU3 at 0000:61:00.0 (/dev/nvidia3) cannot be used: "),
        "{unusable}"
    );
    let mig = out(&["--from", "-"], &machines["a100-mig-mixed"]);
    let instances = mig.lines().filter(|line| line.trim_start().starts_with("MIG-"));
    assert_eq!(instances.count(), 6, "{mig}");
}

#[test]
fn columns_are_aligned() {
    for (name, machine) in machines() {
        let text = out(&["--from", "-"], &machine);
        let header = text.lines().find(|line| line.trim_start().starts_with("GPU0 ")).unwrap();
        let rows = text.lines().skip_while(|line| *line != header).skip(1);
        let starts = |line: &str| -> Vec<usize> {
            let words = line.char_indices().zip(line.chars().skip(1));
            words.filter(|((_, a), b)| *a == ' ' && *b != ' ').map(|((at, _), _)| at + 1).collect()
        };
        let columns = starts(header);
        for row in rows.take_while(|row| row.starts_with("GPU")) {
            for start in starts(row) {
                let own = row[start..].starts_with('X'); // nvidia-smi indents the X too
                assert!(columns.contains(&(start - usize::from(own))), "{name}\n{header}\n{row}");
            }
        }
    }
}

/// The text for a terminal of this width.
fn folded(args: &[&str], input: &str, width: usize) -> String {
    let args = [&["--from", "-"], args].concat();
    let env = [("COLUMNS", width.to_string())];
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    let output = command_support::gpubind_with("topo", &args, input, &env);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_is_too_wide_is_folded_and_read_back_as_the_same_node() {
    for (name, machine) in machines() {
        let whole = json(&["--from", "-"], &out(&["--from", "-"], &machine));
        for width in [60, 80] {
            let text = folded(&[], &machine, width);
            let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= width, "{name}: {longest}\n{text}");
            let output = topo(&["--json", "--from", "-"], &text);
            let read: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(read, whole, "{name}\n{text}");
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!errors.contains("another matrix"), "{name}: {errors}");
        }
    }
    let narrow = folded(&[], &machines()["dgx-a100"], 60);
    assert!(
        narrow.contains("\nGPU7  NV12  NV12  NV12  NV12  NV12  NV12  NV12   X\n\n"),
        "{narrow}"
    );
    assert!(narrow.contains("\n\n      CPU Affinity     NUMA Affinity\n"), "{narrow}");
    let instance = "\n1:3/1  MIG-c81ddc55-c27e-8cb6-9502-36acd382dccf\n";
    assert!(folded(&[], &machines()["a100-mig-mixed"], 60).contains(instance), "who is it of");
}

#[test]
fn a_long_list_of_cpus_is_broken_behind_commas() {
    let cpus: Vec<String> = (0..64).map(|cpu| (cpu * 2).to_string()).collect();
    let text = format!(
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n\
                        GPU0\t X \tSYS\t{}\t0\nGPU1\tSYS\t X \t1\t1\n",
        cpus.join(",")
    );
    let narrow = folded(&[], &text, 60);
    assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
    assert_eq!(json(&["--from", "-"], &narrow), json(&["--from", "-"], &text), "{narrow}");
}

#[test]
fn nothing_is_folded_where_nobody_says_how_wide_it_may_be() {
    let machine = &machines()["dgx-a100"];
    let whole = out(&["--from", "-"], machine);
    assert!(whole.lines().any(|line| line.len() > 180), "{whole}");
    for columns in ["", "0", "wide"] {
        let args = ["--from", "-"];
        let output = command_support::gpubind_with("topo", &args, machine, &[("COLUMNS", columns)]);
        assert_eq!(String::from_utf8(output.stdout).unwrap(), whole, "{columns:?}");
    }
}

#[test]
fn adapters_can_be_left_out() {
    let machine = &machines()["dgx-a100"];
    let text = out(&["--from", "-", "--no-nics"], machine);
    assert!(!text.contains("mlx5") && !text.contains("adapter"), "{text}");
    let matrix = text.lines().filter(|line| line.contains("NV12") || line.contains("GPU0  GPU1"));
    assert!(matrix.clone().count() > 8 && matrix.skip(1).all(|line| line.len() <= 94), "{text}");
    assert_eq!(json(&["--from", "-", "--no-nics"], machine)["nics"], json!([]));
}

#[test]
fn output_that_goes_to_no_terminal_has_no_colours() {
    assert!(!out(&["--from", "-"], TWO).contains('\u{1b}'));
}

#[test]
fn every_machine_can_be_drawn() {
    for (name, machine) in machines() {
        let drawing = out(&["--from", "-", "--svg", "-"], &machine);
        assert!(drawing.starts_with("<svg") && drawing.trim_end().ends_with("</svg>"), "{name}");
        let node = json(&["--from", "-"], &machine);
        let shows = |text: &str| drawing.contains(&format!("\n{text}\n"));
        for gpu in node["gpus"].as_array().unwrap() {
            assert!(shows(&format!("GPU{}", gpu["index"])), "{name} lacks GPU{}", gpu["index"]);
        }
        for nic in node["nics"].as_array().unwrap() {
            assert!(shows(nic["name"].as_str().unwrap()), "{name} lacks {}", nic["name"]);
        }
        let again = out(&["--from", "-", "--svg", "-"], &machine);
        assert_eq!(drawing, again, "{name}: a drawing must not change by itself");
    }
}

#[test]
fn nvlinks_through_switches_are_one_bar_and_direct_ones_are_curves() {
    let machines = machines();
    let draw = |name: &str| out(&["--from", "-", "--svg", "-"], &machines[name]);
    let curves = |drawing: &str| drawing.matches("<path").count();
    assert_eq!(curves(&draw("dgx-a100")), 0);
    assert!(draw("dgx-a100").contains("NVSwitches: 12 NVLinks"));
    assert_eq!(curves(&draw("dgx1-v100")), 16);
    assert_eq!(curves(&draw("gh200-4")), 6);
}

#[test]
fn names_in_a_drawing_are_escaped() {
    let text = "\tGPU0\tNIC0\nGPU0\t X \tPIX\nNIC0\tPIX\t X \n\nNIC0: <b>&\"x\n";
    let drawing = out(&["--from", "-", "--svg", "-"], text);
    assert!(!drawing.contains("<b>"), "{drawing}");
    assert!(drawing.contains("&lt;b&gt;&amp;"), "{drawing}");
}

#[test]
fn a_drawing_goes_to_its_file_and_errors_say_which_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.svg");
    assert_eq!(out(&["--from", "-", "--svg", path.to_str().unwrap()], TWO), "");
    assert!(fs::read_to_string(&path).unwrap().contains("NUMA node 0"));
    let nowhere = folder.path().join("no/such/folder.svg");
    let output = topo(&["--from", "-", "--svg", nowhere.to_str().unwrap()], TWO);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.starts_with("gpubind: cannot write ") && errors.contains("folder.svg"));
}

#[test]
fn a_text_that_cannot_be_read_is_one_line_and_exit_code_one() {
    let output = topo(&["--from", "-"], &TWO.replace("GPU1\tPIX", "GPU1\tFOO"));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"");
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "gpubind: standard input: line 3, row GPU1, column GPU0: `FOO` is not one of X, NV#, PIX, \
         PXB, PHB, NODE, SYS\n"
    );
    let output = topo(&["--from", "/no/such/file"], "");
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("gpubind: cannot read /no/such/"));
}

#[test]
fn warnings_go_to_stderr_and_not_into_the_json() {
    let output = topo(&["--json", "--from", "-"], &TWO.replacen("0-3", "0-1", 1));
    assert!(output.status.success());
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "gpubind: standard input: GPU0 and GPU1 print the same NUMA node 0 but different CPUs\n"
    );
    serde_json::from_slice::<Value>(&output.stdout).unwrap();
}
