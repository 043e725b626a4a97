//! One fault after the other on one node, each with what is expected of a step: that it
//! runs, what its tasks get, and what the user is told. Whatever is wrong, the node stays
//! in service, with the plugin `optional` or `required`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Kind, each, ours};
use crate::node::{Good, Node, call, in_service, readers, remove};
use crate::trial::{Test, tests};

/// The node that everything happens to.
pub const FAULTY: Kind = Kind::new(
    "t-fault",
    &["--machine", "two-cpu", "--nodes", "1", "--plugstack", "probe-timeout=1"],
);

pub const TESTS: &[Test] = tests! {
    [FAULTY]: nvml_that_fails, snapshots_that_are_not_valid, programs_that_do_not_answer,
        site_files_and_arguments_that_are_wrong, a_killed_slurmstepd_leaves_nothing_behind;
};

/// What a step of eight tasks on eight GPUs is to get.
#[derive(Clone, Copy)]
pub enum Expect {
    /// Each task its own GPU, and not a word.
    Bound,
    /// The same, with one warning.
    BoundWith(&'static str),
    /// Each task the GPU of its number, and one warning that affinity is unknown, why.
    InOrder(&'static str),
}
use Expect::{Bound, BoundWith, InOrder};

type Fault = (&'static str, fn(&Node), Expect);

/// Applies each fault to the node as it should be, alone.
fn suffer(cluster: &Cluster, faults: &[Fault]) {
    let node = Node::of(cluster);
    for (name, fault, expect) in faults {
        for word in ["optional", "required"] {
            let _good = Good::of(&node);
            node.write("etc/plugstack.conf", |text| text.replacen("optional", word, 1));
            // A valid snapshot, of this moment.
            runs(cluster, name, Bound);
            fault(&node);
            runs(cluster, &format!("{word}: {name}"), *expect);
            in_service(cluster, name);
        }
    }
}

pub fn runs(cluster: &Cluster, what: &str, expect: Expect) {
    let begin = Instant::now();
    let words = ["srun", "--label", "-N1", "-n8", "--gpus-per-node=8", "--gpu-bind=spank", "env"];
    let ran = cluster.run(&words);
    assert_eq!(ran.code, Some(0), "{what}: {}", ran.stderr);
    assert!(begin.elapsed() < Duration::from_secs(10), "{what}: {:?}", begin.elapsed());
    let tasks = crate::cluster::tasks_of(&ran.stdout);
    let lines = ours(&ran.stderr);
    let mut visible = each(&tasks, "CUDA_VISIBLE_DEVICES");
    let all = ["0", "1", "2", "3", "4", "5", "6", "7"];
    let (texts, is_known): (&[&str], bool) = match &expect {
        Bound => (&[], true),
        BoundWith(text) => (&[text], true),
        InOrder(text) => {
            (&["warning: cannot read this node's GPUs", "affinity is unknown", text], false)
        }
    };
    if is_known {
        let known = each(&tasks, "GPUBIND_GPU_UUID");
        assert!(known.iter().all(|uuid| uuid.starts_with("GPU-")), "{what}: {known:?}");
        visible.sort_unstable();
    }
    assert_eq!(visible, all, "{what}");
    assert_eq!(lines.len(), usize::from(!texts.is_empty()), "{what}: {}", ran.stderr);
    for text in texts {
        assert!(lines[0].contains(text), "{what}: no {text:?} in {}", ran.stderr);
    }
}

fn nvml_that_fails(cluster: &Cluster) {
    suffer(
        cluster,
        &[
            ("slow", |node| node.fails(&call("nvmlInit_v2", "delay-ms = 300")), Bound),
            (
                "hangs for ever",
                |node| node.fails(&call("nvmlInit_v2", "hang = true")),
                InOrder("NVML did not answer within 1 s"),
            ),
            (
                "hangs on one GPU",
                |node| node.fails(&call("nvmlDeviceGetUUID", "gpu = 5, hang = true")),
                InOrder("NVML did not answer within 1 s"),
            ),
            (
                "crashes",
                |node| node.fails(&call("nvmlDeviceGetCount_v2", "crash = true")),
                InOrder("killed by signal 6"),
            ),
            ("another version", |node| node.fails("mismatch = true"), InOrder("code 18")),
            (
                "no permission",
                |node| node.fails(&call("nvmlInit_v2", "code = 4")),
                InOrder("code 4"),
            ),
            (
                "no library",
                |node| {
                    remove(&node.library());
                    remove(&node.snapshot());
                },
                InOrder("cannot load"),
            ),
            (
                "half a library",
                |node| {
                    // In another file: the one that is mapped must not change.
                    let bytes = fs::read(node.library()).unwrap();
                    remove(&node.library());
                    fs::write(node.library(), &bytes[..bytes.len() / 2]).unwrap();
                    remove(&node.snapshot());
                },
                InOrder("NVML crashed: the process that read it was killed by signal 7"),
            ),
            // Nothing of the machine has changed, so nothing is asked.
            (
                "fails after the snapshot",
                |node| {
                    node.write("root/nvml/machine.toml", |text| {
                        format!("{text}\n[faults]\nmismatch = true\n")
                    })
                },
                Bound,
            ),
        ],
    );
}

fn snapshots_that_are_not_valid(cluster: &Cluster) {
    // Of each, NVML is read again.
    suffer(
        cluster,
        &[
            ("missing", |node| remove(&node.snapshot()), Bound),
            (
                "truncated",
                |node| node.edit_snapshot(|text| text[..text.len() / 2].to_owned()),
                Bound,
            ),
            ("empty", |node| node.edit_snapshot(|_| String::new()), Bound),
            ("nested", |node| node.edit_snapshot(|_| "[".repeat(100_000)), Bound),
            (
                "another schema",
                |node| {
                    node.edit_snapshot(|text| text.replacen("\"schema\": 1", "\"schema\": 9", 1))
                },
                Bound,
            ),
            (
                "of another boot",
                |node| node.edit_snapshot(|text| text.replace("boot_id\": \"", "boot_id\": \"x")),
                Bound,
            ),
            (
                "of the future",
                |node| {
                    node.edit_snapshot(|text| text.replacen("\"taken_at\": ", "\"taken_at\": 9", 1))
                },
                Bound,
            ),
            (
                "old",
                |node| {
                    node.edit_snapshot(|text| text.replacen("\"taken_at\": 1", "\"taken_at\": ", 1))
                },
                Bound,
            ),
            (
                "of a lost GPU that is well again",
                |node| {
                    let machine = node.folder.join("root/nvml/machine.toml");
                    let well = fs::read(&machine).unwrap();
                    node.fails("lost = [2]");
                    node.takes_snapshot();
                    fs::write(machine, well).unwrap();
                    // Six minutes ago.
                    node.edit_snapshot(|text| {
                        let (before, after) = text.split_once("\"taken_at\": ").unwrap();
                        let (seconds, after) = after.split_once(',').unwrap();
                        let seconds: u64 = seconds.parse().unwrap();
                        format!("{before}\"taken_at\": {},{after}", seconds - 360)
                    });
                },
                Bound,
            ),
            (
                "writable by all",
                |node| fs::set_permissions(node.snapshot(), Permissions::from_mode(0o666)).unwrap(),
                Bound,
            ),
            ("a user's", |node| chown(node.snapshot(), Some(1000), None).unwrap(), Bound),
            (
                "in a folder of a user's",
                |node| chown(node.run_folder(), Some(1000), None).unwrap(),
                Bound,
            ),
            (
                "a link",
                |node| {
                    let real = node.folder.join("root/run/real.json");
                    fs::rename(node.snapshot(), &real).unwrap();
                    symlink(&real, node.snapshot()).unwrap();
                },
                Bound,
            ),
            (
                "a pipe",
                |node| {
                    remove(&node.snapshot());
                    let made = Command::new("mkfifo").arg(node.snapshot()).status().unwrap();
                    assert!(made.success());
                },
                Bound,
            ),
            (
                "a folder",
                |node| {
                    remove(&node.snapshot());
                    fs::create_dir(node.snapshot()).unwrap();
                },
                Bound,
            ),
            (
                "100 MB",
                |node| {
                    fs::File::options()
                        .write(true)
                        .open(node.snapshot())
                        .unwrap()
                        .set_len(100_000_000)
                        .unwrap()
                },
                Bound,
            ),
        ],
    );
}

fn programs_that_do_not_answer(cluster: &Cluster) {
    suffer(
        cluster,
        &[
            (
                "missing",
                |node| {
                    node.starts("");
                    remove(&node.program());
                },
                InOrder("there is no "),
            ),
            (
                "not executable",
                |node| {
                    node.starts("");
                    fs::set_permissions(node.program(), Permissions::from_mode(0o644)).unwrap();
                },
                InOrder("cannot start "),
            ),
            (
                "a user's",
                |node| {
                    node.starts("touch ran");
                    chown(node.program(), Some(1000), None).unwrap();
                },
                InOrder("belongs to user 1000"),
            ),
            (
                "writable by all",
                |node| {
                    node.starts("");
                    fs::set_permissions(node.program(), Permissions::from_mode(0o777)).unwrap();
                },
                InOrder("writable by others"),
            ),
            (
                "exits with 1",
                |node| node.starts("echo 'no luck' >&2; exit 1"),
                InOrder("exit code 1: no luck"),
            ),
            (
                "prints garbage",
                |node| node.starts("head -c 100000 /dev/urandom"),
                InOrder("answered wrongly"),
            ),
            ("prints nothing", |node| node.starts("exit 0"), InOrder("answered wrongly")),
            (
                "never ends its output",
                |node| node.starts("exec cat /dev/zero"),
                InOrder("wrote more than"),
            ),
            (
                "hangs",
                |node| node.starts("sleep 60"),
                InOrder("did not finish within 3 s and was killed"),
            ),
            ("is no program", |node| node.starts("\u{0}"), InOrder("cannot read this node's GPUs")),
        ],
    );
}

fn site_files_and_arguments_that_are_wrong(cluster: &Cluster) {
    suffer(
        cluster,
        &[
            ("missing", |node| remove(&node.site_file()), BoundWith("there is no ")),
            (
                "invalid",
                |node| fs::write(node.site_file(), "mode = [").unwrap(),
                BoundWith("gpubind.toml"),
            ),
            (
                "not text",
                |node| fs::write(node.site_file(), b"\xff\xfe").unwrap(),
                BoundWith("gpubind.toml"),
            ),
            (
                "wrong types",
                |node| fs::write(node.site_file(), "mode = 3").unwrap(),
                BoundWith("gpubind.toml"),
            ),
            (
                "10 MB",
                |node| fs::write(node.site_file(), vec![b'\n'; 10_000_000]).unwrap(),
                BoundWith("larger than"),
            ),
            (
                "a user's",
                |node| chown(node.site_file(), Some(1000), None).unwrap(),
                BoundWith("belongs to user 1000"),
            ),
            (
                "a folder",
                |node| {
                    remove(&node.site_file());
                    fs::create_dir(node.site_file()).unwrap();
                },
                BoundWith("not a regular file"),
            ),
            ("arguments", |node| node.arguments("mdoe=single probe-timeout=soon \u{1}"), Bound),
            (
                "an argument that is not text",
                |node| {
                    let file = node.folder.join("etc/plugstack.conf");
                    let mut bytes = fs::read(&file).unwrap();
                    while bytes.last() == Some(&b'\n') {
                        bytes.pop();
                    }
                    bytes.extend(b" \xff\xfe=1\n");
                    fs::write(&file, bytes).unwrap();
                },
                Bound,
            ),
        ],
    );
}

pub fn await_readers(node: &Node, what: &str, is_it: fn(&[(i32, i32)]) -> bool) -> Vec<(i32, i32)> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let found = readers(node);
        if is_it(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: {found:?}");
        sleep(Duration::from_millis(20));
    }
}

fn a_killed_slurmstepd_leaves_nothing_behind(cluster: &Cluster) {
    let node = Node::of(cluster);
    let good = Good::of(&node);
    runs(cluster, "at first", Bound);
    node.fails(&call("nvmlDeviceGetCount_v2", "hang = true"));
    node.arguments("probe-timeout=600");
    let words = ["srun", "-N1", "-n1", "--gpus-per-node=8", "--gpu-bind=spank", "true"];
    let mut step =
        cluster.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let found = await_readers(&node, "one waits, one reads", |found| found.len() == 2);
    let is_reader = |process: i32| found.iter().any(|(reader, _)| *reader == process);
    let (_, stepd) = found.iter().find(|(_, parent)| !is_reader(*parent)).unwrap();
    let name = fs::read_to_string(format!("/proc/{stepd}/comm")).unwrap();
    assert_eq!(name.trim(), "slurmstepd");
    assert!(Command::new("kill").args(["-9", &stepd.to_string()]).status().unwrap().success());
    await_readers(&node, "both are gone", |found| found.is_empty());
    // The step's end is Slurm's business.
    cluster.run(&["scancel", "--full", "--state=RUNNING", "--me"]);
    step.wait().unwrap();
    drop(good);
    in_service(cluster, "after the kill");
    runs(cluster, "no lock is left", Bound);
}
