//! Every way in which Slurm starts a step: components, arrays, steps side by
//! side, terminals, jobs inside jobs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::cluster::{CONSTRAINED, Cluster, OPEN, Ran, Tasks, each, ours, tasks_of};
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [OPEN, CONSTRAINED]:
        components_have_requests_of_their_own,
        components_without_a_het_job,
        a_component_that_slurm_binds,
        a_het_job_hands_its_requests_down,
        components_are_ranks_of_one_world,
        a_stale_bind_text_does_not_count,
        several_programs,
        a_terminal,
        steps_side_by_side_share_the_gpus,
        a_job_array,
        one_task_with_several_gpus,
        spellings_in_a_batch_job,
        a_batch_job_without_the_environment,
        a_job_inside_a_job_asks_for_itself,
        the_personal_default_outlives_a_request,
        a_task_prolog_has_the_last_word;
};

/// A step's tasks, of a command that printed their environments.
fn tasks(ran: &Ran, count: usize) -> Tasks {
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    printed(&ran.stdout, count)
}

fn printed(text: &str, count: usize) -> Tasks {
    let tasks = tasks_of(text);
    assert_eq!(tasks.len(), count, "{text}");
    tasks
}

/// Runs a batch script to its end and gives back what it printed. `sbatch --wait`
/// looks only after 2 and 10 seconds.
fn batch(cluster: &Cluster, env: &[(&str, &str)], options: &[&str], script: &str) -> String {
    let folder = cluster.folder();
    let (file, output, done) = (folder.join("b.sh"), folder.join("b.out"), folder.join("b.done"));
    let _ = fs::remove_file(&done);
    fs::write(&file, format!("#!/bin/bash\n{script}\ntouch {}\n", done.display())).unwrap();
    let sbatch = ["sbatch", "-o", output.to_str().unwrap()];
    let ran = cluster.run_with(env, &[&sbatch[..], options, &[file.to_str().unwrap()]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    wait_for(&done);
    fs::read_to_string(output).unwrap()
}

fn wait_for(file: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !file.exists() {
        assert!(Instant::now() < deadline, "{} is not there", file.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A step in a heterogeneous job with four GPUs of a node for each component.
fn het_step(cluster: &Cluster, srun: &[&str], count: usize) -> Tasks {
    let salloc = ["salloc", "-Q", "-N1", "--gpus-per-node=4", ":", "-N1", "--gpus-per-node=4"];
    let words = [&salloc[..], &["srun", "--label", "--overcommit"], srun].concat();
    tasks(&cluster.run(&words), count)
}

/// Number of GPUs that each task sees.
fn seen(tasks: &Tasks) -> Vec<usize> {
    let lists = each(tasks, "CUDA_VISIBLE_DEVICES");
    lists.iter().map(|list| list.split(',').filter(|gpu| *gpu != "-").count()).collect()
}

fn components_have_requests_of_their_own(cluster: &Cluster) {
    // With one task on the node, Slurm itself shows the step nothing of its binding.
    for (first, second, sees) in [("2", "2", vec![2, 2, 4, 4]), ("4", "1", vec![1, 1, 1, 1, 4])] {
        let step = ["-n", first, "--gpu-bind=spank", "env", ":"];
        let step = [&step[..], &["-n", second, "--gpu-bind=spank:first", "env"]].concat();
        let tasks = het_step(cluster, &step, sees.len());
        assert_eq!(seen(&tasks), sees);
    }
    let step = ["-n1", "--gpu-bind=spank:single", "env", ":", "-n1", "--gpu-bind=spank", "env"];
    let tasks = het_step(cluster, &step, 2);
    assert_eq!(seen(&tasks), [1, 4]);
    assert_eq!(each(&tasks, "SLURM_GPUBIND_JOB"), ["single", "spank"], "for steps inside");
    assert_eq!(each(&tasks, "SLURM_GPUBIND_STEP"), ["-", "-"]);
    // One that does not ask is left alone.
    let tasks = het_step(cluster, &["-n1", "env", ":", "-n1", "--gpu-bind=spank", "env"], 2);
    assert_eq!(each(&tasks, "GPUBIND_LOCAL_RANK"), ["-", "0"]);
    assert_eq!(each(&tasks, "CUDA_DEVICE_ORDER"), ["-", "PCI_BUS_ID"]);
}

fn components_without_a_het_job(cluster: &Cluster) {
    let salloc = ["salloc", "-Q", "-N2", "--gpus-per-node=4", "srun", "--label", "--overcommit"];
    let first = ["-N1", "-n2", "--gpus-per-node=2", "--gpu-bind=spank", "env", ":"];
    let second = ["-N1", "-n1", "--gpus-per-node=2", "--gpu-bind=spank:first", "env"];
    let tasks = tasks(&cluster.run(&[&salloc[..], &first, &second].concat()), 3);
    assert_eq!(seen(&tasks), [1, 1, 2]);
    // And without any job before.
    let srun = ["srun", "--label", "--overcommit"];
    let tasks = tasks_of(&cluster.run(&[&srun[..], &first, &second].concat()).stdout);
    assert_eq!(seen(&tasks), [1, 1, 2]);
}

fn a_component_that_slurm_binds(cluster: &Cluster) {
    for (count, sees) in [("2", vec![1, 1, 4]), ("1", vec![1, 4])] {
        let step = ["-n", count, "--gpu-bind=map_gpu:1", "env", ":"];
        let step = [&step[..], &["-n1", "--gpu-bind=spank:first", "env"]].concat();
        let tasks = het_step(cluster, &step, sees.len());
        let bound = &each(&tasks, "GPUBIND_GPU_UUID")[..sees.len() - 1];
        assert!(bound.iter().all(|uuid| *uuid == "-"), "{bound:?}");
        assert_eq!(seen(&tasks).last(), Some(&4));
        // Up to 25.05 Slurm binds no task that is alone on its node.
        if count == "2" {
            assert_eq!(seen(&tasks), sees);
        }
    }
}

fn a_het_job_hands_its_requests_down(cluster: &Cluster) {
    let salloc = ["salloc", "-Q", "-N1", "--gpus-per-node=4", "--gpu-bind=spank:ordered", ":"];
    let salloc = [&salloc[..], &["-N1", "--gpus-per-node=4", "--gpubind=single"]].concat();
    let srun = ["srun", "--label", "--overcommit", "-n2", "env", ":", "-n1", "env"];
    let tasks_of_job = tasks(&cluster.run(&[&salloc[..], &srun].concat()), 3);
    assert_eq!(seen(&tasks_of_job), [4, 4, 1]);
    // One component after the other, by the group that it names.
    let script = "srun --het-group=1 --label --overcommit -n1 env
        srun --het-group=0 --overcommit -n2 env | sed 's/^/9: /'";
    let options = ["-N1", "--gpus-per-node=4", "--gpu-bind=spank:ordered", ":"];
    let options = [&options[..], &["-N1", "--gpus-per-node=4", "--gpu-bind=spank:single"]].concat();
    let tasks = printed(&batch(cluster, &[], &options, script), 2);
    assert_eq!(seen(&tasks), [1, 4]);
}

fn components_are_ranks_of_one_world(cluster: &Cluster) {
    let step = ["-n2", "--gpubind=single", "env", ":", "-n2", "--gpubind=first", "env"];
    let tasks = het_step(cluster, &step, 4);
    assert_eq!(each(&tasks, "RANK"), ["0", "1", "2", "3"]);
    assert_eq!(each(&tasks, "WORLD_SIZE"), ["4"; 4]);
    assert_eq!(each(&tasks, "NODE_RANK"), ["0", "0", "1", "1"]);
    for name in ["MASTER_ADDR", "MASTER_PORT"] {
        let values: BTreeSet<&str> = each(&tasks, name).into_iter().collect();
        assert_eq!(values.len(), 1, "{name}: {values:?}");
    }
}

fn a_stale_bind_text_does_not_count(cluster: &Cluster) {
    // The outer step's tasks have SLURMD_TRES_BIND, and the one inner task would keep it.
    for outer in ["--gpu-bind=map_gpu:0,1", "--gpu-bind=spank:ordered"] {
        let inner = "srun --overlap --label -N1 -n1 --gpus-per-node=2 --gpu-bind=spank:single env";
        let script = format!("if [ $SLURM_PROCID = 0 ]; then {inner}; fi");
        let step = ["srun", "--overcommit", "-N1", "-n2", "--gpus-per-node=2", outer];
        let tasks = tasks(&cluster.run(&[&step[..], &["sh", "-c", &script]].concat()), 1);
        assert_eq!(seen(&tasks), [1], "inside {outer}");
        assert_ne!(each(&tasks, "GPUBIND_GPU_UUID"), ["-"], "inside {outer}");
    }
}

fn several_programs(cluster: &Cluster) {
    let file = cluster.folder().join("programs");
    fs::write(&file, "0-1 /usr/bin/env\n2-3 /bin/sh -c env\n").unwrap();
    let step = ["srun", "--label", "--overcommit", "-N1", "-n4", "--gpus-per-node=4"];
    let programs = ["--gpu-bind", "spank", "--multi-prog", file.to_str().unwrap()];
    let tasks = tasks(&cluster.run(&[&step[..], &programs].concat()), 4);
    let visible: BTreeSet<&str> = each(&tasks, "CUDA_VISIBLE_DEVICES").into_iter().collect();
    assert_eq!(visible, BTreeSet::from(["0", "1", "2", "3"]));
}

fn a_terminal(cluster: &Cluster) {
    let srun = "srun --pty -N1 -n1 --gpus-per-node=4 --gpu-bind=spank:first sh -c 'tty; env'";
    let ran = cluster.run(&["script", "-qec", srun, "/dev/null"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
    let lines = || ran.stdout.lines().map(str::trim);
    // The terminal may echo first that its input has ended.
    assert!(lines().any(|line| line.contains("/dev/pts/")), "{}", ran.stdout);
    let line = |start: &str| lines().find(|line| line.starts_with(start));
    assert_eq!(line("CUDA_VISIBLE_DEVICES="), Some("CUDA_VISIBLE_DEVICES=0,1,2,3"));
    assert!(line("GPUBIND_GPU_UUID=").is_some());
}

fn steps_side_by_side_share_the_gpus(cluster: &Cluster) {
    let step = |request: &str, name: &str| {
        let wait = "until [ -e here1 ] && [ -e here2 ]; do sleep 0.05; done";
        format!(
            "srun --overlap --overcommit --label -n2 --gpu-bind={request} \
             sh -c 'touch here{name}; {wait}; env' >side{name} & "
        )
    };
    let folder = cluster.folder();
    let go = format!("cd {}; rm -f here?; ", folder.display());
    let script = [go, step("spank", "1"), step("spank:ordered", "2"), "wait".to_owned()].concat();
    batch(cluster, &[], &["-N1", "--gpus-per-node=2"], &script);
    let tasks = |name: &str| tasks_of(&fs::read_to_string(folder.join(name)).unwrap());
    assert_eq!(seen(&tasks("side1")), [1, 1]);
    assert_eq!(seen(&tasks("side2")), [2, 2]);
    for name in ["side1", "side2"] {
        let own: BTreeSet<String> =
            each(&tasks(name), "GPUBIND_GPU_INDEX").iter().map(|gpu| (*gpu).to_owned()).collect();
        assert_eq!(own.len(), 2, "{name}: {own:?}");
    }
}

fn a_job_array(cluster: &Cluster) {
    let folder = cluster.folder();
    let output = folder.join("array-%a");
    let wrap = format!(
        "srun --overcommit --label -n2 env && touch {}/array-$SLURM_ARRAY_TASK_ID.done",
        folder.display()
    );
    let sbatch = ["sbatch", "--array=1,3", "-o", output.to_str().unwrap(), "-N1"];
    let options = ["--gpus-per-node=2", "--gpu-bind", "spank", "--wrap", &wrap];
    let ran = cluster.run(&[&sbatch[..], &options].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let mut ports = BTreeSet::new();
    for name in ["array-1", "array-3"] {
        wait_for(&folder.join(format!("{name}.done")));
        let tasks = printed(&fs::read_to_string(folder.join(name)).unwrap(), 2);
        let own: BTreeSet<&str> = each(&tasks, "GPUBIND_GPU_INDEX").into_iter().collect();
        assert_eq!(own.len(), 2, "{name}: {own:?}");
        ports.insert(each(&tasks, "MASTER_PORT")[0].to_owned());
    }
    assert_eq!(ports.len(), 2, "each has its own meeting point: {ports:?}");
}

fn one_task_with_several_gpus(cluster: &Cluster) {
    let node = cluster.node(0);
    // Another job holds 0, 1 and 2: numbers and GPUs differ where devices are constrained.
    let hold = ["salloc", "-Q", "-w", &node, "-N1", "--gpus-per-node=3", "sh", "-c"];
    for (mode, own, visible) in [
        ("auto", "3,4,5", ["3,4,5", "0,1,2"]),
        ("single", "4", ["4", "1"]),
        ("first", "4", ["4,3,5", "1,0,2"]),
        ("ordered", "4", ["4,3,5", "1,0,2"]),
    ] {
        let step = format!(
            "for name in $(env | grep -o '^SLURM[^=]*' | grep -v CONF); do unset $name; done; \
             srun --label -w {node} -N1 -n1 --gpus-per-node=3 --cpu-bind=map_cpu:1 \
             --gpu-bind=spank:{mode} env"
        );
        let tasks = tasks(&cluster.run(&[&hold[..], &[&step]].concat()), 1);
        assert_eq!(each(&tasks, "GPUBIND_GPU_INDEX"), [own], "{mode}");
        let expected = visible[usize::from(cluster.kind == CONSTRAINED)];
        assert_eq!(each(&tasks, "CUDA_VISIBLE_DEVICES"), [expected], "{mode}");
    }
}

fn spellings_in_a_batch_job(cluster: &Cluster) {
    let step = "srun --label --overcommit -n2";
    for (options, inner, sees) in [
        (&["--gpu-bind", "spank:first"][..], step.to_owned(), 4),
        (&["--gpu-b", "spank:first"], step.to_owned(), 4),
        (&["--gpubi=first"], step.to_owned(), 4),
        (&[], format!("{step} --gpu-bind spank:single"), 1),
        (&[], format!("{step} --gpu-b=spank:single"), 1),
        (&["--gpu-bind=spank:first"], format!("{step} --gpubind single"), 1),
        (&["--gpu-bind=closest"], format!("{step} --gpu-bind=none,spank:single"), 1),
    ] {
        let options = [&["-N1", "--gpus-per-node=4"], options].concat();
        let tasks = printed(&batch(cluster, &[], &options, &format!("{inner} env")), 2);
        assert_eq!(seen(&tasks), [sees, sees], "{options:?} and {inner}");
        assert_ne!(each(&tasks, "GPUBIND_GPU_UUID"), ["-", "-"], "{options:?} and {inner}");
    }
    let verbose = ["-N1", "--gpus-per-node=2", "--gpu-bind=verbose,spank"];
    let said = batch(cluster, &[], &verbose, &format!("{step} true"));
    let ranks = ours(&said).into_iter().filter(|line| line.contains("gpubind: rank ")).count();
    assert_eq!(ranks, 3, "a line for each rank, and the script: {said}");
}

fn a_batch_job_without_the_environment(cluster: &Cluster) {
    let step = "/usr/bin/srun --label --overcommit -n2 /usr/bin/env";
    for request in ["--gpu-bind=spank:single", "--mem=0"] {
        let default = [("SLURM_GPUBIND", "single"), ("NOISE", "1")];
        let options = ["--export=NONE", "-N1", "--gpus-per-node=4", request];
        let tasks = printed(&batch(cluster, &default, &options, step), 2);
        assert_eq!(seen(&tasks), [1, 1]);
        assert_eq!(each(&tasks, "NOISE"), ["-", "-"]);
    }
}

/// The tasks of a job that a batch job with this request submits; `by` is what
/// starts sbatch in there.
fn nested(cluster: &Cluster, env: &[(&str, &str)], request: &str, by: &str) -> Tasks {
    let folder = cluster.folder();
    let (output, done) = (folder.join("nested"), folder.join("nested.done"));
    let _ = fs::remove_file(&done);
    let sbatch = format!(
        "sbatch -N1 --gpus-per-node=2 -o {} --wrap \
         'srun --label --overcommit -n2 env; touch {}'",
        output.display(),
        done.display()
    );
    batch(cluster, env, &["-N1", "--gpus-per-node=2"], &format!("{request}\n{by} {sbatch}"));
    wait_for(&done);
    printed(&fs::read_to_string(output).unwrap(), 2)
}

fn a_job_inside_a_job_asks_for_itself(cluster: &Cluster) {
    let alone = batch(cluster, &[], &["-N1", "--gpus-per-node=2"], "srun -lO -n2 env");
    let alone = printed(&alone, 2);
    for (request, by) in [
        ("#SBATCH --gpubind=single", ""),
        ("#SBATCH --gpu-bind=none,spank:single", ""),
        ("#SBATCH --gpubind=single", "srun -n1 --overlap"),
        ("#SBATCH --gpu-bind=none,spank", "srun -n1 --overlap --gpu-bind=spank:single"),
    ] {
        let tasks = nested(cluster, &[], request, by);
        for name in ["CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "RANK", "GPUBIND_GPU_UUID"] {
            assert_eq!(each(&tasks, name), each(&alone, name), "{name}: {request}, {by}");
        }
        let left: Vec<&String> = tasks[&0].keys().filter(|name| name.contains("GPUBIND")).collect();
        assert_eq!(left, [""; 0], "{request}, {by}");
    }
}

fn the_personal_default_outlives_a_request(cluster: &Cluster) {
    let default = [("SLURM_GPUBIND", "single")];
    let tasks = nested(cluster, &default, "#SBATCH --gpubind=first", "srun -n1 --overlap");
    assert_eq!((seen(&tasks), each(&tasks, "SLURM_GPUBIND")), (vec![1, 1], vec!["single"; 2]));
    // And what the job itself exports is a personal default in there.
    let request = "#SBATCH --gpubind=first\nexport SLURM_GPUBIND=single";
    let tasks = nested(cluster, &[], request, "");
    assert_eq!((seen(&tasks), each(&tasks, "SLURM_GPUBIND")), (vec![1, 1], vec!["single"; 2]));
}

fn a_task_prolog_has_the_last_word(cluster: &Cluster) {
    let file = cluster.folder().join("prolog.sh");
    let script = "#!/bin/sh\necho export SEEN=$CUDA_VISIBLE_DEVICES\necho export RANK=my-own\n\
                  [ $SLURM_LOCALID = 0 ] || echo export CUDA_VISIBLE_DEVICES=7\n";
    fs::write(&file, script).unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let prolog = format!("--task-prolog={}", file.display());
    let step = ["-N1", "-n2", "--gpus-per-node=2", "--gpu-bind=spank", &prolog];
    let (tasks, stderr) = cluster.tasks(&step);
    assert_eq!(each(&tasks, "SEEN"), ["0", "1"], "it finds what gpubind has set: {stderr}");
    assert_eq!(each(&tasks, "CUDA_VISIBLE_DEVICES"), ["0", "7"]);
    assert_eq!(each(&tasks, "RANK"), ["my-own", "my-own"]);
}
