//! The built library, loaded into real programs as ld.so(8) does it.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// As the plugin arms a task with the process id 1, which no process here has.
const ARMED: [(&str, &str); 7] = [
    ("GPUBIND_WORKERS", "4;1;virtual;kept;reported;4,5,6,7;;0,0,0,0,0,0,0,0"),
    ("CUDA_VISIBLE_DEVICES", "4,5,6,7"),
    ("GPUBIND_GPU_UUID", "GPU-a,GPU-b,GPU-c,GPU-d"),
    ("GPUBIND_NUMA_NODE", "0,0,1,1"),
    ("GPUBIND_LOCAL_RANK", "0"),
    ("BEFORE", "1"),
    ("PATH", "/usr/bin:/bin"),
];

/// What a worker with local rank 2 has instead.
const NARROWED: [&str; 6] = [
    "BEFORE=1",
    "CUDA_VISIBLE_DEVICES=6",
    "GPUBIND_GPU_UUID=GPU-c",
    "GPUBIND_LOCAL_RANK=2",
    "GPUBIND_NUMA_NODE=1",
    "GPUBIND_WORKERS=done",
];

/// cargo builds the library beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libgpubind_worker.so");
    assert!(library.is_file(), "{}", library.display());
    library
}

fn run(words: &[&str], more: &[(&str, &str)]) -> Output {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env_clear().envs(ARMED).envs([("LD_PRELOAD", library())]);
    command.envs(more.iter().copied()).output().unwrap()
}

/// What a program prints, line by line and sorted; nothing may go to stderr.
fn lines(words: &[&str], more: &[(&str, &str)]) -> Vec<String> {
    let output = run(words, more);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{words:?}");
    assert!(output.status.success(), "{words:?}: {}", output.status);
    let mut lines: Vec<String> =
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Those of gpubind's and CUDA's variables that a shell does not make up itself.
fn ours(lines: Vec<String>) -> Vec<String> {
    let ours =
        |line: &String| ["BEFORE", "CUDA_", "GPUBIND_"].iter().any(|start| line.starts_with(start));
    lines.into_iter().filter(ours).collect()
}

#[test]
fn every_way_to_look_at_the_environment_shows_the_change() {
    let rank = [("OMPI_COMM_WORLD_LOCAL_RANK", "2")];
    let python = "import os; [print(k + '=' + v) for k, v in os.environ.items()]";
    let perl = r#"print "$_=$ENV{$_}\n" for keys %ENV"#;
    let awk = r#"BEGIN { for (name in ENVIRON) print name "=" ENVIRON[name] }"#;
    let programs: [&[&str]; 8] = [
        &["env"],
        &["sh", "-c", "env"],
        &["sh", "-c", "set | tr -d \\'"],
        &["bash", "-c", "env"],
        // bash reads main's third argument and has a getenv of its own.
        &["bash", "-c", "declare -xp | sed 's/declare -x //; s/\"//g'"],
        &["perl", "-e", perl],
        &["awk", awk],
        &["/usr/bin/python3", "-c", python],
    ];
    // Not every Debian has Python; the others are essential.
    for words in programs
        .into_iter()
        .filter(|words| !words[0].starts_with('/') || Path::new(words[0]).exists())
    {
        assert_eq!(ours(lines(words, &rank)), NARROWED, "{words:?}");
    }
}

#[test]
fn mains_third_argument_environ_and_getenv_agree() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (folder.join("show.c"), folder.join("show"));
    let text = r#"
        #include <stdio.h>
        #include <stdlib.h>
        extern char **environ;
        int main(int argc, char **argv, char **envp) {
            printf("same array: %d\n", environ == envp);
            for (char **text = envp; *text; text++) puts(*text);
            printf("getenv: %s\n", getenv("CUDA_VISIBLE_DEVICES"));
            setenv("CUDA_VISIBLE_DEVICES", "changed", 1);
            unsetenv("GPUBIND_WORKERS");
            printf("changed: %s\n", getenv("CUDA_VISIBLE_DEVICES"));
            return getenv("GPUBIND_WORKERS") != 0;
        }"#;
    std::fs::write(&source, text).unwrap();
    let built = Command::new("cc").arg("-o").args([&program, &source]).status().unwrap();
    assert!(built.success());
    let shown = lines(&[program.to_str().unwrap()], &[("MV2_COMM_WORLD_LOCAL_RANK", "2")]);
    for line in ["same array: 1", "getenv: 6", "changed: changed"] {
        assert!(shown.iter().any(|shown| shown == line), "{line}: {shown:?}");
    }
    assert_eq!(ours(shown), NARROWED);
}

#[test]
fn only_what_was_there_is_changed() {
    let before = lines(&["env"], &[]);
    let mut after = lines(&["env"], &[("LOCAL_RANK", "1"), ("WORLD_SIZE", "8")]);
    let new = ["LOCAL_RANK=0", "WORLD_SIZE=8"];
    for line in new {
        assert!(after.contains(&line.to_owned()), "{after:?}");
    }
    after.retain(|line| !new.contains(&line.as_str()));
    let names = |lines: &[String]| -> Vec<String> {
        lines.iter().map(|line| line.split('=').next().unwrap().to_owned()).collect()
    };
    let mut expected = names(&before);
    expected.retain(|name| name != "LD_PRELOAD");
    assert_eq!(names(&after), expected, "a worker needs the shim no longer");
}

#[test]
fn a_process_that_is_no_worker_stays_as_it_is() {
    let library = library();
    let mut all: Vec<String> =
        ARMED.iter().map(|(name, value)| format!("{name}={value}")).collect();
    all.push(format!("LD_PRELOAD={}", library.display()));
    all.sort();
    assert_eq!(lines(&["env"], &[]), all);
    for (name, value) in [
        ("GPUBIND_WORKERS", "done"),
        ("GPUBIND_WORKERS", "4;of a later version"),
        ("CUDA_VISIBLE_DEVICES", "6"),
    ] {
        let shown = lines(&["env"], &[(name, value), ("LOCAL_RANK", "2")]);
        assert!(shown.contains(&"LOCAL_RANK=2".to_owned()), "{shown:?}");
        assert!(shown.contains(&format!("{name}={value}")), "{shown:?}");
    }
}

#[test]
fn a_task_in_a_container_gets_its_list_back_once() {
    let task = |later: &str, script: &str| {
        let script = format!(
            "export GPUBIND_WORKERS=\"4;$$;virtual;{later};reported;6;;0,0,0,0,0,0,0,0\" \
             CUDA_VISIBLE_DEVICES=0 CUDA_DEVICE_ORDER=FASTEST_FIRST PYTORCH_VERSION=2 \
             SLURM_LOCALID=2 LOCAL_RANK=2; {script}"
        );
        lines(&["sh", "-c", &script], &[])
    };
    let has = |shown: &[String], line: &str| shown.iter().any(|shown| shown == line);
    let shown = task("overwritten-alone", "exec env");
    for line in ["CUDA_VISIBLE_DEVICES=6", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "LOCAL_RANK=0"] {
        assert!(has(&shown, line), "{line}: {shown:?}");
    }
    assert!(!shown.iter().any(|line| line.starts_with("LD_PRELOAD=")), "{shown:?}");
    assert!(!shown.iter().any(|line| line.starts_with("GPUBIND_WORKERS=")), "{shown:?}");
    // Later in the same process, the list is the program's own to change.
    let later = "exec sh -c 'export CUDA_VISIBLE_DEVICES=1; exec env'";
    let shown = task("overwritten", later);
    assert!(has(&shown, "CUDA_VISIBLE_DEVICES=1"), "{shown:?}");
    assert!(
        shown
            .iter()
            .any(|line| line.starts_with("GPUBIND_WORKERS=4;")
                && line.contains(";kept;reported;6;;"))
    );
    // Not in a process below.
    assert!(has(&task("overwritten", "env; true"), "CUDA_VISIBLE_DEVICES=0"));
}

#[test]
fn long_values_and_many_variables_are_no_trouble() {
    let uuids: Vec<String> = (0..500).map(|gpu| format!("MIG-{gpu:0>36}")).collect();
    let list = uuids.join(",");
    let record = format!("4;1;keep;kept;reported;{list};;0");
    let many: Vec<(String, String)> =
        (0..2000).map(|number| (format!("V{number}"), "x".repeat(50))).collect();
    let mut more: Vec<(&str, &str)> =
        many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    more.extend([
        ("GPUBIND_WORKERS", record.as_str()),
        ("CUDA_VISIBLE_DEVICES", list.as_str()),
        ("FLUX_TASK_LOCAL_ID", "499"),
    ]);
    let shown = lines(&["env"], &more);
    assert!(shown.contains(&format!("CUDA_VISIBLE_DEVICES={}", uuids[499])));
    assert_eq!(shown.iter().filter(|line| line.starts_with('V')).count(), 2000);
}

#[test]
fn a_worker_beyond_the_devices_says_so_or_does_not_run() {
    let rank = |local_rank| [("LOCAL_RANK", local_rank), ("LOCAL_WORLD_SIZE", "6")];
    let output = run(&["printenv", "CUDA_VISIBLE_DEVICES"], &rank("4"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "4\n");
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(line.starts_with("gpubind: warning: the task has 4 devices") && line.ends_with("\n"));
    assert_eq!(line.lines().count(), 1, "{line}");
    assert_eq!(ours(lines(&["env"], &rank("5")))[1], "CUDA_VISIBLE_DEVICES=5");
    let strict = ("GPUBIND_WORKERS", "4;1;virtual;kept;refused;4,5,6,7;;0,0,0,0,0,0,0,0");
    let output = run(&["echo", "ran"], &[&rank("5")[..], &[strict]].concat());
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]));
    assert!(output.stderr.starts_with(b"gpubind: strict: "));
    // Without a stderr it works as well.
    let script = "exec 2>&-; LOCAL_RANK=4 LOCAL_WORLD_SIZE=6 printenv CUDA_VISIBLE_DEVICES";
    let output = run(&["sh", "-c", script], &[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "4\n");
}

/// The CPUs that this process may use, from `taskset`'s point of view: the first two.
fn two_cpus() -> [usize; 2] {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let ends = list.trim().split(',').flat_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse::<usize>().unwrap()..=last.parse().unwrap()
    });
    ends.take(2).collect::<Vec<_>>().try_into().unwrap()
}

#[test]
fn a_worker_runs_on_its_part_of_the_cpus_and_never_on_others() {
    let [a, b] = two_cpus();
    let record = |parts: &str| format!("4;1;virtual;kept;reported;4,5,6,7;{parts};0,0,0,0,0,0,0,0");
    let ran = |parts: &str, cpus: &str, rank: &str| -> (String, String) {
        let script = "echo $GPUBIND_CPUS $CUDA_VISIBLE_DEVICES; \
                      sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status";
        let record = record(parts);
        let more = [("GPUBIND_WORKERS", record.as_str()), ("GPUBIND_CPUS", "all")];
        let rank = format!("LOCAL_RANK={rank}");
        let words = ["taskset", "-c", cpus, "env", &rank, "LOCAL_WORLD_SIZE=4", "sh", "-c", script];
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env_clear().envs(ARMED).env("LD_PRELOAD", library());
        let output = command.envs(more).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        let text = String::from_utf8(output.stdout).unwrap();
        let (first, second) = text.trim().split_once('\n').unwrap();
        (first.to_owned(), second.to_owned())
    };
    let (both, one, other) = (format!("{a},{b}"), a.to_string(), b.to_string());
    let shown = |cpus: &str| {
        let all: Vec<usize> = cpus.split(',').map(|cpu| cpu.parse().unwrap()).collect();
        match all.as_slice() {
            [first, second] if first + 1 == *second => format!("{first}-{second}"),
            _ => cpus.to_owned(),
        }
    };
    let parts = format!("{a}/{b}/{a}/");
    // The last one has no part of its own.
    for (rank, cpus, allowed) in [("0", &*one, &one), ("1", &other, &other), ("2", &one, &one)] {
        let gpu = 4 + rank.parse::<usize>().unwrap();
        assert_eq!(ran(&parts, &both, rank), (format!("{cpus} {gpu}"), allowed.clone()));
    }
    assert_eq!(ran(&parts, &both, "3"), ("all 7".to_owned(), shown(&both)));
    // What a launcher or a script has chosen stays, and so does all where the record is odd.
    assert_eq!(ran(&parts, &one, "1").1, one);
    assert_eq!(ran(&parts, &one, "0").1, one);
    for odd in [&*one, "x/y/z/", "99999/0/0/0", "", &format!("{a}/{b}/{a}/{b}/{a}")] {
        assert_eq!(ran(odd, &both, "0").1, shown(&both), "{odd}");
    }
}
