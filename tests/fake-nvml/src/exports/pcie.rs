//! PCI addresses, PCIe links, and places in a rack.

use std::ffi::c_uint;
use std::mem::size_of;

use gpubind_core::node::PciAddress;
use nvml_wrapper_sys::bindings::{
    nvmlPciInfo_t, nvmlPciInfoExt_v1_t, nvmlPlatformInfo_v1_t, nvmlPlatformInfo_v2_t,
};

use crate::code::{Answer, Code};
use crate::ffi::{Device, Out, chars};
use crate::links::NVIDIA;
use crate::model::Model;
use crate::state::call;

/// PCI class "display", sub class "3D controller" (pci.ids).
const DISPLAY: (u32, u32) = (3, 2);

/// The structure for an address: all ones where the machine does not tell. The
/// upper half of the device id would be the model, which fixtures leave open.
pub fn pci_info(pci: Option<PciAddress>, vendor: u32) -> nvmlPciInfo_t {
    let (domain, bus, device, function) = pci.map_or((u32::MAX, 0xff, 0xff, 0), |pci| {
        (pci.domain, pci.bus.into(), u32::from(pci.device), pci.function)
    });
    // The legacy text has room for four digits of the domain.
    let legacy = format!("{:04X}:{bus:02X}:{device:02X}.{function}", domain & 0xffff);
    nvmlPciInfo_t {
        busIdLegacy: chars(&legacy),
        domain,
        bus,
        device,
        pciDeviceId: if pci.is_some() { vendor } else { u32::MAX },
        pciSubSystemId: 0,
        busId: chars(&format!("{domain:08X}:{bus:02X}:{device:02X}.{function}")),
    }
}

/// The version number that a structure of this size carries
/// (nvml.h, `NVML_STRUCT_VERSION`).
pub fn struct_version<T>(version: u32) -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(0) | version << 24
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPciInfo_v3(device: Device, pci: Out<nvmlPciInfo_t>) -> c_uint {
    call("nvmlDeviceGetPciInfo_v3", [device], |model, [target]| {
        pci.put(pci_info(Some(model.gpu(target)?.pci), NVIDIA))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPciInfoExt(device: Device, pci: Out<nvmlPciInfoExt_v1_t>) -> c_uint {
    call("nvmlDeviceGetPciInfoExt", [device], |model, [target]| {
        let version = struct_version::<nvmlPciInfoExt_v1_t>(1);
        if pci.cast::<u32>().get()? != version {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        let info = pci_info(Some(model.gpu(target)?.pci), NVIDIA);
        pci.put(nvmlPciInfoExt_v1_t {
            version,
            domain: info.domain,
            bus: info.bus,
            device: info.device,
            pciDeviceId: info.pciDeviceId,
            pciSubSystemId: info.pciSubSystemId,
            baseClass: DISPLAY.0,
            subClass: DISPLAY.1,
            busId: info.busId,
        })
    })
}

/// The PCIe generation follows from the GPU's own: Volta and before have 3,
/// Ampere and Ada 4, Hopper and later 5.
fn generation(model: &Model, target: crate::ffi::Target) -> Answer<u32> {
    Ok(match model.gpu(target)?.compute.ok_or(Code::NOT_SUPPORTED)? {
        (..8, _) => 3,
        (8, _) => 4,
        _ => 5,
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrPcieLinkGeneration(device: Device, out: Out<c_uint>) -> c_uint {
    call("nvmlDeviceGetCurrPcieLinkGeneration", [device], |model, [target]| {
        out.put(generation(model, target)?)
    })
}

/// Data-centre GPUs have sixteen lanes.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrPcieLinkWidth(device: Device, out: Out<c_uint>) -> c_uint {
    call("nvmlDeviceGetCurrPcieLinkWidth", [device], |model, [target]| {
        generation(model, target)?;
        out.put(16)
    })
}

/// `NVML_PCIE_LINK_MAX_SPEED_*` counts like the generations.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPcieLinkMaxSpeed(device: Device, out: Out<c_uint>) -> c_uint {
    call("nvmlDeviceGetPcieLinkMaxSpeed", [device], |model, [target]| {
        out.put(generation(model, target)?)
    })
}

/// Blackwell and later know their place: here, one machine in slot 0, and the
/// module id counts the GPUs from 1.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPlatformInfo(
    device: Device,
    info: Out<nvmlPlatformInfo_v2_t>,
) -> c_uint {
    call("nvmlDeviceGetPlatformInfo", [device], |model, [target]| {
        if model.gpu(target)?.compute < Some((10, 0)) {
            return Err(Code::NOT_SUPPORTED);
        }
        let module = u8::try_from(target.gpu + 1).unwrap_or(u8::MAX);
        let version = info.cast::<u32>().get()?;
        if version == struct_version::<nvmlPlatformInfo_v1_t>(1) {
            return info.cast().put(nvmlPlatformInfo_v1_t {
                version,
                ibGuid: [0; 16],
                rackGuid: [0; 16],
                chassisPhysicalSlotNumber: 0,
                computeSlotIndex: 0,
                nodeIndex: 0,
                peerType: 1,
                moduleId: module,
            });
        }
        if version != struct_version::<nvmlPlatformInfo_v2_t>(2) {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        info.put(nvmlPlatformInfo_v2_t {
            version,
            ibGuid: [0; 16],
            chassisSerialNumber: [0; 16],
            slotNumber: 0,
            trayIndex: 0,
            hostId: 1,
            peerType: 1,
            moduleId: module,
        })
    })
}
