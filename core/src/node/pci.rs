//! PCI addresses, compared as numbers whatever text form they came in.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A PCI address; the order is the bus order that CUDA uses under
/// `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
///
/// NVML writes `00000000:07:00.0` (8-digit domain, upper case), sysfs and /proc
/// `0000:07:00.0` (lower case); both read as the same address. Text form is
/// sysfs's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddress {
    /// PCI domain (segment group).
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device (slot) number, 0 to 31.
    pub device: u8,
    /// Function number, 0 to 7.
    pub function: u8,
}

/// A text that is no PCI address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a PCI address like 0000:07:00.0")]
pub struct PciAddressError(String);

impl PciAddress {
    /// No machine has this domain (Linux numbers PCI domains with 16 bits, and
    /// those of VMD controllers from 0x10000 on).
    const NO_DOMAIN: u32 = u32::MAX;

    /// The address of a GPU whose real one is not known, as in pasted text:
    /// placeholders keep the order of their positions.
    pub fn placeholder(position: u32) -> PciAddress {
        // Saturates beyond 65536 GPUs.
        let position = position.min(0xffff);
        let part = |shift: u32, mask: u32| u8::try_from((position >> shift) & mask).unwrap_or(0);
        let (bus, device, function) = (part(8, 0xff), part(3, 0x1f), part(0, 0x7));
        PciAddress { domain: PciAddress::NO_DOMAIN, bus, device, function }
    }

    /// The address, unless it is a placeholder.
    pub fn known(self) -> Option<PciAddress> {
        (self.domain != PciAddress::NO_DOMAIN).then_some(self)
    }
}

impl FromStr for PciAddress {
    type Err = PciAddressError;

    fn from_str(text: &str) -> Result<Self, PciAddressError> {
        let parse = || -> Option<PciAddress> {
            let (rest, function) = text.trim().rsplit_once('.')?;
            let mut parts = rest.rsplit(':');
            let device = u8::from_str_radix(parts.next()?, 16).ok()?;
            let bus = u8::from_str_radix(parts.next()?, 16).ok()?;
            let domain = match parts.next() {
                Some(domain) => u32::from_str_radix(domain, 16).ok()?,
                None => 0,
            };
            let function = u8::from_str_radix(function, 16).ok()?;
            let valid = parts.next().is_none() && device < 32 && function < 8;
            valid.then_some(PciAddress { domain, bus, device, function })
        };
        parse().ok_or_else(|| PciAddressError(text.to_owned()))
    }
}

impl TryFrom<String> for PciAddress {
    type Error = PciAddressError;

    fn try_from(text: String) -> Result<Self, PciAddressError> {
        text.parse()
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> String {
        address.to_string()
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciAddress { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvml_and_sysfs_spellings_are_one_address() {
        let sysfs: PciAddress = "0000:b7:00.0".parse().unwrap();
        assert_eq!("00000000:B7:00.0".parse(), Ok(sysfs));
        assert_eq!("b7:00.0".parse(), Ok(sysfs));
        assert_eq!(sysfs.to_string(), "0000:b7:00.0");
        let far: PciAddress = "00010000:01:00.0".parse().unwrap();
        assert!(sysfs < far, "the domain orders first");
        assert_eq!(far.to_string(), "10000:01:00.0");
    }

    #[test]
    fn placeholders_are_ordered_and_told_apart() {
        let all: Vec<PciAddress> = [0, 1, 7, 8, 31, 255, 256].map(PciAddress::placeholder).into();
        assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
        assert!(all.iter().all(|address| address.known().is_none()));
        assert!(all.iter().all(|address| address.to_string().parse() == Ok(*address)));
        let real: PciAddress = "0000:07:00.0".parse().unwrap();
        assert_eq!(real.known(), Some(real));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "07:00", "0000:07:20.0", "0000:07:00.8", "a:b:c:d.0", "0000:07:00.0.1"] {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
    }
}
