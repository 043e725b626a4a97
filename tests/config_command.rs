//! `gpubind config`: every value, and where it comes from.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use gpubind_core::site::KEYS;

/// A folder with a site file and a plugstack.conf that leads to it.
struct Site {
    folder: tempfile::TempDir,
}

/// What the program printed and how it ended.
struct Ran {
    stdout: String,
    stderr: String,
    code: Option<i32>,
}

impl Site {
    /// `None`, with a word on it, where the tests do not run as root: only root's site
    /// file counts.
    fn new(toml: &str, args: &str) -> Option<Site> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root's site file is trusted");
            return None;
        }
        let site = Site { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(site.path("conf.d")).unwrap();
        fs::write(site.path("gpubind.toml"), toml).unwrap();
        fs::set_permissions(site.path("gpubind.toml"), PermissionsExt::from_mode(0o644)).unwrap();
        fs::write(site.path("plugstack.conf"), "include conf.d/*.conf\n").unwrap();
        let toml = site.path("gpubind.toml");
        let line = format!("\noptional spank_gpubind.so config={} {args}\n", toml.display());
        fs::write(site.path("conf.d/gpubind.conf"), line).unwrap();
        Some(site)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, request: Option<&str>, args: &[&str]) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpubind"));
        command.arg("config").arg("--plugstack").arg(self.path("plugstack.conf")).args(args);
        command.env_remove("SLURM_GPUBIND").env("SLURM_CONF", self.path("slurm.conf"));
        command.envs(request.map(|request| ("SLURM_GPUBIND", request)));
        let output = command.output().unwrap();
        Ran {
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            code: output.status.code(),
        }
    }

    /// A key's line, its blanks made single, with FOLDER for the folder.
    fn line(&self, ran: &Ran, key: &str) -> String {
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        let line = ran.stdout.lines().find(|line| line.split(' ').next() == Some(key)).unwrap();
        let folder = self.folder.path().to_str().unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ").replace(folder, "FOLDER")
    }
}

const TOML: &str = "mode = \"ordered\"\nids = \"uuid\"\nstrict = true\nprobe-timeout = 5\n\
                    exclude = [\"0000:03:00.0\", \"GPU-1\"]\n\
                    [partition.big]\nids = \"index\"\nlocal-rank = \"keep\"\n\
                    [constraint.mps]\nshare = \"on\"\nlocal-rank = \"virtual\"\n";

#[test]
fn each_value_is_shown_with_the_layer_that_it_comes_from() {
    let Some(site) = Site::new(TOML, "mode=first verbose") else { return };
    let ran = site.run(Some("rank-env=off,ids=uuid"), &["--partition", "big"]);
    let keys: Vec<&str> =
        ran.stdout.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(keys, KEYS.each_ref().map(|key| key.name), "every key, in the table's order");
    for line in [
        "default on-request built-in",
        "mode first FOLDER/conf.d/gpubind.conf:2",
        "ids uuid SLURM_GPUBIND",
        "local-rank keep FOLDER/gpubind.toml:8",
        "rank-env off SLURM_GPUBIND",
        "verbose on FOLDER/conf.d/gpubind.conf:2",
        "strict on FOLDER/gpubind.toml:3",
        "exclude 0000:03:00.0,GPU-1 FOLDER/gpubind.toml:5",
        "probe-timeout 5 FOLDER/gpubind.toml:4",
        "config FOLDER/gpubind.toml FOLDER/conf.d/gpubind.conf:2",
        "nvml libnvidia-ml.so.1 built-in",
    ] {
        assert_eq!(site.line(&ran, line.split(' ').next().unwrap()), line);
    }
    let ran = site.run(None, &[]);
    assert_eq!(site.line(&ran, "ids"), "ids uuid FOLDER/gpubind.toml:2");
    assert_eq!(site.line(&ran, "local-rank"), "local-rank virtual built-in");
    let ran = site.run(None, &["--partition", "big", "--constraint", "a100&mps"]);
    assert_eq!(site.line(&ran, "local-rank"), "local-rank virtual FOLDER/gpubind.toml:11");
    assert_eq!(site.line(&ran, "share"), "share on FOLDER/gpubind.toml:10");
    assert_eq!(site.line(&ran, "ids"), "ids index FOLDER/gpubind.toml:7");
}

#[test]
fn the_values_are_there_as_json_with_their_types() {
    let Some(site) = Site::new(TOML, "mode=first") else { return };
    let ran = site.run(Some("verbose"), &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let values = json["values"].as_array().unwrap();
    assert_eq!(values.len(), KEYS.len());
    let value = |key: &str| values.iter().find(|value| value["key"] == key).unwrap();
    let expected = serde_json::json!({
        "key": "probe-timeout", "value": 5, "from": "gpubind.toml",
        "file": site.path("gpubind.toml"), "line": 4,
    });
    assert_eq!(value("probe-timeout"), &expected);
    assert_eq!(value("exclude")["value"], serde_json::json!(["0000:03:00.0", "GPU-1"]));
    assert_eq!(value("mode")["from"], "plugstack.conf");
    assert_eq!(value("mode")["line"], 2);
    assert_eq!(value("verbose")["from"], "SLURM_GPUBIND");
    let built_in = value("default");
    assert_eq!((&built_in["from"], &built_in["line"]), (&"built-in".into(), &().into()));
}

#[test]
fn a_broken_file_ends_it_with_1_and_the_line() {
    let Some(site) = Site::new("\nmdoe = \"first\"\n", "") else { return };
    let ran = site.run(None, &[]);
    let file = site.path("gpubind.toml").display().to_string();
    let said =
        format!("gpubind: ignoring {file}: line 2: unknown key `mdoe`; did you mean `mode`?\n");
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr), (Some(1), "", said));

    let site = Site::new("", "colour=red mode=none").unwrap();
    let ran = site.run(None, &[]);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    let place = format!("gpubind: {}:2: ", site.path("conf.d/gpubind.conf").display());
    assert_eq!((ran.code, ran.stdout.as_str(), lines.len()), (Some(1), "", 2));
    assert!(lines[0].starts_with(&format!("{place}unknown argument `colour=red`")), "{lines:?}");
    assert!(
        lines[1].starts_with(&format!("{place}`mode=none` needs one of by-request, auto")),
        "{lines:?}"
    );

    let ran = Site::new("", "").unwrap().run(Some("nonsense"), &[]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.starts_with("gpubind: SLURM_GPUBIND: unknown item `nonsense`"));
}

#[test]
fn a_file_that_root_may_not_trust_is_ignored() {
    let Some(site) = Site::new("", "") else { return };
    let file = site.path("gpubind.toml");
    let refused = |why: &str| {
        let ran = site.run(None, &[]);
        assert_eq!(ran.code, Some(1), "{why}");
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    };
    fs::set_permissions(&file, PermissionsExt::from_mode(0o664)).unwrap();
    refused("is writable by others than its owner (mode 0664)");
    fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    std::os::unix::fs::chown(&file, Some(1234), None).unwrap();
    refused("belongs to user 1234, not to user 0");
    fs::remove_file(&file).unwrap();
    refused("there is no ");
    std::os::unix::fs::symlink("/dev/null", &file).unwrap();
    refused("is a symbolic link");
    fs::remove_file(&file).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &file,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    refused("is not a regular file");
    fs::remove_file(&file).unwrap();
    fs::write(&file, vec![b'#'; 300 * 1024]).unwrap();
    refused("is larger than 262144 bytes");
    fs::write(&file, [0xff, b'\n']).unwrap();
    refused("is not UTF-8 text");
}

#[test]
fn a_plugstack_without_the_plugin_is_told_and_the_rest_is_shown() {
    let Some(site) = Site::new(TOML, "") else { return };
    fs::write(site.path("plugstack.conf"), "optional other.so\n").unwrap();
    let config = site.path("gpubind.toml");
    let ran = site.run(None, &["--config", config.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.stderr.contains("plugstack.conf loads the plugin"), "{}", ran.stderr);
    assert!(ran.stdout.contains("gpubind.toml:2"), "{}", ran.stdout);
    fs::remove_file(site.path("plugstack.conf")).unwrap();
    let ran = site.run(None, &[]);
    assert_eq!(ran.code, Some(1), "a file that is named must be there");
    assert!(ran.stderr.contains("there is no file"), "{}", ran.stderr);
}

#[test]
fn a_table_that_changes_nothing_is_reported_and_the_rest_is_shown() {
    let Some(site) = Site::new(TOML, "ids=index") else { return };
    fs::write(site.path("slurm.conf"), "PartitionName=small Nodes=n1\n").unwrap();
    let ran = site.run(None, &[]);
    assert_eq!(ran.code, Some(0));
    let said: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(said.len(), 2, "{}", ran.stderr);
    assert!(said[0].starts_with("gpubind: without effect: ") && said[0].ends_with("(small)"));
    assert!(
        said[1].contains("conf.d/gpubind.conf:2 sets ids for all jobs, so ids in [partition.big]")
    );
    assert!(ran.stdout.lines().any(|line| line.starts_with("exclude")), "{}", ran.stdout);
}
