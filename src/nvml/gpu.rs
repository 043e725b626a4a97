//! One GPU's own values.

use nvml_wrapper::Device;

use super::affinity;
use super::host_info::HostInfo;
use super::mig;
use super::place::Refusal;
use super::raw::{GPU_IS_LOST, RESET_REQUIRED, Session, UNKNOWN, code, probed};
use crate::sysfs::PciDevice;
use gpubind_core::node::{Gpu, PciAddress, Probed};

/// Reads the GPU at an index of NVML's list. `index` is NVML's; the caller
/// corrects it where the list is shortened.
pub(super) fn read<'nvml>(
    session: &'nvml Session,
    index: u32,
    reader: &HostInfo,
) -> Result<(Device<'nvml>, Gpu), Refusal> {
    let refused = |pci| move |code| Refusal { code, pci };
    let device = session
        .device_by_index(index)
        .map_err(|error| code(&error).unwrap_or(UNKNOWN))
        .map_err(refused(None))?;
    let pci = address(&device).map_err(refused(None))?;
    // A GPU can be lost though its handle still opens.
    let uuid = alive(probed(device.uuid())).map_err(refused(Some(pci)))?;
    let minor = alive(probed(device.minor_number())).map_err(refused(Some(pci)))?;
    let name = alive(probed(device.name())).map_err(refused(Some(pci)))?;

    let sysfs = PciDevice::find(reader.roots, pci);
    let gpu_numa_id = affinity::gpu_numa_id(&device, reader);
    let cpus = affinity::cpus(&device, reader, sysfs.as_ref());
    let numa = affinity::numa(&device, reader, sysfs.as_ref(), gpu_numa_id);
    let mig_mode = probed(device.mig_mode()).map(|mode| mode.current == 1);
    let mig = match mig_mode {
        Probed::Known(true) => mig::instances(session, &device),
        _ => Vec::new(),
    };
    let persistence = probed(device.is_in_persistent_mode());
    let gpu =
        Gpu { index, minor, uuid, pci, name, cpus, numa, gpu_numa_id, mig_mode, mig, persistence };
    Ok((device, gpu))
}

fn address(device: &Device) -> Result<PciAddress, u32> {
    let info = device.pci_info().map_err(|error| code(&error).unwrap_or(UNKNOWN))?;
    // The text carries the function, which the numbers leave out.
    info.bus_id.parse().map_err(|_| UNKNOWN)
}

/// A value, unless the refusal says that the GPU as a whole is gone.
fn alive<T>(value: Probed<T>) -> Result<Probed<T>, u32> {
    match value {
        Probed::Failed(code @ (GPU_IS_LOST | RESET_REQUIRED)) => Err(code),
        value => Ok(value),
    }
}
