//! Init, shutdown, versions, and handles.

use std::ffi::{c_char, c_int, c_uint};

use crate::code::Code;
use crate::ffi::{Device, Out, Text};
use crate::state::{call, init, shutdown};

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> c_uint {
    init("nvmlInit_v2")
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit() -> c_uint {
    init("nvmlInit")
}

/// No flag changes anything on a machine that is only described.
#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> c_uint {
    init("nvmlInitWithFlags")
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> c_uint {
    shutdown()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: c_uint) -> *const c_char {
    Code(code).text().as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetDriverVersion(version: Out<c_char>, length: c_uint) -> c_uint {
    call("nvmlSystemGetDriverVersion", [], |model, []| {
        version.put_text(&model.machine.driver, length)
    })
}

/// CUDA's major version in front of the driver's.
#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetNVMLVersion(version: Out<c_char>, length: c_uint) -> c_uint {
    call("nvmlSystemGetNVMLVersion", [], |model, []| {
        let text = format!("{}.{}", model.machine.cuda.0, model.machine.driver);
        version.put_text(&text, length)
    })
}

/// CUDA 12.4 is 12040.
#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: Out<c_int>) -> c_uint {
    call("nvmlSystemGetCudaDriverVersion_v2", [], |model, []| {
        let (major, minor) = model.machine.cuda;
        let number = major.saturating_mul(1000).saturating_add(minor.saturating_mul(10));
        version.put(c_int::try_from(number).map_err(|_| Code::UNKNOWN)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(count: Out<c_uint>) -> c_uint {
    call("nvmlDeviceGetCount_v2", [], |model, []| count.put(model.count()))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount(count: Out<c_uint>) -> c_uint {
    call("nvmlDeviceGetCount", [], |model, []| count.put(model.count()))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: Out<Device>) -> c_uint {
    by_index("nvmlDeviceGetHandleByIndex_v2", index, &device)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex(index: c_uint, device: Out<Device>) -> c_uint {
    by_index("nvmlDeviceGetHandleByIndex", index, &device)
}

fn by_index(name: &'static str, index: c_uint, device: &Out<Device>) -> c_uint {
    call(name, [], |model, []| {
        let target = model.by_index(index)?;
        model.suffer(name, &[target.gpu])?;
        device.put(target.handle())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(pci: Text, device: Out<Device>) -> c_uint {
    by_pci("nvmlDeviceGetHandleByPciBusId_v2", &pci, &device)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId(pci: Text, device: Out<Device>) -> c_uint {
    by_pci("nvmlDeviceGetHandleByPciBusId", &pci, &device)
}

fn by_pci(name: &'static str, pci: &Text, device: &Out<Device>) -> c_uint {
    call(name, [], |model, []| {
        let target = model.by_pci(pci.get()?)?;
        model.suffer(name, &[target.gpu])?;
        device.put(target.handle())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByUUID(uuid: Text, device: Out<Device>) -> c_uint {
    let name = "nvmlDeviceGetHandleByUUID";
    call(name, [], |model, []| {
        let target = model.by_uuid(uuid.get()?)?;
        model.suffer(name, &[target.gpu])?;
        device.put(target.handle())
    })
}
