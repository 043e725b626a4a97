//! `/proc`: the NVIDIA driver's files, and the boot id.

use std::error::Error;

use gpubind_machine::{Machine, MachineGpu};

use crate::root::Root;

pub fn lay_out(root: &Root, machine: &Machine) -> Result<(), Box<dyn Error>> {
    root.write("proc/driver/nvidia/version", &version(machine))?;
    // One boot for one layout: the first GPU's UUID is as good as any.
    let boot_id = machine.gpus.first().and_then(|gpu| gpu.uuid.strip_prefix("GPU-"));
    let boot_id = boot_id.unwrap_or("00000000-0000-4000-8000-000000000000");
    root.write("proc/sys/kernel/random/boot_id", &format!("{boot_id}\n"))?;
    root.folder("proc/driver/nvidia/gpus")?;
    for gpu in &machine.gpus {
        let folder = format!("proc/driver/nvidia/gpus/{}", gpu.pci);
        root.write(&format!("{folder}/information"), &information(gpu))?;
        mig(root, gpu)?;
    }
    if machine.gpus.iter().any(|gpu| gpu.mig.is_some()) {
        for (minor, name) in ["config", "monitor"].iter().enumerate() {
            let path = format!("proc/driver/nvidia/capabilities/mig/{name}");
            root.write(&path, &access(minor + 1))?;
        }
    }
    Ok(())
}

fn version(machine: &Machine) -> String {
    format!(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Thu Jan  1 00:00:00 UTC 2026\n\
         GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
        machine.driver
    )
}

fn information(gpu: &MachineGpu) -> String {
    format!(
        "Model: \t\t {}\n\
         IRQ:   \t\t 128\n\
         GPU UUID: \t {}\n\
         Video BIOS: \t ??.??.??.??.??\n\
         Bus Type: \t PCIe\n\
         DMA Size: \t 47 bits\n\
         DMA Mask: \t 0x7fffffffffff\n\
         Bus Location: \t {}\n\
         Device Minor: \t {}\n\
         GPU Firmware: \t N/A\n\
         GPU Excluded:\t No\n",
        gpu.name, gpu.uuid, gpu.pci, gpu.minor
    )
}

/// One file for each GPU instance and each compute instance that exists.
fn mig(root: &Root, gpu: &MachineGpu) -> Result<(), Box<dyn Error>> {
    let Some(mig) = &gpu.mig else {
        return Ok(());
    };
    let folder = format!("proc/driver/nvidia/capabilities/gpu{}/mig", gpu.minor);
    root.folder(&folder)?;
    for (at, instance) in mig.slots.iter().flatten().enumerate() {
        let gi = format!("{folder}/gi{}", instance.gi);
        // The driver's own numbers come from a table; here they only differ.
        let minor = (gpu.minor as usize * 16 + at) * 2 + 3;
        root.write(&format!("{gi}/access"), &access(minor))?;
        root.write(&format!("{gi}/ci{}/access", instance.ci), &access(minor + 1))?;
    }
    Ok(())
}

fn access(minor: usize) -> String {
    format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
}
