//! What the worker shim is told, and what it makes of a process that it is loaded into.
//!
//! A task that keeps several devices carries a [`Record`] in a variable; the shim
//! (worker/src) reads it in every process below. The shim compiles this very file,
//! so it uses `core` only, allocates nothing and has nothing that could panic: no
//! indexing, no unchecked slices. Everything here is pure.

use crate::text::{Put, decimal, number};
use crate::variables;
use crate::worker::{Surplus, Worker};
use crate::{LAUNCHERS, Launcher};

/// What the variable holds in a worker that has its device, and in all below it.
pub const DONE: &[u8] = b"done";

/// The shim's file, whatever folder it is in.
pub const LIBRARY: &str = "libgpubind_worker.so";

/// Lists with an entry for each device, in the order of CUDA's.
const LISTS: [&str; 9] = [
    variables::GPU_DEVICE_ORDINAL,
    variables::ROCR_VISIBLE_DEVICES,
    variables::ZE_AFFINITY_MASK,
    variables::GPU_UUID,
    variables::GPU_PCI,
    variables::GPU_INDEX,
    variables::GPU_ORDINAL,
    variables::NUMA_NODE,
    variables::ASSIGNED_LIST,
];

/// What tells a launcher's LOCAL_RANK from one that a script has derived from Slurm's:
/// torchrun and accelerate set the first two, deepspeed the third
/// (deepspeed/launcher/launch.py).
const LAUNCHED: [&str; 3] =
    [variables::LOCAL_WORLD_SIZE, variables::TORCHELASTIC_RUN_ID, variables::LOCAL_SIZE];

/// Programs that run others in another root, where the shim is not; there the
/// dynamic linker would complain about it once per process. Names are compared as
/// they were called, up to a `-`: udocker calls its own proot-x86_64-4_8_0.
const CONTAINER_LAUNCHERS: [&str; 11] = [
    "apptainer",
    "singularity",
    "ch-run",
    "shifter",
    "sarus",
    "bwrap",
    "proot",
    "chroot",
    "unshare",
    "enroot",
    "systemd-nspawn",
];

/// First word of a record. A plugin and a shim of different versions may meet while
/// gpubind is upgraded; another word means: do nothing.
const FORMAT: &[u8] = b"4";

/// One number for each of [`LAUNCHERS`], 0 where its local rank is not set.
pub type Fingerprints = [u64; LAUNCHERS.len()];

/// What becomes of a task's variables after the plugin's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Later {
    /// They stay, but for TaskProlog.
    Kept,
    /// A container plugin writes the image's over them.
    Overwritten {
        /// Whether the shim has something to do below the task, too.
        serves: bool,
    },
}

impl Later {
    const ALL: [(&'static [u8], Later); 3] = [
        (b"kept", Later::Kept),
        (b"overwritten", Later::Overwritten { serves: true }),
        (b"overwritten-alone", Later::Overwritten { serves: false }),
    ];

    fn read(text: &[u8]) -> Option<Later> {
        Later::ALL.iter().find(|(name, _)| *name == text).map(|(_, later)| *later)
    }

    fn name(self) -> &'static [u8] {
        Later::ALL.iter().find(|(_, later)| *later == self).map_or(&[], |(name, _)| name)
    }
}

/// What the plugin tells the shim of an armed task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The task's own process, which is no worker whatever its environment says.
    pub process: u32,
    /// Whether variables::LOCAL_RANK becomes 0 in a worker.
    pub virtual_rank: bool,
    /// What becomes of the task's variables after the plugin's turn.
    pub later: Later,
    /// What becomes of workers beyond the number of devices.
    pub surplus: Surplus,
    /// CUDA_VISIBLE_DEVICES as the plugin set it.
    pub visible: &'a [u8],
    /// With `cpus=local`, the CPUs of the worker of each of these devices, as the kernel
    /// writes lists, with `/` between; none for one that keeps the task's. Else empty.
    pub cpus: &'a [u8],
    /// The launchers' variables that the task has itself: below it they say nothing.
    pub fingerprints: Fingerprints,
}

impl<'a> Record<'a> {
    /// Reads the variable; `None` where there is nothing to do.
    pub fn read(text: &'a [u8]) -> Option<Record<'a>> {
        let mut fields = text.split(|byte| *byte == b';');
        if fields.next()? != FORMAT {
            return None;
        }
        let process = u32::try_from(number(fields.next()?)?).ok()?;
        let virtual_rank = fields.next()? == b"virtual";
        let later = Later::read(fields.next()?)?;
        let surplus = Surplus::read(fields.next()?)?;
        let visible = fields.next()?;
        let cpus = fields.next()?;
        let mut fingerprints = Fingerprints::default();
        for (print, text) in fingerprints.iter_mut().zip(entries(fields.next()?)) {
            *print = number(text)?;
        }
        Some(Record { process, virtual_rank, later, surplus, visible, cpus, fingerprints })
    }

    /// Writes the variable's value piece by piece.
    pub fn write(&self, put: Put) {
        put(FORMAT);
        put(b";");
        decimal(self.process.into(), put);
        put(if self.virtual_rank { b";virtual;" } else { b";keep;" });
        put(self.later.name());
        put(b";");
        put(self.surplus.name());
        put(b";");
        put(self.visible);
        put(b";");
        put(self.cpus);
        let mut separator: &[u8] = b";";
        for print in self.fingerprints {
            put(separator);
            decimal(print, put);
            separator = b",";
        }
    }
}

/// The CPUs that `cpus=local` has for a worker.
pub fn cpus_of<'a>(record: &Record<'a>, worker: &Worker) -> Option<&'a [u8]> {
    let mut parts = record.cpus.split(|byte| *byte == b'/');
    let is_each = parts.clone().count() == worker.devices;
    parts.nth(worker.position).filter(|part| is_each && !part.is_empty())
}

/// What a process is to the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessKind<'e> {
    /// It stays as it is.
    Unaffected,
    /// It runs others in another root: the shim must not go with them.
    ContainerLauncher,
    /// The task's own process, in a container that it has entered after the plugin's
    /// turn: it gets back what the image has overwritten.
    Overwritten {
        /// Whether the shim has something to do below it, too.
        serves: bool,
    },
    /// The task's own process: only now is its environment final. The record is
    /// written with these instead.
    Task(Fingerprints),
    /// A rank of an MPI launcher that keeps its task's devices. RANK and the like, where
    /// gpubind has set them, are the task's and not its own.
    Rank {
        /// Whether nothing below it can have a device of its own.
        is_last: bool,
    },
    /// It gets one device.
    Worker(Worker<'e>),
}

/// Tells what a process is: from its number, the name it was called, and its
/// environment.
pub fn classify<'e>(
    record: &Record,
    process: u32,
    program: &[u8],
    get: impl Fn(&str) -> Option<&'e [u8]>,
) -> ProcessKind<'e> {
    let kind = by_numbers(record, process, &get);
    match kind {
        ProcessKind::Unaffected | ProcessKind::Task(_) if is_container_launcher(program) => {
            ProcessKind::ContainerLauncher
        }
        // A worker leaves the shim behind in any case.
        kind => kind,
    }
}

fn is_container_launcher(program: &[u8]) -> bool {
    CONTAINER_LAUNCHERS.iter().any(|name| match program.strip_prefix(name.as_bytes()) {
        Some(rest) => matches!(rest, [] | [b'-', ..]),
        None => false,
    })
}

fn by_numbers<'e>(
    record: &Record,
    process: u32,
    get: &impl Fn(&str) -> Option<&'e [u8]>,
) -> ProcessKind<'e> {
    if let Later::Overwritten { serves } = record.later
        && process == record.process
    {
        return ProcessKind::Overwritten { serves };
    }
    // torchrun --virtual-local-rank, a script: whoever changed it knows better.
    if get(variables::CUDA_VISIBLE_DEVICES) != Some(record.visible) {
        return ProcessKind::Unaffected;
    }
    let now = fingerprints(get);
    if process == record.process {
        return match now == record.fingerprints {
            true => ProcessKind::Unaffected,
            false => ProcessKind::Task(now),
        };
    }
    let Some(launcher) = launcher(&record.fingerprints, &now, get) else {
        return ProcessKind::Unaffected;
    };
    let has_ranks = launcher.local_rank == variables::LOCAL_RANK;
    let devices = entries(record.visible).count();
    // MPI's process managers also start one torchrun on each node, which needs all
    // devices; a program alone on its node may have them, as it may under srun.
    let is_alone = !has_ranks && launcher.local_size.and_then(get) == Some(b"1");
    match worker(launcher.local_rank, devices, has_ranks, get) {
        Some(worker) if devices > 1 && !is_alone => ProcessKind::Worker(worker),
        Some(_) if !has_ranks => ProcessKind::Rank { is_last: devices < 2 },
        _ => ProcessKind::Unaffected,
    }
}

fn worker<'e>(
    local_rank: &str,
    devices: usize,
    has_ranks: bool,
    get: &impl Fn(&str) -> Option<&'e [u8]>,
) -> Option<Worker<'e>> {
    let local_rank = get(local_rank)?;
    let (number, count) = (number(local_rank)?, u64::try_from(devices).ok()?);
    // As a remainder it fits.
    let position = number.checked_rem(count)?.try_into().ok()?;
    Some(Worker { local_rank, position, round: number.checked_div(count)?, devices, has_ranks })
}

/// The launcher that has numbered the process since the task began.
fn launcher<'e>(
    before: &Fingerprints,
    now: &Fingerprints,
    get: &impl Fn(&str) -> Option<&'e [u8]>,
) -> Option<&'static Launcher> {
    let mut launchers = LAUNCHERS.iter().zip(before.iter().zip(now));
    let is_new = |launcher: &Launcher, before: u64, now: u64| {
        now != 0 && now != before && !is_derived(launcher, get)
    };
    let found = launchers.find(|(launcher, (before, now))| is_new(launcher, **before, **now));
    found.map(|(launcher, _)| launcher)
}

/// Whether LOCAL_RANK is what a script has derived from SLURM_LOCALID: the process that
/// has it is a launcher's parent, or the launcher itself.
pub fn is_derived<V: AsRef<[u8]>>(launcher: &Launcher, get: &impl Fn(&str) -> Option<V>) -> bool {
    let value = |name: &str| get(name);
    launcher.local_rank == variables::LOCAL_RANK
        && match (value(variables::LOCAL_RANK), value(variables::LOCAL_ID)) {
            (Some(local_rank), Some(local_id)) => local_rank.as_ref() == local_id.as_ref(),
            _ => false,
        }
        && LAUNCHED.iter().all(|name| value(name).is_none())
}

/// What becomes of a worker's variables: those with a value change, all are there.
pub fn changes<'e>(
    record: &Record<'e>,
    worker: &Worker<'e>,
    get: impl Fn(&str) -> Option<&'e [u8]>,
) -> [(&'static str, Option<&'e [u8]>); 5 + LISTS.len()] {
    let zero: &[u8] = b"0";
    let there = |name, value| get(name).map(|_| value);
    let own = |list| entry(list, worker.position, worker.devices);
    let first = [
        (variables::WORKERS, Some(DONE)),
        (variables::CUDA_VISIBLE_DEVICES, own(record.visible)),
        (variables::BOUND_LOCAL_RANK, there(variables::BOUND_LOCAL_RANK, worker.local_rank)),
        (variables::CPUS, get(variables::CPUS).and(cpus_of(record, worker))),
        (
            variables::LOCAL_RANK,
            there(variables::LOCAL_RANK, zero).filter(|_| record.virtual_rank && worker.has_ranks),
        ),
    ];
    // A list of another length is not the plugin's.
    let lists = LISTS.iter().map(|name| (*name, get(name).and_then(own)));
    let mut changes = [("", None); 5 + LISTS.len()];
    for (change, value) in changes.iter_mut().zip(first.into_iter().chain(lists)) {
        *change = value;
    }
    changes
}

/// What a task gets back in a container, of what is there and what the image has
/// overwritten. LOCAL_RANK only by the rule of pyxis itself, which writes SLURM_LOCALID
/// there in images with PYTORCH_VERSION (pyxis_slurmstepd.c, pytorch_setup).
pub fn overwritten<'e>(
    record: &Record<'e>,
    get: impl Fn(&str) -> Option<&'e [u8]>,
) -> [(&'static str, Option<&'e [u8]>); 3] {
    let is_pyxis = get(variables::PYTORCH_VERSION).is_some()
        && get(variables::LOCAL_RANK) == get(variables::LOCAL_ID);
    let is_virtual = record.virtual_rank && entries(record.visible).count() == 1;
    let order: &[u8] = b"PCI_BUS_ID";
    let zero: &[u8] = b"0";
    let changes = [
        (variables::CUDA_VISIBLE_DEVICES, Some(record.visible)),
        (variables::CUDA_DEVICE_ORDER, Some(order)),
        (variables::LOCAL_RANK, Some(zero).filter(|_| is_pyxis && is_virtual)),
    ];
    changes.map(|(name, value)| (name, get(name).and(value)))
}

/// The task's rank variables that a launcher's rank has inherited: those that still have
/// the value of gpubind's note, and the note itself.
pub fn inherited_ranks<'e>(
    get: impl Fn(&str) -> Option<&'e [u8]>,
) -> impl Iterator<Item = &'static str> {
    let note = get(variables::RANK_VARIABLES_SET).unwrap_or_default();
    let is_noted = move |name: &str, value: &[u8]| {
        entries(note).any(|entry| {
            let rest = entry.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
            rest == Some(value)
        })
    };
    let names = [
        variables::RANK,
        variables::WORLD_SIZE,
        variables::LOCAL_RANK,
        variables::LOCAL_WORLD_SIZE,
        variables::NODE_RANK,
        variables::MASTER_ADDR,
        variables::MASTER_PORT,
    ];
    let inherited = names.map(|name| get(name).is_some_and(|value| is_noted(name, value)));
    let noted = (variables::RANK_VARIABLES_SET, !note.is_empty());
    names.into_iter().zip(inherited).chain([noted]).filter_map(|(name, is)| is.then_some(name))
}

/// Fingerprints of the launchers' variables in an environment.
pub fn fingerprints<V: AsRef<[u8]>>(get: impl Fn(&str) -> Option<V>) -> Fingerprints {
    let mut fingerprints = Fingerprints::default();
    for (print, launcher) in fingerprints.iter_mut().zip(&LAUNCHERS) {
        *print = fingerprint(launcher, &get);
    }
    fingerprints
}

/// What changes when a launcher numbers a process that has inherited a number. Not
/// RANK: a script may well set that before it starts torchrun.
fn fingerprint<V: AsRef<[u8]>>(launcher: &Launcher, get: impl Fn(&str) -> Option<V>) -> u64 {
    if get(launcher.local_rank).is_none() {
        return 0;
    }
    // FNV-1a, 64 bits.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |byte| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    for name in
        [Some(launcher.local_rank), launcher.local_size, Some(variables::TORCHELASTIC_RUN_ID)]
    {
        if let Some(value) = name.and_then(&get) {
            value.as_ref().iter().for_each(|byte| add(*byte));
            add(b'=');
        }
        // No value holds this.
        add(0);
    }
    hash.max(1)
}

/// LD_PRELOAD without the shim, in two pieces that belong together; `None` where
/// the shim is not in it. The dynamic linker parts entries at `:` and spaces.
pub fn without_shim(preload: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut start = 0_usize;
    for file in preload.split(|byte| matches!(byte, b':' | b' ')) {
        if file.rsplit(|byte| *byte == b'/').next() == Some(LIBRARY.as_bytes()) {
            let (before, rest) = preload.split_at_checked(start)?;
            let (_, after) = rest.split_at_checked(file.len())?;
            // One separator goes with it.
            return Some(match (after.split_first(), before.split_last()) {
                (Some((_, after)), _) => (before, after),
                (None, Some((_, before))) => (before, after),
                (None, None) => (before, after),
            });
        }
        start = start.saturating_add(file.len()).saturating_add(1);
    }
    None
}

fn entries(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == b',')
}

fn entry(list: &[u8], position: usize, devices: usize) -> Option<&[u8]> {
    if entries(list).count() == devices { entries(list).nth(position) } else { None }
}
