//! The Debian package, the RPM and scripts/install bring the same files.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::{Test, install, package, run};

pub const TESTS: &[Test] = &[
    ("both_packages_and_the_script_bring_the_same_files", both_packages_bring_the_same_files),
    ("configuration_is_the_admins_in_both_packages", configuration_is_the_admins),
];

const CONFIGURATION: [&str; 3] = [
    "/etc/enroot/mounts.d/50-gpubind.fstab",
    "/etc/gpubind.toml",
    "/etc/slurm/plugstack.conf.d/zz-gpubind.conf",
];

/// Path and mode of each file; not of folders.
type Files = BTreeMap<String, String>;

fn both_packages_bring_the_same_files() {
    let there = tempfile::tempdir().unwrap();
    install::install(there.path(), &[]);
    let mut script = Files::new();
    walk(there.path(), there.path(), &mut script);
    // What it knows of itself.
    assert!(script.remove("/usr/lib/gpubind/installed").is_some(), "{script:?}");
    for path in ["/usr/bin/gpubind", "/usr/share/man/man1/gpubind-plan.1.gz", CONFIGURATION[1]] {
        assert!(script.contains_key(path), "{script:?}");
    }
    assert_eq!(script["/usr/bin/gpubind"], "-rwxr-xr-x");
    assert_eq!(script["/usr/lib/gpubind/spank_gpubind.so"], "-rw-r--r--");
    let deb = deb();
    assert_eq!(deb, script);
    let rpm = rpm();
    assert_eq!(rpm, script);
}

fn configuration_is_the_admins() {
    let (listed, _) = run(Command::new("dpkg-deb").arg("-I").arg(package("deb")).arg("conffiles"));
    assert_eq!(listed.lines().collect::<Vec<_>>(), CONFIGURATION);
    let query = ["-qp", "--queryformat", "[%{FILENAMES} %{FILEFLAGS:fflags}\n]"];
    let (listed, _) = run(Command::new("rpm").args(query).arg(package("rpm")));
    // c: configuration, n: a changed one is not replaced.
    let kept = listed.lines().filter_map(|line| line.strip_suffix(" cn"));
    assert_eq!(kept.collect::<Vec<_>>(), CONFIGURATION);
}

fn deb() -> Files {
    let (listed, _) = run(Command::new("dpkg-deb").arg("-c").arg(package("deb")));
    let mut files = Files::new();
    for line in listed.lines().filter(|line| !line.starts_with('d')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (mode, owner, path) = (words[0], words[1], words[5].trim_start_matches('.'));
        assert_eq!(owner, "0/0", "{line}");
        files.insert(path.to_owned(), mode.to_owned());
    }
    // Debian wants one of its own.
    assert!(files.remove("/usr/share/doc/gpubind/copyright").is_some(), "{files:?}");
    files
}

fn rpm() -> Files {
    let query = ["-qp", "--queryformat", "[%{FILEMODES:perms} %{FILENAMES}\n]"];
    let (listed, _) = run(Command::new("rpm").args(query).arg(package("rpm")));
    let mut files = Files::new();
    for line in listed.lines().filter(|line| !line.starts_with('d')) {
        let (mode, path) = line.split_once(' ').unwrap();
        // Debian's zsh has a folder of its own for packages.
        let path = path.replace("/zsh/site-functions/", "/zsh/vendor-completions/");
        files.insert(path, mode.to_owned());
    }
    assert!(files.remove("/usr/share/licenses/gpubind/LICENSE").is_some(), "{files:?}");
    files
}

fn walk(top: &Path, folder: &Path, files: &mut Files) {
    use std::os::unix::fs::PermissionsExt;
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(top, &path, files);
            continue;
        }
        let mode = match path.metadata().unwrap().permissions().mode() & 0o7777 {
            0o755 => "-rwxr-xr-x".to_owned(),
            0o644 => "-rw-r--r--".to_owned(),
            other => format!("{other:o}"),
        };
        files.insert(format!("/{}", path.strip_prefix(top).unwrap().display()), mode);
    }
}
