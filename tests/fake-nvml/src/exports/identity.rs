//! What a GPU is called, and what it is.

use std::ffi::{c_char, c_int, c_uint};

use crate::code::Code;
use crate::ffi::{Device, Out};
use crate::state::call;

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUUID(device: Device, uuid: Out<c_char>, length: c_uint) -> c_uint {
    call("nvmlDeviceGetUUID", [device], |model, [target]| {
        uuid.put_text(&model.uuid(target)?, length)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetName(device: Device, name: Out<c_char>, length: c_uint) -> c_uint {
    call("nvmlDeviceGetName", [device], |model, [target]| {
        name.put_text(&model.name(target)?, length)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetIndex(device: Device, index: Out<c_uint>) -> c_uint {
    call("nvmlDeviceGetIndex", [device], |model, [target]| index.put(model.index(target)?))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMinorNumber(device: Device, minor: Out<c_uint>) -> c_uint {
    call("nvmlDeviceGetMinorNumber", [device], |model, [target]| {
        minor.put(model.gpu(target)?.minor)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPersistenceMode(device: Device, mode: Out<c_uint>) -> c_uint {
    call("nvmlDeviceGetPersistenceMode", [device], |model, [target]| {
        mode.put(c_uint::from(model.gpu(target)?.persistence))
    })
}

/// None 0, passed through 1 (nvml.h, `nvmlGpuVirtualizationMode_t`).
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetVirtualizationMode(device: Device, mode: Out<c_uint>) -> c_uint {
    call("nvmlDeviceGetVirtualizationMode", [device], |model, [target]| {
        model.parent(target)?;
        mode.put(c_uint::from(model.machine.vm))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCudaComputeCapability(
    device: Device,
    major: Out<c_int>,
    minor: Out<c_int>,
) -> c_uint {
    call("nvmlDeviceGetCudaComputeCapability", [device], |model, [target]| {
        let compute = model.parent(target)?.compute.ok_or(Code::NOT_SUPPORTED)?;
        let number = |part| c_int::try_from(part).map_err(|_| Code::UNKNOWN);
        major.put(number(compute.0)?)?;
        minor.put(number(compute.1)?)
    })
}
