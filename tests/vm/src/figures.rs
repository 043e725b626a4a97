//! How many ranks are local to their GPU, by form of binding and by who chose the GPU.

use gpubind_core::node::IdSet;

use crate::machine::Vm;
use crate::rank::{Rank, SAY};

/// Eight ranks on the whole node.
const FORMS: [&str; 7] = [
    "-c2",
    "-c2 -m block:block",
    "-c2 -m block:fcyclic",
    "--cpu-bind=cores",
    "-c2 --cpu-bind=sockets",
    "-c2 --cpu-bind=ldoms",
    "--cpu-bind=rank_ldom",
];

/// Slurm's ways to choose a GPU for each task, and gpubind's.
const BINDINGS: [&str; 3] = ["single:1", "closest", "spank"];

/// Prints a row for each form: local ranks, and GPUs in use, of rank i on GPU i and of each
/// binding. A rank with several GPUs starts on the first one.
pub fn print(vm: &Vm) {
    let steps = FORMS.iter().flat_map(|form| {
        BINDINGS.map(|bind| {
            format!("echo 'step;'; srun -n8 {form} --gpu-bind={bind} bash /tmp/say </dev/null\n")
        })
    });
    let steps: String = steps.collect();
    let printed = vm.bash(&format!(
        "cat >/tmp/say <<'END'\n{SAY}\nEND\ncat >/tmp/steps <<'END'\n{steps}\nEND\n\
         salloc --quiet --exclusive -N1 --gpus=8 bash /tmp/steps"
    ));
    let steps: Vec<Vec<Rank>> = printed.split("step;").skip(1).map(Rank::all).collect();
    println!(
        "{} NUMA nodes | GPU i | {} | local ranks / GPUs in use",
        vm.numa,
        BINDINGS.join(" | ")
    );
    for (form, steps) in FORMS.iter().zip(steps.chunks(BINDINGS.len())) {
        let naive: Vec<usize> = (0..8).collect();
        let mut cells = vec![cell(vm, &steps[2], &naive)];
        for (bind, ranks) in BINDINGS.iter().zip(steps) {
            let gpu = |rank: &Rank| match *bind {
                "spank" => rank.visible.parse().unwrap(),
                _ => rank.open.iter().next().unwrap(),
            };
            cells.push(cell(vm, ranks, &ranks.iter().map(gpu).collect::<Vec<_>>()));
        }
        println!("{form} | {}", cells.join(" | "));
    }
}

fn cell(vm: &Vm, ranks: &[Rank], gpus: &[usize]) -> String {
    let near = |gpu: &usize| vm.node.gpus[*gpu].cpus.known().unwrap();
    let is_local = |(rank, gpu): &(&Rank, &usize)| near(gpu).common(&rank.cpus) > 0;
    let local = ranks.iter().zip(gpus).filter(is_local).count();
    format!("{local} / {}", gpus.iter().copied().collect::<IdSet>().count())
}
