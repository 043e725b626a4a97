//! Processes that a launcher starts inside a task: each worker has one GPU.
//!
//! Launchers here are shells that set what a real one sets.

use std::collections::BTreeSet;

use crate::cluster::{BLIND, CONSTRAINED, Cluster, OPEN, Tasks, each, ours, tasks_of};
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [OPEN, CONSTRAINED]:
        each_worker_has_one_gpu,
        workers_of_two_tasks;
    [OPEN]:
        more_workers_than_gpus,
        what_a_worker_starts_is_left_alone,
        workers_in_a_pipeline,
        every_launcher_counts,
        numbers_that_a_task_has_itself,
        numbers_from_a_task_prolog,
        a_changed_list_is_left_alone;
    [OPEN, CONSTRAINED]: items_for_workers;
    [OPEN]:
        an_existing_preload_is_kept,
        only_tasks_with_several_gpus_are_armed,
        a_step_inside_an_armed_task,
        a_job_from_an_armed_task,
        where_the_shim_is_not,
        an_oci_container;
    [BLIND]: a_task_that_cannot_read_the_shim;
    [OPEN]: a_set_user_id_program;
};

/// One task with four of a node's GPUs.
const STEP: [&str; 4] = ["-N1", "-n1", "--gpus-per-node=4", "--gpu-bind=spank"];

/// The number under which the task's own environment is printed.
const TASK: u32 = 100;

/// Prints a process's environment as `srun --label` prints a task's.
fn show(number: impl std::fmt::Display) -> String {
    format!("env | sed 's/^/{number}: /'")
}

/// A launcher of four workers that each run a command, `$k` their number.
fn launch(variables: &str, command: &str) -> String {
    format!("for k in 0 1 2 3; do env {variables} sh -c \"{command}\"; done")
}

/// Runs a script as each task of a step; nothing may be said on stderr.
fn run(cluster: &Cluster, env: &[(&str, &str)], options: &[&str], script: &str) -> Tasks {
    let words = [&["srun", "-O"], options, &["sh", "-c", script]].concat();
    let ran = cluster.run_with(env, &words);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{words:?}");
    tasks_of(&ran.stdout)
}

/// The task's environment, and those of its four workers.
fn with_workers(cluster: &Cluster, options: &[&str], variables: &str) -> (Tasks, Tasks) {
    let script = format!("{}; {}", show(TASK), launch(variables, &show("$k")));
    let mut all = run(cluster, &[], options, &script);
    let workers = all.split_off(&0);
    let (workers, task) = workers.into_iter().partition(|(number, _)| *number < TASK);
    (task, workers)
}

fn list(text: &str) -> Vec<&str> {
    text.split(',').collect()
}

fn each_worker_has_one_gpu(cluster: &Cluster) {
    // At CPU 1 the nearest GPUs are not the first ones.
    let step = ["-N1", "-n1", "--gpus-per-node=8", "--cpu-bind=map_cpu:1", "--gpu-bind=spank"];
    let (task, workers) = with_workers(cluster, &step, "LOCAL_RANK=$k LOCAL_WORLD_SIZE=4");
    let (task, uuids) = (&task[&TASK], cluster.uuids());
    let planned = list(&task["CUDA_VISIBLE_DEVICES"]);
    assert_eq!(planned.iter().collect::<BTreeSet<_>>().len(), 8, "{planned:?}");
    assert_eq!(workers.len(), 4);
    for (number, worker) in &workers {
        let own = worker["CUDA_VISIBLE_DEVICES"].as_str();
        assert_eq!(own, planned[*number as usize], "plan order");
        let gpu: usize = own.parse().unwrap();
        assert_eq!(worker["GPUBIND_GPU_INDEX"], own);
        assert_eq!(worker["GPUBIND_GPU_UUID"], uuids[gpu]);
        assert_eq!(worker["GPUBIND_NUMA_NODE"], (gpu / 4).to_string());
        assert!(!worker["GPUBIND_GPU_PCI"].contains(','), "{worker:?}");
        assert_eq!(worker["GPUBIND_LOCAL_RANK"], number.to_string());
        assert_eq!(worker["LOCAL_RANK"], "0", "its only GPU is device 0");
        assert_eq!(worker["CUDA_DEVICE_ORDER"], "PCI_BUS_ID");
        for name in ["GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"] {
            assert_eq!(worker.get(name).map(String::as_str), task.get(name).map(|_| own), "{name}");
        }
    }
}

fn workers_of_two_tasks(cluster: &Cluster) {
    let step = ["-N1", "-n2", "--gpus-per-node=8", "--cpu-bind=map_cpu:1,0", "--gpu-bind=spank"];
    let script = "for k in 0 1 2 3; do LOCAL_RANK=$k LOCAL_WORLD_SIZE=4 sh -c \
                  'echo $SLURM_LOCALID$GPUBIND_LOCAL_RANK: GPU=$CUDA_VISIBLE_DEVICES'; done";
    let workers = run(cluster, &[], &step, script);
    let gpus: Vec<u32> = each(&workers, "GPU").iter().map(|gpu| gpu.parse().unwrap()).collect();
    assert_eq!(gpus.len(), 8);
    assert_eq!(gpus.iter().collect::<BTreeSet<_>>().len(), 8, "{gpus:?}");
    assert!(gpus[..4].iter().all(|gpu| *gpu >= 4), "near CPU 1: {gpus:?}");
}

fn more_workers_than_gpus(cluster: &Cluster) {
    let step = ["-N1", "-n1", "--gpus-per-node=2", "--gpu-bind=spank:share"];
    let (task, workers) = with_workers(cluster, &step, "LOCAL_RANK=$k LOCAL_WORLD_SIZE=4");
    let gpus = list(&task[&TASK]["CUDA_VISIBLE_DEVICES"]);
    let expected = [gpus[0], gpus[1], gpus[0], gpus[1]];
    assert_eq!(each(&workers, "CUDA_VISIBLE_DEVICES"), expected);
    assert_eq!(each(&workers, "GPUBIND_LOCAL_RANK"), ["0", "1", "2", "3"]);
    let started = |request| {
        let script = "for k in 0 1 2 3; do \
                      LOCAL_RANK=$k LOCAL_WORLD_SIZE=4 sh -c 'echo $CUDA_VISIBLE_DEVICES'; done";
        let words = ["srun", "-N1", "-n1", "--gpus-per-node=2", request, "bash", "-c", script];
        let ran = cluster.run(&words);
        let lines = ours(&ran.stderr).into_iter().map(str::to_owned).collect::<Vec<_>>();
        (ran.stdout.lines().count(), lines)
    };
    let (count, said) = started("--gpu-bind=spank");
    assert!(count == 4 && said.len() == 1, "{said:?}");
    assert!(
        said[0].contains("warning: the task has 2 devices") && said[0].contains("local rank 2")
    );
    assert_eq!(started("--gpu-bind=spank:share"), (4, vec![]));
    let (count, said) = started("--gpu-bind=spank:strict");
    assert!(count == 2 && said.iter().all(|line| line.contains("gpubind: strict: ")), "{said:?}");
}

fn what_a_worker_starts_is_left_alone(cluster: &Cluster) {
    // A launcher in a worker, with other numbers.
    let inner =
        "LOCAL_RANK=2 OMPI_COMM_WORLD_LOCAL_RANK=1 env | sed \"s/^/$GPUBIND_LOCAL_RANK: /\"";
    let workers =
        "for k in 0 1 2 3; do LOCAL_RANK=$k LOCAL_WORLD_SIZE=4 sh -c 'eval \"$INNER\"'; done";
    let script = format!("{}; {workers}", show(TASK));
    let all = run(cluster, &[("INNER", inner)], &STEP, &script);
    let planned = list(&all[&TASK]["CUDA_VISIBLE_DEVICES"]);
    assert_eq!(all.len(), 5);
    for number in 0..4 {
        let below = &all[&number];
        assert_eq!(below["CUDA_VISIBLE_DEVICES"], planned[number as usize]);
        assert_eq!(below["LOCAL_RANK"], "2", "not gpubind's any more");
        assert_eq!(below["GPUBIND_WORKERS"], "done");
        assert_eq!(below.get("LD_PRELOAD"), None, "nothing is left to do");
    }
}

fn workers_in_a_pipeline(cluster: &Cluster) {
    // Every process of the pipeline is the worker's, and bash has its own getenv.
    let worker = "bash -c 'read gpu; echo $gpu $CUDA_VISIBLE_DEVICES'";
    let script = format!(
        "echo {TASK}: GPU=$CUDA_VISIBLE_DEVICES; \
         for k in 0 1 2 3; do export LOCAL_RANK=$k LOCAL_WORLD_SIZE=4; \
         printenv CUDA_VISIBLE_DEVICES | {worker} | sed \"s/^/$k: GPU=/\"; done"
    );
    let all = run(cluster, &[], &STEP, &script);
    let planned = list(&all[&TASK]["GPU"]);
    for number in 0..4 {
        let gpu = planned[number as usize];
        assert_eq!(all[&number]["GPU"], format!("{gpu} {gpu}"));
    }
}

fn every_launcher_counts(cluster: &Cluster) {
    for launcher in &gpubind_core::step::LAUNCHERS {
        let size = launcher.local_size.map(|name| format!(" {name}=4")).unwrap_or_default();
        let variables = format!("{}=$k{size}", launcher.local_rank);
        let (task, workers) = with_workers(cluster, &STEP, &variables);
        let planned = list(&task[&TASK]["CUDA_VISIBLE_DEVICES"]);
        assert_eq!(each(&workers, "CUDA_VISIBLE_DEVICES"), planned, "{}", launcher.name);
        let real =
            if launcher.local_rank == "LOCAL_RANK" { ["0"; 4] } else { ["0", "1", "2", "3"] };
        assert_eq!(each(&workers, launcher.local_rank), real, "{}", launcher.name);
    }
    // A process manager's one process on the node: perhaps torchrun.
    let script = format!(
        "export OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1; {}; LOCAL_RANK=2 {}",
        show(TASK),
        show(2),
    );
    let all = run(cluster, &[], &STEP, &script);
    let planned = list(&all[&TASK]["CUDA_VISIBLE_DEVICES"]);
    assert_eq!(planned.len(), 4);
    assert_eq!(all[&2]["CUDA_VISIBLE_DEVICES"], planned[2]);
}

fn numbers_that_a_task_has_itself(cluster: &Cluster) {
    // The process manager's that started the task, and one that a user has left.
    let own = [("PMI_LOCAL_RANK", "0"), ("LOCAL_RANK", "0")];
    for variables in [
        "LOCAL_RANK=$k LOCAL_WORLD_SIZE=4 TORCHELASTIC_RUN_ID=none",
        "LOCAL_RANK=$k TORCHELASTIC_RUN_ID=none",
        "OMPI_COMM_WORLD_LOCAL_RANK=$k OMPI_COMM_WORLD_LOCAL_SIZE=4",
    ] {
        // The launcher is a process below the task, as from a job script.
        let launcher = format!("{}; {}", show(TASK), launch(variables, &show("$k")));
        let script = format!("cat >$TMPDIR/launcher <<'END'\n{launcher}\nEND\nsh $TMPDIR/launcher");
        let folder = tempfile::tempdir().unwrap();
        let env = [&own[..], &[("TMPDIR", folder.path().to_str().unwrap())]].concat();
        let all = run(cluster, &env, &STEP, &script);
        let planned = list(&all[&TASK]["CUDA_VISIBLE_DEVICES"]);
        assert_eq!(planned.len(), 4, "the launcher is no worker");
        assert_eq!(all[&TASK]["LOCAL_RANK"], "0");
        for number in 0..4 {
            let own = all[&number]["CUDA_VISIBLE_DEVICES"].as_str();
            assert_eq!(own, planned[number as usize], "{variables}");
        }
    }
}

fn numbers_from_a_task_prolog(cluster: &Cluster) {
    // Set after the plugin's turn, so the plugin cannot know.
    let folder = tempfile::tempdir().unwrap();
    let prolog = folder.path().join("prolog");
    std::fs::write(&prolog, "#!/bin/sh\necho export LOCAL_RANK=$SLURM_LOCALID\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&prolog, mode).unwrap();
    let prolog = format!("--task-prolog={}", prolog.display());
    let options = [&STEP[..], &[&prolog]].concat();
    let (task, workers) = with_workers(cluster, &options, "LOCAL_RANK=$k LOCAL_WORLD_SIZE=4");
    let planned = list(&task[&TASK]["CUDA_VISIBLE_DEVICES"]);
    assert_eq!(planned.len(), 4, "a launcher in the task's place keeps all");
    assert_eq!(task[&TASK]["LOCAL_RANK"], "0");
    assert_eq!(each(&workers, "CUDA_VISIBLE_DEVICES"), planned);
}

fn a_changed_list_is_left_alone(cluster: &Cluster) {
    // torchrun --virtual-local-rank narrows it itself; a script may set its own.
    let variables = "LOCAL_RANK=0 CUDA_VISIBLE_DEVICES=$k,7";
    let (_, workers) = with_workers(cluster, &STEP, variables);
    assert_eq!(each(&workers, "CUDA_VISIBLE_DEVICES"), ["0,7", "1,7", "2,7", "3,7"]);
    let (task, workers) = with_workers(cluster, &STEP, "-u CUDA_VISIBLE_DEVICES LOCAL_RANK=$k");
    assert_eq!(each(&workers, "CUDA_VISIBLE_DEVICES"), ["-"; 4]);
    let uuids = task[&TASK]["GPUBIND_GPU_UUID"].as_str();
    assert_eq!(each(&workers, "GPUBIND_GPU_UUID"), [uuids; 4]);
}

fn items_for_workers(cluster: &Cluster) {
    let step = |items: &str| {
        let request = format!("--gpu-bind=spank:{items}");
        with_workers(
            cluster,
            &["-N1", "-n1", "--gpus-per-node=4", &request],
            "LOCAL_RANK=$k LOCAL_WORLD_SIZE=4",
        )
    };
    let (_, workers) = step("local-rank=keep");
    assert_eq!(each(&workers, "LOCAL_RANK"), ["0", "1", "2", "3"]);
    let (task, workers) = step("ids=uuid");
    let planned = list(&task[&TASK]["GPUBIND_GPU_UUID"]);
    assert_eq!(each(&workers, "CUDA_VISIBLE_DEVICES"), planned);
    assert!(planned.iter().all(|uuid| uuid.starts_with("GPU-")), "{planned:?}");
    let (task, workers) = step("workers=off");
    let all = task[&TASK]["CUDA_VISIBLE_DEVICES"].as_str();
    assert_eq!(list(all).len(), 4);
    assert_eq!(each(&workers, "CUDA_VISIBLE_DEVICES"), [all; 4]);
    assert_eq!(each(&workers, "LOCAL_RANK"), ["0", "1", "2", "3"]);
    assert_unarmed(&task);
}

fn assert_unarmed(tasks: &Tasks) {
    for name in ["LD_PRELOAD", "GPUBIND_WORKERS"] {
        assert_eq!(each(tasks, name), vec!["-"; tasks.len()], "{name}");
    }
}

fn an_existing_preload_is_kept(cluster: &Cluster) {
    // Libraries that are there, in both of ld.so's spellings.
    let folder = tempfile::tempdir().unwrap();
    let other = |name| {
        let file = folder.path().join(name);
        std::fs::copy(cluster.stage().join("libgpubind_worker.so"), &file).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let others = format!("{} {}", other("one.so"), other("two.so"));
    let shim = cluster.stage().join("libgpubind_worker.so");
    let script = format!("{}; LOCAL_RANK=1 {}", show(TASK), show(1));
    let all = run(cluster, &[("LD_PRELOAD", &others)], &STEP, &script);
    assert_eq!(all[&TASK]["LD_PRELOAD"], format!("{}:{others}", shim.display()));
    assert_eq!(all[&1]["LD_PRELOAD"], others, "a worker is done with ours only");
    assert!(!all[&1]["CUDA_VISIBLE_DEVICES"].contains(','));
}

fn only_tasks_with_several_gpus_are_armed(cluster: &Cluster) {
    for (tasks, items) in [("-n4", "auto"), ("-n2", "single"), ("-n2", "ordered"), ("-n1", "first")]
    {
        let request = format!("--gpu-bind=spank:{items}");
        let (tasks, _) = cluster.tasks(&["-N1", tasks, "--gpus-per-node=4", &request]);
        assert_unarmed(&tasks);
    }
    // A task alone on its node may be a launcher, whose ranks must not take RANK for theirs.
    let one = ["-N1", "-n1", "--gpus-per-node=1"];
    let (tasks, _) = cluster.tasks(&[&one[..], &["--gpu-bind=spank:rank-env=off"]].concat());
    assert_unarmed(&tasks);
    let step = [&one[..], &["--gpu-bind=spank"]].concat();
    let mpi = "OMPI_COMM_WORLD_LOCAL_RANK=$k OMPI_COMM_WORLD_LOCAL_SIZE=4";
    let (task, ranks) = with_workers(cluster, &step, mpi);
    assert_eq!((each(&task, "RANK"), each(&task, "WORLD_SIZE")), (vec!["0"], vec!["1"]));
    for name in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "GPUBIND_RANK_ENV"] {
        assert_eq!(each(&ranks, name), ["-"; 4], "{name}");
    }
    let users = format!("{mpi} MASTER_ADDR=10.9.8.7");
    let (_, ranks) = with_workers(cluster, &step, &users);
    assert_eq!(each(&ranks, "MASTER_ADDR"), ["10.9.8.7"; 4]);
    let (_, workers) = with_workers(cluster, &step, "LOCAL_RANK=$k RANK=$k LOCAL_WORLD_SIZE=4");
    assert_eq!(each(&workers, "RANK"), ["0", "1", "2", "3"], "torchrun sets its own");
    let (tasks, _) = cluster.tasks(&["-N1", "-n2", "--gpus-per-node=4", "--gpu-bind=spank"]);
    assert!(each(&tasks, "LD_PRELOAD").iter().all(|file| file.ends_with("libgpubind_worker.so")));
}

fn a_step_inside_an_armed_task(cluster: &Cluster) {
    let inner = |options: &str| {
        let script = format!("srun --overlap --overcommit --label {options} env");
        run(cluster, &[], &STEP, &script)
    };
    for options in ["-n4 --gpu-bind=spank", "-n1 --gpu-bind=none", "-n1 --gpu-bind=spank:off"] {
        assert_unarmed(&inner(options));
    }
    // One with several GPUs again is armed for itself.
    let tasks = inner("-n2 --gpu-bind=spank");
    for env in tasks.values() {
        assert!(!env["LD_PRELOAD"].contains(':'), "once: {}", env["LD_PRELOAD"]);
        let visible = format!(";virtual;kept;reported;{};", env["CUDA_VISIBLE_DEVICES"]);
        assert!(env["GPUBIND_WORKERS"].contains(&visible), "{}", env["GPUBIND_WORKERS"]);
        assert_eq!(list(&env["CUDA_VISIBLE_DEVICES"]).len(), 2);
    }
}

fn a_job_from_an_armed_task(cluster: &Cluster) {
    let folder = tempfile::tempdir().unwrap();
    let (job, out) = (folder.path().join("job"), folder.path().join("out"));
    std::fs::write(&job, "#!/bin/sh\nenv\n").unwrap();
    let script = format!("sbatch --wait -Q -o {} {}", out.display(), job.display());
    let words = [&["srun"], &STEP[..], &["sh", "-c", &script]].concat();
    let ran = cluster.run(&words);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let printed = std::fs::read_to_string(&out).unwrap();
    assert!(printed.contains("SLURM_JOB_ID="), "{printed}");
    for name in ["LD_PRELOAD=", "GPUBIND_WORKERS="] {
        assert!(!printed.contains(name), "{printed}");
    }
}

fn where_the_shim_is_not(cluster: &Cluster) {
    // A container's root, entered by a program that the task starts.
    let root = tempfile::tempdir().unwrap();
    let script = "for file in /bin/sh /usr/bin/env \
                  $(LD_PRELOAD= ldd /bin/sh /usr/bin/env | grep -o '/lib[^ ]*' | sort -u); do \
                  cp --dereference --parents $file $ROOT; done; \
                  chroot $ROOT /bin/sh -c 'LOCAL_RANK=1 env' | sed 's/^/1: /'";
    let env = [("ROOT", root.path().to_str().unwrap())];
    let all = run(cluster, &env, &STEP, script);
    assert_eq!(all[&1].get("LD_PRELOAD"), None);
    assert_eq!(list(&all[&1]["CUDA_VISIBLE_DEVICES"]).len(), 4, "stays as it was");
}

fn an_oci_container(cluster: &Cluster) {
    // What `srun --container` sets; a container needs a runtime, so only that is here.
    let (tasks, stderr) = cluster.tasks_with(&[("SLURM_CONTAINER", "/bundle")], &STEP);
    assert_eq!((each(&tasks, "SLURM_CONTAINER"), stderr.as_str()), (vec!["/bundle"], ""));
    assert_unarmed(&tasks);
}

fn a_task_that_cannot_read_the_shim(cluster: &Cluster) {
    let (tasks, stderr) = cluster.tasks(&STEP);
    assert_eq!(list(each(&tasks, "CUDA_VISIBLE_DEVICES")[0]).len(), 4);
    assert_unarmed(&tasks);
    assert!(!stderr.contains("libgpubind"), "{stderr}");
}

fn a_set_user_id_program(cluster: &Cluster) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("env");
    let program = program.to_str().unwrap();
    let script = format!(
        "cp /usr/bin/env {program}; chown nobody {program}; chmod u+s {program}; \
         LOCAL_RANK=1 {program} | sed 's/^/1: /'"
    );
    let all = run(cluster, &[], &STEP, &script);
    assert_eq!(all[&1].get("LD_PRELOAD"), None, "ld.so does not trust it");
    assert_eq!(list(&all[&1]["CUDA_VISIBLE_DEVICES"]).len(), 4);
}
