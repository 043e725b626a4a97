//! Real launchers: PyTorch's torchrun and Open MPI's mpirun, of the Debian that the
//! cluster's Slurm is from. One program, examples/train_ddp.py, is started in every
//! way there is.

use std::collections::BTreeMap;
use std::process::Command;

use crate::cluster::{Cluster, Ran, TORCH, each, root, tasks_of};
use crate::trial::{Test, tests};

pub const TESTS: &[Test] = tests! {
    [TORCH]:
        one_training_started_in_every_way,
        what_a_torchrun_worker_starts,
        a_torchrun_worker_runs_near_its_gpu,
        torchrun_restarts_its_workers,
        mpirun_in_a_one_task_step,
        mpirun_on_two_nodes;
};

/// One task with four of a node's GPUs.
const ONE_TASK: [&str; 5] = ["srun", "-N1", "-n1", "--gpus-per-node=4", "--gpu-bind=spank"];

/// torchrun in such a task, before a program that need not be Python.
const TORCHRUN: [&str; 4] = ["torchrun", "--standalone", "--nproc-per-node=4", "--no-python"];

/// What a training's ranks have printed.
struct Training {
    /// LOCAL_RANK and CUDA_VISIBLE_DEVICES by node and rank.
    ranks: BTreeMap<String, BTreeMap<u32, (String, String)>>,
    /// The line with the losses.
    result: String,
}

impl Training {
    fn of(way: &str, ran: &Ran) -> Training {
        assert_eq!(ran.code, Some(0), "{way}: {}\n{}", ran.stdout, ran.stderr);
        let mut ranks: BTreeMap<String, BTreeMap<_, _>> = BTreeMap::new();
        for line in ran.stdout.lines() {
            // rank 1 of 8 on node: LOCAL_RANK=0 CUDA_VISIBLE_DEVICES=2
            let words: Vec<&str> = line.split(' ').collect();
            if let ["rank", rank, "of", "8", "on", node, local_rank, visible] = words[..] {
                let value = |word: &str| word.split_once('=').unwrap().1.to_owned();
                let seen = (value(local_rank), value(visible));
                let node = node.trim_end_matches(':').to_owned();
                ranks.entry(node).or_default().insert(rank.parse().unwrap(), seen);
            }
        }
        let result = ran.stdout.lines().find(|line| line.starts_with("8 ranks, 60 steps: loss "));
        let result = result.unwrap_or_else(|| panic!("{way}: no result in {}", ran.stdout));
        Training { ranks, result: result.to_owned() }
    }
}

/// PyTorch and its launcher as they are, but for what Debian's lack.
fn run(cluster: &Cluster, words: &[&str]) -> Ran {
    let fix = root().join("tests/slurm/torch");
    // As many threads under srun as torchrun gives its workers.
    cluster.run_with(&[("PYTHONPATH", fix.to_str().unwrap()), ("OMP_NUM_THREADS", "1")], words)
}

/// The GPUs of four tasks that share four of a node's, in plan order.
fn planned(cluster: &Cluster) -> Vec<String> {
    let mut plan = Command::new(cluster.program());
    plan.args(["plan", "--json", "--tasks", "4", "--devices", "0-3", "--from"]);
    let plan = plan.arg(cluster.fixture()).output().unwrap();
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).unwrap();
    let tasks = plan["tasks"].as_array().unwrap();
    let planned: Vec<String> =
        tasks.iter().map(|task| task["visible"].as_str().unwrap().to_owned()).collect();
    let mut sorted = planned.clone();
    sorted.sort();
    assert_eq!(sorted, ["0", "1", "2", "3"]);
    assert_ne!(sorted, planned, "or the plan's order could not be told from Slurm's");
    planned
}

/// A port that another checkout's tests do not use at the same time.
fn port() -> u32 {
    10_000 + std::process::id() % 5_000
}

fn one_training_started_in_every_way(cluster: &Cluster) {
    let program = root().join("examples/train_ddp.py");
    let program = program.to_str().unwrap();
    let bind = ["--gpus-per-node=4", "--gpu-bind=spank"];
    let by_srun = [&["srun", "-N2", "--ntasks-per-node=4"], &bind[..], &["python3", program]];
    let endpoint = format!("--rdzv-endpoint={}:{}", cluster.node(0), port());
    let torchrun = ["torchrun", "--nnodes=2", "--nproc-per-node=4", "--rdzv-backend=c10d"];
    let torchrun = [&torchrun[..], &["--rdzv-id=training", &endpoint]].concat();
    let agents = [&["srun", "-N2", "--ntasks-per-node=1"], &bind[..], &torchrun].concat();
    let mut ways = vec![
        ("srun", run(cluster, &by_srun.concat())),
        ("torchrun", run(cluster, &[&agents[..], &[program]].concat())),
    ];

    // PyTorch has it since 2.10: trixie, with Slurm 24.11, has 2.6, and forky a later one.
    if cluster.slurm_is_at_least(25, 5) {
        let option = "--virtual-local-rank";
        ways.push((option, run(cluster, &[&agents[..], &[option, program]].concat())));
    }

    let script = format!(
        "#SBATCH -N2 --ntasks-per-node=1 --gpus-per-node=4\n\
         #SBATCH --gpubind=auto\n\
         export PYTHONPATH={}\n\
         head=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)\n\
         srun torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d \
         --rdzv-id=$SLURM_JOB_ID --rdzv-endpoint=$head:{} {program}",
        root().join("tests/slurm/torch").display(),
        port()
    );
    ways.push(("sbatch", cluster.batch(&[], &script)));

    let mut results = Vec::new();
    for (way, ran) in &ways {
        let training = Training::of(way, ran);
        assert_eq!(training.ranks.len(), 2, "{way}: {}", ran.stdout);
        for (node, ranks) in &training.ranks {
            let (local_ranks, gpus): (Vec<_>, Vec<_>) = ranks.values().cloned().unzip();
            assert_eq!(gpus, planned(cluster), "{way}, {node}: one each, in plan order");
            assert_eq!(local_ranks, ["0"; 4], "{way}, {node}: the only GPU is device 0");
        }
        results.push(training.result);
    }
    assert!(results.iter().all(|result| *result == results[0]), "{results:?}");
}

/// Runs a shell script as each worker of a torchrun; `$RANK` is its number.
fn workers(cluster: &Cluster, options: &[&str], script: &str) -> String {
    let words = [&ONE_TASK[..], &TORCHRUN, options, &["bash", "-c", script]].concat();
    let ran = run(cluster, &words);
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    ran.stdout
}

fn what_a_torchrun_worker_starts(cluster: &Cluster) {
    // Its children keep its GPU, even where they have a local rank of their own.
    let child = "import os, subprocess; \
                 subprocess.run(['printenv', 'CUDA_VISIBLE_DEVICES'], \
                 env={**os.environ, 'LOCAL_RANK': '3', 'OMPI_COMM_WORLD_LOCAL_RANK': '2'})";
    let script = format!(
        "echo $RANK: OWN=$CUDA_VISIBLE_DEVICES
         printenv CUDA_VISIBLE_DEVICES | sed \"s/^/$RANK: PIPE=/\"
         python3 -I -c \"{child}\" | sed \"s/^/$RANK: CHILD=/\"
         echo $RANK: LOCAL=$LOCAL_RANK,$GPUBIND_LOCAL_RANK"
    );
    let workers = tasks_of(&workers(cluster, &[], &script));
    for name in ["OWN", "PIPE", "CHILD"] {
        assert_eq!(each(&workers, name), planned(cluster), "{name}");
    }
    assert_eq!(each(&workers, "LOCAL"), ["0,0", "0,1", "0,2", "0,3"]);
}

/// The node's CPU 0 is NUMA node 0, next to GPUs 0 to 3, and CPU 1 is node 1.
fn a_torchrun_worker_runs_near_its_gpu(cluster: &Cluster) {
    let step = ["srun", "-N2", "--ntasks-per-node=1", "--gpus-per-node=8", "--cpu-bind=none"];
    let endpoint = format!("--rdzv-endpoint={}:{}", cluster.node(0), port());
    let torchrun = ["torchrun", "--nnodes=2", "--nproc-per-node=8", "--rdzv-backend=c10d"];
    let agents = [&torchrun[..], &["--rdzv-id=near", &endpoint, "--no-python"]].concat();
    // In one write: workers share their task's stdout.
    let worker = "import os; e = os.environ; os.write(1, '{0}: NUMA={1}\\n{0}: CPUS={2}\\n'.format(\
                  e['RANK'], e['GPUBIND_NUMA_NODE'], *os.sched_getaffinity(0)).encode())";
    let request = ["--gpu-bind=spank:cpus=local"];
    let words = [&step[..], &request, &agents, &["python3", "-c", worker]].concat();
    let ran = run(cluster, &words);
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    let workers = tasks_of(&ran.stdout);
    assert_eq!(workers.len(), 16, "{}", ran.stdout);
    assert_eq!(each(&workers, "CPUS"), each(&workers, "NUMA"));
    let at = |node: &str| each(&workers, "NUMA").iter().filter(|numa| **numa == node).count();
    assert_eq!((at("0"), at("1")), (8, 8));
}

fn torchrun_restarts_its_workers(cluster: &Cluster) {
    let script = "echo $TORCHELASTIC_RESTART_COUNT$RANK: GPU=$CUDA_VISIBLE_DEVICES
                  [ $RANK != 2 ] || [ $TORCHELASTIC_RESTART_COUNT = 1 ]";
    let printed = tasks_of(&workers(cluster, &["--max-restarts=1"], script));
    let planned = planned(cluster);
    for number in [2, 10, 11, 12, 13] {
        let gpu = printed.get(&number).map(|worker| worker["GPU"].as_str());
        let rank = number as usize % 10;
        assert_eq!(gpu, Some(planned[rank].as_str()), "attempt {}, rank {rank}", number / 10);
    }
}

/// A number, and the GPUs of an MPI process.
const MPI_PROCESS: &str = "echo $OMPI_COMM_WORLD_RANK: GPU=$CUDA_VISIBLE_DEVICES; \
                           echo $OMPI_COMM_WORLD_RANK: NODE=$SLURMD_NODENAME";

/// Runs that in every process of an mpirun, which `launch` ends with.
fn mpi(cluster: &Cluster, launch: &[&str], count: usize) -> BTreeMap<String, Vec<String>> {
    // All that these clusters run is root's; and they have two CPUs.
    let options = ["--allow-run-as-root", "--bind-to", "none", "sh", "-c", MPI_PROCESS];
    let words = [&["timeout", "20"], launch, &options].concat();
    // On a busy machine Open MPI's daemons may lose each other as they end, when all
    // processes are done; mpirun then says so and waits for ever.
    let lost = |ran: &Ran| ran.code == Some(124) && ran.stderr.contains("PRTE has lost");
    let mut attempts = (0..3).map(|_| run(cluster, &words)).skip_while(lost);
    let ran = attempts.next().expect("mpirun has lost its daemons three times");
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    let processes = tasks_of(&ran.stdout);
    assert_eq!(processes.len(), count, "{}", ran.stdout);
    let mut nodes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for process in processes.values() {
        nodes.entry(process["NODE"].clone()).or_default().push(process["GPU"].clone());
    }
    nodes
}

fn mpirun_in_a_one_task_step(cluster: &Cluster) {
    // A node whose name is not the host's would be another machine for mpirun, to be
    // reached by an srun of its own.
    let alone = ["env", "PRTE_MCA_ras=^slurm", "PRTE_MCA_plm=^slurm"];
    let mpirun = ["mpirun", "-n", "4", "--map-by", ":oversubscribe"];
    let nodes = mpi(cluster, &[&ONE_TASK[..], &alone, &mpirun].concat(), 4);
    assert_eq!(nodes, BTreeMap::from([(cluster.node(0), planned(cluster))]));
}

fn mpirun_on_two_nodes(cluster: &Cluster) {
    // mpirun starts a daemon on each node, by srun.
    let job = ["salloc", "-Q", "-N2", "--ntasks-per-node=4", "--gpus-per-node=4"];
    let mpirun = ["--gpu-bind=spank", "mpirun", "-n", "8"];
    let nodes = mpi(cluster, &[&job[..], &mpirun].concat(), 8);
    let each_node = [0, 1].map(|node| (cluster.node(node), planned(cluster)));
    assert_eq!(nodes, BTreeMap::from(each_node));
}
