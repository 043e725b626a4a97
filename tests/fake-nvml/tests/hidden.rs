//! What a process sees that may not use every GPU.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what fails here fails its test")]

mod common;

use std::fs;

use common::Rig;
use nvml_wrapper::error::NvmlError;

#[test]
fn all_gpus_are_shown_without_a_device_folder() {
    assert_eq!(Rig::new(&common::fixture("two-cpu")).nvml().device_count().unwrap(), 8);
}

#[test]
fn denied_gpus_leave_the_list_and_the_rest_is_renumbered() {
    let rig = Rig::new(&common::fixture("minors-reordered"));
    rig.allow(&[3, 0]);
    let nvml = rig.nvml();
    assert_eq!(nvml.device_count().unwrap(), 2);
    // Minors are 2, 3, 0, 1 in PCI order: the second and third GPU are left.
    for (index, at) in [(0, 1), (1, 2)] {
        let device = nvml.device_by_index(index).unwrap();
        let gpu = &rig.machine.gpus[at];
        assert_eq!(device.index().unwrap(), index);
        assert_eq!(device.uuid().unwrap(), gpu.uuid);
        assert_eq!(device.minor_number().unwrap(), gpu.minor);
        assert_eq!(nvml.device_by_uuid(gpu.uuid.as_str()).unwrap().index().unwrap(), index);
    }
    assert!(matches!(nvml.device_by_index(2), Err(NvmlError::InvalidArg)));
    let hidden = rig.machine.gpus[0].uuid.as_str();
    assert!(matches!(nvml.device_by_uuid(hidden), Err(NvmlError::NotFound)));
    // A link to a hidden GPU still names its address.
    let near = nvml.device_by_index(0).unwrap();
    let far = near.link_wrapper_for(0).remote_pci_info().unwrap();
    assert_eq!(far.bus_id.parse(), Ok(rig.machine.gpus[0].pci));
}

#[test]
fn denied_gpus_stay_as_holes_where_the_machine_shows_them_so() {
    let rig = Rig::new(&common::PAIR.replace("cuda =", "hidden = \"holes\"\ncuda ="));
    rig.allow(&[1]);
    let nvml = rig.nvml();
    assert_eq!(nvml.device_count().unwrap(), 2);
    assert!(matches!(nvml.device_by_index(0), Err(NvmlError::NoPermission)));
    let device = nvml.device_by_index(1).unwrap();
    assert_eq!((device.index().unwrap(), device.minor_number().unwrap()), (1, 1));
}

#[test]
fn a_process_without_gpus_sees_none() {
    let rig = Rig::new(common::PAIR);
    rig.allow(&[]);
    assert_eq!(rig.nvml().device_count().unwrap(), 0);
}

#[test]
fn the_list_is_made_at_init_and_made_anew_after_the_last_shutdown() {
    let rig = Rig::new(common::PAIR);
    rig.allow(&[0, 1]);
    let nvml = rig.nvml();
    fs::remove_file(rig.path().join("dev/nvidia0")).unwrap();
    assert_eq!(nvml.device_count().unwrap(), 2);
    drop(nvml);
    assert_eq!(rig.nvml().device_count().unwrap(), 1);
}
