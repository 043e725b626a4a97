//! Field values, MIG attributes and versioned structures.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what fails here fails its test")]

mod common;

use std::mem::{size_of, zeroed};

use common::Rig;
use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings::{
    nvmlFieldValue_t, nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfo_v3_t,
};

/// Each field's code and value.
fn fields(device: &Device, asked: &[(u32, u32)]) -> Vec<(u32, u32)> {
    // SAFETY: all zeroes is a value of this structure.
    let mut values: Vec<nvmlFieldValue_t> = vec![unsafe { zeroed() }; asked.len()];
    for (value, (field, scope)) in values.iter_mut().zip(asked) {
        (value.fieldId, value.scopeId) = (*field, *scope);
    }
    let ask = device.nvml().lib().nvmlDeviceGetFieldValues.as_ref().unwrap();
    // SAFETY: as many values as the call is told.
    let code = unsafe { ask(device.handle(), values.len() as i32, values.as_mut_ptr()) };
    assert_eq!(code, 0);
    // SAFETY: the fake's values are all unsigned numbers.
    values.iter().map(|value| (value.nvmlReturn, unsafe { value.value.uiVal })).collect()
}

#[test]
fn fields_answer_each_for_itself() {
    let h100 = Rig::new(&common::fixture("hgx-h100"));
    let nvml = h100.nvml();
    let device = nvml.device_by_index(0).unwrap();
    let answers = fields(&device, &[(91, 0), (147, 0), (165, 17), (165, 18), (170, 0), (1, 0)]);
    assert_eq!(answers, [(0, 18), (0, 18), (0, 1), (2, 0), (3, 0), (3, 0)]);
}

#[test]
fn older_and_direct_links_answer_differently() {
    let v100 = Rig::new(&common::fixture("dgx1-v100"));
    let nvml = v100.nvml();
    let device = nvml.device_by_index(1).unwrap();
    // GPU 1's first link is GPU 0's first; link states are newer than Volta.
    let answers = fields(&device, &[(91, 0), (147, 0), (146, 0), (165, 0)]);
    assert_eq!(answers, [(0, 6), (0, 0), (0, 0), (3, 0)]);
    let grace = Rig::new(&common::fixture("gh200-4"));
    let nvml = grace.nvml();
    assert_eq!(fields(&nvml.device_by_index(0).unwrap(), &[(170, 0)]), [(0, 10)]);
}

#[test]
fn the_fabric_is_up_on_switched_gpus_from_hopper_on() {
    let ask = |name: &str, version: u32| {
        let rig = Rig::new(&common::fixture(name));
        let nvml = rig.nvml();
        let device = nvml.device_by_index(0).unwrap();
        // SAFETY: all zeroes is a value of this structure.
        let mut info: nvmlGpuFabricInfo_v3_t = unsafe { zeroed() };
        info.version = version;
        let ask = nvml.lib().nvmlDeviceGetGpuFabricInfoV.as_ref().unwrap();
        // SAFETY: the structure is the largest of its versions.
        (unsafe { ask(device.handle(), &mut info) }, info.state)
    };
    let second = size_of::<nvmlGpuFabricInfo_v2_t>() as u32 | 2 << 24;
    let third = size_of::<nvmlGpuFabricInfo_v3_t>() as u32 | 3 << 24;
    assert_eq!(ask("hgx-h100", second), (0, 3));
    assert_eq!(ask("hgx-h100", third), (0, 3));
    assert_eq!(ask("hgx-h100", 7).0, 25);
    assert_eq!(ask("dgx-a100", third).0, 3);
    assert_eq!(ask("l40s-pcie", third).0, 3);
}

#[test]
fn mig_attributes_follow_from_the_profile() {
    let rig = Rig::new(&common::fixture("a100-mig-mixed"));
    let nvml = rig.nvml();
    let attributes = |gpu: u32, slot: u32| {
        let device = nvml.device_by_index(gpu).unwrap();
        device.mig_device_by_index(slot).unwrap().attributes().unwrap()
    };
    let half = attributes(0, 0);
    assert_eq!((half.gpu_instance_slice_count, half.compute_instance_slice_count), (3, 3));
    assert_eq!(half.memory_size_mb, 19968);
    let shared = attributes(1, 4);
    assert_eq!((shared.gpu_instance_slice_count, shared.compute_instance_slice_count), (2, 1));
}

#[test]
fn a_mig_instance_is_found_by_uuid_and_has_no_place_of_its_own() {
    let rig = Rig::new(&common::fixture("a100-mig-mixed"));
    let nvml = rig.nvml();
    let mig = rig.machine.gpus[1].mig.as_ref().unwrap();
    let uuid = mig.slots[0].as_ref().unwrap().uuid.clone();
    let instance = nvml.device_by_uuid(uuid.clone()).unwrap();
    assert!(instance.mig_is_mig_device_handle().unwrap());
    assert_eq!(instance.uuid().unwrap(), uuid);
    assert!(instance.cpu_affinity(4).is_err());
}

#[test]
fn the_socket_is_the_numa_nodes_below_distance_twenty() {
    let rig = Rig::new(&common::fixture("dgx-a100"));
    let nvml = rig.nvml();
    let device = nvml.device_by_index(0).unwrap();
    assert_eq!(device.memory_affinity(1, 0).unwrap(), [0b1000]);
    assert_eq!(device.memory_affinity(1, 1).unwrap(), [0b1111]);
    assert_eq!(device.cpu_affinity_within_scope(4, 1).unwrap(), [u64::MAX, 0, u64::MAX, 0]);
}
