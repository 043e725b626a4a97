"""Reads a machine through NVIDIA's Python bindings and prints it as JSON."""

import json

import pynvml as nvml

WORDS = 16  # 1024 CPUs or NUMA nodes


def bits(mask):
    return [64 * at + bit for at, word in enumerate(mask) for bit in range(64) if word >> bit & 1]


def known(call, *arguments):
    """The answer, or None where the machine does not tell."""
    try:
        return call(*arguments)
    except nvml.NVMLError_NotSupported:
        return None


def masked(call, *arguments):
    mask = known(call, *arguments)
    return None if mask is None else bits(mask)


def instances(gpu):
    """The MIG instances' UUIDs by slot, with None for holes."""
    found = []
    for slot in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, slot)
            found.append(nvml.nvmlDeviceGetUUID(instance))
        except nvml.NVMLError_NotFound:
            found.append(None)
    return found


def links(gpu):
    """How many NVLinks the GPU has, by asking until it has no such link."""
    count = 0
    while True:
        try:
            nvml.nvmlDeviceGetNvLinkState(gpu, count)
        except (nvml.NVMLError_InvalidArgument, nvml.NVMLError_NotSupported):
            return count
        count += 1


def read(gpu, handles):
    levels = {
        index: nvml.nvmlDeviceGetTopologyCommonAncestor(gpu, other)
        for index, other in handles.items()
        if nvml.nvmlDeviceGetIndex(gpu) != index
    }
    return {
        "uuid": nvml.nvmlDeviceGetUUID(gpu),
        "name": nvml.nvmlDeviceGetName(gpu),
        "minor": nvml.nvmlDeviceGetMinorNumber(gpu),
        "pci": nvml.nvmlDeviceGetPciInfo(gpu).busId,
        "cpus": masked(nvml.nvmlDeviceGetCpuAffinity, gpu, WORDS),
        "nodes": masked(nvml.nvmlDeviceGetMemoryAffinity, gpu, WORDS, nvml.NVML_AFFINITY_SCOPE_NODE),
        "mig": instances(gpu),
        "links": links(gpu),
        "levels": levels,
    }


def main():
    nvml.nvmlInit()
    handles, errors = {}, {}
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handles[index] = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            errors[index] = error.value
    gpus = [
        read(handles[index], handles) if index in handles else {"error": errors[index]}
        for index in range(nvml.nvmlDeviceGetCount())
    ]
    print(
        json.dumps(
            {
                "driver": nvml.nvmlSystemGetDriverVersion(),
                "cuda": nvml.nvmlSystemGetCudaDriverVersion_v2(),
                "gpus": gpus,
            }
        )
    )
    nvml.nvmlShutdown()


main()
