//! From the text form to a checked machine.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use toml::Spanned;

use gpubind_core::node::{IdSet, Link, NumaNode, PciAddress};

use super::error::{Checked, MachineError, MachineProblem as Problem};
use super::file::{File, GpuDefaults, GpuEntry, NicEntry, NumaEntry};
use super::model::{Machine, MachineGpu, MachineNic};
use super::nvlink::{Wiring, wire};
use super::pcie::{PciePath, Place};
use super::{check_faults, identity, mig};

impl Machine {
    /// Reads a machine fixture.
    ///
    /// # Errors
    /// The first problem found, with its line.
    ///
    /// ```
    /// use gpubind_machine::Machine;
    /// let machine = Machine::parse(r#"
    /// name = "desk"
    /// description = "one GPU"
    /// source = "example"
    /// driver = "580.82.07"
    /// cuda = "13.0"
    /// numa = [{ id = 0, cpus = "0-7" }]
    /// gpu = [{ pci = "0000:01:00.0", name = "NVIDIA RTX A4000", numa = [0] }]
    /// "#).unwrap();
    /// assert_eq!(machine.to_node().gpus[0].cpus.known().unwrap().to_string(), "0-7");
    /// ```
    pub fn parse(text: &str) -> Result<Machine, MachineError> {
        build(text)
    }
}

fn build(text: &str) -> Result<Machine, MachineError> {
    let file = toml::from_str(text).map_err(|error| {
        let span = error.span().unwrap_or_default();
        (span, Problem::Toml(error.message().trim().replace('\n', ", ")))
    });
    file.and_then(check).map_err(|(span, problem)| {
        let before = text.bytes().take(span.start);
        let line = before.filter(|byte| *byte == b'\n').count() + 1;
        MachineError { line, problem }
    })
}

fn check(file: File) -> Checked<Machine> {
    let numa = check_numa(&file.numa)?;
    let level = file.level.as_ref().map_or(Ok(Link::Unknown), |level| match level.get_ref() {
        Link::Same | Link::NvLink(_) | Link::Unknown => {
            Err((level.span(), Problem::Level(*level.get_ref())))
        }
        level => Ok(*level),
    })?;
    let mut checker = Checker {
        name: &file.name,
        old_mig_uuids: mig::old_uuids(&file.driver)?,
        numa: &numa,
        taken: BTreeSet::new(),
        uuids: BTreeSet::new(),
        roots: BTreeMap::new(),
    };
    let mut gpus = Vec::with_capacity(file.gpu.len());
    for (position, entry) in file.gpu.iter().enumerate() {
        gpus.push(checker.gpu(position, entry, &file.gpus, &gpus)?);
    }
    let nics = file.nic.iter().map(|entry| checker.nic(entry.get_ref()));
    let nics = nics.collect::<Checked<_>>()?;
    let switches = file.nvswitches.iter().map(|pci| checker.take(pci));
    let nvswitches = switches.collect::<Checked<Vec<_>>>()?;
    check_links(&file, &mut gpus, &nvswitches)?;
    let faults = check_faults::check(file.faults, &mut gpus)?;
    Ok(Machine {
        cuda: version(&file.cuda)?,
        name: file.name,
        description: file.description,
        source: file.source,
        driver: file.driver.into_inner(),
        vm: file.vm,
        hidden: file.hidden,
        level,
        numa,
        gpus,
        nics,
        nvswitches,
        faults,
    })
}

fn check_numa(entries: &[Spanned<NumaEntry>]) -> Checked<Vec<NumaNode>> {
    let mut seen = BTreeSet::new();
    let mut cpus = BTreeSet::new();
    let with_distances = entries.iter().any(|entry| entry.get_ref().distance.is_some());
    let mut ids: Vec<u32> = entries.iter().map(|entry| *entry.get_ref().id.get_ref()).collect();
    ids.sort_unstable();
    let mut nodes = Vec::with_capacity(entries.len());
    for entry in entries {
        let (span, entry) = (entry.span(), entry.get_ref());
        let id = *entry.id.get_ref();
        if !seen.insert(id) {
            return Err((entry.id.span(), Problem::NumaTwice(id)));
        }
        if let Some(twice) = entry.cpus.iter().find(|cpu| !cpus.insert(*cpu)) {
            return Err((span, Problem::CpuTwice(twice)));
        }
        let distance = entry.distance.as_ref();
        let row = distance.map_or(&[][..], |row| row.get_ref());
        let span = distance.map_or(span, Spanned::span);
        let (expected, found) = (entries.len(), row.len());
        if with_distances && expected != found {
            return Err((span, Problem::Distances { id, expected, found }));
        }
        let own = ids.iter().position(|other| *other == id).and_then(|at| row.get(at));
        if own.is_some_and(|own| *own != 10) {
            return Err((span, Problem::SelfDistance(id)));
        }
        nodes.push(NumaNode { id, cpus: entry.cpus.clone(), distance: row.to_vec() });
    }
    nodes.sort_by_key(|node| node.id);
    Ok(nodes)
}

fn check_links(file: &File, gpus: &mut [MachineGpu], switches: &[PciAddress]) -> Checked<()> {
    let count = gpus.len();
    let mut direct = Vec::new();
    for link in &file.nvlink {
        let (a, b, links) = *link.get_ref();
        if let Some(gpu) = [a, b].into_iter().find(|gpu| *gpu >= count) {
            return Err((link.span(), Problem::NoSuchGpu { gpu, count }));
        }
        if a == b {
            return Err((link.span(), Problem::SelfLink(a)));
        }
        direct.push((a, b, links));
    }
    let wired = wire(&Wiring {
        gpus: count,
        direct: &direct,
        cpu: file.nvlink_cpu,
        switch: file.nvswitch,
        switches,
        slots: file.nvlink_slots.as_ref().map_or(0, |slots| *slots.get_ref()),
    });
    for (gpu, links) in wired.into_iter().enumerate() {
        if let Some(slots) = file.nvlink_slots.as_ref().filter(|n| links.len() > *n.get_ref()) {
            let (links, at_most) = (links.len(), *slots.get_ref());
            return Err((slots.span(), Problem::TooManyLinks { gpu, links, slots: at_most }));
        }
        if let Some(gpu) = gpus.get_mut(gpu) {
            gpu.nvlinks = links;
        }
    }
    Ok(())
}

/// `12.4` as two numbers: a CUDA version or a compute capability.
fn version(text: &Spanned<String>) -> Checked<(u32, u32)> {
    let parts = text.get_ref().split_once('.');
    parts
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .ok_or_else(|| (text.span(), Problem::Version(text.get_ref().clone())))
}

/// What must be true across devices.
struct Checker<'a> {
    name: &'a str,
    old_mig_uuids: bool,
    numa: &'a [NumaNode],
    taken: BTreeSet<PciAddress>,
    uuids: BTreeSet<String>,
    /// Each host bridge's PCI domain and NUMA nodes, as first seen.
    roots: BTreeMap<String, (Option<u32>, Option<Vec<u32>>)>,
}

impl Checker<'_> {
    fn gpu(
        &mut self,
        position: usize,
        entry: &Spanned<GpuEntry>,
        common: &GpuDefaults,
        before: &[MachineGpu],
    ) -> Checked<MachineGpu> {
        let (span, entry) = (entry.span(), entry.get_ref());
        let pci = self.take(&entry.pci)?;
        if before.last().is_some_and(|last| last.pci > pci) {
            return Err((entry.pci.span(), Problem::Order(pci)));
        }
        let minor = entry.minor.as_ref();
        let number = u32::try_from(position).unwrap_or(u32::MAX);
        let number = minor.map_or(number, |minor| *minor.get_ref());
        if before.iter().any(|gpu| gpu.minor == number) {
            let span = minor.map_or(span, Spanned::span);
            return Err((span, Problem::MinorTwice(number)));
        }
        let uuid = match &entry.uuid {
            Some(uuid) => uuid.get_ref().clone(),
            None => format!("GPU-{}", identity::uuid_of(&format!("{} {pci}", self.name))),
        };
        let uuid_span = entry.uuid.as_ref().map_or_else(|| span.clone(), Spanned::span);
        self.take_uuid(&uuid, "GPU-", &uuid_span)?;
        let name = entry.name.as_ref().or(common.name.as_ref());
        let name = name.cloned().ok_or((span, Problem::NoName))?;
        let place = self.place(entry.pcie.as_ref(), entry.numa.as_ref(), Some(pci))?;
        let cpus = match (&entry.cpus, &place.numa) {
            (Some(cpus), _) => Some(cpus.clone()),
            (None, Some(ids)) => Some(self.cpus_of(ids)),
            (None, None) => None,
        };
        let compute = entry.compute.as_ref().or(common.compute.as_ref());
        let compute = compute.map(version).transpose()?;
        let mig = entry.mig.as_ref().or(common.mig.as_ref());
        let mut mig = mig.map(|entry| mig::check(entry, self.name, &uuid, self.old_mig_uuids));
        if let Some(Ok((mig, span))) = &mut mig {
            for instance in mig.slots.iter().flatten() {
                self.take_uuid(&instance.uuid, "MIG-", span)?;
            }
        }
        Ok(MachineGpu {
            pci,
            minor: number,
            uuid,
            name,
            place,
            cpus,
            gpu_numa_id: self.gpu_numa_id(entry.gpu_numa_id.as_ref())?,
            persistence: entry.persistence.or(common.persistence).unwrap_or(true),
            compute,
            mig: mig.transpose()?.map(|(mig, _)| mig),
            nvlinks: Vec::new(),
        })
    }

    fn nic(&mut self, entry: &NicEntry) -> Checked<MachineNic> {
        let pci = entry.pci.as_ref().map(|pci| self.take(pci)).transpose()?;
        let place = self.place(entry.pcie.as_ref(), entry.numa.as_ref(), pci)?;
        Ok(MachineNic { name: entry.name.clone(), pci, place })
    }

    fn take(&mut self, pci: &Spanned<PciAddress>) -> Checked<PciAddress> {
        let address = *pci.get_ref();
        if !self.taken.insert(address) {
            return Err((pci.span(), Problem::PciTwice(address)));
        }
        Ok(address)
    }

    fn take_uuid(&mut self, uuid: &str, prefix: &'static str, span: &Range<usize>) -> Checked<()> {
        let uuid = uuid.to_owned();
        if !uuid.starts_with(prefix) {
            return Err((span.clone(), Problem::UuidPrefix { uuid, prefix }));
        }
        if !self.uuids.insert(uuid.clone()) {
            return Err((span.clone(), Problem::UuidTwice(uuid)));
        }
        Ok(())
    }

    fn place(
        &mut self,
        pcie: Option<&Spanned<String>>,
        numa: Option<&Spanned<Vec<u32>>>,
        pci: Option<PciAddress>,
    ) -> Checked<Place> {
        let ids = numa.map(|numa| self.numa_ids(numa)).transpose()?;
        let Some(pcie) = pcie else {
            return Ok(Place { pcie: None, numa: ids });
        };
        let at = |problem| (pcie.span(), problem);
        let path: PciePath = pcie.get_ref().parse().map_err(|error| at(Problem::Pcie(error)))?;
        let domain = pci.map(|pci| pci.domain);
        let root = self.roots.entry(path.root().to_owned()).or_default();
        if *root.0.get_or_insert(domain.unwrap_or_default()) != domain.unwrap_or_default() {
            return Err(at(Problem::RootDomain(path.root().to_owned())));
        }
        if let Some(ids) = &ids {
            if root.1.get_or_insert_with(|| ids.clone()) != ids {
                return Err(at(Problem::RootNuma(path.root().to_owned())));
            }
        }
        Ok(Place { pcie: Some(path), numa: ids })
    }

    fn numa_ids(&self, numa: &Spanned<Vec<u32>>) -> Checked<Vec<u32>> {
        let mut ids = numa.get_ref().clone();
        ids.sort_unstable();
        ids.dedup();
        let known = |id: &u32| self.numa.iter().any(|node| node.id == *id);
        if let Some(id) = ids.iter().find(|id| !known(id)) {
            return Err((numa.span(), Problem::NoSuchNuma(*id)));
        }
        if self.cpus_of(&ids).is_empty() {
            return Err((numa.span(), Problem::NoCpus));
        }
        Ok(ids)
    }

    fn cpus_of(&self, ids: &[u32]) -> IdSet {
        let nodes = self.numa.iter().filter(|node| ids.contains(&node.id));
        nodes.flat_map(|node| node.cpus.iter()).collect()
    }

    fn gpu_numa_id(&self, id: Option<&Spanned<u32>>) -> Checked<Option<u32>> {
        let Some(id) = id else {
            return Ok(None);
        };
        let number = *id.get_ref();
        match self.numa.iter().find(|node| node.id == number) {
            None => Err((id.span(), Problem::NoSuchNuma(number))),
            Some(node) if !node.cpus.is_empty() => Err((id.span(), Problem::NotGpuMemory(number))),
            Some(_) => Ok(Some(number)),
        }
    }
}
