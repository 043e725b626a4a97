//! Taking functions out of a library file.
//!
//! dlsym finds a symbol by the hash of its name and then compares the name in
//! the string table. With another letter in that string the comparison fails,
//! and the function is not found, as in an older driver's library. No offset
//! moves, so the rest of the file stays valid.

use std::collections::BTreeSet;

/// The library without these functions.
///
/// # Errors
/// A function that the library does not have in the first place.
pub fn without(mut library: Vec<u8>, names: &[String]) -> Result<Vec<u8>, String> {
    let mut missing: BTreeSet<&[u8]> = names.iter().map(String::as_bytes).collect();
    // Names are between zero bytes in a string table (ELF specification).
    for text in library.split_mut(|byte| *byte == 0) {
        if names.iter().any(|name| name.as_bytes() == text) {
            missing.remove(&*text);
            if let Some(letter) = text.first_mut() {
                *letter = b'-';
            }
        }
    }
    match missing.first() {
        Some(name) => Err(format!(
            "the library has no function {} to leave out",
            String::from_utf8_lossy(name)
        )),
        None => Ok(library),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_entry_changes() {
        let table = b"\0nvmlInit\0nvmlInit_v2\0".to_vec();
        let left = without(table.clone(), &["nvmlInit".to_owned()]).unwrap();
        assert_eq!(left, b"\0-vmlInit\0nvmlInit_v2\0");
        assert!(without(table, &["nvmlIn".to_owned()]).is_err());
    }
}
