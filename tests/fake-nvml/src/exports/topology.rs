//! What lies between two GPUs, NVLinks aside.

use std::ffi::{c_int, c_uint};

use crate::code::Code;
use crate::ffi::{Device, Out};
use crate::state::call;

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTopologyCommonAncestor(
    first: Device,
    second: Device,
    level: Out<c_uint>,
) -> c_uint {
    call("nvmlDeviceGetTopologyCommonAncestor", [first, second], |model, [a, b]| {
        level.put(model.ancestor(a, b)?)
    })
}

/// Without an array, only the count is wanted (nvml.h).
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTopologyNearestGpus(
    device: Device,
    level: c_uint,
    count: Out<c_uint>,
    devices: Out<Device>,
) -> c_uint {
    call("nvmlDeviceGetTopologyNearestGpus", [device], |model, [target]| {
        let near = model.nearest(target, level)?;
        let room = count.get()? as usize;
        count.put(c_uint::try_from(near.len()).map_err(|_| Code::UNKNOWN)?)?;
        if devices.is_null() {
            return Ok(());
        }
        if room < near.len() {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        for (at, target) in near.iter().enumerate() {
            devices.put_at(at, target.handle())?;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetP2PStatus(
    first: Device,
    second: Device,
    capability: c_uint,
    status: Out<c_uint>,
) -> c_uint {
    call("nvmlDeviceGetP2PStatus", [first, second], |model, [a, b]| {
        status.put(model.p2p(a, b, capability)?)
    })
}

/// Fixtures describe no boards with two GPUs.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceOnSameBoard(first: Device, second: Device, same: Out<c_int>) -> c_uint {
    call("nvmlDeviceOnSameBoard", [first, second], |model, [a, b]| {
        model.gpu(a)?;
        model.gpu(b)?;
        same.put(c_int::from(a.gpu == b.gpu))
    })
}
