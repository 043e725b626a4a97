//! scripts/install: again, over an admin's changes, and away.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpubind_core::site::{Origin, PlugstackArgs};

use crate::{Test, dist, root, run};

pub const TESTS: &[Test] = &[
    ("an_installed_file_is_replaced_by_renaming", an_installed_file_is_replaced_by_renaming),
    ("a_full_disk_leaves_the_old_plugin_whole", a_full_disk_leaves_the_old_plugin_whole),
    ("an_admins_changes_survive_and_all_else_goes", an_admins_changes_survive),
    ("the_line_s_file_of_an_earlier_version_is_renamed", an_earlier_file_is_renamed),
    ("a_dry_run_changes_nothing", a_dry_run_changes_nothing),
    ("another_prefix_is_told_to_the_plugin", another_prefix_is_told_to_the_plugin),
];

const PLUGIN: &str = "usr/lib/gpubind/spank_gpubind.so";
const SITE: &str = "etc/gpubind.toml";
const LINE: &str = "etc/slurm/plugstack.conf.d/zz-gpubind.conf";
/// Its name before, which came before pyxis.conf.
const OLD_LINE: &str = "etc/slurm/plugstack.conf.d/gpubind.conf";
const MOUNT: &str = "etc/enroot/mounts.d/50-gpubind.fstab";

/// Runs scripts/install into a folder, and gives back what it says.
pub fn install(folder: &Path, options: &[&str]) -> String {
    let mut command = Command::new(root().join("scripts/install"));
    command.arg("--no-build").arg("--destdir").arg(folder).args(options);
    run(&mut command).1
}

/// A running slurmstepd has the plugin mapped: what it has must not change.
fn an_installed_file_is_replaced_by_renaming() {
    let there = tempfile::tempdir().unwrap();
    install(there.path(), &[]);
    let plugin = there.path().join(PLUGIN);
    let old = b"an older plugin";
    fs::write(&plugin, old).unwrap();
    let mut held = File::open(&plugin).unwrap();
    let said = install(there.path(), &[]);
    assert!(said.contains(&format!("install /{PLUGIN}\n")), "{said}");
    assert!(!said.contains("/usr/bin/gpubind"), "what is the same stays: {said}");
    assert_ne!(plugin.metadata().unwrap().ino(), held.metadata().unwrap().ino());
    let mut read = Vec::new();
    held.read_to_end(&mut read).unwrap();
    assert_eq!(read, old);
    assert_eq!(fs::read(&plugin).unwrap(), fs::read(dist().join("lib/spank_gpubind.so")).unwrap());
    let folder = plugin.parent().unwrap().read_dir().unwrap();
    let names: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains(".new")), "{names:?}");
}

fn a_full_disk_leaves_the_old_plugin_whole() {
    // Mounted for the command only: room for an old plugin, and for little more.
    let script = "lib=$1/usr/lib/gpubind; mkdir -p $lib && \
                  mount -t tmpfs -o size=300k tmpfs $lib && echo old >$1/$2 && \
                  { $3 --no-build --destdir $1; echo ended $?; cat $1/$2; ls -A $lib; }";
    let there = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(there.path()).arg(PLUGIN);
    let (printed, said) = run(command.arg(root().join("scripts/install")));
    let end = "ended 1\nold\nspank_gpubind.so\n";
    assert!(printed.ends_with(end), "{printed}{said}");
    assert!(said.contains("what was there stays; is the disk full?"), "{said}");
}

fn an_admins_changes_survive() {
    let there = tempfile::tempdir().unwrap();
    let at = |path: &str| there.path().join(path);
    fs::create_dir_all(at("usr/bin")).unwrap();
    fs::write(at("usr/bin/other"), "").unwrap();
    install(there.path(), &[]);
    assert_eq!(install(there.path(), &[]), "", "nothing is new");
    fs::write(at(SITE), "mode = \"single\"\n").unwrap();
    fs::write(at(LINE), "# not now\n").unwrap();
    // Another version comes with another site file: as if this one's had come before.
    let record = at("usr/lib/gpubind/installed");
    let of_site = |line: &str| line.ends_with(&format!(" /{SITE}"));
    let lines = fs::read_to_string(&record).unwrap();
    let lines = lines.lines().map(|line| match of_site(line) {
        true => format!("config 0123 /{SITE}\n"),
        false => format!("{line}\n"),
    });
    fs::write(&record, lines.collect::<String>()).unwrap();
    let said = install(there.path(), &[]);
    assert!(said.contains(&format!("kept: /{SITE}, which you have changed")), "{said}");
    assert!(!said.contains(LINE), "this version's is no news: {said}");
    assert_eq!(fs::read_to_string(at(SITE)).unwrap(), "mode = \"single\"\n");
    assert_eq!(
        fs::read(at(&format!("{SITE}.new"))).unwrap(),
        fs::read(dist().join("etc/gpubind.toml")).unwrap()
    );

    let said = install(there.path(), &["--uninstall"]);
    assert!(said.contains(&format!("kept: /{SITE}, which you have changed")), "{said}");
    assert!(said.contains(&format!("kept: /{LINE}.saved, which you have changed")), "{said}");
    let mut left = Vec::new();
    walk(there.path(), &mut left);
    left.sort();
    let expected = [SITE, &format!("{LINE}.saved"), "usr/bin/other"];
    assert_eq!(left, expected.map(|path| there.path().join(path)));

    // It comes back as it was.
    install(there.path(), &[]);
    assert_eq!(fs::read_to_string(at(LINE)).unwrap(), "# not now\n");
    assert_eq!(fs::read_to_string(at(SITE)).unwrap(), "mode = \"single\"\n");
    // One that the admin has removed stays away.
    fs::remove_file(at(LINE)).unwrap();
    let said = install(there.path(), &[]);
    assert!(said.contains(&format!("left away: /{LINE}")), "{said}");
    assert!(!at(LINE).exists());
}

/// As an earlier version has left it: the same line in a file of another name.
fn earlier(folder: &Path) -> PathBuf {
    install(folder, &[]);
    let record = folder.join("usr/lib/gpubind/installed");
    let lines = fs::read_to_string(&record).unwrap();
    fs::write(&record, lines.replace(LINE, OLD_LINE)).unwrap();
    fs::rename(folder.join(LINE), folder.join(OLD_LINE)).unwrap();
    record
}

fn an_earlier_file_is_renamed() {
    let there = tempfile::tempdir().unwrap();
    let at = |path: &str| there.path().join(path);
    let shipped = fs::read(dist().join("etc/zz-gpubind.conf")).unwrap();
    let record = earlier(there.path());
    let said = install(there.path(), &["--dry-run"]);
    assert!(said.contains(&format!("would rename to zz-gpubind.conf: /{OLD_LINE}")), "{said}");
    assert!(at(OLD_LINE).exists() && !at(LINE).exists());
    install(there.path(), &[]);
    assert!(!at(OLD_LINE).exists());
    assert_eq!(fs::read(at(LINE)).unwrap(), shipped);
    assert!(!fs::read_to_string(&record).unwrap().contains(OLD_LINE));
    // With an admin's changes.
    earlier(there.path());
    fs::write(at(OLD_LINE), "optional mine.so\n").unwrap();
    install(there.path(), &[]);
    assert!(!at(OLD_LINE).exists());
    assert_eq!(fs::read_to_string(at(LINE)).unwrap(), "optional mine.so\n");
    // Removed by the admin, or put aside when gpubind was removed.
    fs::remove_file(at(LINE)).unwrap();
    fs::write(&record, fs::read_to_string(&record).unwrap().replace(LINE, OLD_LINE)).unwrap();
    install(there.path(), &[]);
    assert!(!at(LINE).exists() && !at(OLD_LINE).exists(), "it stays away");
    install(there.path(), &["--uninstall"]);
    fs::create_dir_all(at(OLD_LINE).parent().unwrap()).unwrap();
    fs::write(at(&format!("{OLD_LINE}.saved")), "optional mine.so\n").unwrap();
    install(there.path(), &[]);
    assert_eq!(fs::read_to_string(at(LINE)).unwrap(), "optional mine.so\n");
    assert!(!at(&format!("{OLD_LINE}.saved")).exists());
    install(there.path(), &["--uninstall"]);
}

fn a_dry_run_changes_nothing() {
    let there = tempfile::tempdir().unwrap();
    let said = install(there.path(), &["--dry-run"]);
    assert!(said.contains("would install /usr/bin/gpubind\n"), "{said}");
    assert_eq!(there.path().read_dir().unwrap().count(), 0);
    install(there.path(), &[]);
    let said = install(there.path(), &["--uninstall", "--dry-run"]);
    assert!(said.contains("would remove /usr/bin/gpubind\n"), "{said}");
    assert!(there.path().join("usr/bin/gpubind").exists());
}

fn another_prefix_is_told_to_the_plugin() {
    let there = tempfile::tempdir().unwrap();
    install(there.path(), &["--prefix", "/opt/gpubind"]);
    let line = fs::read_to_string(there.path().join(LINE)).unwrap();
    let line = line.lines().last().unwrap().to_owned();
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(words[0], "optional");
    for path in words[1..].iter().map(|word| word.rsplit('=').next().unwrap()) {
        assert!(there.path().join(path.trim_start_matches('/')).is_file(), "{line}");
    }
    let mount = fs::read_to_string(there.path().join(MOUNT)).unwrap();
    let mount: Vec<&str> = mount.lines().last().unwrap().split(' ').take(2).collect();
    assert_eq!(mount, ["/opt/gpubind/lib/gpubind"; 2]);
    // As the plugin reads them.
    let (_, errors) = PlugstackArgs::read(words[2..].iter().copied(), &Origin::BuiltIn);
    assert!(errors.is_empty(), "{errors:?}");
    install(there.path(), &["--prefix", "/opt/gpubind", "--uninstall"]);
    assert_eq!(there.path().read_dir().unwrap().count(), 0);
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, files);
        } else {
            files.push(path);
        }
    }
}
