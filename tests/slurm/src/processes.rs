//! What happens to processes while they are in gpubind's hooks, and what happens to the
//! plugin's file and to slurmd under running steps. The node stays in service, and what is
//! not concerned runs on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Ran, each, tasks_of};
use crate::faults::{Expect, FAULTY, await_readers, runs};
use crate::node::{Good, Node, call, in_service, remove, slurmd};
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [FAULTY]: a_task_that_is_killed_in_task_init_takes_no_other_along,
        a_step_that_is_cancelled_while_nvml_is_read_leaves_nothing_behind,
        steps_go_on_while_slurmd_is_restarted_and_the_plugin_is_replaced,
        a_plugin_that_is_damaged_in_place_drains_no_node;
};

/// A step's eight tasks, with what is behind their options.
const STEP: [&str; 6] = ["srun", "--label", "-N1", "-n8", "--gpus-per-node=8", "--gpu-bind=spank"];

fn wait_until(what: &str, mut is_it: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_it() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        sleep(Duration::from_millis(10));
    }
}

fn start(cluster: &Cluster, words: &[&str]) -> Child {
    let mut command = cluster.command(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn end(step: Child) -> Ran {
    Ran::from(step.wait_with_output().unwrap())
}

fn a_task_that_is_killed_in_task_init_takes_no_other_along(cluster: &Cluster) {
    let node = Node::of(cluster);
    let slow = node.folder.join("slow.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/plugins/slow.c");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&slow).arg(source);
    assert!(cc.status().unwrap().success());
    let mark = node.folder.join("slow.pid");
    let line = format!("optional {} {}\n", slow.display(), mark.display());
    // Before gpubind's turn, and after it.
    for is_before in [true, false] {
        let _good = Good::of(&node);
        runs(cluster, "at first", Expect::Bound);
        node.write("etc/plugstack.conf", |text| match is_before {
            true => format!("{line}{text}"),
            false => format!("{text}{line}"),
        });
        remove(&mark);
        let step = start(cluster, &[&STEP[..], &["env"]].concat());
        wait_until("the first task is held up", || {
            fs::read_to_string(&mark).is_ok_and(|it| it.ends_with('\n'))
        });
        let task = fs::read_to_string(&mark).unwrap();
        assert!(Command::new("kill").args(["-9", task.trim()]).status().unwrap().success());
        let ran = end(step);
        let tasks = tasks_of(&ran.stdout);
        assert_eq!(tasks.len(), 7, "{}{}", ran.stdout, ran.stderr);
        let mut visible = each(&tasks, "CUDA_VISIBLE_DEVICES");
        visible.sort_unstable();
        visible.dedup();
        assert_eq!(visible.len(), 7, "each has its own: {visible:?}");
        assert_ne!(ran.code, Some(0), "Slurm says that a task was killed");
        in_service(cluster, "after the kill");
    }
    remove(&slow);
    remove(&mark);
    runs(cluster, "the next step", Expect::Bound);
}

fn a_step_that_is_cancelled_while_nvml_is_read_leaves_nothing_behind(cluster: &Cluster) {
    let node = Node::of(cluster);
    let good = Good::of(&node);
    runs(cluster, "at first", Expect::Bound);
    node.fails(&call("nvmlDeviceGetCount_v2", "hang = true"));
    node.arguments("probe-timeout=4");
    let step = start(cluster, &[&STEP[..], &["true"]].concat());
    await_readers(&node, "one waits, one reads", |found| found.len() == 2);
    assert_eq!(cluster.run(&["scancel", "--me"]).code, Some(0));
    // When a step that is being made ready ends is Slurm's business.
    end(step);
    await_readers(&node, "both are gone", |found| found.is_empty());
    drop(good);
    in_service(cluster, "after the cancellation");
    runs(cluster, "the next step", Expect::Bound);
}

/// A step with half of the node's GPUs.
const HALF: [&str; 6] = ["srun", "--label", "-N1", "-n4", "--gpus-per-node=4", "--gpu-bind=spank"];

/// Another step beside a waiting one.
fn runs_beside(cluster: &Cluster, what: &str) {
    let ran = cluster.run(&[&HALF[..], &["env"]].concat());
    assert_eq!(ran.code, Some(0), "{what}: {}", ran.stderr);
    let tasks = tasks_of(&ran.stdout);
    let mut visible = each(&tasks, "CUDA_VISIBLE_DEVICES");
    visible.sort_unstable();
    assert_eq!(visible, ["4", "5", "6", "7"], "{what}: {}", ran.stderr);
    assert!(each(&tasks, "GPUBIND_GPU_UUID").iter().all(|uuid| *uuid != "-"), "{what}");
}

/// Tasks that say that they run, then wait for a file.
struct Waiting {
    step: Child,
    go: PathBuf,
}

impl Waiting {
    fn start(cluster: &Cluster, folder: &Path) -> Waiting {
        let (mark, go) = (folder.join("runs"), folder.join("go"));
        [&mark, &go].iter().for_each(|file| remove(file));
        let script = format!(
            "env; echo $SLURM_LOCALID >>{}; until [ -e {} ]; do sleep 0.05; done",
            mark.display(),
            go.display()
        );
        let step = start(cluster, &[&HALF[..], &["sh", "-c", &script]].concat());
        wait_until("four tasks run", || {
            fs::read_to_string(&mark).is_ok_and(|text| text.lines().count() == 4)
        });
        remove(&mark);
        Waiting { step, go }
    }

    /// They end well, and were bound.
    fn ends_well(self, what: &str) {
        fs::write(&self.go, "").unwrap();
        let ran = end(self.step);
        assert_eq!(ran.code, Some(0), "{what}: {}", ran.stderr);
        assert_eq!(tasks_of(&ran.stdout).len(), 4, "{what}");
        remove(&self.go);
    }
}

fn steps_go_on_while_slurmd_is_restarted_and_the_plugin_is_replaced(cluster: &Cluster) {
    let node = Node::of(cluster);
    let plugin = node.folder.join("plugin.so");
    let good = Good::of(&node);
    let bytes = fs::read(cluster.stage().join("spank_gpubind.so")).unwrap();
    fs::write(&plugin, &bytes).unwrap();
    let staged = cluster.stage().join("spank_gpubind.so").display().to_string();
    let own = plugin.display().to_string();
    node.write("etc/plugstack.conf", |text| text.replace(&staged, &own));
    // slurmd itself has this file loaded from now on.
    cluster.restart_slurmd("TERM");
    for signal in ["TERM", "KILL"] {
        let step = Waiting::start(cluster, &node.folder);
        cluster.restart_slurmd(signal);
        runs_beside(cluster, signal);
        step.ends_well(signal);
    }
    // Another file in its place, as packages and scripts/install do it.
    let step = Waiting::start(cluster, &node.folder);
    let new = node.folder.join("plugin.so.new");
    fs::write(&new, [&bytes[..], b"another build"].concat()).unwrap();
    fs::rename(&new, &plugin).unwrap();
    runs_beside(cluster, "by the new plugin");
    step.ends_well("by the old plugin");
    let step = Waiting::start(cluster, &node.folder);
    remove(&plugin);
    step.ends_well("without the plugin's file");
    drop(good);
    cluster.restart_slurmd("TERM");
    in_service(cluster, "at the end");
    runs(cluster, "at the end", Expect::Bound);
}

/// As a copy that has run out of space leaves it, or a broken disk.
fn damage(plugin: &Path, what: &str) {
    let file = fs::File::options().write(true).open(plugin).unwrap();
    let length = file.metadata().unwrap().len();
    match what {
        "half" => file.set_len(length / 2).unwrap(),
        _ => fs::write(plugin, vec![0; length as usize]).unwrap(),
    }
}

/// docs/security.md says what remains for steps and for `required`.
fn a_plugin_that_is_damaged_in_place_drains_no_node(cluster: &Cluster) {
    let node = Node::of(cluster);
    let good = Good::of(&node);
    let plugin = node.folder.join("plugin.so");
    // Commands have a plugin that is whole: they are on another machine.
    let etc = |file: &str| node.folder.join("etc").join(file);
    fs::copy(etc("plugstack.conf"), etc("client.conf")).unwrap();
    let conf = fs::read_to_string(etc("slurm.conf")).unwrap();
    fs::write(etc("client-slurm.conf"), conf.replace("plugstack.conf", "client.conf")).unwrap();
    let conf = format!("SLURM_CONF={}", etc("client-slurm.conf").display());
    let run = |words: &[&str]| cluster.run(&[&["env", &conf], words].concat());
    let staged = cluster.stage().join("spank_gpubind.so");
    for (word, what) in [("optional", "half"), ("optional", "zeros"), ("required", "zeros")] {
        let at = format!("{word}: {what} of it");
        fs::copy(&staged, node.folder.join("plugin.new")).unwrap();
        fs::rename(node.folder.join("plugin.new"), &plugin).unwrap();
        let line = format!("{word} {}\n", plugin.display());
        fs::write(etc("plugstack.conf"), line).unwrap();
        // slurmd has it loaded when it is damaged.
        cluster.restart_slurmd("TERM");
        damage(&plugin, what);
        let step = run(&["timeout", "20", "srun", "-n2", "echo", "ran"]);
        let runs = step.stdout.lines().count() == 2;
        // What is no library is left out. One that loads and ends halfway kills slurmstepd.
        let is_left_out = word == "optional" && what == "zeros";
        assert_eq!(runs, is_left_out, "{at}: {}", step.stderr);
        // A batch job, too.
        if word == "optional" {
            let out = node.folder.join("damaged.out");
            let sent = run(&["sbatch", "-o", out.to_str().unwrap(), "--wrap", "echo ran"]);
            assert_eq!(sent.code, Some(0), "{at}: {}", sent.stderr);
            sleep(Duration::from_secs(1));
            run(&["scancel", "--me"]);
            remove(&out);
        }
        in_service(cluster, &at);
        let process = slurmd(cluster);
        assert!(Path::new(&format!("/proc/{process}/exe")).exists(), "{at}: slurmd runs");
    }
    drop(good);
    cluster.restart_slurmd("TERM");
    [plugin, etc("client.conf"), etc("client-slurm.conf")].iter().for_each(|file| remove(file));
    runs(cluster, "with a plugin that is whole", Expect::Bound);
}
