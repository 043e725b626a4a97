//! `gpubind exec`: real processes on fake machines, as launchers start them.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

mod nvml_support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use gpubind_core::bind::{Rank, edits};
use gpubind_core::node::IdSet;
use gpubind_core::plan::TaskSets;
use gpubind_core::request::Request;
use gpubind_core::site::Settings;
use gpubind_core::step::{Allocation, LAUNCHERS, Reach};
use nvml_support::Fake;

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpubind");

/// A process's environment before and after.
type Env = BTreeMap<String, String>;

/// `gpubind exec` on a fake machine, without anything of this test's own environment.
fn exec(fake: &Fake, env: &[(&str, &str)], args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("exec").arg("--fsroot").arg(fake.path()).arg("--nvml").arg(fake.library());
    command.args(args).env_clear().env("PATH", "/usr/bin:/bin").envs(env.iter().copied());
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn ran(fake: &Fake, env: &[(&str, &str)], args: &[&str]) -> (Env, String) {
    let output = exec(fake, env, &[args, &["--", "env"]].concat()).output().unwrap();
    assert!(output.status.success(), "{env:?} {args:?}: {}", stderr(&output));
    (printed(&output), stderr(&output))
}

fn printed(output: &Output) -> Env {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The program's environment, where there is nothing to say.
fn quiet(fake: &Fake, env: &[(&str, &str)], args: &[&str]) -> Env {
    let (after, said) = ran(fake, env, args);
    assert_eq!(said, "", "{env:?} {args:?}");
    after
}

/// CUDA_VISIBLE_DEVICES of each of torchrun's workers.
fn workers(fake: &Fake, count: usize, more: &[(&str, &str)], args: &[&str]) -> Vec<String> {
    let each = |rank: usize| {
        let (rank, size) = (rank.to_string(), count.to_string());
        let ours = [("LOCAL_RANK", rank.as_str()), ("LOCAL_WORLD_SIZE", &size), ("RANK", &rank)];
        let after = ran(fake, &[&ours, more].concat(), args).0;
        after["CUDA_VISIBLE_DEVICES"].clone()
    };
    (0..count).map(each).collect()
}

/// What the library plans for these tasks on all or some GPUs of the machine.
fn planned(fake: &Fake, request: &str, gpus: &[usize], tasks: &[IdSet]) -> Vec<String> {
    let node = fake.machine.to_node();
    let reach = Reach::default();
    let devices = gpus.iter().map(|gpu| gpubind_core::node::Device { gpu: *gpu, mig: None });
    let allocation = Allocation::of(&node, &reach, devices.collect());
    let settings = Settings::from(&request.parse::<Request>().unwrap());
    let each = |local_rank| {
        let rank = Rank {
            node: Ok(&node),
            allocation: &allocation,
            tasks: &TaskSets::from(tasks),
            cpus: &IdSet::default(),
            most_tasks: tasks.len(),
            settings: &settings,
            local_rank,
            ranks: None,
            worker: None,
            is_before_container: false,
            users_local_rank: None,
            threads: &|_| IdSet::default(),
            preload: None,
            env: &|_| None,
        };
        edits(&rank).edits.unwrap().visible
    };
    (0..tasks.len()).map(each).collect()
}

fn machine(name: &str) -> Fake {
    Fake::with(name, "").with_devices().with_snapshot(PROGRAM)
}

#[test]
fn each_worker_of_torchrun_gets_the_planned_gpu_and_its_numbers() {
    let fake = machine("dgx-a100");
    let all: Vec<usize> = (0..8).collect();
    let unknown = vec![IdSet::default(); 8];
    let visible = workers(&fake, 8, &[], &[]);
    assert_eq!(visible, planned(&fake, "single", &all, &unknown));
    assert_eq!(workers(&fake, 4, &[], &[]), planned(&fake, "single", &all, &unknown[..4]));
    let node = fake.machine.to_node();
    let env = [("LOCAL_RANK", "5"), ("LOCAL_WORLD_SIZE", "8"), ("RANK", "13"), ("X", "it's")];
    let after = quiet(&fake, &env, &[]);
    let index: usize = after["GPUBIND_GPU_INDEX"].parse().unwrap();
    assert_eq!(after["CUDA_VISIBLE_DEVICES"], visible[5]);
    assert_eq!(after["GPUBIND_GPU_UUID"], *node.gpus[index].uuid.known().unwrap());
    for (name, value) in [
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        ("LOCAL_RANK", "0"),
        ("GPUBIND_LOCAL_RANK", "5"),
        ("GPUBIND_VISIBLE", &visible[5]),
        ("LOCAL_WORLD_SIZE", "8"),
        ("RANK", "13"),
        ("X", "it's"),
    ] {
        assert_eq!(after[name], value, "{name}");
    }
    assert_eq!(quiet(&fake, &env, &["--local-rank=keep"])["LOCAL_RANK"], "5");
    let uuid = quiet(&fake, &env, &["--ids=uuid"]);
    assert_eq!(uuid["CUDA_VISIBLE_DEVICES"], after["GPUBIND_GPU_UUID"]);
}

#[test]
fn the_other_modes_show_all_gpus_to_each_worker() {
    let fake = machine("two-cpu");
    let own = workers(&fake, 8, &[], &[]);
    assert_eq!(workers(&fake, 8, &[], &["--mode=ordered"]), vec![own.join(","); 8]);
    for (own, first) in own.iter().zip(workers(&fake, 8, &[], &["--mode=first"])) {
        assert!(first.starts_with(&format!("{own},")), "{own} in {first}");
    }
    let env = [("LOCAL_RANK", "5"), ("LOCAL_WORLD_SIZE", "8")];
    assert_eq!(quiet(&fake, &env, &["--mode=ordered"])["LOCAL_RANK"], "5", "it indexes the list");
}

#[test]
fn every_launcher_is_understood() {
    let fake = machine("two-cpu");
    let own = workers(&fake, 8, &[], &[]);
    for launcher in &LAUNCHERS {
        let mut env = vec![(launcher.local_rank, "6")];
        env.extend(launcher.local_size.map(|name| (name, "8")));
        let after = quiet(&fake, &env, &[]);
        assert_eq!(after["CUDA_VISIBLE_DEVICES"], own[6], "{}", launcher.name);
        assert_eq!(after["GPUBIND_LOCAL_RANK"], "6");
        assert_eq!(after.contains_key("LOCAL_RANK"), launcher.local_rank == "LOCAL_RANK");
    }
    // It is unknown how many there are: as many as GPUs, and more in turn.
    let after = quiet(&fake, &[("PMIX_LOCAL_RANK", "14")], &[]);
    assert_eq!((&after["CUDA_VISIBLE_DEVICES"], &*after["GPUBIND_LOCAL_RANK"]), (&own[6], "14"));
}

#[test]
fn the_environment_s_list_is_the_allocation() {
    let fake = machine("dgx-a100");
    let node = fake.machine.to_node();
    let uuid = |gpu: usize| node.gpus[gpu].uuid.known().unwrap().clone();
    let unknown = vec![IdSet::default(); 4];
    let planned = planned(&fake, "single", &[2, 4, 6, 7], &unknown);
    let list = |text: &str| workers(&fake, 4, &[("CUDA_VISIBLE_DEVICES", text)], &[]);
    assert_eq!(list("2,4,6,7"), planned);
    assert_eq!(list("7, 6,4,2"), planned);
    assert_eq!(list(&format!("{},{},{},{}", uuid(4), uuid(2), uuid(7), uuid(6))), planned);
    assert_eq!(list("2,4,6,7,99,0"), planned, "CUDA stops at what names nothing");
}

#[test]
fn a_list_that_gpubind_has_ordered_is_taken_entry_by_entry() {
    let fake = machine("dgx-a100");
    let given = [("CUDA_VISIBLE_DEVICES", "6,3,5"), ("GPUBIND_VISIBLE", "6,3,5")];
    let (visible, said): (Vec<String>, Vec<String>) = (0..5)
        .map(|rank| {
            let rank = rank.to_string();
            let ours = [("LOCAL_RANK", rank.as_str()), ("LOCAL_WORLD_SIZE", "5")];
            let (after, said) = ran(&fake, &[&given[..], &ours].concat(), &[]);
            assert_eq!(after["GPUBIND_VISIBLE"], after["CUDA_VISIBLE_DEVICES"]);
            assert_eq!(after["GPUBIND_GPU_INDEX"], after["CUDA_VISIBLE_DEVICES"]);
            (after["CUDA_VISIBLE_DEVICES"].clone(), said)
        })
        .unzip();
    assert_eq!(visible, ["6", "3", "5", "6", "3"]);
    assert!(said[0].contains("warning: 5 tasks share 3 GPUs"), "{}", said[0]);
    assert_eq!(said[1..], [""; 4]);
    // Changed since, it is a list like any other.
    let changed = [("CUDA_VISIBLE_DEVICES", "6,3,5"), ("GPUBIND_VISIBLE", "6,3")];
    let unknown = vec![IdSet::default(); 3];
    assert_eq!(workers(&fake, 3, &changed, &[]), planned(&fake, "single", &[3, 5, 6], &unknown));
}

#[test]
fn what_is_bound_already_is_left_alone_and_nvml_is_not_read() {
    let fake = Fake::with("two-cpu", "").with_devices();
    let log = fake.path().join("calls.log");
    let log = ("FAKE_NVML_CALLS", log.to_str().unwrap());
    let worker = [("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2"), log];
    let task = [("SLURM_LOCALID", "1"), ("SLURM_STEP_TASKS_PER_NODE", "2"), log];
    let visible = |list| ("CUDA_VISIBLE_DEVICES", list);
    let given = |list| ("GPUBIND_VISIBLE", list);
    for (env, why) in [
        ([&worker[..], &[visible("3")]].concat(), "names one device already"),
        ([&worker[..], &[visible("")]].concat(), "hides all devices"),
        ([&worker[..], &[visible("-1")]].concat(), "hides all devices"),
        ([&task[..], &[visible("3,4"), given("3,4")]].concat(), "has bound this process already"),
        ([&[log][..], &[visible("3,4"), given("3,4")]].concat(), "has bound this process already"),
        (
            [&worker[..], &[visible("3,4"), given("3,4"), ("GPUBIND_WORKERS", "done")]].concat(),
            "has bound this process already",
        ),
        (
            [&task[..], &[visible("0,1"), ("SLURM_GPUS_ON_NODE", "4")]].concat(),
            "Slurm has bound this task itself",
        ),
        ([&worker[..], &[("SLURM_GPUBIND", "off")]].concat(), "the request says off"),
    ] {
        let before: Env =
            env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let mut after = quiet(&fake, &env, &[]);
        after.remove("PATH");
        assert_eq!(after, before, "{why}");
        let (_, said) = ran(&fake, &env, &["--verbose"]);
        assert!(said.contains("the environment stays as it is: ") && said.contains(why), "{said}");
    }
    assert!(!Path::new(log.1).exists(), "NVML was asked");
}

#[test]
fn alone_it_keeps_all_gpus_nearest_first() {
    let fake = machine("two-cpu");
    let own: IdSet = gpubind_core::step::own_cpus();
    let all: Vec<usize> = (0..8).collect();
    let expected = planned(&fake, "auto", &all, std::slice::from_ref(&own));
    assert_eq!(quiet(&fake, &[], &[])["CUDA_VISIBLE_DEVICES"], expected[0]);
    let one = planned(&fake, "single", &all, &[own]);
    assert_eq!(quiet(&fake, &[], &["--mode=single"])["CUDA_VISIBLE_DEVICES"], one[0]);
    assert_eq!(quiet(&fake, &[("SLURM_GPUBIND", "single")], &[])["CUDA_VISIBLE_DEVICES"], one[0]);
}

#[test]
fn tasks_of_slurm_know_each_other_s_cpus() {
    let fake = machine("two-cpu");
    let task = |rank: &'static str, args: &[&str]| {
        let env = [
            ("SLURM_LOCALID", rank),
            ("SLURM_PROCID", rank),
            ("SLURM_NODEID", "0"),
            ("SLURM_STEP_TASKS_PER_NODE", "2"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_STEP_NODELIST", "n7"),
            ("SLURM_CPU_BIND_TYPE", "mask_cpu:"),
            ("SLURM_CPU_BIND_LIST", "0x2,0x1"),
            ("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7"),
        ];
        // On the CPU of its mask, as slurmstepd has it.
        let on_its_cpu = exec(&fake, &env, &[args, &["--", "env"]].concat());
        let mut command = Command::new("taskset");
        command.args(["-c", if rank == "0" { "1" } else { "0" }, PROGRAM]);
        command.args(on_its_cpu.get_args()).env_clear();
        command.env("PATH", "/usr/bin:/bin").envs(env);
        let output = command.output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{env:?}");
        printed(&output)
    };
    let both = |args: &[&str]| {
        ["0", "1"].map(|rank| {
            let text = task(rank, args)["CUDA_VISIBLE_DEVICES"].clone();
            let mut gpus: Vec<u32> = text.split(',').map(|gpu| gpu.parse().unwrap()).collect();
            gpus.sort_unstable();
            gpus
        })
    };
    assert_eq!(both(&[]), [[4, 5, 6, 7], [0, 1, 2, 3]], "shares");
    let single = both(&["--mode=single"]);
    assert!((4..8).contains(&single[0][0]) && (0..4).contains(&single[1][0]), "{single:?}");
    let after = task("1", &["--mode=single"]);
    assert_eq!((&*after["RANK"], &*after["WORLD_SIZE"], &*after["MASTER_ADDR"]), ("1", "2", "n7"));
    let after = task("1", &["--mode=single", "--rank-env=off"]);
    assert!(!after.contains_key("RANK"));
}

#[test]
fn more_ranks_than_gpus_share_evenly_and_one_of_them_says_so() {
    let fake = machine("two-cpu");
    let visible = workers(&fake, 16, &[], &[]);
    for gpu in 0..8 {
        assert_eq!(visible.iter().filter(|own| **own == gpu.to_string()).count(), 2);
    }
    let said = |rank, args: &[&str]| {
        ran(&fake, &[("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", "16")], args).1
    };
    assert_eq!(said("0", &[]).matches("16 tasks share 8 GPUs").count(), 1);
    assert_eq!(said("1", &[]), "");
    assert_eq!(said("0", &["--mode=share"]), "");
}

/// What `exec` says, and how long it took, where nothing of the machine can be read.
fn unreadable(fake: &Fake, args: &[&str]) -> (String, Duration) {
    let begin = Instant::now();
    let worker = |rank, visible: Option<&'static str>| {
        let mut env = vec![("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", "4")];
        env.extend(visible.map(|list| ("CUDA_VISIBLE_DEVICES", list)));
        ran(fake, &env, args)
    };
    let (after, first) = worker("0", Some("3,1,2,0"));
    let took = begin.elapsed();
    assert_eq!(after["CUDA_VISIBLE_DEVICES"], "3", "the list's own order");
    assert_eq!(first.lines().count(), 1, "{first}");
    assert!(first.contains("affinity is unknown"), "{first}");
    let (after, said) = worker("2", Some("3,1,2,0"));
    assert_eq!((&*after["CUDA_VISIBLE_DEVICES"], &*said), ("2", ""));
    let (after, said) = worker("0", None);
    assert!(!after.contains_key("CUDA_VISIBLE_DEVICES"));
    assert!(said.lines().count() == 1 && said.contains("the environment stays as it is"), "{said}");
    (first, took)
}

#[test]
fn no_nvml_one_that_hangs_and_one_that_crashes_cost_a_warning() {
    let fault = |fault: &str| {
        format!("[faults]\ncall = [{{ name = \"nvmlDeviceGetHandleByIndex_v2\", {fault} }}]")
    };
    let hanging = Fake::with("two-cpu", &fault("hang = true")).with_devices();
    let (said, took) = unreadable(&hanging, &["--deadline=1"]);
    assert!(said.contains("NVML did not answer within 1 s"), "{said}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    let crashing = Fake::with("two-cpu", &fault("crash = true")).with_devices();
    let (said, _) = unreadable(&crashing, &[]);
    assert!(said.contains("was killed by signal 6"), "{said}");
    let without = Fake::with("two-cpu", "").with_devices();
    fs::remove_file(without.library()).unwrap();
    let (said, _) = unreadable(&without, &[]);
    assert!(said.contains("cannot load "), "{said}");
}

#[test]
fn the_site_s_settings_hold_where_nothing_else_is_said() {
    let fake = machine("two-cpu");
    let etc = fake.path().join("etc");
    fs::create_dir_all(&etc).unwrap();
    let uuid = fake.machine.to_node().gpus[0].uuid.known().unwrap().clone();
    let text = format!("mode = \"ordered\"\nids = \"uuid\"\nexclude = [\"{uuid}\"]\n");
    fs::write(etc.join("gpubind.toml"), text).unwrap();
    let env = [("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2")];
    let (after, said) = ran(&fake, &env, &[]);
    if !rustix::process::geteuid().is_root() {
        // Only root's file is trusted, and rank 1 gives no warning.
        assert_eq!((after["CUDA_VISIBLE_DEVICES"].len(), &*said), (1, ""));
        return;
    }
    let list: Vec<&str> = after["CUDA_VISIBLE_DEVICES"].split(',').collect();
    assert!(list.len() == 7 && list.iter().all(|gpu| gpu.starts_with("GPU-") && *gpu != uuid));
    let after = quiet(&fake, &env, &["--mode=single", "--ids=index"]);
    assert_eq!(after["CUDA_VISIBLE_DEVICES"].len(), 1, "{after:?}");
    fs::write(etc.join("gpubind.toml"), "mode = 3\n").unwrap();
    let (_, said) = ran(&fake, &[], &[]);
    assert!(said.contains("warning: ignoring /"), "{said}");
}

#[test]
fn under_strict_a_process_that_cannot_be_bound_is_not_started() {
    let fake = Fake::with("two-cpu", "").with_devices();
    fs::remove_file(fake.library()).unwrap();
    let output = exec(&fake, &[], &["--mode=strict", "--", "echo", "ran"]).output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b""[..]));
    assert!(stderr(&output).starts_with("gpubind: strict: cannot read this node's GPUs"));
}

#[test]
fn an_ordinary_user_s_own_build_reads_nvml_by_itself() {
    if !rustix::process::geteuid().is_root() {
        // Then all other tests here show it.
        return;
    }
    let fake = Fake::with("two-cpu", "").with_devices();
    fs::set_permissions(fake.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = fake.path().join("gpubind");
    // As in a software folder that a group keeps. By a process of its own: what this one
    // had open for writing, a child of another test might still hold.
    let mut install = Command::new("install");
    install.args(["-m", "775", "-o", "65534", "-g", "65534", PROGRAM]).arg(&program);
    assert!(install.status().unwrap().success());
    let mut command = Command::new(&program);
    command.args(["exec", "--fsroot"]).arg(fake.path()).arg("--nvml").arg(fake.library());
    command.args(["--mode=single", "--", "env"]).env_clear().env("PATH", "/usr/bin:/bin");
    let output = command.uid(65_534).gid(65_534).current_dir("/").output().unwrap();
    assert_eq!(stderr(&output), "");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("GPUBIND_GPU_UUID=GPU-"), "{text}");
    assert!(!fake.roots().snapshot().exists());
}

#[test]
fn signals_and_exit_codes_are_the_command_s_own() {
    let fake = machine("two-cpu");
    let shell = |script| exec(&fake, &[], &["--", "sh", "-c", script]);
    assert_eq!(shell("exit 42").status().unwrap().code(), Some(42));
    assert_eq!(shell("kill -SEGV $$").status().unwrap().signal(), Some(11));
    let mut child = shell("echo $$; exec sleep 60").stdout(Stdio::piped()).spawn().unwrap();
    let mut pid = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(child.stdout.take().unwrap()),
        &mut pid,
    )
    .unwrap();
    assert_eq!(pid.trim(), child.id().to_string(), "it is the same process");
    let process = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    // Input, output and arguments are the command's.
    let output = exec(&fake, &[], &["printf", "%s|", "--mode", "-n", "a b"]).output().unwrap();
    assert_eq!(output.stdout, b"--mode|-n|a b|");
}

#[test]
fn a_command_that_cannot_be_run_has_the_shells_exit_codes() {
    let fake = machine("two-cpu");
    for (command, code) in [("no-such-command", 127), ("/etc/passwd", 126), ("/etc", 126)] {
        let output = exec(&fake, &[], &["--", command]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{command}");
        let said = stderr(&output);
        assert!(said.starts_with(&format!("gpubind: cannot run {command}: ")), "{said}");
        assert_eq!(said.lines().count(), 1);
    }
}

#[test]
fn wrong_items_are_named_with_the_valid_ones() {
    let fake = machine("two-cpu");
    for (args, item) in [
        (&["--mode=nonsense"][..], "`nonsense`"),
        (&["--ids=pci"], "`ids=pci`"),
        (&["--local-rank=real"], "`local-rank=real`"),
        (&["--rank-env=yes"], "`rank-env=yes`"),
        (&["--mode=single,ordered"], "`single` and `ordered` contradict"),
        (&["--mode=ids=index", "--ids=uuid"], "`ids=index` and `ids=uuid` contradict"),
        (&["--no-such-option"], "--no-such-option"),
        (&["--json"], "--dry-run"),
    ] {
        let output = exec(&fake, &[], &[args, &["--", "echo", "ran"]].concat()).output().unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(2), &b""[..]), "{args:?}");
        let said = stderr(&output);
        assert!(said.contains(item), "{said}");
        if said.contains("unknown item") {
            // The nearest item is named, or else all are.
            let is_listed = |word: &str| said.contains(word);
            let all = gpubind_core::request::written_items().all(|(_, _, item)| is_listed(&item));
            assert!(is_listed("did you mean `") && is_listed("--gpubind=help") || all, "{said}");
        }
    }
    let output = exec(&fake, &[], &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "no command");
    let (_, said) = ran(&fake, &[("SLURM_GPUBIND", "nonsense")], &[]);
    assert!(said.starts_with("gpubind: ignoring SLURM_GPUBIND: unknown item `nonsense`"), "{said}");
}

#[test]
fn a_task_in_an_image_of_pytorch_finds_its_one_gpu_as_local_rank_0() {
    let fake = machine("two-cpu");
    // What pyxis and enroot's hook set beside Slurm's own (pyxis_slurmstepd.c,
    // pytorch_setup; 50-slurm-pytorch.sh).
    let env = [
        ("SLURM_LOCALID", "3"),
        ("SLURM_PROCID", "3"),
        ("SLURM_NODEID", "0"),
        ("SLURM_STEP_TASKS_PER_NODE", "8"),
        ("SLURM_STEP_NUM_TASKS", "8"),
        ("SLURM_STEP_GPUS", "0,1,2,3,4,5,6,7"),
        ("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7"),
        ("PYTORCH_VERSION", "2.6"),
        ("LOCAL_RANK", "3"),
        ("RANK", "3"),
        ("WORLD_SIZE", "8"),
    ];
    let after = quiet(&fake, &env, &[]);
    assert_eq!(after["CUDA_VISIBLE_DEVICES"].split(',').count(), 1);
    assert_eq!((&*after["LOCAL_RANK"], &*after["RANK"]), ("0", "3"));
    assert_eq!(after["GPUBIND_LOCAL_RANK"], "3");
    assert_eq!(quiet(&fake, &env, &["--local-rank=keep"])["LOCAL_RANK"], "3");
    assert_eq!(quiet(&fake, &env, &["--mode=ordered"])["LOCAL_RANK"], "3", "it indexes the list");
    // A second one finds nothing to do.
    let bound: Vec<(&str, &str)> = after.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(quiet(&fake, &bound, &[]), after);
}

#[test]
fn in_a_container_without_slurm_s_variables_it_says_that_it_cannot_tell() {
    let fake = machine("two-cpu");
    assert_eq!(quiet(&fake, &[], &[])["CUDA_VISIBLE_DEVICES"].split(',').count(), 8);
    fs::write(fake.path().join("run/.containerenv"), "").unwrap();
    let (after, said) = ran(&fake, &[], &[]);
    assert!(said.contains("takes all of the 8 GPUs that it can reach"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(after["CUDA_VISIBLE_DEVICES"].split(',').count(), 8);
    // What it needs to know is told: by a list, by a launcher.
    quiet(&fake, &[("CUDA_VISIBLE_DEVICES", "0,1,2")], &[]);
    quiet(&fake, &[("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2")], &[]);
}

#[test]
fn workers_that_cannot_be_served_are_told_and_strict_does_not_accept_it() {
    let fake = machine("two-cpu");
    // As in an image that has the program and not the library.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("gpubind");
    fs::copy(PROGRAM, &program).unwrap();
    let run = |env: &[(&str, &str)], args: &[&str]| {
        let mut command = Command::new(&program);
        command.arg("exec").arg("--fsroot").arg(fake.path()).arg("--nvml").arg(fake.library());
        command.args(args).args(["--", "true"]).env_clear().envs(env.iter().copied());
        let output = command.output().unwrap();
        (output.status.code(), stderr(&output))
    };
    let line = "cannot read the worker shim where they run";
    assert_eq!(run(&[], &[]), (Some(0), String::new()));
    let (code, said) = run(&[], &["--verbose"]);
    assert!(code == Some(0) && said.contains(line), "{said}");
    let strict = [("SLURM_GPUBIND", "strict")];
    let (code, said) = run(&strict, &[]);
    assert!(code == Some(1) && said.contains(line), "{code:?} {said}");
    fs::write(folder.path().join("libgpubind_worker.so"), "").unwrap();
    assert!(!run(&[], &["--verbose"]).1.contains(line));
    // One device has no workers.
    fs::remove_file(folder.path().join("libgpubind_worker.so")).unwrap();
    let worker = [("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2"), strict[0]];
    assert_eq!(run(&worker, &[]), (Some(0), String::new()));
}

#[test]
fn a_dry_run_prints_what_a_run_would_change() {
    let fake = machine("two-cpu");
    let env = [
        ("LOCAL_RANK", "3"),
        ("LOCAL_WORLD_SIZE", "8"),
        ("GPUBIND_NUMA_NODE", "9"),
        ("GPUBIND_SHARE", "on"),
        ("PATH", "/usr/bin:/bin"),
    ];
    let dry = |args: &[&str]| {
        let args = [&["--dry-run"], args, &["--", "echo", "ran"]].concat();
        let output = exec(&fake, &env, &args).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = dry(&[]);
    assert!(text.starts_with("unset GPUBIND_SHARE\n"), "{text}");
    // A shell that reads them has what the command would have.
    let script = format!("set -a\n{text}env");
    let output = Command::new("sh").args(["-c", &script]).env_clear().envs(env).output().unwrap();
    let read: Env = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| line.split_once('='))
        .filter(|(name, _)| !["_", "PWD", "SHLVL", "OLDPWD"].contains(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    assert_eq!(read, quiet(&fake, &env, &[]));
    let json: serde_json::Value = serde_json::from_str(&dry(&["--json"])).unwrap();
    assert_eq!(json["unset"], serde_json::json!(["GPUBIND_SHARE"]));
    assert_eq!(json["set"]["CUDA_VISIBLE_DEVICES"], read["CUDA_VISIBLE_DEVICES"].as_str());
    assert_eq!(json["set"]["LOCAL_RANK"], "0");
}

#[test]
fn verbose_says_who_got_what_and_why() {
    let fake = machine("two-cpu");
    let env = [("OMPI_COMM_WORLD_LOCAL_RANK", "1"), ("OMPI_COMM_WORLD_RANK", "9")];
    let (after, said) = ran(&fake, &env, &["--verbose"]);
    let device = format!("GPU {} ({}", after["GPUBIND_GPU_INDEX"], after["GPUBIND_GPU_UUID"]);
    for part in ["gpubind: rank 9 on ", " (of Open MPI), local rank 1: ", &device] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    assert!(said.contains(&after["GPUBIND_WHY"]), "{said}");
    assert_eq!(said.lines().count(), 1);
}

#[test]
fn what_was_used_instead_is_said_to_who_wants_to_know() {
    let fake = Fake::with("two-cpu", "").with_devices();
    let said = |level: &str, args: &[&str]| {
        let env = [("SLURM_LOCALID", "0"), ("GPUBIND_LOG", level)];
        let output = exec(&fake, &env, args).args(["--dry-run"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stderr).unwrap()
    };
    let missing = "gpubind: info: reading NVML; the saved snapshot is not used: there is no ";
    // Each reading saves one, where root runs this.
    let forget = || drop(fs::remove_dir_all(fake.roots().run()));
    assert_eq!(said("", &[]), "");
    for (level, args) in [("", &["-v"][..]), ("info", &[]), ("", &["--verbose"])] {
        forget();
        let said = said(level, args);
        assert!(said.contains(missing), "{level} {args:?}: {said}");
        assert!(!said.contains("debug: "), "{said}");
    }
    forget();
    assert!(said("", &["-vv"]).contains("gpubind: debug: running gpubind "));
    let wrong = said("loud", &[]);
    assert!(wrong.starts_with("gpubind: ignoring GPUBIND_LOG: `loud` is none of"), "{wrong}");
}

#[test]
fn numbers_that_no_node_has_fill_no_memory() {
    let fake = Fake::with("two-cpu", "").with_devices().with_snapshot(PROGRAM);
    let sizes = ["4294967295", "100000000", "4097"];
    for size in sizes {
        let slurms =
            [("SLURM_LOCALID", "2"), ("SLURM_PROCID", "2"), ("SLURM_STEP_TASKS_PER_NODE", size)];
        let launchers = LAUNCHERS.iter().filter_map(|launcher| {
            Some(vec![(launcher.local_rank, "2"), (launcher.local_size?, size)])
        });
        for env in launchers.chain([slurms.to_vec()]) {
            // A quarter of what a list of so many tasks would take.
            let mut limited = Command::new("prlimit");
            limited.args(["--data=268435456", PROGRAM, "exec", "--fsroot"]).arg(fake.path());
            limited.arg("--nvml").arg(fake.library()).args(["--", "env"]);
            limited.env_clear().env("PATH", "/usr/bin:/bin").envs(env.iter().copied());
            let begin = Instant::now();
            let output = limited.output().unwrap();
            assert!(begin.elapsed() < Duration::from_secs(5), "{env:?}: {:?}", begin.elapsed());
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{env:?}: {}", stderr(&output));
            let list = text.lines().find_map(|line| line.strip_prefix("CUDA_VISIBLE_DEVICES="));
            assert_eq!(list.map(|list| list.split(',').count()), Some(1), "{env:?}: {list:?}");
        }
    }
}

/// As the command itself finds them.
const ALLOWED: &str = "sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status";

#[test]
fn the_command_runs_on_the_cpus_that_are_local_to_its_gpu() {
    // NUMA node 0 is CPU 0, and has GPUs 0 to 3; node 1 is CPU 1.
    let fake = machine("two-cpu");
    let cpus = |env: &[(&str, &str)], args: &[&str]| -> (String, String) {
        let script = format!("echo ${{GPUBIND_CPUS-none}}; {ALLOWED}");
        let args = [args, &["--", "sh", "-c", &script]].concat();
        let output = exec(&fake, env, &args).output().unwrap();
        assert_eq!(stderr(&output), "", "{env:?} {args:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let (first, second) = text.trim().split_once('\n').unwrap();
        (first.to_owned(), second.to_owned())
    };
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    let gpu = |list| [("CUDA_VISIBLE_DEVICES", list), ("LOCAL_RANK", "0")];
    let worker = |rank, list| [gpu(list)[0], ("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", "2")];
    let local = ["--mode=cpus=local"];
    assert_eq!(cpus(&worker("0", "0,4"), &local), pair("0", "0"));
    assert_eq!(cpus(&worker("1", "0,4"), &local), pair("1", "1"));
    assert_eq!(cpus(&worker("1", "0,4"), &[]), pair("none", "0-1"));
    // Two at one CPU share it.
    assert_eq!(cpus(&worker("1", "0,1"), &local), pair("0", "0"));
    // One with both keeps both.
    assert_eq!(cpus(&gpu("0,4")[..1], &local), pair("0-1", "0-1"));
    let single = ["--mode=single,cpus=local"];
    assert_eq!(cpus(&gpu("4,5,6")[..1], &single), pair("1", "1"));
    let omp = quiet(&fake, &worker("1", "0,4"), &["--mode=cpus=local,omp"]);
    assert_eq!(omp["OMP_NUM_THREADS"], "1");
    let shown = quiet(&fake, &worker("1", "0,4"), &["--mode=cpus=local", "--dry-run"]);
    assert_eq!(shown["GPUBIND_CPUS"], "1");
}

#[test]
fn without_local_cpus_a_process_keeps_its_own_and_says_so() {
    let fake = machine("two-cpu");
    let run = |mode: &str| {
        let env = [("CUDA_VISIBLE_DEVICES", "4,5")];
        let plain = exec(&fake, &env, &[mode, "--", "sh", "-c", ALLOWED]);
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(PROGRAM).args(plain.get_args()).env_clear();
        command.env("PATH", "/usr/bin:/bin").envs(env).output().unwrap()
    };
    let output = run("--mode=single,cpus=local");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n");
    assert!(stderr(&output).contains("warning: cpus=local: none of the CPUs of local ranks 0"));
    let output = run("--mode=single,cpus=local,strict");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]));
}
