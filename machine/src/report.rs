//! From a machine to the node that a perfect reader of it would report.

use gpubind_core::node::{Gpu, Link, Nic, Node, Probed, UnusableGpu};

use super::model::{Machine, MachineGpu};
use super::nvlink;

impl Machine {
    /// The node that a perfect reader would report: usable GPUs in PCI order,
    /// the others in [`Node::unusable`] with the code that their handle answers.
    ///
    /// Faults of single functions change nothing here: what a reader makes of
    /// those depends on its other sources.
    pub fn to_node(&self) -> Node {
        let well: Vec<usize> =
            (0..self.gpus.len()).filter(|gpu| self.faults.handle(*gpu).is_none()).collect();
        let usable = || well.iter().filter_map(|at| Some((*at, self.gpus.get(*at)?)));
        let row = |a: usize| well.iter().map(|b| self.link(a, *b)).collect();
        Node {
            gpus: usable().map(|(at, gpu)| self.report_gpu(at, gpu)).collect(),
            links: well.iter().map(|a| row(*a)).collect(),
            unusable: self.report_sick(),
            nics: self
                .nics
                .iter()
                .map(|nic| Nic {
                    name: nic.name.clone(),
                    pci: nic.pci,
                    links: usable()
                        .map(|(_, gpu)| nic.place.level(&gpu.place, self.level))
                        .collect(),
                })
                .collect(),
            numa: self.numa.clone(),
            driver: Some(self.driver.clone()),
            gres_minors: None,
        }
    }

    /// What lies between two GPUs, by position: NVLinks before PCIe.
    pub fn link(&self, a: usize, b: usize) -> Link {
        if a == b {
            return Link::Same;
        }
        match self.nvlink_count(a, b) {
            0 => self.pcie_level(a, b),
            count => Link::NvLink(count),
        }
    }

    /// Working NVLinks between two GPUs, direct or through switches.
    pub fn nvlink_count(&self, a: usize, b: usize) -> u32 {
        let own = |gpu: usize| self.gpus.get(gpu).map_or(&[][..], |gpu| &gpu.nvlinks);
        nvlink::count(own(a), a, own(b), b)
    }

    fn report_gpu(&self, at: usize, gpu: &MachineGpu) -> Gpu {
        let numa = gpu.place.numa.as_ref().map(|ids| self.cpu_nodes(ids));
        let mut mig: Vec<_> = match &gpu.mig {
            Some(mig) => mig.slots.iter().flatten().cloned().collect(),
            None => Vec::new(),
        };
        mig.sort_by_key(|instance| (instance.gi, instance.ci));
        Gpu {
            index: number(at),
            minor: Probed::Known(gpu.minor),
            uuid: Probed::Known(gpu.uuid.clone()),
            pci: gpu.pci,
            name: Probed::Known(gpu.name.clone()),
            cpus: gpu.cpus.clone().into(),
            numa: numa.into(),
            gpu_numa_id: gpu.gpu_numa_id.into(),
            mig_mode: gpu.mig.as_ref().map(|mig| mig.on).into(),
            mig,
            persistence: Probed::Known(gpu.persistence),
        }
    }

    fn report_sick(&self) -> Vec<UnusableGpu> {
        let gpus = self.gpus.iter().enumerate();
        let unusable = gpus.filter_map(|(at, gpu)| {
            Some(UnusableGpu {
                index: number(at),
                pci: Some(gpu.pci),
                minor: Some(gpu.minor),
                code: self.faults.handle(at)?,
            })
        });
        unusable.collect()
    }
}

fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
