//! What each task of a soak's step runs: it looks at its own environment and at the device
//! files, with nothing of gpubind's, and says whether the rule allows what it has.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::rule::{Rule, TASKS};

/// The word on the command line that makes the test program a task.
pub const WORD: &str = "soak-task";

/// What is on a task's command line behind [`WORD`].
pub struct Given<'a> {
    pub rule: Rule,
    /// GPUs of the step.
    pub gpus: usize,
    /// The one that is lost, by its number on the node.
    pub lost: Option<usize>,
    /// The folder with the device files.
    pub devices: &'a Path,
    /// The node's GPUs in PCI order.
    pub uuids: &'a str,
    /// A file that appears with the first task; it then stays for a second.
    pub mark: Option<&'a Path>,
}

impl Given<'_> {
    pub fn words(&self) -> Vec<String> {
        let lost = self.lost.map_or("-".to_owned(), |gpu| gpu.to_string());
        let mark = self.mark.map_or("-".to_owned(), |file| file.display().to_string());
        let devices = self.devices.display().to_string();
        let gpus = self.gpus.to_string();
        let words = [WORD, self.rule.name(), &gpus, &lost, &devices, self.uuids, &mark];
        words.map(str::to_owned).to_vec()
    }

    fn read(words: &[String]) -> Given<'_> {
        let rule = Rule::named(&words[0]);
        Given {
            rule,
            gpus: words[1].parse().unwrap(),
            lost: words[2].parse().ok(),
            devices: Path::new(&words[3]),
            uuids: &words[4],
            mark: Some(Path::new(&words[5])).filter(|_| words[5] != "-"),
        }
    }
}

/// Prints the task's own verdict, in one line; [`super::verdict`] compares those of all.
pub fn main(words: &[String]) {
    let given = Given::read(words);
    let verdict = match check(&given) {
        Ok(own) => format!("ok {}", list(&own)),
        Err(why) => format!("wrong {why}"),
    };
    let local = var("SLURM_LOCALID").unwrap_or_default();
    let step = ["SLURM_JOB_ID", "SLURM_STEP_ID"].map(|name| var(name).unwrap_or_default());
    let devices = if local == "0" { jobs_devices(&step[0]) } else { "-".to_owned() };
    println!("soak {} {local} {devices} {verdict}", step.join("."));
    if let Some(mark) = given.mark {
        fs::write(mark, "").unwrap();
        std::thread::sleep(Duration::from_millis(1500));
    }
}

fn var(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn list(gpus: &[usize]) -> String {
    gpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// The devices of the task's job, as slurmctld has it: `GRES=gpu:4(IDX:0-3)`.
fn jobs_devices(job: &str) -> String {
    let shown = Command::new("scontrol").args(["show", "job", "-d", job]).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let found = shown.split("(IDX:").nth(1).and_then(|rest| rest.split(')').next());
    found.unwrap_or("unknown").to_owned()
}

/// The task's own devices, by their numbers on the node; all that it sees where it has
/// none of its own.
fn check(given: &Given) -> Result<Vec<usize>, String> {
    let list = var("CUDA_VISIBLE_DEVICES").ok_or("no CUDA_VISIBLE_DEVICES")?;
    let reach = reach(given.devices);
    let mut seen = Vec::new();
    for entry in list.split(',') {
        let by_uuid = given.uuids.split(',').position(|uuid| uuid == entry);
        let gpu = by_uuid.or_else(|| reach.get(entry.parse::<usize>().ok()?).copied());
        let gpu = gpu.filter(|gpu| reach.contains(gpu));
        let gpu = gpu.ok_or_else(|| format!("entry {entry:?} of {list} is out of reach"))?;
        if seen.contains(&gpu) {
            return Err(format!("{list} names a GPU twice"));
        }
        seen.push(gpu);
    }
    // Slurm's own binding narrows it to the task's.
    if given.rule != Rule::Slurm && reach.len() != 8 && reach.len() != given.gpus {
        return Err(format!("{} GPUs of {} are in reach", reach.len(), given.gpus));
    }
    let local: usize = var("SLURM_LOCALID").and_then(|id| id.parse().ok()).ok_or("no number")?;
    // A lost one is shown by nobody, unless there is no other.
    let all = given.gpus - usize::from(given.lost.is_some_and(|lost| !seen.contains(&lost)));
    let may = all.max(1)..=given.gpus;
    let own = match given.rule {
        Rule::Plain if seen.len() == given.gpus => seen.clone(),
        Rule::Slurm => seen.clone(),
        Rule::Own if seen.len() == 1 => seen.clone(),
        Rule::Ordered if may.contains(&seen.len()) && seen.len() == TASKS => vec![seen[local]],
        // More tasks than devices: which one it shares is not seen from the list.
        Rule::Ordered if may.contains(&seen.len()) => {
            vec![told(&seen).unwrap_or(seen[local % seen.len()])]
        }
        Rule::First if may.contains(&seen.len()) => vec![seen[0]],
        rule => return Err(format!("{list} for {} GPUs, rule {}", given.gpus, rule.name())),
    };
    let said = var("GPUBIND_GPU_INDEX");
    match said {
        Some(said) if !given.rule.is_bound() => Err(format!("unasked it is given GPU {said}")),
        Some(said) if said != self::list(&own) => Err(format!("has {own:?}, but is told {said}")),
        _ => Ok(own),
    }
}

/// The device that the task is told to be its own, if it sees it.
fn told(seen: &[usize]) -> Option<usize> {
    let told = var("GPUBIND_GPU_INDEX")?.parse().ok()?;
    seen.contains(&told).then_some(told)
}

/// The numbers of the GPUs that this task may open. Without a driver an open that is allowed
/// ends with ENXIO.
fn reach(devices: &Path) -> Vec<usize> {
    let may_open = |gpu: &usize| {
        let file = devices.join(format!("nvidia{gpu}"));
        match OpenOptions::new().read(true).write(true).open(file) {
            Ok(_) => true,
            Err(error) => {
                error.kind() != ErrorKind::PermissionDenied && error.kind() != ErrorKind::NotFound
            }
        }
    };
    (0..8).filter(may_open).collect()
}
