//! The record for the worker shim, and what the shim makes of a process: the pure parts.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

use gpubind_core::bind::{Rank, Shim, edits, inherited, preload_without_shim};
use gpubind_core::node::IdSet;
use gpubind_core::request::Request;
use gpubind_core::site::Settings;
use gpubind_core::step::{Allocation, GpuLists, LAUNCHERS};
use gpubind_shim_core::record::{
    Fingerprints, Later, ProcessKind, Record, changes, classify, fingerprints, inherited_ranks,
    overwritten, without_shim,
};
use gpubind_shim_core::worker::{Surplus, Worker, surplus_line};
use proptest::prelude::*;

type Env = BTreeMap<&'static str, &'static str>;

const LIST: &str = "4,5,6,7";
const TASK: u32 = 4711;

fn env(variables: &[(&'static str, &'static str)]) -> Env {
    let mut env = Env::from([("CUDA_VISIBLE_DEVICES", LIST)]);
    env.extend(variables.iter().copied());
    env
}

fn value<'e>(env: &'e Env, name: &str) -> Option<&'e [u8]> {
    env.get(name).map(|value| value.as_bytes())
}

/// The record of a task with this environment.
fn record(task: &Env) -> Record<'static> {
    let fingerprints = fingerprints(|name| task.get(name).copied());
    Record {
        process: TASK,
        virtual_rank: true,
        later: Later::Kept,
        surplus: Surplus::Reported,
        visible: LIST.as_bytes(),
        cpus: b"",
        fingerprints,
    }
}

fn part_of<'e>(record: &Record, process: u32, program: &str, env: &'e Env) -> ProcessKind<'e> {
    classify(record, process, program.as_bytes(), |name| value(env, name))
}

/// The position of a process below a task, if it is a worker.
fn position(
    task: &[(&'static str, &'static str)],
    own: &[(&'static str, &'static str)],
) -> Option<usize> {
    let (task, mut all) = (env(task), env(task));
    all.extend(own.iter().copied());
    match part_of(&record(&task), TASK + 1, "python", &all) {
        ProcessKind::Worker(Worker { position, devices: 4, .. }) => Some(position),
        ProcessKind::Unaffected | ProcessKind::Rank { is_last: false } => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_launchers_number_counts_and_more_workers_than_devices_go_round() {
    for launcher in &LAUNCHERS {
        for (number, expected) in [("0", 0), ("3", 3), ("4", 0), ("1030", 2)] {
            assert_eq!(position(&[], &[(launcher.local_rank, number)]), Some(expected));
        }
        for number in ["", "-1", " 1", "x", "99999999999999999999"] {
            assert_eq!(position(&[], &[(launcher.local_rank, number)]), None, "{number:?}");
        }
    }
    assert_eq!(position(&[], &[("SLURM_LOCALID", "1")]), None, "a launcher has it too");
    assert_eq!(position(&[], &[]), None);
}

#[test]
fn a_number_that_the_task_has_itself_does_not_count_below_it() {
    for launcher in &LAUNCHERS {
        let own = [(launcher.local_rank, "0")];
        assert_eq!(position(&own, &[]), None, "{}", launcher.name);
        assert_eq!(position(&own, &[(launcher.local_rank, "1")]), Some(1), "{}", launcher.name);
        if let Some(size) = launcher.local_size {
            assert_eq!(position(&own, &[(size, "4")]), Some(0), "{}", launcher.name);
        }
    }
    // Worker 0 of torchrun and mpirun in such a task.
    let pmi = [("PMI_LOCAL_RANK", "2"), ("LOCAL_RANK", "0")];
    assert_eq!(position(&pmi, &[("TORCHELASTIC_RUN_ID", "none")]), Some(0));
    assert_eq!(position(&pmi, &[("OMPI_COMM_WORLD_LOCAL_RANK", "3")]), Some(3));
    // A script that prepares for torchrun is none of its workers.
    assert_eq!(position(&pmi, &[("RANK", "0"), ("WORLD_SIZE", "8")]), None);
}

#[test]
fn a_process_managers_only_process_keeps_all_and_torchruns_does_not() {
    for launcher in &LAUNCHERS {
        let Some(size) = launcher.local_size else { continue };
        let expected = (launcher.local_rank == "LOCAL_RANK").then_some(0);
        assert_eq!(position(&[], &[(launcher.local_rank, "0"), (size, "1")]), expected);
        assert_eq!(position(&[], &[(launcher.local_rank, "0"), (size, "2")]), Some(0));
        // torchrun below it.
        let below = [(launcher.local_rank, "0"), (size, "1"), ("LOCAL_RANK", "3")];
        assert_eq!(position(&[], &below), Some(3));
    }
}

#[test]
fn the_tasks_own_process_is_no_worker_and_tells_what_it_has() {
    let armed = record(&env(&[]));
    // A TaskProlog has set it after the plugin's turn.
    let task = env(&[("LOCAL_RANK", "0")]);
    let ProcessKind::Task(now) = part_of(&armed, TASK, "torchrun", &task) else { panic!() };
    let armed = Record { fingerprints: now, ..armed };
    assert_eq!(part_of(&armed, TASK, "torchrun", &task), ProcessKind::Unaffected, "no record");
    assert_eq!(part_of(&armed, TASK + 1, "sh", &task), ProcessKind::Unaffected);
    let worker = env(&[("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "4")]);
    assert!(matches!(part_of(&armed, TASK + 2, "python", &worker), ProcessKind::Worker(_)));
}

#[test]
fn a_changed_list_a_single_device_and_another_root_are_left_alone() {
    let armed = record(&env(&[]));
    for list in ["4", "4,5,6", "7,6,5,4", ""] {
        let worker = env(&[("LOCAL_RANK", "0"), ("CUDA_VISIBLE_DEVICES", list)]);
        assert_eq!(part_of(&armed, 1, "python", &worker), ProcessKind::Unaffected, "{list}");
    }
    let single = Record { visible: b"4", ..armed };
    let worker = env(&[("LOCAL_RANK", "0"), ("CUDA_VISIBLE_DEVICES", "4")]);
    assert_eq!(part_of(&single, 1, "python", &worker), ProcessKind::Unaffected);
    assert_eq!(part_of(&armed, TASK, "apptainer", &env(&[])), ProcessKind::ContainerLauncher);
    assert_eq!(part_of(&armed, 1, "apptainer2", &env(&[])), ProcessKind::Unaffected);
}

#[test]
fn a_worker_has_one_entry_of_every_list_that_is_the_plugins() {
    let before = env(&[
        ("OMPI_COMM_WORLD_LOCAL_RANK", "6"),
        ("LOCAL_RANK", "3"),
        ("GPUBIND_LOCAL_RANK", "0"),
        ("GPU_DEVICE_ORDINAL", "4,5,6,7"),
        ("ZE_AFFINITY_MASK", "0,1"),
        ("GPUBIND_GPU_UUID", "a,b,c,d"),
        ("GPUBIND_NUMA_NODE", "0,0+1,2+3,4"),
    ]);
    let changed = |record: &Record| -> BTreeMap<&str, String> {
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        let worker =
            Worker { local_rank: b"6", position: 2, round: 1, devices: 4, has_ranks: true };
        let changes = changes(record, &worker, |name| value(&before, name)).into_iter();
        changes.filter_map(|(name, value)| Some((name, text(value?)))).collect()
    };
    let mut expected: BTreeMap<&str, String> = [
        ("GPUBIND_WORKERS", "done"),
        ("CUDA_VISIBLE_DEVICES", "6"),
        ("GPUBIND_LOCAL_RANK", "6"),
        ("LOCAL_RANK", "0"),
        ("GPU_DEVICE_ORDINAL", "6"),
        ("GPUBIND_GPU_UUID", "c"),
        ("GPUBIND_NUMA_NODE", "2+3"),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .into();
    let record = record(&env(&[]));
    assert_eq!(changed(&record), expected, "and none that was not there");
    let (name, done) = gpubind_core::step::WORKER;
    assert_eq!(expected[name], done, "by which gpubind exec and report know a worker");
    expected.remove("LOCAL_RANK");
    assert_eq!(changed(&Record { virtual_rank: false, ..record }), expected);
}

fn written(record: &Record) -> Vec<u8> {
    let mut text = Vec::new();
    record.write(&mut |piece| text.extend_from_slice(piece));
    text
}

#[test]
fn what_is_no_record_of_this_version_says_nothing() {
    for text in [
        "",
        "done",
        "1;1;keep;0,1;0",
        "2",
        "4;x;keep;kept;wanted;0,1;;0",
        "4;1;keep;kept;0,1;;0",
        "4;1;keep;kept;wanted;0,1;",
        "4;1;keep;kept;wanted;0,1;;-",
    ] {
        assert_eq!(Record::read(text.as_bytes()), None, "{text}");
    }
    let text =
        "4;4294967295;keep;kept;wanted;GPU-a,GPU-b;0-3,8/;0,18446744073709551615,0,0,0,0,0,0";
    let record = Record::read(text.as_bytes()).unwrap();
    assert_eq!(written(&record), text.as_bytes());
}

#[test]
fn the_shim_is_taken_out_of_the_preload_list_wherever_it_is() {
    let shim = "/opt/x/libgpubind_worker.so";
    for (before, after) in [
        (shim.to_owned(), Some("")),
        (format!("{shim}:/a.so b.so"), Some("/a.so b.so")),
        (format!("/a.so b.so {shim}"), Some("/a.so b.so")),
        (format!("/a.so:{shim} b.so"), Some("/a.so:b.so")),
        ("libgpubind_worker.so:x".to_owned(), Some("x")),
        (String::new(), None),
        ("/opt/libgpubind_worker.so.old:/not-libgpubind_worker.so".to_owned(), None),
    ] {
        let found = without_shim(before.as_bytes()).map(|(one, two)| [one, two].concat());
        assert_eq!(found, after.map(|text| text.as_bytes().to_vec()), "{before}");
    }
}

proptest! {
    #[test]
    fn a_record_is_read_as_it_was_written(
        process: u32,
        virtual_rank: bool,
        later in proptest::sample::select(vec![
            Later::Kept,
            Later::Overwritten { serves: true },
            Later::Overwritten { serves: false },
        ]),
        surplus in proptest::sample::select(vec![
            Surplus::Wanted, Surplus::Reported, Surplus::Refused,
        ]),
        visible in "[0-9A-Za-z,/-]{0,200}",
        cpus in "[0-9,/-]{0,200}",
        fingerprints: [u64; LAUNCHERS.len()],
    ) {
        let fingerprints: Fingerprints = fingerprints;
        let visible = visible.as_bytes();
        let cpus = cpus.as_bytes();
        let record = Record { process, virtual_rank, later, surplus, visible, cpus, fingerprints };
        let text = written(&record);
        prop_assert_eq!(Record::read(&text), Some(record));
    }

    #[test]
    fn other_files_stay_in_the_preload_list(
        files in proptest::collection::vec("[a-z/.]{1,8}", 0..5),
        at in 0_usize..5,
        spaces: bool,
    ) {
        let mut all = files.clone();
        all.insert(at.min(files.len()), "/x/libgpubind_worker.so".to_owned());
        let separator = if spaces { " " } else { ":" };
        let preload = all.join(separator);
        let (before, after) = without_shim(preload.as_bytes()).unwrap();
        prop_assert_eq!([before, after].concat(), files.join(separator).into_bytes());
    }

    #[test]
    fn no_text_breaks_the_reader(text in "[0-9;,a-z]{0,80}") {
        Record::read(text.as_bytes());
        Record::read(format!("4;{text}").as_bytes());
    }
}

/// What a task with some of eight devices gets, beside its devices.
fn armed(request: &str, tasks: usize, variables: &[(&'static str, &'static str)]) -> Env {
    armed_in(false, request, tasks, variables)
}

/// The same, where the task may be about to enter a container.
fn armed_in(
    is_before_container: bool,
    request: &str,
    tasks: usize,
    variables: &[(&'static str, &'static str)],
) -> Env {
    let lists = GpuLists { visible: Some("0,1,2,3".to_owned()), step_gpus: None };
    let env: Env = variables.iter().copied().collect();
    let rank = Rank {
        node: Err("unknown"),
        allocation: &Allocation::unknown(&lists),
        tasks: &vec![IdSet::default(); tasks].into(),
        cpus: &IdSet::default(),
        most_tasks: tasks,
        settings: &Settings::from(&request.parse::<Request>().unwrap()),
        local_rank: 0,
        ranks: None,
        worker: Some(Shim { file: "/lib/libgpubind_worker.so", process: TASK }),
        is_before_container,
        users_local_rank: None,
        threads: &|_| IdSet::default(),
        preload: env.get("LD_PRELOAD").map(|value| OsStr::new(*value)),
        env: &|name| env.get(name).map(|value| (*value).to_owned()),
    };
    let edits = edits(&rank).edits.unwrap();
    let preload = edits.preload.map(|value| ("LD_PRELOAD", value.into_string().unwrap()));
    let record = edits.set.into_iter().filter(|(name, _)| *name == "GPUBIND_WORKERS");
    record.chain(preload).map(|(name, value)| (name, &*value.leak())).collect()
}

#[test]
fn only_auto_tasks_with_several_devices_are_armed() {
    let task = armed("auto", 2, &[]);
    assert_eq!(task["LD_PRELOAD"], "/lib/libgpubind_worker.so");
    let record = Record::read(task["GPUBIND_WORKERS"].as_bytes()).unwrap();
    assert_eq!((record.process, record.visible), (TASK, &b"0,1"[..]));
    assert!(record.virtual_rank);
    let keep = armed("local-rank=keep", 1, &[]);
    assert!(!Record::read(keep["GPUBIND_WORKERS"].as_bytes()).unwrap().virtual_rank);
    for (request, tasks) in
        [("auto", 4), ("auto", 5), ("single", 2), ("ordered", 2), ("first", 1), ("workers=off", 1)]
    {
        assert_eq!(armed(request, tasks, &[]), Env::new(), "{request} with {tasks} tasks");
    }
    assert_eq!(armed("auto", 1, &[("SLURM_CONTAINER", "/bundle")]), Env::new());
    assert_eq!(armed("auto", 1, &[("SLURM_CONTAINER", "")]).len(), 2);
}

#[test]
fn every_task_that_is_to_enter_a_container_is_armed() {
    for (request, tasks, serves) in [
        ("auto", 1, true),
        ("auto", 2, true),
        ("auto", 4, false),
        ("single", 2, false),
        ("ordered", 4, false),
        ("first", 1, false),
    ] {
        let task = armed_in(true, request, tasks, &[]);
        let record = Record::read(task["GPUBIND_WORKERS"].as_bytes()).unwrap();
        assert_eq!(record.later, Later::Overwritten { serves }, "{request} with {tasks} tasks");
    }
    assert_eq!(armed_in(true, "workers=off", 4, &[]), Env::new());
}

#[test]
fn workers_beyond_the_devices_are_reported_once_or_refused() {
    let says = |surplus, local_rank: &'static str| {
        let all = env(&[("LOCAL_RANK", local_rank), ("LOCAL_WORLD_SIZE", "9")]);
        let record = Record { surplus, ..record(&env(&[])) };
        let ProcessKind::Worker(worker) = part_of(&record, TASK + 1, "python", &all) else {
            panic!("LOCAL_RANK={local_rank} is a worker's");
        };
        let mut line = Vec::new();
        surplus_line(surplus, &worker, &mut |piece| line.extend_from_slice(piece));
        String::from_utf8(line).unwrap()
    };
    for local_rank in ["0", "3"] {
        assert_eq!(says(Surplus::Reported, local_rank), "");
        assert_eq!(says(Surplus::Refused, local_rank), "");
    }
    let line = "the task has 4 devices, and its launcher starts a worker with local rank 4, which \
                shares one; start one worker for each device, or add `share`\n";
    assert_eq!(says(Surplus::Reported, "4"), format!("gpubind: warning: {line}"));
    assert_eq!(says(Surplus::Reported, "5"), "", "one line for all");
    assert_eq!(says(Surplus::Reported, "8"), "", "one line for all");
    assert_eq!(says(Surplus::Wanted, "4"), "");
    assert_eq!(says(Surplus::Refused, "4"), format!("gpubind: strict: {line}"));
    assert!(says(Surplus::Refused, "8").contains("with local rank 8, which"));
}

#[test]
fn a_task_in_a_container_gets_back_what_its_image_has_overwritten() {
    let overwrite = |visible: &'static str, own: &[(&'static str, &'static str)]| {
        let mut task = env(own);
        task.entry("CUDA_DEVICE_ORDER").or_insert("FASTEST_FIRST");
        let record = Record {
            later: Later::Overwritten { serves: false },
            visible: visible.as_bytes(),
            ..record(&task)
        };
        let kind = part_of(&record, TASK, "python", &task);
        assert_eq!(kind, ProcessKind::Overwritten { serves: false });
        let below = part_of(&record, TASK + 1, "python", &task);
        assert!(!matches!(below, ProcessKind::Overwritten { .. }));
        let changes = overwritten(&record, |name| value(&task, name));
        let changed = changes.into_iter().filter_map(|(name, value)| Some((name, value?.to_vec())));
        changed
            .map(|(name, value)| (name, String::from_utf8(value).unwrap()))
            .collect::<BTreeMap<_, _>>()
    };
    let set = |visible: &str, more: &[&'static str]| -> BTreeMap<&'static str, String> {
        let lists = [
            ("CUDA_VISIBLE_DEVICES", visible.to_owned()),
            ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()),
        ];
        lists.into_iter().chain(more.iter().map(|name| (*name, "0".to_owned()))).collect()
    };
    let image = [("CUDA_VISIBLE_DEVICES", "0")];
    let pytorch = [
        ("PYTORCH_VERSION", "2.6"),
        ("SLURM_LOCALID", "3"),
        ("LOCAL_RANK", "3"),
        ("CUDA_VISIBLE_DEVICES", "0"),
    ];
    assert_eq!(overwrite("6", &image), set("6", &[]));
    assert_eq!(overwrite("6", &pytorch), set("6", &["LOCAL_RANK"]));
    assert_eq!(overwrite("4,6", &pytorch), set("4,6", &[]), "it indexes the list");
    // The user's own, in an image of something else; or not pyxis's number.
    assert_eq!(overwrite("6", &pytorch[1..]), set("6", &[]));
    let other = [&pytorch[..2], &[("LOCAL_RANK", "1")]].concat();
    assert_eq!(overwrite("6", &other), set("6", &[]));
}

#[test]
fn another_preload_stays_and_an_outer_steps_shim_goes() {
    let preload = |value| armed("auto", 1, &[("LD_PRELOAD", value)])["LD_PRELOAD"].to_owned();
    assert_eq!(preload("a.so b.so"), "/lib/libgpubind_worker.so:a.so b.so");
    assert_eq!(preload("/old/libgpubind_worker.so:a.so"), "/lib/libgpubind_worker.so:a.so");
    assert_eq!(preload("/old/libgpubind_worker.so"), "/lib/libgpubind_worker.so");
    let without = |value: &str| preload_without_shim(OsStr::new(value));
    assert_eq!(without("/lib/libgpubind_worker.so"), Some(OsString::new()));
    assert_eq!(without("a.so:/x/libgpubind_worker.so"), Some("a.so".into()));
    let twice = "/x/libgpubind_worker.so:a.so:/y/libgpubind_worker.so";
    assert_eq!(without(twice), Some("a.so".into()));
    assert_eq!(without("a.so"), None);
    // Bytes stay bytes.
    let odd = OsString::from_vec(b"/x/libgpubind_worker.so:/\xff.so".to_vec());
    assert_eq!(preload_without_shim(&odd), Some(OsString::from_vec(b"/\xff.so".to_vec())));
    let record = |name: &str| (name == "GPUBIND_WORKERS").then(|| "done".to_owned());
    assert_eq!(inherited(&record), [("GPUBIND_WORKERS".to_owned(), None)]);
}

#[test]
fn a_local_rank_that_a_script_takes_from_slurms_makes_no_worker() {
    let derived = [("SLURM_LOCALID", "0"), ("LOCAL_RANK", "0"), ("RANK", "0")];
    assert_eq!(position(&[], &derived), None, "it starts torchrun next");
    for launched in ["LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "LOCAL_SIZE"] {
        assert_eq!(position(&[], &[&derived[..], &[(launched, "4")]].concat()), Some(0));
    }
    assert_eq!(position(&[], &[("SLURM_LOCALID", "0"), ("LOCAL_RANK", "2")]), Some(2));
}

#[test]
fn a_launchers_rank_does_not_take_the_tasks_numbers_for_its_own() {
    let task = [
        ("RANK", "3"),
        ("WORLD_SIZE", "4"),
        ("MASTER_ADDR", "n0"),
        ("GPUBIND_RANK_ENV", "RANK=3,WORLD_SIZE=8,MASTER_ADDR=n0,MASTER_PORT=15001"),
    ];
    let task = env(&task);
    let forgotten: Vec<_> = inherited_ranks(|name| value(&task, name)).collect();
    assert_eq!(forgotten, ["RANK", "MASTER_ADDR", "GPUBIND_RANK_ENV"], "WORLD_SIZE is the user's");
    let own = env(&[("RANK", "3")]);
    assert_eq!(inherited_ranks(|name| value(&own, name)).count(), 0);
    // One device: nothing to share out, and nothing below that could be.
    let single = Record { visible: b"4", ..record(&env(&[])) };
    let mut rank = env(&[("OMPI_COMM_WORLD_LOCAL_RANK", "1"), ("CUDA_VISIBLE_DEVICES", "4")]);
    assert_eq!(part_of(&single, 1, "a.out", &rank), ProcessKind::Rank { is_last: true });
    rank.insert("LOCAL_RANK", "1");
    assert_eq!(
        part_of(&single, 1, "a.out", &rank),
        ProcessKind::Unaffected,
        "torchrun sets its own"
    );
}

#[test]
fn a_worker_that_starts_a_container_is_a_worker_first() {
    let armed = record(&env(&[]));
    let worker = env(&[("OMPI_COMM_WORLD_LOCAL_RANK", "1")]);
    for launcher in ["apptainer", "proot-x86_64-4_8_0", "unshare"] {
        assert!(matches!(part_of(&armed, 1, launcher, &worker), ProcessKind::Worker(_)));
        assert_eq!(part_of(&armed, 1, launcher, &env(&[])), ProcessKind::ContainerLauncher);
    }
}
