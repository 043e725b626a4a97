//! Reading a node from NVML.
//!
//! What lives here: the order of asking, what each answer and each refusal
//! means, and (in `raw`) the calls that the safe crate lacks. What does not:
//! keeping the result ([`super::snapshot`]) and guarding against a driver that
//! hangs ([`super::probe`]); this code runs in the `gpubind` program only, never
//! in a Slurm daemon.
//!
//! Order: count, then each index by itself (asking by UUID would wake all GPUs
//! and fail when any one is lost), each GPU's own values, its NVLinks, then the
//! pairs; sysfs fills what NVML refuses. A GPU that does not answer is listed in
//! [`Node::unusable`] and the others are read all the same.

mod affinity;
mod gpu;
mod host_info;
mod links;
mod mig;
mod place;
mod raw;

use std::path::Path;

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError as WrapperError;

use crate::sysfs::{self, PciDevice};
use gpubind_core::node::{Node, Roots, procfs};
use host_info::HostInfo;
use place::Seen;
use raw::Session;

/// No node has more; a nonsensical count must not loop for hours.
const MOST_GPUS: u32 = 1024;

/// Why NVML could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum NvmlError {
    /// The library is not there or cannot be loaded.
    #[error("cannot load {library}: {reason}; it comes with the NVIDIA driver")]
    Library {
        /// The name or path that was tried.
        library: String,
        /// The loader's message.
        reason: String,
    },
    /// The library lacks a call without which nothing works.
    #[error("the NVML library is too old or not NVML: {0}")]
    Symbol(String),
    /// `nvmlInit_v2` or `nvmlDeviceGetCount_v2` failed.
    #[error("NVML failed with code {code}: {}", explain(*.code))]
    Failed {
        /// The `nvmlReturn_t` code.
        code: u32,
    },
}

/// What a failing start of NVML means and what helps (nvml.h, field reports).
fn explain(code: u32) -> &'static str {
    match code {
        4 => "no permission; /dev/nvidiactl must be readable and writable",
        9 => "the NVIDIA kernel module is not loaded",
        15 => "a GPU has fallen off the bus; see the kernel log for Xid 79",
        17 => "the operating system or a device cgroup blocks /dev/nvidiactl",
        18 => {
            "library and kernel module are of different driver versions; reload the module or reboot"
        }
        999 => "unknown error; most often /dev/nvidiactl is missing or a device cgroup denies it",
        _ => "see nvmlReturn_t in nvml.h",
    }
}

impl NvmlError {
    /// Whether the driver was upgraded while it was loaded
    /// (nvml.h, NVML_ERROR_LIB_RM_VERSION_MISMATCH).
    pub fn is_version_mismatch(&self) -> bool {
        matches!(self, NvmlError::Failed { code: 18 })
    }

    fn new(error: WrapperError, library: Option<&Path>) -> NvmlError {
        match error {
            WrapperError::LibloadingError(error) => NvmlError::Library {
                library: library
                    .map_or("libnvidia-ml.so.1".to_owned(), |path| path.display().to_string()),
                reason: error.to_string(),
            },
            WrapperError::FailedToLoadSymbol(text) => NvmlError::Symbol(text),
            // An init that answers "not supported" has no code left in a Probed.
            error => NvmlError::Failed { code: raw::code(&error).unwrap_or(error.into()) },
        }
    }
}

/// Reads the node from NVML and sysfs.
///
/// `library` is the path of libnvidia-ml.so.1, or `None` for the loader's own
/// search. GPUs come in PCI order with NVML's index on the whole node: where a
/// device cgroup has shortened and renumbered NVML's list, the GPUs that only
/// /proc still shows are listed as unusable with code 4 (no permission) and indices
/// are the rank in PCI order.
///
/// # Errors
/// [`NvmlError`] if nothing could be read. A GPU or a value that fails is part
/// of the node and no error.
pub fn read(library: Option<&Path>, roots: &Roots) -> Result<Node, NvmlError> {
    let session = Session::open(library).map_err(|error| NvmlError::new(error, library))?;
    let count = session.device_count().map_err(|error| NvmlError::new(error, library))?;
    let machine = HostInfo::new(roots);

    let mut seen = Vec::new();
    let mut devices = Vec::new();
    for index in 0..count.min(MOST_GPUS) {
        match gpu::read(&session, index, &machine) {
            Ok((device, gpu)) => {
                seen.push(Seen::Healthy { index, pci: gpu.pci });
                devices.push((device, gpu));
            }
            Err(refusal) => seen.push(Seen::Refused { index, refusal }),
        }
    }
    let placed = place::place(&seen, &procfs::gpus(roots));
    for (_, gpu) in &mut devices {
        if let Some(index) = placed.index_of(gpu.pci) {
            gpu.index = index;
        }
    }
    devices.sort_by_key(|(_, gpu)| gpu.pci);

    let (handles, gpus): (Vec<Device>, Vec<_>) = devices.into_iter().unzip();
    let addresses: Vec<_> = gpus.iter().map(|gpu| gpu.pci).collect();
    let pci: Vec<_> = addresses.iter().map(|pci| PciDevice::find(roots, *pci)).collect();
    let hidden = placed.unusable.iter().filter_map(|unusable| unusable.pci).collect();
    let links = links::matrix(&session, &handles, &addresses, hidden, &pci, &machine);
    let nics = sysfs::nics(roots, &pci, machine.single());
    let driver = session.sys_driver_version().ok();
    Ok(Node {
        gpus,
        links,
        unusable: placed.unusable,
        nics,
        numa: machine.numa,
        driver,
        gres_minors: None,
    })
}
