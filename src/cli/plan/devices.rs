//! `--devices`: which of a node's devices the step would have.

use gpubind_core::node::{Device, Gpu, IdSet, Node};
use gpubind_core::step::{Allocation, Reach};

/// How many UUIDs a message lists; `gpubind topo` has them all.
const LISTED: usize = 8;

/// What is wrong with a list of devices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// A part of the list that names nothing.
    #[error("`{0}` is not an NVML index, a range like 4-7 or a UUID (GPU-…, MIG-…)")]
    Part(String),
    /// A range whose end is below its start.
    #[error("the range `{0}` runs backwards")]
    Backwards(String),
    /// An index that the node lacks.
    #[error("there is no GPU {index} on this node; it has {valid}")]
    NoIndex {
        /// The index.
        index: u32,
        /// Indices that there are.
        valid: String,
    },
    /// A GPU that is there but cannot be used.
    #[error("GPU {index} cannot be used (NVML error {code}); usable: {valid}")]
    Unusable {
        /// The index.
        index: u32,
        /// NVML's code.
        code: u32,
        /// Indices that can be used.
        valid: String,
    },
    /// A UUID that the node lacks.
    #[error("no device of this node has the UUID {uuid}; it has {valid}")]
    NoUuid {
        /// The UUID.
        uuid: String,
        /// UUIDs that there are.
        valid: String,
    },
    /// A GPU in MIG mode, which cannot be given as a whole.
    #[error("GPU {index} is in MIG mode; name its instances: {valid}")]
    Mig {
        /// The index.
        index: u32,
        /// UUIDs of its instances.
        valid: String,
    },
    /// A GPU in MIG mode that nothing can run on.
    #[error("GPU {0} is in MIG mode and has no instance, so nothing can run on it")]
    MigEmpty(u32),
    /// A device that is named twice.
    #[error("`{0}` names a device that is named before; name each once")]
    Repeated(String),
}

/// Reads a list such as `0,4-7` or `MIG-…,MIG-…`, in any order.
///
/// # Errors
/// [`DeviceError`] for the first part that is wrong.
pub(super) fn read(node: &Node, list: &str) -> Result<Vec<Device>, DeviceError> {
    let mut devices = Vec::new();
    for part in list.split(',').map(str::trim) {
        for device in part_devices(node, part) {
            let device = device?;
            if devices.contains(&device) {
                return Err(DeviceError::Repeated(part.to_owned()));
            }
            devices.push(device);
        }
    }
    Ok(devices)
}

fn part_devices(node: &Node, part: &str) -> Box<dyn Iterator<Item = Result<Device, DeviceError>>> {
    let one = |device| -> Box<dyn Iterator<Item = _>> { Box::new(std::iter::once(device)) };
    if part.starts_with("GPU-") || part.starts_with("MIG-") {
        return one(by_uuid(node, part));
    }
    let number = |text: &str| match text.trim() {
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse::<u32>().ok(),
        _ => None,
    };
    let range = match part.split_once('-') {
        Some((first, last)) => number(first).zip(number(last)),
        None => number(part).map(|index| (index, index)),
    };
    match range {
        Some((first, last)) if first <= last => {
            // Ends at the first index that is not there, so a mistyped range costs nothing.
            let found: Result<Vec<Device>, _> =
                (first..=last).map(|index| by_index(node, index)).collect();
            match found {
                Ok(devices) => Box::new(devices.into_iter().map(Ok)),
                Err(error) => one(Err(error)),
            }
        }
        Some(_) => one(Err(DeviceError::Backwards(part.to_owned()))),
        None => one(Err(DeviceError::Part(part.to_owned()))),
    }
}

fn by_index(node: &Node, index: u32) -> Result<Device, DeviceError> {
    let found = node.gpus.iter().enumerate().find(|(_, gpu)| gpu.index == index);
    let Some((gpu, known)) = found else {
        let valid = ranges(node.gpus.iter().map(|gpu| gpu.index as usize));
        return Err(match node.unusable.iter().find(|unusable| unusable.index == index) {
            Some(unusable) => DeviceError::Unusable { index, code: unusable.code, valid },
            None => DeviceError::NoIndex { index, valid },
        });
    };
    whole(known, gpu)
}

fn by_uuid(node: &Node, uuid: &str) -> Result<Device, DeviceError> {
    // As CUDA_VISIBLE_DEVICES names it, in each spelling that Slurm uses.
    let device = Allocation::seen(node, &Reach::default(), Some(uuid)).first().copied();
    let Some(device) = device else {
        let uuids: Vec<&str> =
            node.devices().iter().filter_map(|device| node.uuid(*device)).collect();
        let valid = match uuids.get(..LISTED) {
            _ if uuids.is_empty() => "none that is known".to_owned(),
            Some(first) if uuids.len() > LISTED => {
                format!("{} and {} more", first.join(", "), uuids.len() - LISTED)
            }
            _ => uuids.join(", "),
        };
        return Err(DeviceError::NoUuid { uuid: uuid.to_owned(), valid });
    };
    match (device.mig, node.gpu(device)) {
        (None, Some(gpu)) => whole(gpu, device.gpu),
        _ => Ok(device),
    }
}

fn whole(known: &Gpu, gpu: usize) -> Result<Device, DeviceError> {
    if !known.is_in_mig_mode() {
        return Ok(Device { gpu, mig: None });
    }
    if known.mig.is_empty() {
        return Err(DeviceError::MigEmpty(known.index));
    }
    let uuids: Vec<&str> = known.mig.iter().map(|mig| mig.uuid.as_str()).collect();
    Err(DeviceError::Mig { index: known.index, valid: uuids.join(", ") })
}

/// Numbers as a list of ranges.
pub(super) fn ranges(numbers: impl Iterator<Item = usize>) -> String {
    numbers.collect::<IdSet>().to_string()
}
