//! `gpubind check`, run as a program on fake machines with a Slurm that is only files
//! and two scripts. What a real Slurm says is in tests/slurm.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

mod check_support;
mod command_support;
mod nvml_support;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use check_support::{Host, PROGRAM, well};

/// What the command said of each check, and its exit code.
struct Setting {
    code: Option<i32>,
    lines: Vec<(String, String, String)>,
    stderr: String,
}

impl Setting {
    /// The level and the text of a check.
    fn of(&self, check: &str) -> (&str, &str) {
        let mut found = self.lines.iter().filter(|(_, name, _)| name == check);
        let (level, _, text) = found.next().unwrap_or_else(|| panic!("no {check}: {self:?}"));
        assert!(found.next().is_none(), "{check} twice: {self:?}");
        (level, text)
    }

    /// The checks that are not ok.
    fn not_ok(&self) -> Vec<(&str, &str)> {
        let lines = self.lines.iter().filter(|(level, ..)| level != "ok");
        lines.map(|(level, check, _)| (level.as_str(), check.as_str())).collect()
    }
}

impl std::fmt::Debug for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "exit code {:?}, {}", self.code, self.stderr)?;
        self.lines.iter().try_for_each(|(level, check, text)| writeln!(f, "{level} {check} {text}"))
    }
}

impl Host {
    fn check(&self) -> Setting {
        self.check_with(&[])
    }

    fn check_with(&self, args: &[&str]) -> Setting {
        let output = self.command(args).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let line = |line: &str| {
            let mut words = line.splitn(2, char::is_whitespace);
            let level = words.next().unwrap().to_owned();
            let mut words = words.next().unwrap().trim_start().splitn(2, char::is_whitespace);
            let check = words.next().unwrap().to_owned();
            (level, check, words.next().unwrap().trim_start().to_owned())
        };
        Setting {
            code: output.status.code(),
            lines: text.lines().map(line).collect(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Checks that just this check finds something, of this level, with these words.
    fn finds(&self, level: &str, check: &str, words: &[&str]) {
        let said = self.check();
        assert_eq!(said.not_ok(), [(level, check)], "{said:?}");
        self.says(&said, level, check, words);
        let code = match level {
            "broken" => 2,
            "warning" => 1,
            _ => 0,
        };
        assert_eq!(said.code, Some(code), "{said:?}");
    }

    fn says(&self, said: &Setting, level: &str, check: &str, words: &[&str]) {
        let (found, text) = said.of(check);
        assert_eq!(found, level, "{said:?}");
        for word in words {
            assert!(text.contains(word), "no {word:?} in {text:?}");
        }
        assert!(level == "note" || text.contains(" -> "), "nothing to do: {text:?}");
    }
}

#[test]
fn a_node_that_is_set_up_right_is_ok_in_every_line() {
    let Some(host) = well() else { return };
    let said = host.check();
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{said:?}");
    assert_eq!(said.not_ok(), []);
    let place = host.path("etc/plugstack.conf");
    for (check, text) in [
        ("slurm-release", "Slurm 24.11, for which plugin_version is 0x180b00".into()),
        ("plugin-line", format!("{}:1 loads spank_gpubind.so", place.display())),
        ("plugin-loads", "`srun --help` offers --gpubind".into()),
        ("mig", "off".into()),
        ("gres-files", "8 listed, in PCI order".into()),
        (
            "placement",
            "one rank on each of 8 GPUs, dealt in turn to 2 sockets: 4 not local without gpubind, \
             0 with it"
                .into(),
        ),
    ] {
        assert_eq!(said.of(check), ("ok", text.as_str()));
    }
    assert!(said.of("nvml").1.starts_with("8 GPUs, driver 550.90.07, read in 0."), "{said:?}");
}

#[test]
fn json_has_the_same_lines_and_the_worst_level() {
    let Some(host) = well() else { return };
    host.change("etc/plugstack.conf", "optional", "required");
    let output = host.command(&["--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "gpubind: 1 broken, 0 to look at\n");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["result"], "broken");
    let reported = json["checks"].as_array().unwrap().iter().map(|check| {
        let text = |key: &str| check[key].as_str().unwrap().to_owned();
        let advice =
            check["advice"].as_str().map_or(String::new(), |advice| format!(" -> {advice}"));
        (text("level"), text("check"), text("found") + &advice)
    });
    let mut lines = host.check().lines;
    let mut reported: Vec<_> = reported.collect();
    // Reading takes another time each time.
    for lines in [&mut lines, &mut reported] {
        lines.iter_mut().find(|(_, check, _)| check == "nvml").unwrap().2.clear();
        lines.iter_mut().find(|(_, check, _)| check == "snapshot").unwrap().2.clear();
    }
    assert_eq!(reported, lines);
}

#[test]
fn the_plugins_line_must_be_there_once_and_optional() {
    let Some(host) = well() else { return };
    let ours = host.line("optional", "");
    host.plugin_line("required", "");
    host.finds("broken", "plugin-line", &["plugstack.conf:1 says `required`", "drains nodes"]);
    host.write("etc/plugstack.conf", &format!("{ours}{ours}"));
    host.finds("warning", "plugin-line", &["plugstack.conf:2 loads it again"]);
    host.write("etc/plugstack.conf", &format!("{ours}optionl x.so\n"));
    host.finds("warning", "plugin-line", &["plugstack.conf:2: Slurm skips `optionl x.so`"]);
    // By an include with a glob, from a file that PlugStackConfig names.
    fs::create_dir(host.path("etc/plugstack.conf.d")).unwrap();
    host.write("etc/plugstack.conf.d/gpubind.conf", &ours);
    host.write("etc/other.conf", "include plugstack.conf.d/*.conf\n");
    fs::remove_file(host.path("etc/plugstack.conf")).unwrap();
    let other = host.path("etc/other.conf").display().to_string();
    host.change("etc/slurm.conf", "ClusterName=c", &format!("plugstackconfig={other}"));
    let said = host.check();
    assert_eq!((said.code, said.not_ok()), (Some(0), vec![]), "{said:?}");
    assert!(said.of("plugin-line").1.contains("plugstack.conf.d/gpubind.conf:1 loads"), "{said:?}");
}

#[test]
fn without_the_plugins_line_what_depends_on_it_is_not_checked() {
    let Some(host) = well() else { return };
    host.write("etc/plugstack.conf", "optional other.so\n");
    let machine = [
        "--fsroot",
        host.fake.path().to_str().unwrap(),
        "--nvml",
        host.fake.library().to_str().unwrap(),
        "--config",
        host.path("etc/gpubind.toml").to_str().unwrap(),
    ]
    .map(str::to_owned);
    let machine: Vec<&str> = machine.iter().map(String::as_str).collect();
    let said = host.check_with(&machine);
    assert_eq!(said.not_ok(), [("broken", "plugin-line"), ("note", "program")], "{said:?}");
    host.says(&said, "broken", "plugin-line", &["loads spank_gpubind.so", "add `optional"]);
    host.write("etc/plugstack.conf", "include nothing/*\n");
    let said = host.check_with(&machine);
    host.says(&said, "broken", "plugin-line", &["no file matches `nothing/*`"]);
    let plugstack = host.path("etc/mine.conf");
    host.write("etc/mine.conf", &host.line("optional", ""));
    let said = host.check_with(&["--plugstack", plugstack.to_str().unwrap()]);
    assert_eq!(said.not_ok(), [("note", "plugin-loads")], "Slurm does not read it: {said:?}");
}

#[test]
fn arguments_and_the_site_file_are_read_as_the_plugin_reads_them() {
    let Some(host) = well() else { return };
    host.plugin_line("optional", "probe-timeout=soon");
    host.finds("warning", "plugin-arguments", &["plugstack.conf:1: `probe-timeout=soon` needs"]);
    host.plugin_line("optional", "");
    host.write("etc/gpubind.toml", "mode = \"auto\"\nmod = \"single\"\n");
    host.finds(
        "warning",
        "site-policy",
        &["ignoring ", "gpubind.toml: line 2: ", "as if there were no such file"],
    );
}

#[test]
fn tables_of_the_site_file_that_change_nothing_are_named() {
    let Some(host) = well() else { return };
    host.change("etc/slurm.conf", "NodeName", "PartitionName=pilot,big Nodes=n1\nNodeName");
    host.write("etc/gpubind.toml", "[partition.pilot]\nmode = \"single\"\n");
    assert_eq!(host.check().not_ok(), []);
    host.write("etc/gpubind.toml", "[partition.pilto]\nmode = \"single\"\n");
    let none = "has [partition.pilto], but slurm.conf has no such partition (pilot, big)";
    host.finds("warning", "site-policy", &["without effect: ", none]);
    let tables =
        "ids = \"index\"\n[partition.big]\nids = \"uuid\"\n[constraint.x]\nmode = \"first\"\n";
    host.write("etc/gpubind.toml", tables);
    assert_eq!(host.check().not_ok(), []);
    host.plugin_line("optional", "ids=index mode=auto");
    let ids = "plugstack.conf:1 sets ids for all jobs, so ids in [partition.big] of ";
    let mode = "plugstack.conf:1 sets mode for all jobs, so mode in [constraint.x] of ";
    host.finds("warning", "site-policy", &[ids, mode]);
}

#[test]
fn a_slurm_conf_that_is_named_must_be_there() {
    let Some(host) = well() else { return };
    let said = host.check_with(&["--slurm-conf", "/nonexistent/slurm.conf"]);
    assert_eq!((said.code, said.lines.len()), (Some(2), 0), "{said:?}");
    assert!(said.stderr.starts_with("gpubind: cannot read /nonexistent/slurm.conf: "), "{said:?}");
}

#[test]
fn the_plugins_file_must_be_roots_and_loadable() {
    let Some(host) = well() else { return };
    let file = host.path("lib/spank_gpubind.so");
    fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    host.finds(
        "broken",
        "plugin-file",
        &["spank_gpubind.so is writable by others than its owner (mode 0666)"],
    );
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    chown(&file, Some(1), None).unwrap();
    host.finds("broken", "plugin-file", &["belongs to user 1, not to user 0"]);
    fs::remove_file(&file).unwrap();
    host.finds("broken", "plugin-file", &["is in none of Slurm's plugin folders"]);
    host.change("etc/plugstack.conf", "spank_gpubind.so", "/nonexistent/spank_gpubind.so");
    host.finds("broken", "plugin-file", &["not safe: there is no /nonexistent/spank_gpubind.so"]);
}

#[test]
fn an_srun_that_hangs_costs_seconds_and_a_line() {
    let Some(host) = well() else { return };
    host.program("srun", "exec sleep 600");
    let begin = Instant::now();
    let said = host.check();
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    let why = ["not checked: `srun --help` gives nothing: ", "did not finish within 3 s"];
    host.says(&said, "note", "plugin-loads", &why);
}

#[test]
fn slurm_says_whether_it_loads_the_plugin_and_which_release_it_is() {
    let Some(host) = well() else { return };
    host.slurm("24.11.5", "no such option");
    host.finds("broken", "plugin-loads", &["does not offer --gpubind: srun: gpubind: a message"]);
    host.slurm("24.11.5", "--gpubind=");
    host.program("srun", "exit 1");
    host.finds("note", "plugin-loads", &["not checked: ", "srun failed with exit code 1"]);
    host.slurm("21.08.8", "--gpubind=");
    host.change("etc/slurm.conf", "task/cgroup,task/affinity", "task/affinity,task/cgroup");
    host.finds("broken", "slurm-release", &["Slurm 21.08 has no plugin_version", "22.05 or later"]);
    host.slurm("of unknown age", "--gpubind=");
    host.finds("note", "slurm-release", &["`slurm of unknown age` is no version of Slurm"]);
    // Root runs only what is root's.
    host.slurm("22.05.8", "--gpubind=");
    chown(host.path("bin/srun"), Some(1), None).unwrap();
    host.finds("note", "plugin-loads", &["root does not run", "belongs to user 1"]);
}

#[test]
fn gpubind_comes_after_pyxis() {
    let Some(host) = well() else { return };
    let (ours, pyxis) = (host.line("optional", ""), "required /usr/lib/slurm/spank_pyxis.so\n");
    host.write("etc/plugstack.conf", &format!("{pyxis}{ours}"));
    let said = host.check();
    assert_eq!((said.code, said.not_ok()), (Some(0), vec![("note", "enroot")]), "{said:?}");
    assert!(said.of("enroot").1.contains("lib/worker.so into containers"), "{said:?}");
    let mounts = host.fake.path().join("etc/enroot/mounts.d");
    fs::create_dir_all(&mounts).unwrap();
    let folder = host.path("lib").display().to_string();
    let line = format!("{folder} {folder} none bind,ro\n");
    fs::write(mounts.join("50-gpubind.fstab"), line).unwrap();
    let said = host.check();
    assert_eq!(said.not_ok(), []);
    assert!(said.of("pyxis").1.contains("plugstack.conf:1 comes before gpubind"), "{said:?}");
    host.write("etc/plugstack.conf", &format!("{ours}{pyxis}"));
    host.finds("warning", "pyxis", &["plugstack.conf:2 comes after gpubind", "LOCAL_RANK"]);
    // By the file's name alone, where a pattern includes both.
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/etc/plugstack.conf.d");
    let shipped = fs::read_dir(folder).unwrap().next().unwrap().unwrap().file_name();
    fs::create_dir(host.path("etc/plugstack.conf.d")).unwrap();
    host.write("etc/plugstack.conf", "include plugstack.conf.d/*.conf\n");
    host.write("etc/plugstack.conf.d/pyxis.conf", pyxis);
    let file = format!("etc/plugstack.conf.d/{}", shipped.to_str().unwrap());
    host.write(&file, &ours);
    assert!(host.check().of("pyxis").1.contains("pyxis.conf:1 comes before gpubind"));
    fs::rename(host.path(&file), host.path("etc/plugstack.conf.d/gpubind.conf")).unwrap();
    host.finds("warning", "pyxis", &["pyxis.conf:1 comes after gpubind"]);
}

#[test]
fn the_program_must_be_one_that_root_runs_and_of_this_version() {
    let Some(host) = well() else { return };
    let other = host.path("bin/other");
    let line = host.line("optional", "").replace(PROGRAM, other.to_str().unwrap());
    host.write("etc/plugstack.conf", &line);
    host.finds(
        "broken",
        "program",
        &["will not run it: there is no ", "bin/other", "program=PATH"],
    );
    host.program("other", "echo gpubind 0.0.1");
    host.finds("warning", "program", &["bin/other is gpubind 0.0.1; this is 0."]);
    host.program("other", "exit 3");
    host.finds("broken", "program", &["does not run", "failed with exit code 3"]);
    fs::set_permissions(&other, Permissions::from_mode(0o777)).unwrap();
    host.finds("broken", "program", &["is writable by others than its owner (mode 0777)"]);
}

#[test]
fn the_worker_shim_must_load_without_a_word() {
    let Some(host) = well() else { return };
    host.write("lib/worker.so", "no library\n");
    host.finds("broken", "worker-shim", &["worker.so complains: ", "cannot be preloaded"]);
    let shim = host.path("lib/worker.so");
    fs::set_permissions(&shim, Permissions::from_mode(0o777)).unwrap();
    host.finds(
        "broken",
        "worker-shim",
        &["is writable by others than its owner (mode 0777)", "every user"],
    );
    fs::remove_file(&shim).unwrap();
    host.finds("warning", "worker-shim", &["there is no ", "worker=PATH"]);
    host.write("etc/gpubind.toml", "workers = \"off\"\n");
    assert_eq!(host.check().not_ok(), [], "nobody loads it");
}

#[test]
fn nvml_that_cannot_be_read_is_broken_and_hides_nothing_else() {
    let mismatch = ("mismatch = true", "NVML failed with code 18", "reload the kernel module");
    let hang = r#"call = [{ name = "nvmlDeviceGetName", gpu = 3, hang = true }]"#;
    let crash = r#"call = [{ name = "nvmlDeviceGetName", gpu = 3, crash = true }]"#;
    let unread = "ranks get GPUs in index order";
    for (fault, why, advice) in [
        mismatch,
        (hang, "NVML did not answer within 1 s", unread),
        (crash, "was killed by signal 6", unread),
    ] {
        let Some(host) = Host::of("hgx-h100", &format!("[faults]\n{fault}")) else { return };
        host.plugin_line("optional", "probe-timeout=1");
        let begin = Instant::now();
        let said = host.check();
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        host.says(&said, "broken", "nvml", &[why, advice]);
        let expected =
            [("broken", "nvml"), ("warning", "snapshot"), ("note", "gres"), ("note", "placement")];
        assert_eq!((said.code, said.not_ok()), (Some(2), expected.to_vec()), "{said:?}");
    }
    let Some(host) = well() else { return };
    fs::remove_file(host.fake.library()).unwrap();
    let said = host.check();
    host.says(&said, "broken", "nvml", &["cannot load ", "it comes with the NVIDIA driver"]);
}

#[test]
fn a_slow_driver_warns() {
    let slow = r#"call = [{ name = "nvmlDeviceGetCount_v2", delay-ms = 1200 }]"#;
    let Some(host) = Host::of("hgx-h100", &format!("[faults]\n{slow}")) else { return };
    host.snapshot();
    host.plugin_line("optional", "probe-timeout=2");
    host.finds("warning", "nvml", &["a step waits for it, 2 s at most", "persistence mode"]);
}

#[test]
fn persistence_mode_that_is_off_and_gpus_that_are_lost_are_named() {
    let Some(host) = Host::of("workstation", "") else { return };
    host.snapshot();
    let said = host.check();
    host.says(&said, "warning", "persistence", &["off for GPUs 0, 1", "nvidia-persistenced"]);
    let Some(host) = Host::of("two-cpu", "[faults]\nlost = [2]\nforbidden = [5]") else { return };
    host.write("etc/gres.conf", "Name=gpu File=/dev/nvidia[0-7]\n");
    let said = host.check();
    let lost = "cannot be used: GPU 2 at 0000:03:00.0 (NVML code 15)";
    host.says(&said, "warning", "usable-gpus", &[lost, "xid", "goes on with the others"]);
    assert!(said.not_ok().iter().all(|(_, check)| !check.starts_with("gres")), "{said:?}");
    let Some(host) = Host::of("two-cpu", "[faults]\nforbidden = [5]") else { return };
    host.says(
        &host.check(),
        "note",
        "usable-gpus",
        &["GPUs 5 may not be opened", "outside of a job"],
    );
}

#[test]
fn mig_instances_need_autodetect() {
    let Some(host) = Host::of("a100-mig-mixed", "") else { return };
    host.snapshot();
    let said = host.check();
    host.says(&said, "warning", "gres-detect", &["MIG is on", "AutoDetect=nvml"]);
    host.says(
        &said,
        "warning",
        "mig",
        &["on for GPUs 3, which have no instance", "nvidia-smi mig"],
    );
    // Slurm gives it to jobs all the same.
    host.says(&said, "note", "usable-gpus", &["all but GPUs 3, which have no MIG instance"]);
    let only = "4 GPUs, but only 3 can be used: GPUs 3 have no MIG instance";
    host.says(&said, "warning", "gres-count", &[only]);
    let node = host.fake.machine.to_node();
    let split = node.gpus.iter().filter(|gpu| !gpu.mig.is_empty()).count();
    let instances: usize = node.gpus.iter().map(|gpu| gpu.mig.len()).sum();
    let devices = node.gpus.len() - split - 1 + instances;
    assert!(said.of("placement").1.starts_with(&format!("one rank on each of {devices} GPUs")));
    host.write("etc/gres.conf", "AutoDetect=nvml\n");
    host.write("lib/gpu_nvml.so", "");
    host.change("etc/slurm.conf", "Gres=gpu:4", &format!("Gres=gpu:a100:{devices}"));
    let said = host.check();
    assert!(said.not_ok().iter().all(|(_, check)| !check.starts_with("gres")), "{said:?}");
    assert!(said.of("gres-count").1.contains("MIG instances"), "{said:?}");
}

#[test]
fn an_ignored_snapshot_has_a_reason() {
    let Some(host) = Host::new() else { return };
    host.finds("warning", "snapshot", &["there is no ", "gpubind snapshot --save"]);
    let file = host.snapshot();
    fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    host.finds("warning", "snapshot", &["is writable by others than its owner (mode 0666)"]);
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let boot_id = host.fake.path().join("proc/sys/kernel/random/boot_id");
    let before = fs::read_to_string(&boot_id).unwrap();
    fs::write(&boot_id, "another\n").unwrap();
    host.finds("warning", "snapshot", &["stale: the boot id changed"]);
    fs::write(&boot_id, before).unwrap();
    // What no fingerprint shows: an NVLink, a lost GPU.
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("NV18"), "{text}");
    fs::write(&file, text.replacen("NV18", "NV17", 1)).unwrap();
    host.finds("warning", "snapshot", &["NVML shows something else by now", "--save --fresh"]);
}

#[test]
fn gres_conf_must_fit_the_machine() {
    let Some(host) = well() else { return };
    let gres = |text: &str| host.write("etc/gres.conf", text);
    gres("Name=gpu File=/dev/nvidia[7,6,5,4,3,2,1,0]\n");
    let right = "list them as /dev/nvidia0,/dev/nvidia1,";
    host.finds("warning", "gres-files", &["another order than PCI's", right]);
    gres("Name=gpu File=/dev/nvidia[0-7,9]\n");
    host.finds("broken", "gres-files", &["lists /dev/nvidia9, which is no GPU's"]);
    gres("Name=gpu File=/dev/nvidia[0-7,0]\n");
    host.finds("broken", "gres-files", &["lists /dev/nvidia0 twice"]);
    gres("Name=gpu File=/dev/nvidia[0-5]\n");
    host.finds("warning", "gres-files", &["leaves out /dev/nvidia6,/dev/nvidia7"]);
    gres("Name=gpu File=/dev/nvidia[0-7]\n");
    fs::remove_file(host.device("3")).unwrap();
    let said = host.check();
    host.says(&said, "warning", "usable-gpus", &["no device file for GPUs 3"]);
    host.says(&said, "broken", "gres-files", &["lists /dev/nvidia3, which is not there"]);
    fs::write(host.device("3"), "").unwrap();
    gres("NodeName=n2 Name=gpu File=/dev/nvidia[0-7]\n");
    host.finds("warning", "gres-files", &["names no device file", "File=/dev/nvidia[0-7]"]);
    gres("Name=gpu File=/dev/nvidia[0-3] Cores=0-3\nName=gpu File=/dev/nvidia[4-7]\n");
    host.finds("warning", "gres-cores", &["GPU 0 has Cores=0-3 (line 1), but 0-", "GPU 3 has"]);
    gres("Name=gpu File=/dev/nvidia0 Links=-1,1,1,1\nName=gpu File=/dev/nvidia[1-7]\n");
    let links = "GPU 0 has Links=-1,1,1,1 (line 1), but -1,1,1,1,1,1,1,1 would be right";
    host.finds("warning", "gres-links", &[links]);
    // All GPUs are joined alike: any one number is as good as another.
    for number in [0, 1, 18] {
        gres(&all_to_all(|own, other| if own == other { -1 } else { number }));
        assert_eq!(host.check().not_ok(), [], "{number}");
    }
    gres(&all_to_all(|own, other| if own == other { -1 } else { i32::from(own < 4) }));
    host.finds("warning", "gres-links", &["GPU 0 has Links=-1,1,1,1,1,1,1,1 (line 1), but -1,18,"]);
    let malformed = all_to_all(|own, other| if own == other { -1 } else { 1 });
    gres(&malformed.replace("Links=1,-1,1", "Links=1,-1,,1"));
    let list = "line 2 of gres.conf has Links=1,-1,,1,1,1,1,1,1, which is not a number for each";
    host.finds("warning", "gres-links", &[list]);
    gres("AutoDetect=rsmi\n");
    host.finds("warning", "gres-detect", &["AutoDetect=rsmi does not find NVIDIA GPUs"]);
    gres("AutoDetect=nvml\n");
    host.finds("broken", "gres-detect", &["has no gpu_nvml.so in ", "File=/dev/nvidia[0-7]"]);
}

/// A line for each of eight GPUs.
fn all_to_all(links: impl Fn(usize, usize) -> i32) -> String {
    let line = |own: usize| {
        let links: Vec<String> = (0..8).map(|other| links(own, other).to_string()).collect();
        format!("Name=gpu File=/dev/nvidia{own} Links={}\n", links.join(","))
    };
    (0..8).map(line).collect()
}

#[test]
fn gres_conf_that_slurmd_refuses_is_broken() {
    let Some(host) = well() else { return };
    let files = "Name=gpu File=/dev/nvidia[0-7]\n";
    for (text, why) in [
        ("AutoDetect=nvml\nName=gpu\nName=gpu\n", "lines 2 and 3: without File= and Type="),
        (&format!("{files}Shared=no\n"), "line 2: Slurm knows no key `Shared` there"),
        (&format!("{files}Name=gpu Count=1\n"), "line 1 has File=, line 2 has none"),
    ] {
        host.write("etc/gres.conf", text);
        let said = host.check();
        let why = format!("slurmd does not start: gres.conf, {why}");
        host.says(&said, "broken", "gres-conf", &[&why, "slurmd -G"]);
        assert_eq!(said.code, Some(2));
    }
}

#[test]
fn types_must_be_written_alike_in_both_files() {
    let Some(host) = well() else { return };
    host.change("etc/slurm.conf", "Gres=gpu:8", "Gres=gpu:h100:8");
    let typed = |kind: &str, files: &str| {
        host.write("etc/gres.conf", &format!("Name=gpu Type={kind} File=/dev/nvidia[{files}]\n"));
    };
    typed("h100", "0-7");
    assert_eq!(host.check().not_ok(), []);
    for (kind, why) in [
        ("H100", "line 1 has Type=H100, but slurm.conf has gpu:h100"),
        ("a100", "line 1 has Type=a100, but slurm.conf has gpu:h100"),
    ] {
        typed(kind, "0-7");
        host.finds("broken", "gres-types", &[why, "Invalid generic resource"]);
    }
    host.write("etc/gres.conf", "Name=gpu File=/dev/nvidia[0-7]\n");
    host.finds("broken", "gres-types", &["line 1 has no Type=, but slurm.conf has gpu:h100"]);
    host.change("etc/slurm.conf", "Gres=gpu:h100:8", "Gres=gpu:h100:4,gpu:a100:4");
    let two =
        "Name=gpu Type=h100 File=/dev/nvidia[0-4]\nName=gpu Type=a100 File=/dev/nvidia[5-7]\n";
    host.write("etc/gres.conf", two);
    host.finds("broken", "gres-types", &["3 of Type=a100 are listed, but slurm.conf gives 4"]);
}

#[test]
fn slurm_conf_must_count_the_gpus_right() {
    let Some(host) = well() else { return };
    for (gres, level, words) in [
        ("gpu:9", "broken", "9 GPUs; the machine has only 8"),
        ("gpu:4,gpu:2", "warning", "6 GPUs; the machine has 8, which is more"),
        ("shard:8", "warning", "no GPUs; the machine has 8 -> write Gres=gpu:8"),
    ] {
        let (before, now) = ("Gres=gpu:8".to_owned(), format!("Gres={gres}"));
        host.change("etc/slurm.conf", &before, &now);
        host.finds(level, "gres-count", &["slurm.conf gives n1 ", words]);
        host.change("etc/slurm.conf", &now, &before);
    }
}

#[test]
fn cgroups_and_task_plugins_must_suit_each_other_and_the_release() {
    let Some(host) = well() else { return };
    let (before, other) = ("task/cgroup,task/affinity", "task/affinity,task/cgroup");
    let plugins = |from: &str, to: &str| host.change("etc/slurm.conf", from, to);
    plugins(before, other);
    let words = ["wrong order for Slurm 24.11", "write TaskPlugin=task/cgroup,task/affinity:"];
    host.finds("warning", "task-plugin", &words);
    host.slurm("23.02.8", "--gpubind=");
    assert_eq!(host.check().not_ok(), [], "23.02 wants that order");
    plugins(other, "task/affinity");
    host.finds("warning", "cgroup", &["no effect", "write TaskPlugin=task/affinity,task/cgroup"]);
    plugins("task/affinity", "task/cgroup");
    host.finds("warning", "task-plugin", &["TaskPlugin=task/cgroup binds no task to CPUs"]);
    plugins("task/cgroup", other);
    host.write("etc/cgroup.conf", "ConstrainCores=yes\n");
    host.finds("note", "cgroup", &["ConstrainDevices is not on"]);
    fs::remove_file(host.path("etc/cgroup.conf")).unwrap();
    host.finds("note", "cgroup", &["ConstrainDevices is not on"]);
}

#[test]
fn the_default_placement_is_slurms_own() {
    let Some(host) = well() else { return };
    host.change("etc/slurm.conf", "Gres=", "CpuBind=none Gres=");
    host.finds("note", "cpu-binding", &["CpuBind=none of the node's entry"]);
    host.change("etc/slurm.conf", "CpuBind=none ", "");
    host.change("etc/slurm.conf", "ClusterName=c", "TaskPluginParam=None");
    host.finds("note", "cpu-binding", &["TaskPluginParam=none"]);
    host.change(
        "etc/slurm.conf",
        "TaskPluginParam=None",
        "SelectTypeParameters=CR_Core,CR_CORE_DEFAULT_DIST_BLOCK",
    );
    let said = host.check();
    let block = "dealt block by block to 2 sockets: 0 not local without gpubind, 0 with it";
    assert!(said.of("placement").1.ends_with(block), "{said:?}");
    let Some(host) = Host::of("pcie-uneven-3-5", "") else { return };
    let said = host.check();
    host.says(&said, "note", "placement", &["1 not local even with gpubind", "gpubind plan"]);
}

#[test]
fn a_machine_without_slurm_or_gpus_has_notes_only() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    let run = |conf: &Path| {
        let mut command = Command::new(PROGRAM);
        // Without scontrol and srun on the search path.
        command.args(["check", "--fsroot", root, "--nvml", "/nonexistent.so"]).env("PATH", root);
        command.args(["--config", "/etc/gpubind.toml"]).env("SLURM_CONF", conf).output().unwrap()
    };
    let output = run(&folder.path().join("none.conf"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("note     slurm-conf     not checked: cannot read "), "{text}");
    assert!(text.contains("no NVIDIA driver is loaded here"), "{text}");
    assert!(!text.contains("warning") && !text.contains("broken"), "{text}");
    // A login node: the cluster's settings are there, the plugin's line is missing.
    let conf = folder.path().join("slurm.conf");
    fs::write(&conf, "TaskPlugin=task/cgroup,task/affinity\nNodeName=other Gres=gpu:4\n").unwrap();
    let output = run(&conf);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("broken   plugin-line"), "{text}");
    assert!(
        text.contains("note     gres           not checked: no GPU can be read here"),
        "{text}"
    );
}

#[test]
fn a_node_in_one_line_and_as_metrics() {
    let Some(host) = Host::new() else { return };
    host.snapshot();
    let said = |args: &[&str]| {
        let output = host.command(args).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (text, output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(said(&["--brief"]), ("n1: ok\n".to_owned(), Some(0), String::new()));
    let (metrics, code, _) = said(&["--prometheus"]);
    assert!(code == Some(0) && metrics.contains("\ngpubind_check_level{check=\"gres-count\"} 0\n"));
    assert!(metrics.contains("\ngpubind_check_findings{level=\"broken\"} 0\n"), "{metrics}");
    host.change("etc/slurm.conf", "gpu:8", "gpu:9");
    let (line, code, stderr) = said(&["--brief"]);
    assert!(line.starts_with("n1: ") && line.lines().count() == 1 && stderr.is_empty(), "{line}");
    assert!(line.contains(" gres-count: slurm.conf gives this node 9 GPUs"), "{line}");
    let (metrics, of_metrics, _) = said(&["--prometheus"]);
    assert!(code == of_metrics && code != Some(0), "{code:?} {of_metrics:?}");
    let level = if code == Some(2) { 3 } else { 2 };
    assert!(metrics.contains(&format!("\ngpubind_check_level{{check=\"gres-count\"}} {level}\n")));
    // Each line is a comment or a metric with its value.
    let is_metric = |line: &str| {
        let value = line.rsplit_once("\"} ").map(|(_, value)| value.parse::<u32>());
        line.starts_with("# HELP ") || line.starts_with("# TYPE ") || matches!(value, Some(Ok(_)))
    };
    assert!(metrics.lines().all(is_metric), "{metrics}");
    assert_eq!(said(&["--brief", "--json"]).1, Some(2), "one form at a time");
}

#[test]
fn a_thousand_nodes_are_a_few_lines() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lines");
    let node = |node: usize| match node {
        17 => format!("gpu{node:04}: broken: nvml: gone\n"),
        40..=49 => format!("{node}: gpu{node:04}: warning: snapshot: none yet\n"),
        _ => format!("gpu{node:04}: ok\n"),
    };
    fs::write(&file, (1..=1000).map(node).collect::<String>()).unwrap();
    let fold =
        |file: &Path| Command::new(PROGRAM).args(["check", "--fold"]).arg(file).output().unwrap();
    let output = fold(&file);
    let expected = "gpu0017: broken: nvml: gone\n\
                    gpu[0040-0049]: warning: snapshot: none yet\n\
                    gpu[0001-0016,0018-0039,0050-1000]: ok\n";
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    let sum = "gpubind: 1000 nodes: 989 ok, 10 with warnings, 1 broken\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), sum);
    assert_eq!(output.status.code(), Some(2));
    fs::write(&file, "nothing\n").unwrap();
    let output = fold(&file);
    assert!(String::from_utf8(output.stderr).unwrap().contains("has no line of a node; write: "));
    assert_eq!(output.status.code(), Some(2));
}
