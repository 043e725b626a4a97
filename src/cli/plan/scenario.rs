//! The inputs of one what-if, and what the library makes of them.

use super::args::{IdsArg, ModeArg, PlanArgs};
use super::error::{PlanCommandError, Wrong};
use super::{cpus, devices};
use crate::slurm::{cores, slurm_single};
use gpubind_core::bind::{Rank, Warning, edits_by, shape};
use gpubind_core::node::{Device, IdSet, Node};
use gpubind_core::plan::{Cost, Plan, Shape, TaskSets, mapping_cost, plan};
use gpubind_core::request::{Cpus, Request};
use gpubind_core::site::Settings;
use gpubind_core::step::{Access, Allocation, Reach, core_threads};

/// A step that nobody has started.
pub(super) struct Scenario<'a> {
    /// The machine.
    pub node: &'a Node,
    /// The step's devices in PCI order.
    pub devices: Vec<Device>,
    /// CPU set of each task; empty where unknown.
    pub tasks: Vec<IdSet>,
    /// The same as `cpus=local` leaves them; without it the same.
    pub in_effect: Vec<IdSet>,
    /// A line that tells where the CPU sets come from.
    pub source: String,
    /// What would be asked for.
    pub settings: Settings,
    /// The plan.
    pub plan: Plan,
    /// CUDA_VISIBLE_DEVICES of each task; `None` where it stays as Slurm made it.
    pub visible: Vec<Option<String>>,
    /// Whether ConstrainDevices would make other numbers of the same plan.
    pub is_renumbered: bool,
    /// The cores of the machine; each CPU is one where none is listed.
    cores: Vec<IdSet>,
    /// What the step would be told.
    pub warnings: Vec<Warning>,
}

/// A way to give devices to tasks, and what it costs.
pub(super) struct Mapping {
    /// What it is called.
    pub name: &'static str,
    /// The position of each task's device among the step's.
    pub list: Vec<usize>,
    /// Its cost.
    pub cost: Cost,
}

impl<'a> Scenario<'a> {
    /// Reads the arguments and plans.
    ///
    /// # Errors
    /// [`PlanCommandError::Wrong`] or [`PlanCommandError::NoGpu`].
    pub fn new(node: &'a Node, args: &PlanArgs) -> Result<Scenario<'a>, PlanCommandError> {
        let settings = settings(args)?;
        let all = node.devices();
        if all.is_empty() {
            return Err(PlanCommandError::NoGpu);
        }
        let chosen = match &args.devices {
            Some(list) => devices::read(node, list).map_err(Wrong::from)?,
            None => all,
        };
        let constrained = allocation(node, &chosen, true);
        let open = allocation(node, &chosen, false);
        let is_renumbered = !args.constrained && constrained != open;
        let allocation = if args.constrained { constrained } else { open };
        let devices = allocation.devices();
        let cpus::TaskCpus { sets: tasks, source } = cpus::read(args, node, devices.len())?;
        let plan = plan(node, &devices, &tasks, shape(settings.mode, tasks.len(), devices.len()))
            .map_err(Wrong::from)?;
        let cores = match settings.cpus {
            Cpus::Local => cores_of(node, args),
            Cpus::Keep => Vec::new(),
        };
        let mut scenario = Scenario {
            node,
            devices,
            tasks,
            in_effect: Vec::new(),
            source,
            settings,
            plan,
            visible: Vec::new(),
            is_renumbered,
            cores,
            warnings: Vec::new(),
        };
        scenario.bind(&allocation);
        Ok(scenario)
    }

    /// Runs for each task what the plugin runs in it.
    fn bind(&mut self, allocation: &Allocation) {
        let tasks = TaskSets::from(&self.tasks);
        for (local_rank, cpus) in self.tasks.iter().enumerate() {
            let rank = Rank {
                node: Ok(self.node),
                allocation,
                tasks: &tasks,
                most_tasks: self.tasks.len(),
                cpus,
                threads: &|cpu| {
                    self.cores.iter().find(|core| core.contains(cpu)).cloned().unwrap_or_default()
                },
                settings: &self.settings,
                local_rank,
                ranks: None,
                worker: None,
                is_before_container: false,
                users_local_rank: None,
                preload: None,
                env: &|_| None,
            };
            let outcome = edits_by(&rank, &self.plan);
            let edits = outcome.edits.ok();
            let narrowed = edits.as_ref().and_then(|edits| edits.cpus.clone());
            self.in_effect.push(narrowed.unwrap_or_else(|| cpus.clone()));
            self.visible.push(edits.map(|edits| edits.visible));
            for warning in outcome.warnings {
                if !self.warnings.contains(&warning) {
                    self.warnings.push(warning);
                }
            }
        }
        if self.settings.cpus == Cpus::Local {
            self.source += "; of these, what cpus=local leaves to each";
        }
    }

    /// The devices at these positions.
    pub fn at(&self, positions: &[usize]) -> Vec<Device> {
        positions.iter().filter_map(|at| self.devices.get(*at)).copied().collect()
    }

    /// The devices of each task by the plan.
    pub fn planned(&self) -> Vec<Vec<Device>> {
        self.plan.shares.iter().map(|share| self.at(share)).collect()
    }

    /// The devices of each task in the allocation's own order.
    pub fn naive(&self) -> Vec<Vec<Device>> {
        let share = self.plan.shares.each();
        let slots =
            |task: usize| (task * share..(task + 1) * share).map(|slot| slot % self.devices.len());
        (0..self.tasks.len()).map(|task| self.at(&slots(task).collect::<Vec<_>>())).collect()
    }

    /// Naive, Slurm's single:1 and the plan, with one device for each task.
    ///
    /// # Errors
    /// [`Wrong`]; cannot happen where there is a plan.
    pub fn compare(&self) -> Result<Vec<Mapping>, Wrong> {
        let naive = (0..self.tasks.len()).map(|task| task % self.devices.len()).collect();
        let plan = plan(self.node, &self.devices, &self.tasks, Shape::Single)?;
        let lists = [
            ("naive", naive),
            ("single:1", slurm_single(self.node, &self.devices, &self.tasks)),
            ("plan", plan.shares.list().to_vec()),
        ];
        let mapping = |(name, list): (&'static str, Vec<usize>)| {
            let cost = mapping_cost(self.node, &self.devices, &self.tasks, &list)?;
            Ok(Mapping { name, list, cost })
        };
        lists.into_iter().map(mapping).collect()
    }
}

/// The machine's cores, for `cpus=local`: as the kernel tells where it is this machine, else
/// as its CPUs are numbered.
fn cores_of(node: &Node, args: &PlanArgs) -> Vec<IdSet> {
    if args.from.is_some() {
        return cores(node, args.siblings.map(usize::from));
    }
    let roots = args.machine.roots();
    let cpus = node.numa.iter().flat_map(|numa| numa.cpus.iter());
    cpus.map(|cpu| core_threads(&roots, cpu)).collect()
}

/// The step's allocation; with `constrained`, no other GPU can be reached.
fn allocation(node: &Node, chosen: &[Device], constrained: bool) -> Allocation {
    let is_chosen = |gpu: usize| chosen.iter().any(|device| device.gpu == gpu);
    let access = |open: bool| if open { Access::Open } else { Access::Denied };
    let reach = Reach {
        gpus: (0..node.gpus.len()).map(|gpu| access(!constrained || is_chosen(gpu))).collect(),
        unusable: vec![access(!constrained); node.unusable.len()],
    };
    Allocation::of(node, &reach, chosen.to_vec())
}

fn settings(args: &PlanArgs) -> Result<Settings, Wrong> {
    let ids = match args.ids {
        IdsArg::Index => "ids=index",
        IdsArg::Uuid => "ids=uuid",
    };
    let items = args.mode.iter().map(|item| match item {
        ModeArg::Auto => "auto",
        ModeArg::Single => "single",
        ModeArg::Ordered => "ordered",
        ModeArg::First => "first",
        ModeArg::Share => "share",
        ModeArg::CpusLocal => "cpus=local",
    });
    let items: Vec<&str> = items.chain([ids]).collect();
    let request: Request = items.join(",").parse().map_err(Wrong::Mode)?;
    Ok(Settings::from(&request))
}
