//! Command lines, batch scripts and variables as srun, sbatch and salloc read them, each
//! release in its own way.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use gpubind_core::SlurmRelease;
use gpubind_core::request::{Arity, Command, long_options, short_option, written_items};

use crate::cluster::{Cluster, OPEN, Ran, each, ours, tasks_of};
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [OPEN]:
        the_tables_of_options_are_slurms,
        another_plugins_option_hides_no_request,
        what_can_be_the_programs_stays_the_programs,
        a_command_may_have_another_name,
        abbreviations_are_the_commands_own,
        a_line_that_sbatch_refuses_is_explained,
        a_script_asks_for_a_later_component,
        slurms_variables_take_a_request,
        items_are_listed_and_near_misses_named;
};

const COMMANDS: [(&str, Command); 3] =
    [("srun", Command::Srun), ("sbatch", Command::Sbatch), ("salloc", Command::Salloc)];

/// Two tasks on a node with eight GPUs.
const TWO: [&str; 3] = ["-N1", "-n2", "--gpus-per-node=8"];

/// Prints what a command gives to getopt_long(3), in the place of that.
const PRINT_OPTIONS: &str = r#"
#include <getopt.h>
#include <stdio.h>
#include <unistd.h>
int getopt_long(int c, char *const v[], const char *shorts, const struct option *o, int *i) {
    printf("%s\n", shorts);
    for (; o->name; o++) printf("%s %d\n", o->name, o->has_arg == required_argument);
    fflush(stdout);
    _exit(0);
}
"#;

/// A plugin with options that gpubind does not know, and some of pyxis's.
const NEIGHBOUR: &str = r#"
struct spank_option { const char *name, *arginfo, *usage; int has_arg, val; void *callback; };
extern int spank_option_register(void *spank, struct spank_option *option);
const char plugin_name[] = "neighbour", plugin_type[] = "spank";
const unsigned int plugin_version = VERSION;
static int ignore(int val, const char *arg, int remote) { return 0; }
int slurm_spank_init(void *spank, int argc, char **argv) {
    struct spank_option options[] = {
        {"container-name", "NAME", "", 1, 0, ignore}, {"container-writable", 0, "", 0, 0, ignore},
        {"myvalue", "VALUE", "", 1, 0, ignore}, {"myflag", 0, "", 0, 0, ignore},
    };
    for (int i = 0; i < 4; i++) spank_option_register(spank, &options[i]);
    return 0;
}
"#;

/// A library of this source, in the cluster's folder.
fn library(cluster: &Cluster, name: &str, source: &str, defined: &str) -> PathBuf {
    let library = cluster.folder().join(name).with_extension("so");
    let file = library.with_extension("c");
    fs::write(&file, source).unwrap();
    let mut cc = Process::new("cc");
    cc.args(["-shared", "-fPIC", defined, "-o"]).arg(&library).arg(&file);
    assert!(cc.status().unwrap().success());
    library
}

/// As long as it lives, the cluster's plugstack.conf loads the neighbour, too.
struct Neighbour {
    plugstack: PathBuf,
    before: String,
}

impl Neighbour {
    fn load(cluster: &Cluster) -> Neighbour {
        let (year, month) = cluster.release();
        let version = format!("-DVERSION={}", year << 16 | month << 8);
        let library = library(cluster, "neighbour", NEIGHBOUR, &version);
        let plugstack = cluster.folder().join("etc/plugstack.conf");
        let before = fs::read_to_string(&plugstack).unwrap();
        fs::write(&plugstack, format!("{before}optional {}\n", library.display())).unwrap();
        Neighbour { plugstack, before }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        fs::write(&self.plugstack, &self.before).unwrap();
    }
}

fn the_tables_of_options_are_slurms(cluster: &Cluster) {
    let library = library(cluster, "print-options", PRINT_OPTIONS, "-DX");
    let preload = [("LD_PRELOAD", library.to_str().unwrap())];
    let (year, month) = cluster.release();
    for (name, command) in COMMANDS {
        let ran = cluster.run_with(&preload, &[name, "true"]);
        let mut lines = ran.stdout.lines();
        let shorts = lines.next().unwrap_or_else(|| panic!("no options: {}", ran.stderr));
        let slurms: BTreeMap<&str, bool> =
            lines.map(|line| line.split_once(' ').unwrap()).map(|(n, v)| (n, v == "1")).collect();
        let table: BTreeMap<&str, bool> = long_options(command, SlurmRelease::new(year, month))
            .map(|(name, arity)| (name, arity == Arity::Value))
            .collect();
        assert!(slurms.len() > 90, "{ran:?}");
        assert_eq!(table, slurms, "{name} {year}.{month:02}");
        let shorts: Vec<char> = shorts.trim_start_matches('+').chars().collect();
        for (at, letter) in shorts.iter().enumerate().filter(|(_, letter)| **letter != ':') {
            let colons = shorts[at + 1..].iter().take_while(|next| **next == ':').count();
            let arity = [Arity::Flag, Arity::Value, Arity::Optional][colons];
            assert_eq!(short_option(command, *letter), arity, "{name} -{letter}");
        }
    }
}

/// How many GPUs each of the two tasks sees, and whether gpubind says so.
fn seen(cluster: &Cluster, env: &[(&str, &str)], options: &[&str]) -> Vec<(usize, bool)> {
    let (tasks, _) = cluster.tasks_with(env, &[&TWO, options].concat());
    let is_bound =
        each(&tasks, "GPUBIND_GPU_UUID").iter().map(|uuid| *uuid != "-").collect::<Vec<_>>();
    let visible = each(&tasks, "CUDA_VISIBLE_DEVICES");
    visible.iter().map(|list| list.split(',').count()).zip(is_bound).collect()
}

fn another_plugins_option_hides_no_request(cluster: &Cluster) {
    let _neighbour = Neighbour::load(cluster);
    let auto = [("SLURM_GPUBIND", "auto")];
    for (option, value) in [("--container-name", "test"), ("--myvalue", "test")] {
        let with = |env: &[(&str, &str)], bind: &str| seen(cluster, env, &[option, value, bind]);
        assert_eq!(with(&[], "--gpubind=single"), [(1, true); 2], "{option}");
        assert_eq!(with(&auto, "--gpubind=off"), [(8, false); 2], "{option}");
        assert_eq!(with(&auto, "--gpubind=first"), [(8, true); 2], "{option}");
    }
    for options in [
        &["--container-name", "test", "--gpu-bind=spank:single"][..],
        &["--container-writable", "--gpu-bind", "spank:single"],
        &["--myflag", "--gpu-bind=spank:single"],
        &["--myvalue", "no-such-program", "--gpu-bind=spank:single"],
        &["--gpu-bind=spank:single", "--myvalue", "test"],
    ] {
        assert_eq!(seen(cluster, &[], options), [(1, true); 2], "{options:?}");
    }
    // Slurm refuses the word; what to write instead is said before.
    let ran = cluster.run(&["srun", "-n1", "--myvalue", "test", "--gpu-bind=spank:first", "true"]);
    assert_ne!(ran.code, Some(0));
    let [line] = ours(&ran.stderr)[..] else { panic!("{}", ran.stderr) };
    assert!(line.contains("for Slurm, write --gpubind=first before --myvalue"), "{line}");
}

fn what_can_be_the_programs_stays_the_programs(cluster: &Cluster) {
    let _neighbour = Neighbour::load(cluster);
    let folder = cluster.folder().join("own-programs");
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join("prog");
    fs::write(&program, "#!/bin/sh\necho \"$@\" $GPUBIND_GPU_UUID\n").unwrap();
    make_executable(&program);
    let chdir = format!("--chdir={}", folder.display());
    for words in [
        &["srun", "-n1", "--myflag", "echo", "--gpu-bind=spank", "--gpubind=x"][..],
        &["srun", &chdir, "-n1", "--myflag", "./prog", "--gpu-bind=spank", "--gpubind=x"],
        &[
            "srun",
            "-D",
            folder.to_str().unwrap(),
            "--container-writable",
            "./prog",
            "--gpu-bind=spank",
            "--gpubind=x",
        ],
    ] {
        let ran = cluster.run(words);
        assert_eq!(ran.stdout.trim(), "--gpu-bind=spank --gpubind=x", "{words:?}: {}", ran.stderr);
    }
}

fn make_executable(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

fn a_command_may_have_another_name(cluster: &Cluster) {
    let copy = |name: &str, to: &str| {
        let file = cluster.folder().join(to);
        fs::copy(cluster.system_file(&format!("/usr/bin/{name}")), &file).unwrap();
        make_executable(&file);
        file.to_str().unwrap().to_owned()
    };
    let (srun, salloc) = (copy("srun", "site-launcher"), copy("salloc", "salloc.real"));
    let visible = |ran: &Ran| {
        let tasks = tasks_of(&ran.stdout);
        let lists =
            each(&tasks, "CUDA_VISIBLE_DEVICES").iter().map(|list| list.len()).collect::<Vec<_>>();
        assert_eq!(lists.len(), 2, "{ran:?}");
        lists
    };
    let ran =
        cluster.run(&[&[&srun, "--label", "--gpu-bind=spank:single"], &TWO[..], &["env"]].concat());
    assert_eq!(visible(&ran), [1, 1]);
    let inner = ["srun", "--label", "--overcommit", "-n2", "env"];
    let ran = cluster.run(&[&[&salloc, "--gpu-bind=spank:single"], &TWO[..], &inner].concat());
    assert_eq!(visible(&ran), [1, 1]);
}

fn abbreviations_are_the_commands_own(cluster: &Cluster) {
    for options in [["--wait", "1"], ["--job", "test"]] {
        let inner = ["srun", "--label", "--overcommit", "-n2", "env"];
        let outer = [&["salloc"], &TWO[..], &options, &["--gpu-bind=spank:single"]].concat();
        let ran = cluster.run(&[&outer[..], &inner].concat());
        assert_eq!(ran.code, Some(0), "{options:?}: {}", ran.stderr);
        let tasks = tasks_of(&ran.stdout);
        let lists = each(&tasks, "CUDA_VISIBLE_DEVICES");
        assert!(
            lists.len() == 2 && lists.iter().all(|list| list.len() == 1),
            "{options:?}: {lists:?}"
        );
    }
}

fn a_line_that_sbatch_refuses_is_explained(cluster: &Cluster) {
    let refused = |ran: Ran, names: &str| {
        assert_eq!(ran.code, Some(255), "{}", ran.stderr);
        let lines: Vec<&str> = ran.stderr.lines().collect();
        assert!(lines.len() == 1 && lines[0].contains(names), "{lines:?} lack {names}");
    };
    for (script, names) in [
        (
            "#SBATCH --gpu-bind=spank",
            "line 2: sbatch does not understand `--gpu-bind=spank` in a script; write #SBATCH --gpubind=auto",
        ),
        ("#\n#SBATCH --gpu-bind verbose,spank:first\n", "line 3: "),
        ("#SBATCH --gpubind=atuo", "line 2: --gpubind: unknown item `atuo`; did you mean `auto`?"),
        ("#SBATCH hetjob\n#SBATCH --gpu-bind=spank:first", "write #SBATCH --gpubind=first"),
    ] {
        refused(cluster.batch(&["-n1"], &format!("{script}\ntrue")), names);
        let file = cluster.folder().join("script.sh");
        fs::write(&file, format!("#!/bin/sh\n{script}\ntrue\n")).unwrap();
        let mut sbatch = cluster.command(&["sbatch", "-n1", "-o/dev/null"]);
        sbatch.stdin(fs::File::open(&file).unwrap());
        refused(Ran::from(sbatch.output().unwrap()), names);
    }
    // From a pipe, the option's own value is known at least.
    let pipe = "printf '#!/bin/sh\\n#SBATCH --gpubind=atuo\\ntrue\\n' | sbatch -n1 -o/dev/null";
    let ran = cluster.run(&["sh", "-c", pipe]);
    refused(ran, "--gpubind: unknown item `atuo`; did you mean `auto`?");
    // sbatch still gets the whole of what is only looked at.
    let out = cluster.folder().join("stdin.out");
    let file = cluster.folder().join("script.sh");
    fs::write(&file, "#!/bin/sh\n#SBATCH --gpubind=first\necho $SLURM_GPUBIND_JOB\n").unwrap();
    let mut sbatch = cluster.command(&[
        "sbatch",
        "--wait",
        "-n1",
        "--gpus-per-node=1",
        "-o",
        out.to_str().unwrap(),
    ]);
    let ran = Ran::from(sbatch.stdin(fs::File::open(&file).unwrap()).output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(out).unwrap().trim(), "first");
}

fn a_script_asks_for_a_later_component(cluster: &Cluster) {
    let script = "#SBATCH -N1 -n2 --gpus-per-node=4\n#SBATCH hetjob\n\
                  #SBATCH -N1 -n2 --gpus-per-node=4 --gpubind=single\n\
                  for group in 0 1; do srun --het-group=$group --label env; echo END; done";
    let ran = cluster.batch(&[], script);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let lists = |text: &str| {
        each(&tasks_of(text), "CUDA_VISIBLE_DEVICES")
            .iter()
            .map(|list| list.split(',').count())
            .collect::<Vec<_>>()
    };
    let steps: Vec<_> = ran.stdout.split("END\n").take(2).map(lists).collect();
    assert_eq!(steps, [[4, 4], [1, 1]], "{}", ran.stdout);
}

fn slurms_variables_take_a_request(cluster: &Cluster) {
    let has_tres = cluster.slurm_is_at_least(23, 11);
    for (variable, value) in
        [("SLURM_GPU_BIND", "spank:single"), ("SLURM_TRES_BIND", "gres/gpu:spank:single")]
    {
        if variable == "SLURM_GPU_BIND" || has_tres {
            assert_eq!(seen(cluster, &[(variable, value)], &[]), [(1, true); 2], "{variable}");
        }
    }
    let lists = |ran: &Ran| {
        let tasks = tasks_of(&ran.stdout);
        each(&tasks, "CUDA_VISIBLE_DEVICES")
            .iter()
            .map(|list| list.split(',').count())
            .collect::<Vec<_>>()
    };
    let inner = "srun --label --overcommit -n2 env";
    let ran = cluster.batch_with(&[("SBATCH_GPU_BIND", "spank:single")], &TWO, inner);
    assert_eq!(lists(&ran), [1, 1], "{}", ran.stderr);
    let words: Vec<&str> = inner.split(' ').collect();
    let ran = cluster.run_with(
        &[("SALLOC_GPU_BIND", "spank:single")],
        &[&["salloc"], &TWO[..], &words].concat(),
    );
    assert_eq!(lists(&ran), [1, 1], "{}", ran.stderr);
    let ran = cluster.run_with(&[("SLURM_GPU_BIND", "spank:atuo")], &["srun", "-n1", "true"]);
    assert_eq!((ran.code, ran.stderr.lines().count()), (Some(255), 1), "{}", ran.stderr);
    assert!(ran.stderr.contains("SLURM_GPU_BIND: unknown item `atuo`; did you mean `auto`?"));
}

fn items_are_listed_and_near_misses_named(cluster: &Cluster) {
    for (command, _) in COMMANDS {
        for option in ["--gpubind=help", "--gpu-bind=spank:help"] {
            let ran = cluster.run(&[command, "-n1", option, "true"]);
            assert_eq!((ran.code, &ran.stderr[..]), (Some(0), ""), "{command} {option}");
            for (_, value, item) in written_items() {
                let line = ran.stdout.lines().find(|line| line.starts_with(&format!("  {item} ")));
                assert!(
                    line.is_some_and(|line| line.ends_with(value.what)),
                    "{item}: {}",
                    ran.stdout
                );
            }
        }
        let ran = cluster.run(&[command, "-n1", "--gpubind=atuo", "true"]);
        assert_eq!((ran.code, ran.stderr.lines().count()), (Some(255), 1), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("gpubind: --gpubind: unknown item `atuo`; did you mean `auto`?")
        );
        let bad = format!("--gpubind={}\u{1b}[2J", "x".repeat(5000));
        let ran = cluster.run(&[command, "-n1", &bad, "true"]);
        assert!(ran.stderr.len() < 700 && !ran.stderr.contains('\u{1b}'), "{:?}", ran.stderr);
    }
}
