//! A process's environment, changed in place: main's third argument, environ(7)
//! and getenv(3) all look at one array, and none of them must miss a change. So
//! texts are replaced or taken away, and the array never grows or moves.

use core::ffi::{CStr, c_char};
use core::marker::PhantomData;

/// The array of `NAME=value` texts.
pub struct Environment<'a> {
    slots: &'a mut [*mut c_char],
    texts: PhantomData<&'a CStr>,
}

impl<'a> Environment<'a> {
    /// # Safety
    /// `first` is null, or begins an array of C strings with a null behind the last.
    /// For as long as `'a` nobody else uses the array, and the texts stay.
    pub unsafe fn new(first: *mut *mut c_char) -> Environment<'a> {
        let mut length = 0_usize;
        // SAFETY: the array goes on until its null.
        while !first.is_null() && unsafe { !(*first.add(length)).is_null() } {
            length = length.wrapping_add(1);
        }
        let slots: &mut [*mut c_char] = match length {
            0 => &mut [],
            // SAFETY: so many have been seen, and they are ours for 'a.
            _ => unsafe { core::slice::from_raw_parts_mut(first, length) },
        };
        Environment { slots, texts: PhantomData }
    }

    /// A variable's value.
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.slots.iter().find_map(|text| value(*text, name))
    }

    /// Puts another text in the place of a variable that is there.
    pub fn replace(&mut self, name: &str, text: *mut c_char) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| value(**slot, name).is_some()) {
            *slot = text;
        }
    }

    /// Takes a variable out of the array.
    pub fn remove(&mut self, name: &str) {
        if let Some(position) = self.slots.iter().position(|text| value(*text, name).is_some()) {
            let mut behind = self.slots.iter_mut().skip(position);
            let Some(mut before) = behind.next() else { return };
            for slot in behind {
                core::mem::swap(before, slot);
                before = slot;
            }
            // What is taken out has come to the end.
            *before = core::ptr::null_mut();
        }
    }
}

/// The value in a text `NAME=value`, if it is of this name.
fn value<'a>(text: *const c_char, name: &str) -> Option<&'a [u8]> {
    if text.is_null() {
        return None;
    }
    let mut at = text.cast::<u8>();
    for byte in name.bytes().chain([b'=']) {
        // SAFETY: the text's end is a null, which no name has, so the first
        // difference comes there at the latest.
        unsafe {
            if *at != byte {
                return None;
            }
            at = at.add(1);
        }
    }
    // SAFETY: the rest of a C string is one.
    Some(unsafe { CStr::from_ptr(at.cast()) }.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    /// Texts, and the array that points to them.
    pub struct Array(
        #[allow(dead_code, reason = "the slots point into it")] Vec<CString>,
        Vec<*mut c_char>,
    );

    impl Array {
        pub fn new(texts: &[&str]) -> Array {
            let texts: Vec<CString> =
                texts.iter().map(|text| CString::new(*text).unwrap()).collect();
            let mut slots: Vec<_> = texts.iter().map(|text| text.as_ptr().cast_mut()).collect();
            slots.push(core::ptr::null_mut());
            Array(texts, slots)
        }

        pub fn environment(&mut self) -> Environment<'_> {
            // SAFETY: the array ends with a null and lives on.
            unsafe { Environment::new(self.1.as_mut_ptr()) }
        }

        /// What a program finds.
        pub fn read(&self) -> Vec<&str> {
            let texts = self.1.iter().take_while(|text| !text.is_null());
            // SAFETY: C strings, from here or from a test.
            texts.map(|text| unsafe { CStr::from_ptr(*text) }.to_str().unwrap()).collect()
        }
    }

    #[test]
    fn variables_are_found_by_their_whole_name() {
        let mut array = Array::new(&["AB=1", "A=2", "EMPTY=", "WORD", "A=3", "ODD=x=y"]);
        let environment = array.environment();
        let get = |name| environment.get(name).map(|value| std::str::from_utf8(value).unwrap());
        assert_eq!(get("A"), Some("2"), "the first counts, as for getenv");
        assert_eq!(get("AB"), Some("1"));
        assert_eq!(get("EMPTY"), Some(""));
        assert_eq!(get("ODD"), Some("x=y"));
        for name in ["WORD", "B", "ABC", "EMPTY="] {
            assert_eq!(get(name), None, "{name}");
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { Environment::new(core::ptr::null_mut()) }.get("A"), None);
    }

    #[test]
    fn texts_are_replaced_and_taken_away_where_they_are() {
        let mut array = Array::new(&["A=1", "B=2", "C=3"]);
        let mut environment = array.environment();
        environment.replace("B", c"B=longer than before".as_ptr().cast_mut());
        environment.replace("D", c"D=4".as_ptr().cast_mut());
        assert_eq!(array.read(), ["A=1", "B=longer than before", "C=3"]);
        for (name, rest) in [
            ("A", &["B=longer than before", "C=3"][..]),
            ("C", &["B=longer than before"]),
            ("B", &[]),
        ] {
            array.environment().remove(name);
            array.environment().remove("D");
            assert_eq!(array.read(), rest);
        }
    }
}
