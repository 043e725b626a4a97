//! Pointers from and to C. All that is unsafe about the exports is here.
//!
//! The wrappers are one pointer wide (`repr(transparent)`) and have no
//! constructor: only a C caller makes them, and nvml.h binds that caller to pass
//! pointers that are null or valid for the documented size.

use std::ffi::{CStr, c_char};

use crate::code::{Answer, Code};

/// A device handle: [`Target`] packed into a pointer that is never followed.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Device(usize);

/// What a handle stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// GPU by position in the machine.
    pub gpu: usize,
    /// MIG slot; `None` for the GPU itself.
    pub slot: Option<usize>,
}

impl Target {
    /// The handle: GPU and slot in a byte each, counted from 1 so that no
    /// handle is null.
    pub fn handle(self) -> Device {
        Device((self.gpu + 1) << 8 | self.slot.map_or(0, |slot| slot + 1))
    }
}

impl Device {
    /// What the handle stands for, whether or not that exists.
    pub fn target(self) -> Answer<Target> {
        let gpu = (self.0 >> 8).checked_sub(1).ok_or(Code::INVALID_ARGUMENT)?;
        Ok(Target { gpu, slot: (self.0 & 0xff).checked_sub(1) })
    }
}

/// Where C wants one value.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Stores the value.
    pub fn put(&self, value: T) -> Answer<()> {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, and C guarantees room for one value (module text).
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Reads what C put there, as for a structure with its version filled in.
    pub fn get(&self) -> Answer<T>
    where
        T: Copy,
    {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, and C guarantees a whole value there.
        Ok(unsafe { self.0.read() })
    }

    /// Seen as another type that begins with the same bytes.
    pub fn cast<U>(&self) -> Out<U> {
        Out(self.0.cast())
    }

    /// Stores at position `at` of an array; C guarantees its length.
    pub fn put_at(&self, at: usize, value: T) -> Answer<()> {
        // The pointer is only moved within the array that C described.
        Out(self.0.wrapping_add(if self.0.is_null() { 0 } else { at })).put(value)
    }

    /// Reads position `at` of an array; C guarantees its length.
    pub fn get_at(&self, at: usize) -> Answer<T>
    where
        T: Copy,
    {
        Out(self.0.wrapping_add(if self.0.is_null() { 0 } else { at })).get()
    }

    /// Whether C passed no pointer.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

impl Out<c_char> {
    /// Stores a text with its terminating zero in a buffer of `length` bytes.
    pub fn put_text(&self, text: &str, length: u32) -> Answer<()> {
        if self.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        if text.len() >= length as usize {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        for (at, byte) in text.bytes().chain([0]).enumerate() {
            self.put_at(at, c_char::from_ne_bytes([byte]))?;
        }
        Ok(())
    }
}

/// A text from C.
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// The text.
    pub fn get(&self) -> Answer<&str> {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, and C guarantees a terminated text that outlives the call.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|_| Code::INVALID_ARGUMENT)
    }
}

/// A fixed array of C characters, zero-filled.
pub fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    // The last place stays zero.
    for (place, byte) in array.iter_mut().take(N.saturating_sub(1)).zip(text.bytes()) {
        *place = c_char::from_ne_bytes([byte]);
    }
    array
}
