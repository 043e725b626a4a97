//! A GPU's MIG instances.

use nvml_wrapper::Device;

use super::raw::{Session, compute_instance_id, gpu_instance_id, probed};
use gpubind_core::node::{MigInstance, Probed};

/// No GPU has more slots (seven in use today).
const MOST_SLOTS: u32 = 64;

/// The instances in (gi, ci) order. A slot that holds none, or whose instance
/// vanishes while it is read, is passed over.
pub(super) fn instances(session: &Session, device: &Device) -> Vec<MigInstance> {
    // The wrapper calls it a count; it is the number of slots to look into.
    let slots = device.mig_device_count().unwrap_or(0).min(MOST_SLOTS);
    let mut instances: Vec<MigInstance> = (0..slots)
        .filter_map(|slot| device.mig_device_by_index(slot).ok())
        .filter_map(|mig| instance(session, &mig))
        .collect();
    instances.sort_by_key(|mig| (mig.gi, mig.ci));
    instances.dedup_by_key(|mig| (mig.gi, mig.ci));
    instances
}

fn instance(session: &Session, mig: &Device) -> Option<MigInstance> {
    let uuid = mig.uuid().ok()?;
    let ids = match (gpu_instance_id(session, mig), compute_instance_id(session, mig)) {
        (Probed::Known(gi), Probed::Known(ci)) => (gi, ci),
        // Libraries without these calls still spell the ids in the UUID.
        _ => ids_in(&uuid)?,
    };
    Some(MigInstance { gi: ids.0, ci: ids.1, uuid, profile: profile(mig) })
}

/// GPU and compute instance of an old `MIG-GPU-<uuid>/<gi>/<ci>`.
fn ids_in(uuid: &str) -> Option<(u32, u32)> {
    let (rest, ci) = uuid.rsplit_once('/')?;
    let (_, gi) = rest.rsplit_once('/')?;
    Some((gi.parse().ok()?, ci.parse().ok()?))
}

/// The profile's name: the end of the device's name (`NVIDIA A100-SXM4-40GB MIG
/// 1g.5gb`), else made of its attributes.
fn profile(mig: &Device) -> Option<String> {
    let name = probed(mig.name());
    if let Some((_, profile)) = name.known().and_then(|name| name.rsplit_once(" MIG ")) {
        return Some(profile.to_owned());
    }
    let slices = mig.attributes().ok()?;
    let gb = slices.memory_size_mb.div_ceil(1024);
    let (gi, ci) = (slices.gpu_instance_slice_count, slices.compute_instance_slice_count);
    Some(if gi == ci { format!("{gi}g.{gb}gb") } else { format!("{ci}c.{gi}g.{gb}gb") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_uuids_carry_their_ids() {
        let old = "MIG-GPU-b8ea3855-276c-c9cb-b366-c6fa655957c5/11/0";
        assert_eq!(ids_in(old), Some((11, 0)));
        assert_eq!(ids_in("MIG-4e4a4a4b-0000-0000-0000-000000000000"), None);
    }
}
