//! The calls that the safe crate lacks or gets wrong, made on its symbols, and
//! its errors folded into [`Probed`].
//!
//! Faults of nvml-wrapper 0.13 that are worked round here: `remote_device_type`
//! always answers unknown; `field_values_for` has no scope, so per-link fields
//! of link 1 and up cannot be read; `remote_pci_info` fails on an address that
//! is no UTF-8; the topology level fails on a level it does not know; return
//! codes from 23 on are mixed up with unknown enum values; a missing symbol is
//! no NVML code; instance ids are absent; `Drop` panics where `nvmlShutdown` is
//! missing.

use std::ffi::OsStr;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::path::Path;

use nvml_wrapper::error::{NvmlError as WrapperError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{nvmlFieldValue_t, nvmlPciInfo_t};

use gpubind_core::node::{PciAddress, Probed};

/// `NVML_ERROR_UNKNOWN`, also for what has no code.
pub(super) const UNKNOWN: u32 = 999;
/// `NVML_ERROR_INVALID_ARGUMENT`: past the last link.
pub(super) const INVALID_ARGUMENT: u32 = 2;
/// `NVML_ERROR_NO_PERMISSION`.
pub(super) const NO_PERMISSION: u32 = 4;
/// `NVML_ERROR_GPU_IS_LOST`.
pub(super) const GPU_IS_LOST: u32 = 15;
/// `NVML_ERROR_RESET_REQUIRED`.
pub(super) const RESET_REQUIRED: u32 = 16;

/// A loaded and initialised NVML that can be dropped whatever symbols it has.
pub(super) struct Session(ManuallyDrop<Nvml>);

impl Session {
    /// Loads the library, `libnvidia-ml.so.1` where none is named.
    pub(super) fn open(library: Option<&Path>) -> Result<Session, WrapperError> {
        let mut builder = Nvml::builder();
        if let Some(path) = library {
            builder.lib_path(path.as_ref() as &OsStr);
        }
        Ok(Session(ManuallyDrop::new(builder.init()?)))
    }
}

impl Deref for Session {
    type Target = Nvml;

    fn deref(&self) -> &Nvml {
        &self.0
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The wrapper's own drop panics without this symbol. The library then
        // stays loaded until the process ends.
        if self.0.lib().nvmlShutdown.is_ok() {
            // SAFETY: `self.0` is not used after this, the field is never taken elsewhere.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

/// Folds the wrapper's error into a value: a call that this library or GPU does
/// not have is unsupported, anything else failed with its code.
pub(super) fn probed<T>(result: Result<T, WrapperError>) -> Probed<T> {
    match result {
        Ok(value) => Probed::Known(value),
        Err(error) => match code(&error) {
            None => Probed::Unsupported,
            Some(code) => Probed::Failed(code),
        },
    }
}

/// The `nvmlReturn_t` of an error; `None` where the call does not exist here:
/// not supported (3), an older library (12, 13, missing symbol), an older form
/// of a structure (25) or a call that was withdrawn (26).
pub(super) fn code(error: &WrapperError) -> Option<u32> {
    use WrapperError::*;
    match error {
        NotSupported | FailedToLoadSymbol(_) | LibraryNotFound | FunctionNotFound => None,
        UnexpectedVariant(25 | 26) => None,
        // Codes from 23 on come this way, but so do unknown enum values.
        UnexpectedVariant(code) if *code >= 23 => Some(*code),
        UnexpectedVariant(_) => Some(UNKNOWN),
        Uninitialized => Some(1),
        InvalidArg => Some(INVALID_ARGUMENT),
        NoPermission => Some(NO_PERMISSION),
        NotFound => Some(6),
        InsufficientSize(_) => Some(7),
        InsufficientPower => Some(8),
        DriverNotLoaded => Some(9),
        Timeout => Some(10),
        IrqIssue => Some(11),
        CorruptedInfoROM => Some(14),
        GpuLost => Some(GPU_IS_LOST),
        ResetRequired => Some(RESET_REQUIRED),
        OperatingSystem => Some(17),
        LibRmVersionMismatch => Some(18),
        InUse => Some(19),
        InsufficientMemory => Some(20),
        NoData => Some(21),
        VgpuEccNotSupported => Some(22),
        _ => Some(UNKNOWN),
    }
}

/// What is at the far end of an NVLink: 0 a GPU, 1 an IBM NPU (the CPU), 2 a
/// switch, 255 unknown (nvml.h, `nvmlIntNvLinkDeviceType_t`).
pub(super) fn remote_device_type(nvml: &Nvml, device: &Device, link: u32) -> Probed<u32> {
    let ask = || {
        let call = nvml_sym(nvml.lib().nvmlDeviceGetNvLinkRemoteDeviceType.as_ref())?;
        let mut kind = 255;
        // SAFETY: the handle belongs to this live library; `kind` is a valid
        // place for one enum value.
        nvml_try(unsafe { call(device.handle(), link, &mut kind) })?;
        Ok(kind)
    };
    probed(ask())
}

/// A device at the far end of an NVLink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FarPci {
    /// `None` where the driver gives none: empty, not printable, all F.
    pub address: Option<PciAddress>,
    /// PCI vendor, 0 or nonsense where the driver does not say.
    pub vendor: u32,
}

/// What PCI device is at the far end of an NVLink.
pub(super) fn remote_pci(nvml: &Nvml, device: &Device, link: u32) -> Probed<FarPci> {
    let ask = || {
        let call = nvml_sym(nvml.lib().nvmlDeviceGetNvLinkRemotePciInfo_v2.as_ref())?;
        // SAFETY: plain integers and bytes, for which zero is a value.
        let mut info: nvmlPciInfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the handle belongs to this live library; `info` is the v2/v3
        // structure that this symbol fills.
        nvml_try(unsafe { call(device.handle(), link, &mut info) })?;
        // The vendor is the lower half (nvml.h, `nvmlPciInfo_t`).
        let vendor = info.pciDeviceId & 0xffff;
        Ok(FarPci { address: address(&info.busId.map(|byte| byte as u8)), vendor })
    };
    probed(ask())
}

/// An address from the driver's bytes; `None` for nonsense. GB200 says
/// `FFFFFFFF:FF:FF.0` for links that lead into a switch.
fn address(bytes: &[u8]) -> Option<PciAddress> {
    let text = bytes.split(|byte| *byte == 0).next()?;
    // An FF in the place of a device number is refused as an address already.
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// One value of a GPU (nvml.h, `NVML_FI_*`); `scope` is the link's number for
/// fields that each link has.
pub(super) fn field(nvml: &Nvml, device: &Device, field: u32, scope: u32) -> Probed<u32> {
    let ask = || {
        let call = nvml_sym(nvml.lib().nvmlDeviceGetFieldValues.as_ref())?;
        // SAFETY: plain integers and a union of numbers, for which zero is a value.
        let mut value: nvmlFieldValue_t = unsafe { std::mem::zeroed() };
        value.fieldId = field;
        value.scopeId = scope;
        // SAFETY: the handle belongs to this live library; one value is announced and given.
        nvml_try(unsafe { call(device.handle(), 1, &mut value) })?;
        nvml_try(value.nvmlReturn)?;
        // SAFETY: all variants are numbers in the same zeroed bytes; the
        // fields asked for here are unsigned int.
        Ok(unsafe { value.value.uiVal })
    };
    probed(ask())
}

/// The common ancestor of two GPUs as the driver's number
/// (`nvmlGpuTopologyLevel_t`), also one that this program does not know.
pub(super) fn common_ancestor(nvml: &Nvml, a: &Device, b: &Device) -> Probed<u32> {
    let ask = || {
        let call = nvml_sym(nvml.lib().nvmlDeviceGetTopologyCommonAncestor.as_ref())?;
        let mut level = 0;
        // SAFETY: both handles belong to this live library; `level` is a valid
        // place for one enum value.
        nvml_try(unsafe { call(a.handle(), b.handle(), &mut level) })?;
        Ok(level)
    };
    probed(ask())
}

/// The GPU instance id of a MIG device.
pub(super) fn gpu_instance_id(nvml: &Nvml, mig: &Device) -> Probed<u32> {
    let ask = || {
        let call = nvml_sym(nvml.lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
        let mut id = 0;
        // SAFETY: the handle belongs to this live library; `id` is a valid place.
        nvml_try(unsafe { call(mig.handle(), &mut id) })?;
        Ok(id)
    };
    probed(ask())
}

/// The compute instance id of a MIG device within its GPU instance.
pub(super) fn compute_instance_id(nvml: &Nvml, mig: &Device) -> Probed<u32> {
    let ask = || {
        let call = nvml_sym(nvml.lib().nvmlDeviceGetComputeInstanceId.as_ref())?;
        let mut id = 0;
        // SAFETY: the handle belongs to this live library; `id` is a valid place.
        nvml_try(unsafe { call(mig.handle(), &mut id) })?;
        Ok(id)
    };
    probed(ask())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_lead_nowhere_are_none() {
        let read = |text: &[u8]| address(text).map(|address| address.to_string());
        assert_eq!(read(b"00000000:07:00.0\0junk").as_deref(), Some("0000:07:00.0"));
        for nowhere in [&b""[..], b"\0\0", b"FFFFFFFF:FF:FF.0\0", b"\xff\xfe\x80\0", b"?:?"] {
            assert_eq!(read(nowhere), None);
        }
    }

    #[test]
    fn codes_are_told_from_missing_calls_and_unknown_values() {
        assert_eq!(code(&WrapperError::from(15)), Some(15));
        assert_eq!(code(&WrapperError::from(23)), Some(23));
        assert_eq!(code(&WrapperError::from(28)), Some(28));
        assert_eq!(code(&WrapperError::UnexpectedVariant(2)), Some(UNKNOWN));
        for absent in [3, 12, 13, 25, 26] {
            assert_eq!(code(&WrapperError::from(absent)), None, "{absent}");
        }
        assert_eq!(code(&WrapperError::FailedToLoadSymbol("x".into())), None);
    }

    #[test]
    fn every_code_of_the_header_survives_the_wrapper() {
        for number in (1..=30).filter(|n| ![3, 5, 12, 13, 25, 26].contains(n)).chain([999]) {
            assert_eq!(code(&WrapperError::from(number)), Some(number));
        }
    }
}
