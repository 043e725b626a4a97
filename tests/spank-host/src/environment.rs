//! A list of C strings that C code can read: an environment, or arguments.

use std::ffi::{CStr, CString, c_char};
use std::io;
use std::path::Path;

use crate::c_string::c_string;

/// The strings, and pointers to them with a null at the end.
#[derive(Debug, Default)]
pub struct Environment {
    strings: Vec<CString>,
    /// Addresses, of the size of pointers: pointers would tie it to a thread.
    pointers: Vec<usize>,
}

impl Environment {
    pub const fn new() -> Environment {
        Environment { strings: Vec::new(), pointers: Vec::new() }
    }

    pub fn from_strings(strings: Vec<CString>) -> Environment {
        let mut environment = Environment { strings, pointers: Vec::new() };
        environment.point();
        environment
    }

    /// The lines of a file.
    pub fn read(file: &Path) -> io::Result<Environment> {
        let text = std::fs::read(file)?;
        let lines = text.split(|byte| *byte == b'\n').filter(|line| line.contains(&b'='));
        Ok(Environment::from_strings(lines.map(c_string).collect()))
    }

    fn point(&mut self) {
        self.pointers = self.strings.iter().map(|string| string.as_ptr() as usize).collect();
        self.pointers.push(0);
    }

    /// A C array of the strings; good until the next change.
    pub fn as_array(&mut self) -> *mut *mut c_char {
        self.pointers.as_mut_ptr().cast()
    }

    pub fn len(&self) -> usize {
        self.strings.len()
    }

    pub fn strings(&self) -> &[CString] {
        &self.strings
    }

    /// Where the variable stands.
    fn position(&self, name: &[u8]) -> Option<usize> {
        self.strings.iter().position(|string| {
            let bytes = string.as_bytes();
            bytes.starts_with(name) && bytes.get(name.len()) == Some(&b'=')
        })
    }

    pub fn get(&self, name: &CStr) -> Option<&[u8]> {
        let name = name.to_bytes();
        let string = self.strings.get(self.position(name)?)?;
        string.as_bytes().get(name.len() + 1..)
    }

    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        let string = c_string([name, b"=", value].concat());
        match self.position(name) {
            Some(position) => self.strings[position] = string,
            None => self.strings.push(string),
        }
        self.point();
    }

    pub fn unset(&mut self, name: &[u8]) {
        while let Some(position) = self.position(name) {
            self.strings.remove(position);
        }
        self.point();
    }

    /// `NAME=VALUE` sets, `NAME` alone takes away.
    pub fn apply(&mut self, change: &str) {
        match change.split_once('=') {
            Some((name, value)) => self.set(name.as_bytes(), value.as_bytes()),
            None => self.unset(change.as_bytes()),
        }
    }
}
