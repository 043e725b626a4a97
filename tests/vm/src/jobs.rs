//! Jobs side by side, and the other ways to start a step.

use std::collections::BTreeSet;

use gpubind_core::node::IdSet;

use crate::machine::Vm;
use crate::rank::{Rank, SAY, most_local};

/// On this healthy node there is nothing to warn of. With eight NUMA nodes, GPUs are at
/// half of them, which is noted.
pub fn check_finds_nothing_wrong(vm: &Vm) {
    let printed = vm.bash("gpubind check || true");
    let found: Vec<&str> = printed.lines().take_while(|line| !line.is_empty()).collect();
    let uneven = |line: &str| vm.numa == 8 && line.starts_with("note     placement ");
    assert!(found.len() > 20, "{printed}");
    assert!(found.iter().all(|line| line.starts_with("ok ") || uneven(line)), "{printed}");
}

/// Three jobs of a user without rights. The second and the third are there at the same
/// time and have all GPUs; the third has those that the first has given back, too.
pub fn jobs_side_by_side_have_their_own_gpus(vm: &Vm) {
    let printed = vm.bash(&format!(
        "cat >/tmp/say <<'END'\n{SAY}\nEND\n\
         cat >/tmp/job <<'END'\n#!/bin/bash\n#SBATCH --gpubind=single\nsrun bash /tmp/say\n\
         touch /tmp/said-$1\nuntil [ -e /tmp/end-$1 ]; do sleep 0.2; done\nEND\n\
         submit() {{ runuser -u alice -- sbatch --quiet --job-name=$1 --output=/tmp/out-$1 \
         --ntasks=$2 --gpus=$2 /tmp/job $1; until [ -e /tmp/said-$1 ]; do sleep 0.2; done; }}\n\
         submit a 2; submit b 3; touch /tmp/end-a\n\
         until [ -z \"$(squeue -h -n a)\" ]; do sleep 0.2; done\n\
         submit c 5; touch /tmp/end-b /tmp/end-c\n\
         until [ -z \"$(squeue -h)\" ]; do sleep 0.2; done\n\
         for job in a b c; do echo \"job;\"; cat /tmp/out-$job; done; rm /tmp/{{said,end}}-*"
    ));
    let jobs: Vec<Vec<Rank>> = printed.split("job;").skip(1).map(Rank::all).collect();
    let sizes: Vec<usize> = jobs.iter().map(Vec::len).collect();
    assert_eq!(sizes, [2, 3, 5], "{printed}");
    let uuids = |job: &[Rank]| -> BTreeSet<String> {
        job.iter().flat_map(|rank| rank.uuids.clone()).collect()
    };
    for job in &jobs {
        let (own, open) = (uuids(job), &job[0].open);
        assert_eq!((own.len(), open.count()), (job.len(), job.len()), "{printed}");
        // Only its own can be opened, and they are numbered from 0.
        let minors: IdSet = own.iter().map(|uuid| minor(vm, uuid)).collect();
        assert!(job.iter().all(|rank| rank.open == minors && rank.user == "alice"), "{printed}");
        let visible: BTreeSet<String> = job.iter().map(|rank| rank.visible.clone()).collect();
        assert_eq!(visible, (0..job.len()).map(|at| at.to_string()).collect(), "{printed}");
        let local = job.iter().filter(|rank| rank.is_local(&vm.node)).count();
        if let Some(most) = most_local(&vm.node, job, &own) {
            assert_eq!(local, most, "{printed}");
        }
    }
    let (second, third) = (uuids(&jobs[1]), uuids(&jobs[2]));
    assert!(second.is_disjoint(&third) && uuids(&jobs[0]).is_subset(&third), "{printed}");
    // With a gap, where the second's are.
    let open = &jobs[2][0].open;
    assert!(open.to_string().contains(','), "{open}");
}

fn minor(vm: &Vm, uuid: &str) -> usize {
    let is_it = |gpu: &&gpubind_core::node::Gpu| gpu.uuid.known().is_some_and(|it| it == uuid);
    *vm.node.gpus.iter().find(is_it).unwrap().minor.known().unwrap() as usize
}

/// Two tasks with the GPUs of a socket each, and in each a launcher of four workers.
pub fn workers_of_a_task_have_a_gpu_each(vm: &Vm) {
    let printed = vm.bash(&format!(
        "cat >/tmp/say <<'END'\n{SAY}\nEND\ncat >/tmp/launcher <<'END'\n\
         for worker in 0 1 2 3; do LOCAL_RANK=$worker LOCAL_WORLD_SIZE=4 bash /tmp/say; done\nEND\n\
         salloc --quiet --exclusive --ntasks=2 --cpus-per-task=8 --gpus=8 --gpu-bind=spank \
         srun --cpus-per-task=8 bash /tmp/launcher"
    ));
    let workers = Rank::all(&printed);
    let uuids: BTreeSet<&str> =
        workers.iter().flat_map(|worker| worker.uuids.iter().map(String::as_str)).collect();
    assert!(workers.iter().all(|worker| worker.uuids.len() == 1), "{printed}");
    assert_eq!((workers.len(), uuids.len()), (8, 8), "{printed}");
    assert!(workers.iter().all(|worker| worker.is_local(&vm.node)), "{printed}");
}

/// With `always` in gpubind.toml a step that asks for nothing is bound; one that asks for
/// Slurm's own binding is not, nor one after the file has gone.
pub fn a_site_that_binds_always(vm: &Vm) {
    let printed = vm.bash(&format!(
        "cat >/tmp/say <<'END'\n{SAY}\nEND\nstep='srun -n8 -c2 --gpus=8'\n\
         echo 'default = \"always\"' >/etc/gpubind.toml\n\
         $step bash /tmp/say; echo 'step;'; $step --gpu-bind=none bash /tmp/say\n\
         rm /etc/gpubind.toml; echo 'step;'; $step bash /tmp/say"
    ));
    let steps: Vec<Vec<Rank>> = printed.split("step;").map(Rank::all).collect();
    assert_eq!(steps.iter().map(Vec::len).collect::<Vec<_>>(), [8, 8, 8], "{printed}");
    // All GPUs, in one order, of which the entry SLURM_LOCALID is a rank's own.
    let own: BTreeSet<&String> = steps[0].iter().flat_map(|rank| &rank.uuids).collect();
    let lists: BTreeSet<&String> = steps[0].iter().map(|rank| &rank.visible).collect();
    assert_eq!((own.len(), lists.len()), (8, 1), "{printed}");
    assert!(steps[1..].concat().iter().all(|rank| rank.uuids.is_empty()), "{printed}");
    assert!(steps[2].iter().all(|rank| rank.visible == "0,1,2,3,4,5,6,7"), "{printed}");
}
