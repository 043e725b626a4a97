//! A launcher's worker, and what is said of one too many.

use crate::text::{Put, decimal};

/// A launcher's worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worker<'e> {
    /// Its local rank, as its launcher wrote it.
    pub local_rank: &'e [u8],
    /// Which device, counted from 0.
    pub position: usize,
    /// How many workers before it have that device already.
    pub round: u64,
    /// How many devices there are.
    pub devices: usize,
    /// Whether its launcher sets RANK and the like itself.
    pub has_ranks: bool,
}

/// What becomes of workers beyond the number of devices, which share those.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surplus {
    /// That is wanted.
    Wanted,
    /// The first of them says so.
    Reported,
    /// They must not run (`strict`).
    Refused,
}

impl Surplus {
    const ALL: [(&'static [u8], Surplus); 3] = [
        (b"wanted", Surplus::Wanted),
        (b"reported", Surplus::Reported),
        (b"refused", Surplus::Refused),
    ];

    pub(crate) fn read(text: &[u8]) -> Option<Surplus> {
        Surplus::ALL.iter().find(|(name, _)| *name == text).map(|(_, surplus)| *surplus)
    }

    pub(crate) fn name(self) -> &'static [u8] {
        Surplus::ALL.iter().find(|(_, it)| *it == self).map_or(&[], |(name, _)| name)
    }
}

/// What a worker beyond the number of devices says; where each must end, each says it.
pub fn surplus_line(surplus: Surplus, worker: &Worker, put: Put) {
    let is_first = worker.round == 1 && worker.position == 0;
    let is_refused = surplus == Surplus::Refused;
    if worker.round == 0 || surplus == Surplus::Wanted || !(is_first || is_refused) {
        return;
    }
    put(if is_refused { b"gpubind: strict: " } else { b"gpubind: warning: " });
    let devices = &|put: Put| decimal(worker.devices as u64, put);
    let local_rank = &|put: Put| put(worker.local_rank);
    say(
        "the task has {} devices, and its launcher starts a worker with local rank {}, which \
         shares one; start one worker for each device, or add `share`\n",
        [devices, local_rank],
        put,
    );
}

/// Writes a text with these in the places of its `{}`.
fn say(text: &str, values: [&dyn Fn(Put); 2], put: Put) {
    let mut values = values.into_iter();
    for byte in text.as_bytes() {
        match byte {
            b'{' => {
                if let Some(value) = values.next() {
                    value(put);
                }
            }
            b'}' => {}
            byte => put(core::slice::from_ref(byte)),
        }
    }
}
