//! CPUs and NUMA nodes near a GPU.

use std::ffi::{c_uint, c_ulong};

use crate::affinity::Scope;
use crate::code::{Answer, Code};
use crate::ffi::{Device, Out};
use crate::state::call;

fn store(words: &[u64], out: &Out<c_ulong>) -> Answer<()> {
    words.iter().enumerate().try_for_each(|(at, word)| out.put_at(at, *word))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCpuAffinity(
    device: Device,
    words: c_uint,
    cpus: Out<c_ulong>,
) -> c_uint {
    call("nvmlDeviceGetCpuAffinity", [device], |model, [target]| {
        store(&model.cpu_mask(target, words as usize, Scope::Node)?, &cpus)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCpuAffinityWithinScope(
    device: Device,
    words: c_uint,
    cpus: Out<c_ulong>,
    scope: c_uint,
) -> c_uint {
    call("nvmlDeviceGetCpuAffinityWithinScope", [device], |model, [target]| {
        store(&model.cpu_mask(target, words as usize, Scope::new(scope)?)?, &cpus)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryAffinity(
    device: Device,
    words: c_uint,
    nodes: Out<c_ulong>,
    scope: c_uint,
) -> c_uint {
    call("nvmlDeviceGetMemoryAffinity", [device], |model, [target]| {
        store(&model.memory_mask(target, words as usize, Scope::new(scope)?)?, &nodes)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNumaNodeId(device: Device, node: Out<c_uint>) -> c_uint {
    call("nvmlDeviceGetNumaNodeId", [device], |model, [target]| {
        let id = model.gpu(target)?.gpu_numa_id;
        node.put(id.ok_or(Code::NOT_SUPPORTED)?)
    })
}
