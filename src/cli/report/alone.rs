//! What is wrong with one process, whatever the others have.

use gpubind_core::bind::{Locality, SkipReason, skip_reason};
use gpubind_core::plan::Why;
use gpubind_core::request::{LocalRank, Mode, Request, request_of_process};
use gpubind_core::site::Settings;
use gpubind_core::step::{RankInfo, RankSource, contradiction, names, step_gpu_count, task};
use gpubind_core::variables;
use gpubind_core::words::count;

use super::gather::{DeviceReport, Report, assigned_uuids};

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A process and all that is known of it.
pub struct Inspected<'a> {
    pub report: &'a Report,
    pub rank_info: &'a RankInfo,
    /// Whether it was started in a step of Slurm's, by its ancestors.
    pub is_in_step: bool,
    pub env: Env<'a>,
}

impl Inspected<'_> {
    /// A sentence for each thing.
    pub fn findings(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        wrong.extend(self.emptied());
        wrong.extend(self.unbound());
        wrong.extend(self.changed());
        wrong.extend(self.contradicted());
        if !self.report.is_known {
            wrong.push("the node's GPUs are unknown, so the rest cannot be checked".to_owned());
            return wrong;
        }
        wrong.extend(self.list());
        wrong.extend(self.report.devices.iter().filter_map(unreachable));
        wrong.extend(self.replaced());
        wrong.extend(self.local_rank());
        wrong.extend(self.cut_off());
        wrong.extend(self.moved());
        wrong
    }

    /// The list as it can be shown.
    fn shown_list(&self) -> String {
        self.report.visible.as_ref().map_or("unset".to_owned(), |list| format!("\"{list}\""))
    }

    fn request(&self) -> Request {
        request_of_process(self.env).unwrap_or_default()
    }

    fn emptied(&self) -> Option<String> {
        let is_empty = (self.env)(variables::JOB_ID).is_none() && task(self.env).is_none();
        (self.is_in_step && is_empty).then(|| {
            "this process is in a step of Slurm's, but has none of its variables: something has \
             emptied the environment, such as env -i, su or ssh"
                .to_owned()
        })
    }

    /// A step that asked for gpubind, on a node that has not bound it.
    fn unbound(&self) -> Option<String> {
        // srun's note stays only where no plugin takes it away.
        let names = [variables::STEP_REQUEST, variables::JOB_REQUEST, variables::REQUEST];
        let said = |name: &&str| (self.env)(name).is_some_and(|text| !text.trim().is_empty());
        let name = names.into_iter().find(|name| said(name))?;
        let asked = (self.env)(name)?;
        let settings = Settings::from(&self.request());
        let is_task = self.rank_info.source == RankSource::Slurm;
        let is_wanted = is_task && settings.mode != Mode::Off && step_gpu_count(self.env).is_some();
        if !is_wanted || self.report.assigned.is_some() {
            return None;
        }
        if skip_reason(self.rank_info, &settings, self.env) == Some(SkipReason::BoundBySlurm) {
            return None;
        }
        Some(format!(
            "gpubind was asked for ({name}={asked}), but has not bound this task: is the \
             plugin loaded on this node? `gpubind check` there says so"
        ))
    }

    /// Rank variables that are another task's, in one of Slurm's own processes.
    fn contradicted(&self) -> Option<String> {
        let is_task = self.rank_info.source == RankSource::Slurm;
        let found = is_task.then(|| contradiction(self.env)).flatten()?;
        Some(format!("{found}: exported before srun, these are the same in all tasks"))
    }

    /// A list that gpubind has set, and something else has changed.
    fn changed(&self) -> Option<String> {
        let assigned = self.report.assigned.as_deref()?;
        let list = self.report.visible.as_deref();
        if list == Some(assigned) || self.is_picked(list.unwrap_or_default(), assigned) {
            return None;
        }
        let list = self.shown_list();
        Some(format!(
            "CUDA_VISIBLE_DEVICES is {list}, but gpubind has set \"{assigned}\": something has \
             changed it since, such as a TaskProlog or a script"
        ))
    }

    /// Whether a launcher has picked these from the list that gpubind gave its task, as
    /// torchrun --virtual-local-rank does.
    fn is_picked(&self, list: &str, assigned: &str) -> bool {
        matches!(self.rank_info.source, RankSource::Launcher(_))
            && names(list).count() > 0
            && names(list).all(|name| names(assigned).any(|assigned| assigned == name))
    }

    /// A list that CUDA does not read as it was meant.
    fn list(&self) -> Option<String> {
        let shown = self.report.devices.len();
        let Some(list) = self.report.visible.as_deref() else {
            let step = step_gpu_count(self.env).filter(|step| *step < shown);
            return match (shown, step) {
                (0, _) => Some("this process can reach no GPU".to_owned()),
                (_, Some(step)) if self.report.assigned.is_none() => Some(format!(
                    "CUDA_VISIBLE_DEVICES is unset: the process sees {}, but the step has {step}",
                    count(shown, "GPU")
                )),
                _ => None,
            };
        };
        let named: Vec<&str> = names(list).collect();
        if let Some(twice) = repeated(&named) {
            return Some(format!(
                "CUDA_VISIBLE_DEVICES=\"{list}\" has the entry {twice} twice, so CUDA shows no GPU"
            ));
        }
        if shown == 0 {
            return Some(format!(
                "CUDA_VISIBLE_DEVICES=\"{list}\" names no GPU that this process can reach"
            ));
        }
        let all = named.len();
        (shown < all).then(|| {
            format!(
                "CUDA_VISIBLE_DEVICES=\"{list}\": entry {} names no GPU that works, so CUDA shows \
                 {shown} of {all}",
                shown + 1
            )
        })
    }

    /// A number that was another GPU's where it was set.
    fn replaced(&self) -> Option<String> {
        let uuids = assigned_uuids(self.report, self.env);
        let is_seen = |uuid: &&str| {
            self.report.own().any(|device| device.device.uuid.as_deref() == Some(*uuid))
        };
        let uuid = names(&uuids).find(|uuid| !is_seen(uuid))?;
        let list = self.shown_list();
        Some(format!(
            "gpubind has assigned {uuid}, but CUDA_VISIBLE_DEVICES={list} is another GPU here"
        ))
    }

    /// A LOCAL_RANK by which a program finds no GPU.
    fn local_rank(&self) -> Option<String> {
        let visible = self.report.devices.len();
        let rank: usize = (self.env)(variables::LOCAL_RANK)?.trim().parse().ok()?;
        let is_kept = self.request().local_rank == Some(LocalRank::Keep);
        (visible > 0 && rank >= visible && !is_kept).then(|| {
            format!(
                "LOCAL_RANK={rank} names none of the {} that the process sees: programs that \
                 call set_device(LOCAL_RANK) end with \"invalid device ordinal\"",
                count(visible, "GPU")
            )
        })
    }

    /// The step's other GPUs, where Slurm lets this process not reach them.
    fn cut_off(&self) -> Option<String> {
        let peers = self.report.peers.as_ref()?;
        let missing = peers.count.saturating_sub(peers.reachable);
        if missing == 0 {
            return None;
        }
        let (reachable, all) = (peers.reachable, peers.count);
        Some(match missing <= peers.unusable {
            true => format!("{} of the step cannot be used", count(missing, "other GPU")),
            false => format!(
                "this process can reach {reachable} of the step's {all} other GPUs, because Slurm's \
                 device cgroup hides them; --gpu-bind=spank keeps them in reach"
            ),
        })
    }

    /// CPUs that are not those by which gpubind chose the GPU.
    fn moved(&self) -> Option<String> {
        let is_local = self.report.why.as_deref() == Some(Why::Local.to_string().as_str());
        if !is_local || self.report.assigned.is_none() {
            return None;
        }
        let is_away = |device: &&DeviceReport| device.locality == Locality::Remote;
        let device = self.report.own().find(is_away)?;
        Some(format!(
            "GPU {} was local to this rank's CPUs when gpubind chose it, but is remote to those \
             that it has now ({}): a script, numactl or taskset has moved it",
            device.device.index, self.report.cpus
        ))
    }
}

fn unreachable(device: &DeviceReport) -> Option<String> {
    (!device.reachable).then(|| {
        format!(
            "GPU {} is not reachable: its device file may not be opened (device cgroup, file mode)",
            device.device.index
        )
    })
}

/// The first entry that stands there a second time.
fn repeated<'a>(entries: &[&'a str]) -> Option<&'a str> {
    let is_repeated =
        |(at, entry): &(usize, &&str)| entries.iter().take(*at).any(|it| it == *entry);
    entries.iter().enumerate().find(is_repeated).map(|(_, entry)| *entry)
}
