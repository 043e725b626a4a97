//! MIG instances of one GPU, from the text form.

use std::ops::Range;

use toml::Spanned;

use gpubind_core::node::MigInstance;

use super::error::{Checked, MachineProblem as Problem};
use super::file::{MigEntry, Switch};
use super::identity;
use super::model::MachineMig;

/// Whether this driver spells MIG UUIDs `MIG-GPU-<parent>/<gi>/<ci>`: those
/// before R470 do (MIG user guide).
pub(super) fn old_uuids(driver: &Spanned<String>) -> Checked<bool> {
    let major = driver.get_ref().split('.').next().and_then(|major| major.parse::<u32>().ok());
    match major {
        Some(major) => Ok(major < 470),
        None => Err((driver.span(), Problem::Driver(driver.get_ref().clone()))),
    }
}

/// The GPU's MIG, and where in the text it is described.
pub(super) fn check(
    entry: &Spanned<MigEntry>,
    machine: &str,
    gpu_uuid: &str,
    old_uuids: bool,
) -> Checked<(MachineMig, Range<usize>)> {
    let (span, entry) = (entry.span(), entry.get_ref());
    let on = entry.mode == Switch::On;
    if !on && !entry.instances.is_empty() {
        return Err((span, Problem::MigOff));
    }
    let mut slots: Vec<Option<MigInstance>> = vec![None; entry.slots];
    let mut next = 0;
    for instance in &entry.instances {
        let (span, instance) = (instance.span(), instance.get_ref());
        let (gi, ci) = (instance.gi, instance.ci);
        if slots.iter().flatten().any(|other| (other.gi, other.ci) == (gi, ci)) {
            return Err((span, Problem::MigTwice { gi, ci }));
        }
        let uuid = match &instance.uuid {
            Some(uuid) => uuid.clone(),
            None if old_uuids => format!("MIG-{gpu_uuid}/{gi}/{ci}"),
            None => {
                format!("MIG-{}", identity::uuid_of(&format!("{machine} {gpu_uuid} {gi} {ci}")))
            }
        };
        let slot = instance.slot.unwrap_or(next);
        match slots.get_mut(slot) {
            Some(free @ None) => {
                *free = Some(MigInstance { gi, ci, uuid, profile: instance.profile.clone() });
            }
            _ => return Err((span, Problem::MigSlot { slot, slots: entry.slots })),
        }
        next = slot + 1;
    }
    Ok((MachineMig { on, slots }, span))
}
