//! NVLinks, field values, and the NVLink fabric.

use std::ffi::{c_int, c_uint};

use nvml_wrapper_sys::bindings::{
    nvmlFieldValue_t, nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfo_v3_t, nvmlPciInfo_t, nvmlValue_t,
};

use super::pcie::{pci_info, struct_version};
use crate::code::{Answer, Code};
use crate::ffi::{Device, Out, Target};
use crate::links::Field;
use crate::model::Model;
use crate::state::call;

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkState(
    device: Device,
    link: c_uint,
    active: Out<c_uint>,
) -> c_uint {
    call("nvmlDeviceGetNvLinkState", [device], |model, [target]| {
        active.put(c_uint::from(model.link(target, link)?.up))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkCapability(
    device: Device,
    link: c_uint,
    capability: c_uint,
    result: Out<c_uint>,
) -> c_uint {
    call("nvmlDeviceGetNvLinkCapability", [device], |model, [target]| {
        result.put(c_uint::from(model.link_capability(target, link, capability)?))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkVersion(
    device: Device,
    link: c_uint,
    version: Out<c_uint>,
) -> c_uint {
    call("nvmlDeviceGetNvLinkVersion", [device], |model, [target]| {
        version.put(model.link_version(target, link)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkRemoteDeviceType(
    device: Device,
    link: c_uint,
    kind: Out<c_uint>,
) -> c_uint {
    call("nvmlDeviceGetNvLinkRemoteDeviceType", [device], |model, [target]| {
        kind.put(model.link_far_type(target, link)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
    device: Device,
    link: c_uint,
    pci: Out<nvmlPciInfo_t>,
) -> c_uint {
    call("nvmlDeviceGetNvLinkRemotePciInfo_v2", [device], |model, [target]| {
        remote_pci(model, target, link, &pci)
    })
}

/// NCCL calls this one and reads the whole structure (src/misc/nvmlwrap.cc).
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo(
    device: Device,
    link: c_uint,
    pci: Out<nvmlPciInfo_t>,
) -> c_uint {
    call("nvmlDeviceGetNvLinkRemotePciInfo", [device], |model, [target]| {
        remote_pci(model, target, link, &pci)
    })
}

fn remote_pci(model: &Model, target: Target, link: u32, out: &Out<nvmlPciInfo_t>) -> Answer<()> {
    let (pci, vendor) = model.link_far_pci(target, link)?;
    out.put(pci_info(pci, vendor))
}

/// Each value has its own return code; the call itself succeeds (nvml.h).
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetFieldValues(
    device: Device,
    count: c_int,
    values: Out<nvmlFieldValue_t>,
) -> c_uint {
    /// `NVML_VALUE_TYPE_UNSIGNED_INT`.
    const UNSIGNED: c_uint = 1;
    call("nvmlDeviceGetFieldValues", [device], |model, [target]| {
        let count = usize::try_from(count).map_err(|_| Code::INVALID_ARGUMENT)?;
        if count == 0 {
            return Err(Code::INVALID_ARGUMENT);
        }
        for at in 0..count {
            let asked = values.get_at(at)?;
            let answer = match Field::new(asked.fieldId) {
                Some(field) => model.field(target, field, asked.scopeId),
                None => Err(Code::NOT_SUPPORTED),
            };
            values.put_at(
                at,
                nvmlFieldValue_t {
                    timestamp: 0,
                    latencyUsec: 0,
                    valueType: UNSIGNED,
                    nvmlReturn: answer.err().unwrap_or(Code::SUCCESS).0,
                    value: nvmlValue_t { uiVal: answer.unwrap_or(0) },
                    ..asked
                },
            )?;
        }
        Ok(())
    })
}

/// GPUs on NVSwitches from Hopper on are in a fabric, which is up here: state
/// `NVML_GPU_FABRIC_STATE_COMPLETED`, nothing unhealthy.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuFabricInfoV(
    device: Device,
    info: Out<nvmlGpuFabricInfo_v3_t>,
) -> c_uint {
    const COMPLETED: u8 = 3;
    const HEALTHY: u8 = 1;
    call("nvmlDeviceGetGpuFabricInfoV", [device], |model, [target]| {
        let version = info.cast::<u32>().get()?;
        let switched = model.field(target, Field::SwitchLinkCount, 0).unwrap_or(0) > 0;
        if !switched || model.gpu(target)?.compute < Some((9, 0)) {
            return Err(Code::NOT_SUPPORTED);
        }
        let second = nvmlGpuFabricInfo_v2_t {
            version,
            clusterUuid: [0; 16],
            status: Code::SUCCESS.0,
            cliqueId: 0,
            state: COMPLETED,
            healthMask: 0,
        };
        if version == struct_version::<nvmlGpuFabricInfo_v2_t>(2) {
            return info.cast().put(second);
        }
        if version != struct_version::<nvmlGpuFabricInfo_v3_t>(3) {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        info.put(nvmlGpuFabricInfo_v3_t {
            version,
            clusterUuid: second.clusterUuid,
            status: second.status,
            cliqueId: second.cliqueId,
            state: second.state,
            healthMask: second.healthMask,
            healthSummary: HEALTHY,
        })
    })
}
