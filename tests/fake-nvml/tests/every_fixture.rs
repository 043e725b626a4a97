//! Every fixture, read back over NVML's C interface, is the node that the
//! machine describes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what fails here fails its test")]

mod common;

use std::fs;

use common::Rig;
use gpubind_core::node::{Gpu, IdSet, Link, MigInstance, Node, PciAddress, Probed, UnusableGpu};
use nvml_wrapper::enum_wrappers::device::TopologyLevel;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

#[test]
fn every_fixture_reads_back_as_its_node() {
    for file in common::fixtures() {
        let rig = Rig::new(&fs::read_to_string(&file).unwrap());
        let nvml = rig.nvml();
        let expected = rig.machine.to_node();
        let name = &rig.machine.name;
        assert_eq!(nvml.sys_driver_version().ok(), expected.driver, "{name}");
        let (usable, unusable) = enumerate(&nvml, &expected);
        assert_eq!(unusable, expected.unusable, "{name}");
        assert_eq!(usable.len(), expected.gpus.len(), "{name}");
        for (device, gpu) in usable.iter().zip(&expected.gpus) {
            assert_eq!(read(device, &expected), *gpu, "{name}");
        }
        for (a, row) in expected.links.iter().enumerate() {
            for (b, link) in row.iter().enumerate() {
                assert_eq!(connection(&nvml, &usable, a, b), *link, "{name} {a} {b}");
            }
        }
    }
}

/// An unusable GPU answers nothing but its code; its names come from elsewhere.
fn enumerate<'n>(nvml: &'n Nvml, expected: &Node) -> (Vec<Device<'n>>, Vec<UnusableGpu>) {
    let (mut usable, mut unusable) = (Vec::new(), Vec::new());
    for index in 0..nvml.device_count().unwrap() {
        match nvml.device_by_index(index) {
            Ok(device) => usable.push(device),
            Err(error) => {
                let code = match error {
                    NvmlError::GpuLost => 15,
                    NvmlError::ResetRequired => 16,
                    NvmlError::NoPermission => 4,
                    other => panic!("{other}"),
                };
                let known =
                    expected.unusable.iter().find(|unusable| unusable.index == index).unwrap();
                unusable.push(UnusableGpu { index, code, ..known.clone() });
            }
        }
    }
    (usable, unusable)
}

fn fact<T>(answer: Result<T, NvmlError>) -> Probed<T> {
    match answer {
        Ok(value) => Probed::Known(value),
        Err(NvmlError::NotSupported) => Probed::Unsupported,
        Err(other) => panic!("{other}"),
    }
}

fn bits(words: Vec<u64>) -> IdSet {
    let set = |(at, word): (usize, u64)| {
        (0..64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| at * 64 + bit)
    };
    words.into_iter().enumerate().flat_map(set).collect()
}

fn read(device: &Device, node: &Node) -> Gpu {
    let with_cpus = |id: &u32| node.numa.iter().any(|n| n.id == *id && !n.cpus.is_empty());
    let numa = fact(device.memory_affinity(16, 0)).map(|words| {
        let ids = bits(words);
        ids.iter().map(|id| id as u32).filter(with_cpus).collect()
    });
    let mig_mode = fact(device.mig_mode()).map(|mode| mode.current == 1);
    Gpu {
        index: device.index().unwrap(),
        minor: fact(device.minor_number()),
        uuid: fact(device.uuid()),
        pci: address(&device.pci_info().unwrap().bus_id),
        name: fact(device.name()),
        cpus: fact(device.cpu_affinity(64)).map(bits),
        numa,
        gpu_numa_id: fact(device.numa_node_id()),
        mig_mode,
        mig: instances(device),
        persistence: fact(device.is_in_persistent_mode()),
    }
}

fn address(text: &str) -> PciAddress {
    text.parse().unwrap()
}

fn instances(device: &Device) -> Vec<MigInstance> {
    let mut found = Vec::new();
    for slot in 0..device.mig_device_count().unwrap() {
        let instance = match device.mig_device_by_index(slot) {
            Ok(instance) => instance,
            Err(NvmlError::NotFound) => continue,
            Err(other) => panic!("{other}"),
        };
        assert_eq!(instance.mig_parent_device().unwrap().uuid().unwrap(), device.uuid().unwrap());
        let lib = device.nvml().lib();
        let (mut gi, mut ci) = (u32::MAX, u32::MAX);
        // SAFETY: a handle that the library gave, and room for one number each.
        let codes = unsafe {
            let handle = instance.handle();
            let gpu = lib.nvmlDeviceGetGpuInstanceId.as_ref().unwrap();
            let compute = lib.nvmlDeviceGetComputeInstanceId.as_ref().unwrap();
            (gpu(handle, &mut gi), compute(handle, &mut ci))
        };
        assert_eq!(codes, (0, 0));
        let name = instance.name().unwrap();
        let (of, profile) = name.split_once(" MIG ").unwrap();
        assert_eq!(of, device.name().unwrap());
        found.push(MigInstance {
            gi,
            ci,
            uuid: instance.uuid().unwrap(),
            profile: Some(profile.to_owned()),
        });
    }
    found.sort_by_key(|instance| (instance.gi, instance.ci));
    found
}

/// A cell of the matrix: links that end at each other, or in switches, else PCIe.
fn connection(nvml: &Nvml, gpus: &[Device], a: usize, b: usize) -> Link {
    if a == b {
        return Link::Same;
    }
    let (direct, switched) = links(&gpus[a], &gpus[b]);
    let (back, switched_back) = links(&gpus[b], &gpus[a]);
    let count = direct.min(back) + switched.min(switched_back);
    if count > 0 {
        return Link::NvLink(count);
    }
    match nvml.topology_common_ancestor(&gpus[a], &gpus[b]) {
        Ok(TopologyLevel::Internal | TopologyLevel::Single) => Link::Pix,
        Ok(TopologyLevel::Multiple) => Link::Pxb,
        Ok(TopologyLevel::HostBridge) => Link::Phb,
        Ok(TopologyLevel::Node) => Link::Node,
        Ok(TopologyLevel::System) => Link::Sys,
        Err(NvmlError::NotSupported) => Link::Unknown,
        Err(other) => panic!("{other}"),
    }
}

/// Active links of one GPU: to the other, and to switches.
fn links(from: &Device, to: &Device) -> (u32, u32) {
    const SWITCH: u32 = 2;
    let target = address(&to.pci_info().unwrap().bus_id);
    let lib = from.nvml().lib();
    let (mut direct, mut switched) = (0, 0);
    for number in 0..64 {
        let link = from.link_wrapper_for(number);
        match link.is_active() {
            Ok(true) => (),
            Ok(false) => continue,
            Err(NvmlError::InvalidArg | NvmlError::NotSupported) => break,
            Err(other) => panic!("{other}"),
        }
        let mut kind = u32::MAX;
        // SAFETY: a handle that the library gave, and room for one number.
        let code = unsafe {
            let ask = lib.nvmlDeviceGetNvLinkRemoteDeviceType.as_ref().unwrap();
            ask(from.handle(), number, &mut kind)
        };
        assert_eq!(code, 0);
        let far = link.remote_pci_info().unwrap();
        switched += u32::from(kind == SWITCH);
        direct += u32::from(kind == 0 && address(&far.bus_id) == target);
    }
    (direct, switched)
}
