//! `gpubind check` beside a real Slurm: what is right is ok, what is not is named.

use std::time::{Duration, Instant};

use crate::cluster::{CONSTRAINED, Cluster, HANGING, LOST, OPEN, PLAIN, Ran};
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [OPEN, CONSTRAINED]: check_finds_all_well;
    [LOST, HANGING, PLAIN]: check_names_what_is_wrong;
    [OPEN]: check_asks_slurm_whether_it_loads_the_plugin, check_refuses_gres_conf_as_slurmd_does;
};

/// Level and text of each check, in the order of the output.
fn lines(ran: &Ran) -> Vec<(&str, &str, &str)> {
    let line = |line: &'_ str| -> Option<(usize, usize)> {
        let level = line.find(' ')?;
        let check = level + line[level..].find(|c| c != ' ')?;
        Some((level, check))
    };
    let split = |text| {
        let (level, check) = line(text).unwrap();
        let (check, found) = text[check..].split_once(' ').unwrap();
        (&text[..level], check, found.trim_start())
    };
    ran.stdout.lines().map(split).collect()
}

/// The checks that are not ok, but for what depends on how clusters are made for
/// tests: slurm.conf has more CPUs than there are.
fn not_ok(ran: &Ran) -> Vec<(&str, &str)> {
    let expected = [("note", "cpu-binding"), ("note", "placement")];
    let found: Vec<_> = lines(ran)
        .iter()
        .filter(|(level, ..)| *level != "ok")
        .map(|(level, check, _)| (*level, *check))
        .collect();
    found.into_iter().filter(|line| !expected.contains(line)).collect()
}

fn check(cluster: &Cluster) -> Ran {
    cluster.run(&[cluster.program().to_str().unwrap(), "check"])
}

fn check_finds_all_well(cluster: &Cluster) {
    // slurmd has the node read in the background.
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut ran = check(cluster);
    while ran.stdout.contains("none yet: there is no ") && Instant::now() < deadline {
        ran = check(cluster);
    }
    let open = [("note", "cgroup")];
    let expected = if cluster.kind == OPEN { &open[..] } else { &[] };
    assert_eq!(not_ok(&ran), expected, "{}", ran.stdout);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
    let release = cluster.run(&["srun", "--version"]).stdout;
    let release = release.trim().rsplit(' ').next().unwrap();
    let lines = lines(&ran);
    let text = |check| lines.iter().find(|line| line.1 == check).unwrap().2;
    let known = text("slurm-release").split([' ', ',']).nth(1).unwrap();
    assert!(release.starts_with(known), "{release}: {}", ran.stdout);
    assert!(text("gres-count").contains("8 GPUs, as many as there are"), "{}", ran.stdout);
    // All nodes in one line, by srun.
    let script = "srun -N2 --ntasks-per-node=1 --gpus-per-node=8 \"$0\" check --brief | \
                  \"$0\" check --fold";
    let ran = cluster.run(&["bash", "-c", script, cluster.program().to_str().unwrap()]);
    let name = cluster.node(0);
    let expected = format!("{}[0-1]: ok\n", name.strip_suffix('0').unwrap());
    assert_eq!((ran.stdout, ran.code), (expected, Some(0)), "{}", ran.stderr);
    assert!(ran.stderr.ends_with("2 nodes: 2 ok, 0 with warnings, 0 broken\n"), "{}", ran.stderr);
}

fn check_names_what_is_wrong(cluster: &Cluster) {
    let ran = check(cluster);
    let lines = lines(&ran);
    let (check, code, words) = match cluster.kind {
        LOST => ("usable-gpus", 1, "GPU 2 at 0000:03:00.0 (NVML code 15)"),
        HANGING => ("nvml", 2, "NVML did not answer within 1 s"),
        _ => ("plugin-line", 2, "loads spank_gpubind.so"),
    };
    let text = lines.iter().find(|line| line.1 == check).unwrap().2;
    assert!(text.contains(words), "no {words:?} in {}", ran.stdout);
    assert!(text.contains(" -> "), "nothing to do: {text}");
    assert_eq!(ran.code, Some(code), "{}{}", ran.stdout, ran.stderr);
    if cluster.kind == LOST {
        let expected = [("warning", "usable-gpus"), ("note", "cgroup")];
        assert_eq!(not_ok(&ran), expected, "{}", ran.stdout);
    }
}

/// A plugin that is there, is root's, and is no library.
fn check_asks_slurm_whether_it_loads_the_plugin(cluster: &Cluster) {
    let folder = cluster.folder().join("check");
    std::fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let plugin = write("spank_gpubind.so", "no library\n");
    let plugstack = write("plugstack.conf", &format!("optional {plugin}\n"));
    let slurm = std::fs::read_to_string(cluster.folder().join("etc/slurm.conf")).unwrap();
    let is_other = |line: &&str| !line.starts_with("PlugStackConfig=");
    let slurm: Vec<&str> = slurm.lines().filter(is_other).collect();
    let conf = format!("{}\nPlugStackConfig={plugstack}\n", slurm.join("\n"));
    let conf = write("slurm.conf", &conf);
    let program = cluster.program();
    let ran = cluster.run(&[program.to_str().unwrap(), "check", "--slurm-conf", &conf]);
    let lines = lines(&ran);
    let (level, _, text) = lines.iter().find(|line| line.1 == "plugin-loads").unwrap();
    assert_eq!(*level, "broken", "{}", ran.stdout);
    assert!(text.contains("does not offer --gpubind: "), "{text}");
    assert!(text.contains("spank_gpubind.so"), "Slurm's own message: {text}");
    assert_eq!(ran.code, Some(2));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// slurmd itself says what it makes of a gres.conf (`slurmd -G`).
fn check_refuses_gres_conf_as_slurmd_does(cluster: &Cluster) {
    let folder = cluster.folder().join("check-gres");
    std::fs::create_dir_all(&folder).unwrap();
    let etc = cluster.folder().join("etc");
    let slurm = std::fs::read_to_string(etc.join("slurm.conf")).unwrap();
    let gres = std::fs::read_to_string(etc.join("gres.conf")).unwrap();
    let files: Vec<&str> = gres.lines().filter_map(|line| line.split("File=").nth(1)).collect();
    let (conf, node, program) = (folder.join("slurm.conf"), cluster.node(0), cluster.program());
    let conf = conf.to_str().unwrap();
    let of_all = |more: &str| -> String {
        files.iter().map(|file| format!("Name=gpu{more} File={file}\n")).collect()
    };
    let plain = of_all("");
    // gres.conf, slurm.conf's GPUs, which check says no, how many GPUs slurmd takes.
    for (text, given, check, taken) in [
        (plain.clone(), "gpu:8", None, Some(8)),
        (format!("{plain}Shared=no\n"), "gpu:8", Some("gres-conf"), None),
        (plain.replace("Name=gpu", "Name=gpu Shared=no"), "gpu:8", Some("gres-conf"), None),
        ("Name=gpu\nName=gpu\n".to_owned(), "gpu:8", Some("gres-conf"), None),
        (format!("{plain}Name=gpu Count=1\n"), "gpu:8", Some("gres-conf"), None),
        (format!("{plain}Name=gpu Type=a File={}\n", files[0]), "gpu:8", Some("gres-conf"), None),
        (format!("Name=gpu Count=2 File={}\n", files[0]), "gpu:8", Some("gres-conf"), None),
        (format!("Type=a Name=gpu File={}\n", files[0]), "gpu:8", Some("gres-conf"), None),
        (format!("NodeName=other Colour=red\n{plain}"), "gpu:8", Some("gres-conf"), None),
        (format!("{plain}Name=gpu some words\n"), "gpu:8", Some("gres-conf"), None),
        (of_all(" Type=h100"), "gpu:h100:8", None, Some(8)),
        (of_all(" Type=h100"), "gpu:8", None, Some(8)),
        (of_all(" Type=a100"), "gpu:h100:8", Some("gres-types"), Some(0)),
        (plain.clone(), "gpu:h100:8", Some("gres-types"), Some(0)),
        (of_all(" Type=h100"), "gpu:h100:4,gpu:4", Some("gres-types"), None),
        // Taken, but srun finds no such GPU.
        (of_all(" Type=H100"), "gpu:h100:8", Some("gres-types"), Some(8)),
    ] {
        std::fs::write(folder.join("gres.conf"), &text).unwrap();
        std::fs::write(conf, slurm.replace("Gres=gpu:8", &format!("Gres={given}"))).unwrap();
        let listed = cluster.run(&["timeout", "20", "slurmd", "-G", "-N", &node, "-f", conf]);
        let said = format!("{given}\n{text}{}{}", listed.stdout, listed.stderr);
        let is_gpu = |line: &&str| line.contains("Gres Name=gpu ") && line.contains("File=/");
        let lines = listed.stdout.lines().chain(listed.stderr.lines());
        let found = (listed.code == Some(0)).then(|| lines.filter(is_gpu).count());
        assert_eq!(found, taken, "{said}");
        let ran = cluster.run(&[program.to_str().unwrap(), "check", "--slurm-conf", conf]);
        let broken: Vec<&str> = self::lines(&ran)
            .iter()
            .filter(|(level, check, _)| *level == "broken" && check.starts_with("gres-"))
            .map(|(_, check, _)| *check)
            .collect();
        // What slurmd refuses may be wrong in other ways, too.
        assert_eq!(broken.first().copied(), check, "{said}\n{}", ran.stdout);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
