//! How a user asks: every command, every spelling, and what must stay untouched.

use crate::cluster::{CONSTRAINED, Cluster, OPEN, Tasks, each, ours, tasks_of};
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [OPEN, CONSTRAINED]:
        every_spelling_binds,
        environment_is_a_personal_default,
        slurms_own_binding_wins,
        export_none_keeps_the_request,
        salloc_with_inner_srun,
        sbatch_with_inner_srun,
        batch_script_is_bound_where_its_job_asks,
        sbatch_line_in_the_script,
        slurms_sbatch_line_in_the_script,
        arguments_of_the_program_are_untouched;
    [OPEN]: help_lists_the_option;
    [OPEN, CONSTRAINED]: bad_requests_stop_the_command;
};

const FOUR: [&str; 3] = ["-N1", "-n8", "--gpus-per-node=8"];

/// Whether eight tasks have the eight GPUs, one each.
fn one_each(cluster: &Cluster, options: &[&str]) {
    let (tasks, _) = cluster.tasks(&[&FOUR, options].concat());
    let mut visible = each(&tasks, "CUDA_VISIBLE_DEVICES");
    visible.sort_unstable();
    assert_eq!(visible, ["0", "1", "2", "3", "4", "5", "6", "7"], "{options:?}");
}

fn every_spelling_binds(cluster: &Cluster) {
    for spelling in [
        &["--gpu-bind=spank"][..],
        &["--gpu-bind", "spank"],
        &["--gpu-b=spank:single"],
        &["--gpu-bind=none,spank:single"],
        &["--gpu-bind=verbose,spank"],
        &["--gpubind=auto"],
        &["--gpubind", "single"],
        &["--gpu-bind=closest", "--gpu-bind=spank"],
    ] {
        one_each(cluster, spelling);
    }
}

fn environment_is_a_personal_default(cluster: &Cluster) {
    let default = [("SLURM_GPUBIND", "single")];
    let (tasks, _) = cluster.tasks_with(&default, &["-n2", "--gpus-per-node=8"]);
    assert_eq!(each(&tasks, "CUDA_VISIBLE_DEVICES").len(), 2);
    assert!(each(&tasks, "CUDA_VISIBLE_DEVICES").iter().all(|visible| visible.len() == 1));
    let (tasks, _) =
        cluster.tasks_with(&default, &["-n2", "--gpus-per-node=8", "--gpu-bind=spank:ordered"]);
    assert!(each(&tasks, "CUDA_VISIBLE_DEVICES").iter().all(|visible| visible.len() == 15));
    // Slurm's implicit binding would hide the peers of each task.
    let (tasks, _) = cluster.tasks_with(&default, &["-n4", "--gpus-per-task=1", "-N1"]);
    let mut visible = each(&tasks, "CUDA_VISIBLE_DEVICES");
    visible.sort_unstable();
    assert_eq!(visible, ["0", "1", "2", "3"]);
}

/// Slurm's own bindings, as the command line asks for them.
const SLURMS: [&str; 5] = [
    "--gpu-bind=map_gpu:2,3",
    "--gpu-bind=closest",
    "--gpu-bind=none",
    "--tres-bind=gres/gpu:single:1",
    "--gpu-bind=none,spank:off",
];

/// What shows whether gpubind or Slurm has bound a task, of each task.
fn binding(tasks: &Tasks) -> Vec<[&str; 4]> {
    let names = ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "GPUBIND_GPU_UUID", "RANK"];
    tasks.values().map(|env| names.map(|name| env.get(name).map_or("-", String::as_str))).collect()
}

fn slurms_own_binding_wins(cluster: &Cluster) {
    // 22.05's srun knows no gres/gpu in a --tres-bind.
    let has_tres = cluster.slurm_is_at_least(23, 2);
    let binds = SLURMS.iter().filter(|bind| has_tres || !bind.starts_with("--tres-bind"));
    let binds: Vec<&str> = binds.copied().collect();
    // A batch job's request gives way to an inner step's option.
    let inner = |bind: &&str| format!("srun --label --overcommit -n2 {bind} env; echo END");
    let script: Vec<String> = binds.iter().map(inner).collect();
    let batch = ["-N1", "--gpus-per-node=8", "--gpu-bind=spank:first"];
    let ran = cluster.batch(&batch, &script.join("\n"));
    for (bind, inner) in binds.iter().zip(ran.stdout.split("\nEND\n")) {
        let options = ["-N1", "-n2", "--gpus-per-node=8", bind];
        let plain = cluster.tasks(&options).0;
        if bind.ends_with("map_gpu:2,3") && !cluster.kind.is_constrained() {
            assert_eq!(each(&plain, "CUDA_VISIBLE_DEVICES"), ["2", "3"]);
        }
        for name in ["CUDA_DEVICE_ORDER", "GPUBIND_GPU_UUID", "RANK"] {
            assert_eq!(each(&plain, name), ["-", "-"], "{bind}");
        }
        // So does a personal default.
        let (tasks, stderr) = cluster.tasks_with(&[("SLURM_GPUBIND", "auto")], &options);
        assert_eq!(binding(&tasks), binding(&plain), "{bind}");
        assert_eq!(ours(&stderr), [""; 0], "{bind}");
        assert_eq!(binding(&tasks_of(inner)), binding(&plain), "{bind} in {}", ran.stdout);
    }
}

fn export_none_keeps_the_request(cluster: &Cluster) {
    one_each(cluster, &["--gpu-bind=spank", "--export=NONE"]);
}

fn salloc_with_inner_srun(cluster: &Cluster) {
    for inner in [&[][..], &["--gpu-bind=spank"]] {
        let srun = ["srun", "--label", "--overcommit", "-n8"];
        let outer = ["salloc", "-N1", "--gpus-per-node=8", "--gpu-bind=spank"];
        let ran = cluster.run(&[&outer, &srun[..], inner, &["env"]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let tasks = tasks_of(&ran.stdout);
        let mut visible = each(&tasks, "CUDA_VISIBLE_DEVICES");
        visible.sort_unstable();
        assert_eq!(visible, ["0", "1", "2", "3", "4", "5", "6", "7"], "inner {inner:?}");
    }
}

fn sbatch_with_inner_srun(cluster: &Cluster) {
    let options = ["-N1", "--gpus-per-node=8", "--gpu-bind=spank:first"];
    let ran = cluster.batch(&options, "srun --label --overcommit -n8 env");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let tasks = tasks_of(&ran.stdout);
    let firsts: Vec<_> =
        each(&tasks, "CUDA_VISIBLE_DEVICES").iter().map(|list| &list[..1]).collect();
    let own = each(&tasks, "GPUBIND_GPU_INDEX");
    assert_eq!(firsts, own);
    // An inner wish for Slurm's binding wins over the outer request.
    let inner = "srun --label --overcommit -n2 --gpu-bind=map_gpu:5,6 env";
    let ran = cluster.batch(&options, inner);
    let tasks = tasks_of(&ran.stdout);
    assert_eq!(each(&tasks, "GPUBIND_GPU_INDEX"), ["-", "-"], "{}", ran.stderr);
}

fn batch_script_is_bound_where_its_job_asks(cluster: &Cluster) {
    let show = "echo $CUDA_VISIBLE_DEVICES-$GPUBIND_LOCAL_RANK-$RANK";
    let job = |env: &[(&str, &str)], options: &[&str], script: &str| {
        let options = [&["-N1", "--gpus-per-node=4"], options].concat();
        let ran = cluster.batch_with(env, &options, script);
        assert_eq!(ours(&ran.stderr), [""; 0]);
        ran.stdout.trim().to_owned()
    };
    assert_eq!(job(&[], &[], show), "0,1,2,3--", "nobody asks");
    let default = [("SLURM_GPUBIND", "auto")];
    assert_eq!(job(&default, &[], show), "0,1,2,3--", "a personal default is for steps");
    for (options, line) in [
        (&["--gpu-bind=spank"][..], ""),
        (&[], "#SBATCH --gpubind=auto\n"),
        (&["--gpubind=single"], ""),
    ] {
        let found = job(&[], options, &format!("{line}{show}"));
        assert_eq!(found, "0,2,3,1-0-", "in plan order: {options:?} {line}");
    }
    // A launcher in the script itself: mpirun's ranks, torchrun's workers.
    for variables in ["OMPI_COMM_WORLD_LOCAL_RANK=$k", "LOCAL_RANK=$k LOCAL_WORLD_SIZE=4 RANK=$k"] {
        let launch = format!("for k in 0 1 2 3; do env {variables} sh -c '{show}'; done");
        let found = job(&[], &["--gpu-bind=spank"], &launch);
        let gpus: Vec<&str> = found.lines().filter_map(|line| line.split('-').next()).collect();
        assert_eq!(gpus, ["0", "2", "3", "1"], "{variables}: {found}");
    }
    // A step inside has nothing of the script's.
    let inner = "srun -n1 --gpubind=off env | grep -E 'GPUBIND_[A-Z]*=|LD_PRELOAD|CUDA_'";
    let found = job(&[], &["--gpu-bind=spank"], inner);
    let left: Vec<&str> = found.lines().filter(|line| !line.starts_with("SLURM_")).collect();
    assert_eq!(left, ["CUDA_VISIBLE_DEVICES=0,1,2,3"]);
}

fn sbatch_line_in_the_script(cluster: &Cluster) {
    let script = "#SBATCH --gpubind=ordered\nsrun --label --overcommit -n8 env";
    let ran = cluster.batch(&["-N1", "--gpus-per-node=8"], script);
    let tasks = tasks_of(&ran.stdout);
    let lists = each(&tasks, "CUDA_VISIBLE_DEVICES");
    assert_eq!(lists.len(), 8, "{}", ran.stderr);
    let own = each(&tasks, "GPUBIND_GPU_INDEX").join(",");
    assert!(lists.iter().all(|list| *list == own), "{lists:?}, own {own}");
}

fn slurms_sbatch_line_in_the_script(cluster: &Cluster) {
    let script = "#SBATCH --gpu-bind=none,spank:ids=uuid\nsrun --label --overcommit -n8 env";
    let ran = cluster.batch(&["-N1", "--gpus-per-node=8"], script);
    let tasks = tasks_of(&ran.stdout);
    let mut visible = each(&tasks, "CUDA_VISIBLE_DEVICES");
    visible.sort_unstable();
    let mut uuids = cluster.uuids();
    uuids.sort_unstable();
    assert_eq!(visible, uuids, "{}", ran.stderr);
}

fn arguments_of_the_program_are_untouched(cluster: &Cluster) {
    for options in [&[][..], &["--gpu-bind=spank"], &["-n", "1", "--overlap"]] {
        let words = [&["srun"], options, &["echo", "--gpu-bind=spank", "--gpubind=x"]].concat();
        let ran = cluster.run(&words);
        assert_eq!(ran.stdout.trim(), "--gpu-bind=spank --gpubind=x", "{words:?}: {}", ran.stderr);
    }
}

fn help_lists_the_option(cluster: &Cluster) {
    for command in ["srun", "sbatch", "salloc"] {
        let ran = cluster.run(&[command, "--help"]);
        assert!(ran.stdout.contains("--gpubind=ITEM,..."), "{command}: {}", ran.stdout);
    }
}

fn bad_requests_stop_the_command(cluster: &Cluster) {
    let stops = |env: &[(&str, &str)], words: &[&str], named: &str| {
        let ran = cluster.run_with(env, words);
        let lines: Vec<&str> = ran.stderr.lines().collect();
        assert_eq!(ran.code, Some(255), "{words:?}: {}", ran.stderr);
        assert_eq!(lines.len(), 1, "{words:?} says more than one line: {}", ran.stderr);
        assert!(lines[0].contains(named), "{words:?} does not name {named}: {}", ran.stderr);
    };
    for command in ["srun", "sbatch", "salloc"] {
        let words = [command, "-n1", "--gpu-bind=spank:nonsense", "true"];
        stops(&[], &words, "unknown item `nonsense`; valid items: auto, single, ordered");
    }
    let contradiction = "`single` and `ordered` contradict each other";
    stops(&[], &["srun", "--gpubind=single,ordered", "true"], contradiction);
    stops(&[("SLURM_GPUBIND", "nonsense")], &["srun", "true"], "SLURM_GPUBIND: unknown item");
    stops(&[], &["srun", "--gpu-bind=spank,single", "true"], "write spank or spank:ITEM");
    let ran = cluster.batch(&["-n1"], "#SBATCH --gpubind=nonsense\ntrue");
    assert_eq!((ran.code, ours(&ran.stderr).len()), (Some(255), 1), "{}", ran.stderr);
    assert!(ran.stderr.contains("--gpubind: unknown item `nonsense`"), "{}", ran.stderr);
}
