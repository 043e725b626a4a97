//! How devices are written into CUDA_VISIBLE_DEVICES.

use crate::request::Ids;
use crate::step::Entry;

/// The text for these devices, never mixing integers and UUIDs: CUDA takes a
/// list of one kind only (CUDA C programming guide, environment variables), and
/// a MIG instance has no integer. `None` if the devices have no common form.
pub(super) fn visible(entries: &[&Entry], ids: Ids) -> Option<String> {
    let indices = || join(entries, |entry| entry.ordinal.map(|ordinal| ordinal.to_string()));
    let uuids = || join(entries, |entry| entry.uuid.clone());
    match ids {
        Ids::Index => indices().or_else(uuids),
        Ids::Uuid => uuids().or_else(indices),
    }
}

/// The devices as integers, for the variables that take nothing else.
pub(super) fn ordinals(entries: &[&Entry]) -> Option<String> {
    join(entries, |entry| entry.ordinal.map(|ordinal| ordinal.to_string()))
}

/// A comma list of one value for each device; `None` if one has no such value.
pub(super) fn join(entries: &[&Entry], value: impl Fn(&Entry) -> Option<String>) -> Option<String> {
    let values: Option<Vec<String>> = entries.iter().map(|entry| value(entry)).collect();
    values.map(|values| values.join(","))
}
