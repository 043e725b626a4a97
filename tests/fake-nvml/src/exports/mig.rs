//! MIG: modes, instances and their attributes.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::nvmlDeviceAttributes_t;

use crate::code::Code;
use crate::ffi::{Device, Out, Target};
use crate::state::call;

/// A change of mode is never pending here.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigMode(
    device: Device,
    current: Out<c_uint>,
    pending: Out<c_uint>,
) -> c_uint {
    call("nvmlDeviceGetMigMode", [device], |model, [target]| {
        let on = c_uint::from(model.mig(target)?.ok_or(Code::NOT_SUPPORTED)?.on);
        current.put(on)?;
        pending.put(on)
    })
}

/// Zero where MIG is off or not there (nvml.h).
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: Device, count: Out<c_uint>) -> c_uint {
    call("nvmlDeviceGetMaxMigDeviceCount", [device], |model, [target]| {
        let mig = model.mig(target)?.filter(|mig| mig.on);
        let slots = mig.map_or(0, |mig| mig.slots.len());
        count.put(c_uint::try_from(slots).map_err(|_| Code::UNKNOWN)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: Device,
    index: c_uint,
    instance: Out<Device>,
) -> c_uint {
    call("nvmlDeviceGetMigDeviceHandleByIndex", [device], |model, [target]| {
        instance.put(model.mig_by_slot(target, index)?.handle())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
    instance: Device,
    device: Out<Device>,
) -> c_uint {
    call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", [instance], |model, [target]| {
        model.instance(target)?;
        device.put(Target { slot: None, ..target }.handle())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceIsMigDeviceHandle(device: Device, answer: Out<c_uint>) -> c_uint {
    call("nvmlDeviceIsMigDeviceHandle", [device], |_, [target]| {
        answer.put(c_uint::from(target.slot.is_some()))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceId(instance: Device, id: Out<c_uint>) -> c_uint {
    call("nvmlDeviceGetGpuInstanceId", [instance], |model, [target]| {
        id.put(model.instance(target)?.gi)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeInstanceId(instance: Device, id: Out<c_uint>) -> c_uint {
    call("nvmlDeviceGetComputeInstanceId", [instance], |model, [target]| {
        id.put(model.instance(target)?.ci)
    })
}

/// Slices and memory follow from the profile; engine counts are left at zero.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetAttributes_v2(
    device: Device,
    attributes: Out<nvmlDeviceAttributes_t>,
) -> c_uint {
    call("nvmlDeviceGetAttributes_v2", [device], |model, [target]| {
        let (gpu_slices, compute_slices, memory) = model.attributes(target)?;
        attributes.put(nvmlDeviceAttributes_t {
            multiprocessorCount: 0,
            sharedCopyEngineCount: 0,
            sharedDecoderCount: 0,
            sharedEncoderCount: 0,
            sharedJpegCount: 0,
            sharedOfaCount: 0,
            gpuInstanceSliceCount: gpu_slices,
            computeInstanceSliceCount: compute_slices,
            memorySizeMB: memory,
        })
    })
}
