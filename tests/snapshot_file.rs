//! The snapshot file: which is valid, and which is ignored.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use gpubind_core::node::snapshot::{
    Fingerprint, MAX_AGE, MAX_SIZE, SaveError, Snapshot, SnapshotError, UNUSABLE_MAX_AGE,
};
use gpubind_core::node::{
    Gpu, IdSet, Link, MigInstance, Nic, Node, NodeError, NumaNode, Probed, Roots, UnusableGpu,
};
use gpubind_core::trusted::TrustError;

/// A machine's file tree with one MIG GPU, and a snapshot's place in it.
struct Tree {
    folder: tempfile::TempDir,
    roots: Roots,
    now: SystemTime,
}

impl Tree {
    /// `None`, with a word on it, where the tests do not run as root: only
    /// root's snapshots are trusted.
    fn new() -> Option<Tree> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root's snapshots are trusted");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::new(folder.path());
        let tree = Tree { folder, roots, now: SystemTime::now() };
        tree.write("proc/sys/kernel/random/boot_id", "8b1f7a3e-0000-4000-8000-000000000001\n");
        tree.write("proc/driver/nvidia/version", "NVRM version: 580.82.07\nGCC version: 12\n");
        tree.write("proc/driver/nvidia/gpus/0000:07:00.0/information", "Device Minor: \t 0\n");
        tree.write("proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access", "");
        Some(tree)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn path(&self) -> PathBuf {
        self.roots.snapshot()
    }

    fn save(&self) -> Node {
        let fingerprint = Fingerprint::take(&self.roots);
        let snapshot = Snapshot::new(node(), fingerprint, self.now);
        snapshot.save(&self.path()).unwrap();
        snapshot.node
    }

    fn load(&self) -> Result<Node, SnapshotError> {
        self.load_at(self.now)
    }

    fn load_at(&self, now: SystemTime) -> Result<Node, SnapshotError> {
        Snapshot::load(&self.path(), &self.roots, MAX_AGE, now)
    }

    /// Changes the saved JSON.
    fn edit(&self, change: impl FnOnce(&mut serde_json::Value)) {
        let mut json = serde_json::from_slice(&fs::read(self.path()).unwrap()).unwrap();
        change(&mut json);
        fs::write(self.path(), json.to_string()).unwrap();
    }
}

/// A node that uses every kind of value.
fn node() -> Node {
    let gpu = |index, pci: &str| Gpu {
        index,
        minor: Probed::Known(index),
        uuid: Probed::Known(format!("GPU-00000000-0000-0000-0000-00000000000{index}")),
        pci: pci.parse().unwrap(),
        name: Probed::Known("NVIDIA A100-SXM4-40GB".to_owned()),
        cpus: Probed::Known("0-15,128-143".parse::<IdSet>().unwrap()),
        numa: Probed::Known(vec![0]),
        gpu_numa_id: Probed::Unsupported,
        mig_mode: Probed::Known(true),
        mig: Vec::new(),
        persistence: Probed::Failed(999),
    };
    let mut gpus = vec![gpu(0, "0000:07:00.0"), gpu(2, "10000:0f:00.0")];
    gpus[0].mig = vec![MigInstance {
        gi: 1,
        ci: 0,
        uuid: "MIG-GPU-00000000-0000-0000-0000-000000000000/1/0".to_owned(),
        profile: Some("3g.20gb".to_owned()),
    }];
    Node {
        gres_minors: None,
        gpus,
        links: vec![vec![Link::Same, Link::NvLink(12)], vec![Link::Unknown, Link::Same]],
        unusable: Vec::new(),
        nics: vec![Nic { name: "mlx5_0".to_owned(), pci: None, links: vec![Link::Pix, Link::Sys] }],
        numa: vec![
            NumaNode { id: 0, cpus: "0-15".parse().unwrap(), distance: vec![10, 32] },
            NumaNode { id: 8, cpus: IdSet::default(), distance: vec![32, 10] },
        ],
        driver: Some("580.82.07".to_owned()),
    }
}

#[test]
fn what_was_saved_is_loaded() {
    let Some(tree) = Tree::new() else { return };
    let saved = tree.save();
    assert_eq!(tree.load().unwrap(), saved);
    assert_eq!(tree.load_at(tree.now + MAX_AGE).unwrap(), saved);
    let (file, folder) = (fs::metadata(tree.path()).unwrap(), fs::metadata(tree.roots.run()));
    assert_eq!(file.mode() & 0o7777, 0o644);
    assert_eq!(folder.unwrap().mode() & 0o7777, 0o755);
    let left: Vec<_> = fs::read_dir(tree.roots.run()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn nothing_there_is_said() {
    let Some(tree) = Tree::new() else { return };
    assert!(matches!(tree.load(), Err(SnapshotError::Trust(TrustError::Missing(_)))));
    tree.save();
    fs::remove_file(tree.path()).unwrap();
    assert!(matches!(tree.load(), Err(SnapshotError::Trust(TrustError::Missing(_)))));
}

#[test]
fn a_file_of_another_user_is_refused() {
    let Some(tree) = Tree::new() else { return };
    tree.save();
    chown(tree.path(), Some(1000), None).unwrap();
    let error = tree.load().unwrap_err();
    assert!(
        matches!(error, SnapshotError::Trust(TrustError::Owner { found: 1000, expected: 0, .. })),
        "{error}"
    );
    chown(tree.path(), Some(0), None).unwrap();
    chown(tree.roots.run(), Some(1000), None).unwrap();
    let error = tree.load().unwrap_err();
    assert!(
        matches!(error, SnapshotError::Trust(TrustError::Owner { found: 1000, .. })),
        "{error}"
    );
}

#[test]
fn a_file_or_folder_that_others_can_write_is_refused() {
    let Some(tree) = Tree::new() else { return };
    tree.save();
    for (path, good) in [(tree.path(), 0o644), (tree.roots.run(), 0o755)] {
        for bad in [good | 0o020, good | 0o002, 0o1777] {
            fs::set_permissions(&path, Permissions::from_mode(bad)).unwrap();
            let error = tree.load().unwrap_err();
            assert!(
                matches!(error, SnapshotError::Trust(TrustError::Writable { .. })),
                "{bad:o}: {error}"
            );
            assert!(error.to_string().contains(&format!("{bad:04o}")), "{error}");
        }
        fs::set_permissions(&path, Permissions::from_mode(good)).unwrap();
        tree.load().unwrap();
    }
}

#[test]
fn links_and_special_files_are_refused() {
    let Some(tree) = Tree::new() else { return };
    tree.save();
    let real = tree.folder.path().join("real");
    fs::rename(tree.path(), &real).unwrap();
    symlink(&real, tree.path()).unwrap();
    assert!(matches!(tree.load(), Err(SnapshotError::Trust(TrustError::Symlink(_)))));
    fs::remove_file(tree.path()).unwrap();

    rustix::fs::mknodat(
        rustix::fs::CWD,
        tree.path(),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    assert!(
        matches!(tree.load(), Err(SnapshotError::Trust(TrustError::NotAFile(_)))),
        "and it did not block"
    );
    fs::remove_file(tree.path()).unwrap();

    fs::create_dir(tree.path()).unwrap();
    assert!(matches!(tree.load(), Err(SnapshotError::Trust(TrustError::NotAFile(_)))));
    fs::remove_dir(tree.path()).unwrap();

    fs::rename(&real, tree.path()).unwrap();
    let moved = tree.folder.path().join("moved");
    fs::rename(tree.roots.run(), &moved).unwrap();
    symlink(&moved, tree.roots.run()).unwrap();
    assert!(
        matches!(tree.load(), Err(SnapshotError::Trust(TrustError::Symlink(_)))),
        "the folder too"
    );
}

#[test]
fn a_huge_file_is_refused_unread() {
    let Some(tree) = Tree::new() else { return };
    tree.save();
    let file = fs::OpenOptions::new().write(true).open(tree.path()).unwrap();
    file.set_len(MAX_SIZE as u64).unwrap();
    assert!(matches!(tree.load(), Err(SnapshotError::Json(_))), "at the limit it is read");
    file.set_len(1 << 40).unwrap();
    assert!(matches!(tree.load(), Err(SnapshotError::Trust(TrustError::TooLarge { .. }))));
}

#[test]
fn what_is_no_snapshot_is_refused() {
    let Some(tree) = Tree::new() else { return };
    tree.save();
    let whole = fs::read_to_string(tree.path()).unwrap();
    let nested = "[".repeat(1_000_000);
    for text in ["", "{", "null", "[]", "{\"schema\":2}", &whole[..whole.len() / 2], &nested] {
        fs::write(tree.path(), text).unwrap();
        assert!(matches!(tree.load(), Err(SnapshotError::Json(_))), "{:.20}", text);
    }
    fs::write(tree.path(), b"\xff\xfe\x00").unwrap();
    assert!(matches!(tree.load(), Err(SnapshotError::Json(_))));
    fs::write(tree.path(), "{\"schema\":1,\"whatever\":[]}").unwrap();
    assert!(matches!(tree.load(), Err(SnapshotError::Schema(1))), "before the rest is looked at");
}

#[test]
fn age_is_bounded_on_both_sides() {
    let Some(tree) = Tree::new() else { return };
    tree.save();
    let second = Duration::from_secs(1);
    let error = tree.load_at(tree.now + MAX_AGE + second).unwrap_err();
    assert!(matches!(error, SnapshotError::TooOld { age: 86_401, max: 86_400 }), "{error}");
    let error = tree.load_at(tree.now - 7 * second).unwrap_err();
    assert!(matches!(error, SnapshotError::Future(7)), "{error}");
}

#[test]
fn one_with_unusable_gpus_is_valid_for_minutes() {
    let Some(tree) = Tree::new() else { return };
    let mut node = node();
    node.unusable = vec![UnusableGpu { index: 1, pci: None, minor: Some(1), code: 15 }];
    let snapshot = Snapshot::new(node.clone(), Fingerprint::take(&tree.roots), tree.now);
    snapshot.save(&tree.path()).unwrap();
    assert_eq!(tree.load_at(tree.now + UNUSABLE_MAX_AGE).unwrap(), node);
    let late = tree.now + UNUSABLE_MAX_AGE + Duration::from_secs(1);
    let error = tree.load_at(late).unwrap_err();
    assert!(matches!(error, SnapshotError::Unusable(301)), "{error}");
    // A shorter age of the site's is kept.
    let short = Snapshot::load(&tree.path(), &tree.roots, Duration::from_secs(60), late);
    assert!(matches!(short, Err(SnapshotError::TooOld { .. })));
}

#[test]
fn each_change_of_the_machine_makes_it_stale() {
    type Change = fn(&Tree);
    let changes: [(&str, Change); 6] = [
        ("the boot id", |tree| tree.write("proc/sys/kernel/random/boot_id", "another\n")),
        ("the driver version", |tree| tree.write("proc/driver/nvidia/version", "NVRM: 590\n")),
        ("the list of GPUs", |tree| {
            tree.write("proc/driver/nvidia/gpus/0000:0f:00.0/information", "Device Minor: 1\n");
        }),
        ("the list of GPUs", |tree| {
            tree.write("proc/driver/nvidia/gpus/0000:07:00.0/information", "Device Minor: 1\n");
        }),
        ("the MIG layout", |tree| {
            tree.write("proc/driver/nvidia/capabilities/gpu0/mig/gi2/ci0/access", "");
        }),
        ("the list of GPUs", |tree| {
            fs::remove_dir_all(tree.folder.path().join("proc/driver/nvidia/gpus")).unwrap();
        }),
    ];
    for (what, change) in changes {
        let Some(tree) = Tree::new() else { return };
        tree.save();
        tree.load().unwrap();
        change(&tree);
        let error = tree.load().unwrap_err();
        assert!(matches!(error, SnapshotError::Stale(part) if part == what), "{what}: {error}");
    }
}

#[test]
fn a_version_file_that_only_changed_its_compiler_line_is_the_same_driver() {
    let Some(tree) = Tree::new() else { return };
    tree.save();
    tree.write("proc/driver/nvidia/version", "NVRM version: 580.82.07\nGCC version: 13\n");
    tree.load().unwrap();
}

#[test]
fn a_node_that_contradicts_itself_is_refused() {
    use serde_json::json;
    type Edit = fn(&mut serde_json::Value);
    type Expect = fn(&NodeError) -> bool;
    let edits: [(Edit, Expect); 13] = [
        (
            |node| drop(node["links"].as_array_mut().unwrap().pop()),
            |e| matches!(e, NodeError::Matrix { gpus: 2 }),
        ),
        (
            |node| node["links"][0] = json!(["X", "SYS", "SYS"]),
            |e| matches!(e, NodeError::Matrix { .. }),
        ),
        (
            |node| node["links"][1][1] = json!("SYS"),
            |e| matches!(e, NodeError::Diagonal { a: 1, b: 1, .. }),
        ),
        (|node| node["links"][0][1] = json!("X"), |e| matches!(e, NodeError::Diagonal { .. })),
        (
            |node| node["gpus"][1]["pci"] = json!("0000:07:00.0"),
            |e| matches!(e, NodeError::Order(_)),
        ),
        (
            |node| node["gpus"][1]["pci"] = json!("0000:01:00.0"),
            |e| matches!(e, NodeError::Order(_)),
        ),
        (|node| node["gpus"][1]["index"] = json!(0), |e| matches!(e, NodeError::Index(0))),
        (
            |node| node["gpus"][0]["uuid"] = json!({"known": "GPU-1,GPU-2"}),
            |e| matches!(e, NodeError::Uuid(_)),
        ),
        (
            |node| node["gpus"][0]["mig"][0]["uuid"] = json!("MIG-1\nPATH=/tmp"),
            |e| matches!(e, NodeError::Uuid(_)),
        ),
        (
            |node| {
                let twice = node["gpus"][0]["mig"][0].clone();
                node["gpus"][0]["mig"].as_array_mut().unwrap().push(twice);
            },
            |e| matches!(e, NodeError::Mig(0)),
        ),
        (|node| node["nics"][0]["links"] = json!(["PIX"]), |e| matches!(e, NodeError::Nic(_))),
        (|node| node["numa"][1]["distance"] = json!([10]), |e| matches!(e, NodeError::Numa(8))),
        (|node| node["numa"][1]["id"] = json!(0), |e| matches!(e, NodeError::Numa(0))),
    ];
    for (number, (edit, expect)) in edits.into_iter().enumerate() {
        let Some(tree) = Tree::new() else { return };
        tree.save();
        tree.edit(|json| edit(&mut json["node"]));
        match tree.load().unwrap_err() {
            SnapshotError::Inconsistent(error) => assert!(expect(&error), "{number}: {error}"),
            error => panic!("{number}: {error}"),
        }
    }
}

#[test]
fn readers_never_see_half_a_file() {
    let Some(tree) = Tree::new() else { return };
    tree.save();
    let path = tree.path();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let fingerprint = Fingerprint::take(&tree.roots);
                    Snapshot::new(node(), fingerprint, tree.now).save(&path).unwrap();
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..400 {
                    assert_eq!(tree.load().unwrap(), node());
                }
            });
        }
    });
    assert_eq!(fs::read_dir(tree.roots.run()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn what_a_killed_writer_has_left_is_removed_by_the_next_one() {
    let Some(tree) = Tree::new() else { return };
    tree.save();
    let run = tree.roots.run();
    // No process has the first number; the second one is this test's own.
    let own = format!(".node.json.{}.4000000000", std::process::id());
    for name in [".node.json.2147483647.0", &own, ".node.json.bak", ".node.json.1.x", ".other.9.0"]
    {
        fs::write(run.join(name), "half").unwrap();
    }
    tree.save();
    let mut left = names(&run);
    left.sort();
    let mut expected = [".node.json.1.x", &own, ".node.json.bak", ".other.9.0", "node.json"];
    expected.sort();
    assert_eq!(left, expected);
}

#[test]
fn it_is_not_written_into_a_folder_that_others_can_write() {
    let Some(tree) = Tree::new() else { return };
    fs::create_dir_all(tree.roots.run()).unwrap();
    fs::set_permissions(tree.roots.run(), Permissions::from_mode(0o1777)).unwrap();
    let snapshot = Snapshot::new(node(), Fingerprint::take(&tree.roots), tree.now);
    let error = snapshot.save(&tree.path()).unwrap_err();
    assert!(matches!(error, SaveError::Untrusted(TrustError::Writable { .. })), "{error}");
    assert!(!tree.path().exists());
}

#[test]
fn a_failing_save_leaves_nothing() {
    let Some(tree) = Tree::new() else { return };
    fs::create_dir_all(tree.path().join("in the way")).unwrap();
    let snapshot = Snapshot::new(node(), Fingerprint::take(&tree.roots), tree.now);
    let error = snapshot.save(&tree.path()).unwrap_err();
    assert!(matches!(error, SaveError::Write { .. }), "{error}");
    assert_eq!(names(&tree.roots.run()), ["node.json"]);
}

#[test]
fn the_printed_form_reads_back() {
    let Some(tree) = Tree::new() else { return };
    let snapshot = Snapshot::new(node(), Fingerprint::take(&tree.roots), tree.now);
    assert_eq!(Snapshot::parse(snapshot.to_json().as_bytes()).unwrap(), snapshot);
    let large = vec![b' '; MAX_SIZE + 1];
    assert!(matches!(Snapshot::parse(&large), Err(SnapshotError::TooLarge)));
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}
