//! Made-up UUIDs: the same for the same description, different for different
//! machines.

/// A UUID in its usual form, from a text (FNV-1a, 128 bits; the parameters are
/// those of the FNV draft, draft-eastlake-fnv).
pub(super) fn uuid_of(text: &str) -> String {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash =
        text.bytes().fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    // Version 8: the bits are the maker's own (RFC 9562, section 5.8).
    let hash = hash & !(0xf << 76) | (8 << 76);
    let hash = hash & !(0x3 << 62) | (2 << 62);
    let part = |low: u32, digits: u32| (hash >> low) & ((1 << (digits * 4)) - 1);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        part(96, 8),
        part(80, 4),
        part(64, 4),
        part(48, 4),
        part(0, 12)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_have_the_usual_form_and_depend_on_the_text() {
        let uuid = uuid_of("dgx 0000:07:00.0");
        let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(uuid, uuid_of("dgx 0000:07:00.0"));
        assert_ne!(uuid, uuid_of("dgx 0000:0f:00.0"));
    }
}
