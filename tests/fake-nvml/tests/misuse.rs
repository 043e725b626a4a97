//! What a careless caller gets: NVML's codes, never a crash.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what fails here fails its test")]

mod common;

use std::ffi::{c_char, c_uint};
use std::mem::size_of;
use std::ptr::{null, null_mut};

use common::{PAIR, Rig};
use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlDevice_t, nvmlDeviceAttributes_t, nvmlFieldValue_t, nvmlGpuFabricInfo_v2_t,
    nvmlPciInfo_t,
};

const UNINITIALIZED: u32 = 1;
const INVALID_ARGUMENT: u32 = 2;
const NOT_FOUND: u32 = 6;
const INSUFFICIENT_SIZE: u32 = 7;

fn handle(lib: &NvmlLib, index: c_uint) -> nvmlDevice_t {
    let mut device = null_mut();
    // SAFETY: room for one handle.
    assert_eq!(unsafe { lib.nvmlDeviceGetHandleByIndex_v2(index, &mut device) }, 0);
    device
}

#[test]
fn nothing_works_before_init_nor_after_the_last_shutdown() {
    let rig = Rig::new(PAIR);
    let lib = rig.raw();
    let mut count = 0;
    // SAFETY: room for one number, here and below.
    unsafe {
        assert_eq!(lib.nvmlDeviceGetCount_v2(&mut count), UNINITIALIZED);
        assert_eq!(lib.nvmlShutdown(), UNINITIALIZED);
        assert_eq!(lib.nvmlInit_v2(), 0);
        assert_eq!(lib.nvmlInitWithFlags(0), 0);
        assert_eq!(lib.nvmlShutdown(), 0);
        assert_eq!(lib.nvmlDeviceGetCount_v2(&mut count), 0);
        let device = handle(&lib, 0);
        assert_eq!(lib.nvmlShutdown(), 0);
        assert_eq!(lib.nvmlDeviceGetMinorNumber(device, &mut count), UNINITIALIZED);
        assert_eq!(lib.nvmlShutdown(), UNINITIALIZED);
    }
}

#[test]
fn null_pointers_and_bad_handles_are_invalid_arguments() {
    let rig = Rig::new(PAIR);
    let lib = rig.raw();
    let mut number = 0;
    let mut device = null_mut();
    // SAFETY: the fake checks for null and never follows a handle.
    unsafe {
        assert_eq!(lib.nvmlInit_v2(), 0);
        assert_eq!(lib.nvmlDeviceGetCount_v2(null_mut()), INVALID_ARGUMENT);
        assert_eq!(lib.nvmlDeviceGetHandleByIndex_v2(0, null_mut()), INVALID_ARGUMENT);
        assert_eq!(lib.nvmlDeviceGetHandleByIndex_v2(2, &mut device), INVALID_ARGUMENT);
        assert_eq!(lib.nvmlDeviceGetHandleByUUID(null(), &mut device), INVALID_ARGUMENT);
        let nobody = c"GPU-0".as_ptr();
        assert_eq!(lib.nvmlDeviceGetHandleByUUID(nobody, &mut device), NOT_FOUND);
        let nowhere = c"0000:55:00.0".as_ptr();
        assert_eq!(lib.nvmlDeviceGetHandleByPciBusId_v2(nowhere, &mut device), NOT_FOUND);
        let nonsense = c"here".as_ptr();
        assert_eq!(lib.nvmlDeviceGetHandleByPciBusId_v2(nonsense, &mut device), INVALID_ARGUMENT);
        // No GPU 5 and no MIG instance are in this machine.
        for bad in [0, 1, 0x600, 0x101, usize::MAX] {
            let bad = bad as nvmlDevice_t;
            assert_eq!(lib.nvmlDeviceGetMinorNumber(bad, &mut number), INVALID_ARGUMENT);
            assert_eq!(lib.nvmlDeviceGetPciInfo_v3(bad, null_mut()), INVALID_ARGUMENT);
        }
        let good = handle(&lib, 0);
        assert_eq!(lib.nvmlDeviceGetMinorNumber(good, null_mut()), INVALID_ARGUMENT);
        assert_eq!(lib.nvmlDeviceGetName(good, null_mut(), 96), INVALID_ARGUMENT);
        assert_eq!(lib.nvmlDeviceGetFieldValues(good, 1, null_mut()), INVALID_ARGUMENT);
        let mut words = [0; 2];
        let scope = 2;
        let answer = lib.nvmlDeviceGetMemoryAffinity(good, 2, words.as_mut_ptr(), scope);
        assert_eq!(answer, INVALID_ARGUMENT);
        assert_eq!(lib.nvmlDeviceGetCpuAffinity(good, 0, words.as_mut_ptr()), INVALID_ARGUMENT);
    }
}

#[test]
fn small_buffers_get_no_part_of_a_text_and_a_part_of_a_mask() {
    let rig = Rig::new(PAIR);
    let lib = rig.raw();
    let mut text = [0x7f as c_char; 16];
    let mut words = [u64::MAX; 3];
    // SAFETY: the lengths are those of the buffers, or less.
    unsafe {
        assert_eq!(lib.nvmlInit_v2(), 0);
        let device = handle(&lib, 1);
        // "NVIDIA A40" is ten letters and a zero.
        assert_eq!(lib.nvmlDeviceGetName(device, text.as_mut_ptr(), 10), INSUFFICIENT_SIZE);
        assert_eq!(text, [0x7f; 16]);
        assert_eq!(lib.nvmlDeviceGetName(device, text.as_mut_ptr(), 11), 0);
        assert_eq!((text[9], text[10], text[11]), (b'0' as c_char, 0, 0x7f));
        // CPUs 70-139 begin in the second word and end in the third.
        assert_eq!(lib.nvmlDeviceGetCpuAffinity(device, 2, words.as_mut_ptr()), 0);
        assert_eq!(words, [0, u64::MAX << 6, u64::MAX]);
    }
}

#[test]
fn structures_have_nvidias_sizes() {
    assert_eq!(size_of::<nvmlPciInfo_t>(), 68);
    assert_eq!(size_of::<nvmlFieldValue_t>(), 40);
    assert_eq!(size_of::<nvmlDeviceAttributes_t>(), 40);
    assert_eq!(size_of::<nvmlGpuFabricInfo_v2_t>(), 36);
}

#[test]
fn the_pci_structure_is_whole() {
    let rig = Rig::new(&PAIR.replace("0000:02:00.0", "0001:b7:1f.0"));
    let nvml = rig.nvml();
    let pci = nvml.device_by_index(1).unwrap().pci_info().unwrap();
    assert_eq!(pci.bus_id, "00000001:B7:1F.0");
    assert_eq!((pci.domain, pci.bus, pci.device), (1, 0xb7, 0x1f));
    assert_eq!(pci.pci_device_id & 0xffff, 0x10de);
}

#[test]
fn threads_may_share_the_library() {
    let rig = Rig::new(PAIR);
    let nvml = rig.nvml();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (nvml, machine) = (&nvml, &rig.machine);
            scope.spawn(move || {
                for round in 0..200 {
                    let gpu = (thread + round) % 2;
                    let device = nvml.device_by_index(gpu).unwrap();
                    assert_eq!(device.uuid().unwrap(), machine.gpus[gpu as usize].uuid);
                }
            });
        }
    });
}
