//! What the answer to each question about a machine is. Immutable; every
//! answer derives from the machine's description.

use std::thread;
use std::time::Duration;

use gpubind_core::node::{Link, MigInstance, PciAddress};
use gpubind_machine::{Hidden, Machine, MachineGpu, MachineMig};

use crate::code::{Answer, Code};
use crate::ffi::Target;

/// A machine as one process sees it.
pub struct Model {
    pub machine: Machine,
    /// NVML index in this process -> GPU position in the machine.
    shown: Vec<usize>,
    /// Which GPUs, by position, the process may use.
    allowed: Vec<bool>,
}

impl Model {
    pub fn new(machine: Machine, allowed: Vec<bool>) -> Model {
        let may_use = |gpu: &usize| allowed.get(*gpu).copied().unwrap_or(false);
        let shown = match machine.hidden {
            Hidden::Renumber => (0..machine.gpus.len()).filter(may_use).collect(),
            Hidden::Holes => (0..machine.gpus.len()).collect(),
        };
        Model { machine, shown, allowed }
    }

    /// Applies the faults of a call about these GPUs.
    pub fn suffer(&self, name: &str, gpus: &[usize]) -> Answer<()> {
        let faults = &self.machine.faults;
        for fault in faults.of_call(name, gpus) {
            thread::sleep(fault.delay);
            if fault.hang {
                hang();
            }
            if fault.crash {
                std::process::abort();
            }
            if let Some(code) = fault.code {
                return Err(Code(code));
            }
        }
        // A symbol cannot leave a loaded library. `fake-machine --library`
        // takes it out of the file; this is for the library as it was built.
        match faults.absent.iter().any(|absent| absent == name) {
            true => Err(Code::FUNCTION_NOT_FOUND),
            false => Ok(()),
        }
    }

    /// A handle is good if this process can have been given it.
    pub fn check(&self, target: Target) -> Answer<Target> {
        let good = self.shown.contains(&target.gpu)
            && self.usable(target.gpu).is_ok()
            && target.slot.is_none_or(|_| self.instance(target).is_ok());
        if good { Ok(target) } else { Err(Code::INVALID_ARGUMENT) }
    }

    fn usable(&self, gpu: usize) -> Answer<usize> {
        if !self.allowed.get(gpu).copied().unwrap_or(false) {
            return Err(Code::NO_PERMISSION);
        }
        match self.machine.faults.handle(gpu) {
            Some(code) => Err(Code(code)),
            None => Ok(gpu),
        }
    }

    /// How many GPUs there are, unusable ones included.
    pub fn count(&self) -> u32 {
        number(self.shown.len())
    }

    pub fn by_index(&self, index: u32) -> Answer<Target> {
        let gpu = self.shown.get(index as usize).ok_or(Code::INVALID_ARGUMENT)?;
        Ok(Target { gpu: self.usable(*gpu)?, slot: None })
    }

    pub fn by_pci(&self, text: &str) -> Answer<Target> {
        let pci: PciAddress = text.parse().map_err(|_| Code::INVALID_ARGUMENT)?;
        let mut shown = self.shown.iter();
        let gpu = shown.find(|gpu| self.machine.gpus.get(**gpu).is_some_and(|gpu| gpu.pci == pci));
        let gpu = self.usable(*gpu.ok_or(Code::NOT_FOUND)?)?;
        Ok(Target { gpu, slot: None })
    }

    /// Searching by UUID touches every GPU and fails if one of them is lost
    /// (nvml.h, nvmlDeviceGetHandleByUUID).
    pub fn by_uuid(&self, uuid: &str) -> Answer<Target> {
        let lost = |gpu: &usize| self.machine.faults.handle(*gpu) == Some(Code::GPU_IS_LOST.0);
        if self.shown.iter().any(lost) {
            return Err(Code::GPU_IS_LOST);
        }
        for at in &self.shown {
            let Some(gpu) = self.machine.gpus.get(*at) else { continue };
            let slots = gpu.mig.as_ref().map_or(&[][..], |mig| &mig.slots);
            let is_it = |slot: &Option<MigInstance>| {
                slot.as_ref().is_some_and(|instance| instance.uuid == uuid)
            };
            let slot = slots.iter().position(is_it);
            if gpu.uuid == uuid || slot.is_some() {
                return Ok(Target { gpu: self.usable(*at)?, slot });
            }
        }
        Err(Code::NOT_FOUND)
    }

    /// The GPU of a handle that is no MIG instance.
    pub fn gpu(&self, target: Target) -> Answer<&MachineGpu> {
        match target.slot {
            Some(_) => Err(Code::NOT_SUPPORTED),
            None => self.parent(target),
        }
    }

    /// The GPU of any handle.
    pub fn parent(&self, target: Target) -> Answer<&MachineGpu> {
        self.machine.gpus.get(target.gpu).ok_or(Code::INVALID_ARGUMENT)
    }

    pub fn instance(&self, target: Target) -> Answer<&MigInstance> {
        let mig = self.parent(target)?.mig.as_ref();
        let slot = target.slot.ok_or(Code::INVALID_ARGUMENT)?;
        let instance = mig.and_then(|mig| mig.slots.get(slot)).and_then(Option::as_ref);
        instance.ok_or(Code::NOT_FOUND)
    }

    pub fn index(&self, target: Target) -> Answer<u32> {
        if let Some(slot) = target.slot {
            return Ok(number(slot));
        }
        let index = self.shown.iter().position(|gpu| *gpu == target.gpu);
        index.map(number).ok_or(Code::INVALID_ARGUMENT)
    }

    pub fn uuid(&self, target: Target) -> Answer<String> {
        match target.slot {
            Some(_) => Ok(self.instance(target)?.uuid.clone()),
            None => Ok(self.parent(target)?.uuid.clone()),
        }
    }

    /// A MIG instance is named for its GPU and profile, as nvidia-smi shows it.
    pub fn name(&self, target: Target) -> Answer<String> {
        let name = &self.parent(target)?.name;
        match target.slot {
            Some(_) => {
                let profile = self.instance(target)?.profile.as_deref();
                Ok(format!("{name} MIG {}", profile.ok_or(Code::NOT_SUPPORTED)?))
            }
            None => Ok(name.clone()),
        }
    }

    /// `nvmlGpuTopologyLevel_t` of two GPUs.
    pub fn ancestor(&self, a: Target, b: Target) -> Answer<u32> {
        self.gpu(a)?;
        self.gpu(b)?;
        match self.machine.pcie_level(a.gpu, b.gpu) {
            Link::Same => Ok(0),
            Link::Pix => Ok(10),
            Link::Pxb => Ok(20),
            Link::Phb => Ok(30),
            Link::Node => Ok(40),
            Link::Sys => Ok(50),
            Link::NvLink(_) | Link::Unknown => Err(Code::NOT_SUPPORTED),
        }
    }

    /// The shown GPUs at exactly this level, nearest by index first.
    pub fn nearest(&self, target: Target, level: u32) -> Answer<Vec<Target>> {
        let others = self.shown.iter().filter(|gpu| **gpu != target.gpu);
        let others = others.map(|gpu| Target { gpu: *gpu, slot: None });
        let mut hits = Vec::new();
        for other in others.filter(|other| self.usable(other.gpu).is_ok()) {
            if self.ancestor(target, other)? == level {
                hits.push(other);
            }
        }
        Ok(hits)
    }

    /// `nvmlGpuP2PStatus_t`: peers reach each other but across an unknown
    /// topology, and by NVLink where there are links.
    pub fn p2p(&self, a: Target, b: Target, capability: u32) -> Answer<u32> {
        const OK: u32 = 0;
        const NOT_SUPPORTED: u32 = 5;
        self.gpu(a)?;
        self.gpu(b)?;
        let linked = self.machine.nvlink_count(a.gpu, b.gpu) > 0;
        let known = self.machine.pcie_level(a.gpu, b.gpu) != Link::Unknown;
        let yes = match capability {
            0 | 1 => linked || known,
            2 | 3 => linked,
            4 => known,
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        Ok(if yes { OK } else { NOT_SUPPORTED })
    }

    pub fn mig(&self, target: Target) -> Answer<Option<&MachineMig>> {
        Ok(self.gpu(target)?.mig.as_ref())
    }

    pub fn mig_by_slot(&self, target: Target, slot: u32) -> Answer<Target> {
        let mig = self.mig(target)?.ok_or(Code::NOT_SUPPORTED)?;
        match mig.slots.get(slot as usize) {
            None => Err(Code::INVALID_ARGUMENT),
            Some(None) => Err(Code::NOT_FOUND),
            Some(Some(_)) => Ok(Target { gpu: target.gpu, slot: Some(slot as usize) }),
        }
    }

    /// Slices of the GPU and of the compute instance, and memory in MiB, of a
    /// MIG instance: what its profile (`3g.20gb`, `1c.3g.20gb`) says. The
    /// driver keeps about a fortieth of the memory for itself.
    pub fn attributes(&self, target: Target) -> Answer<(u32, u32, u64)> {
        if target.slot.is_none() {
            return Err(Code::NOT_SUPPORTED);
        }
        let profile = self.instance(target)?.profile.as_deref().ok_or(Code::NOT_SUPPORTED)?;
        let part = |suffix: &str| {
            let mut parts = profile.split(['.', '+']);
            parts.find_map(|part| part.strip_suffix(suffix)?.parse::<u32>().ok())
        };
        let slices = part("g").ok_or(Code::NOT_SUPPORTED)?;
        let memory = u64::from(part("gb").ok_or(Code::NOT_SUPPORTED)?);
        Ok((slices, part("c").unwrap_or(slices), memory * 1024 * 39 / 40))
    }
}

fn hang() -> ! {
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
