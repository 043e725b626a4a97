//! An option that the plugin has registered.

use std::ffi::{CStr, CString, c_char, c_int};

/// struct spank_option.
#[repr(C)]
pub struct SpankOption {
    pub name: *const c_char,
    pub arginfo: *const c_char,
    pub usage: *const c_char,
    pub has_arg: c_int,
    pub val: c_int,
    pub callback: Option<Callback>,
}

pub type Callback = unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int;

/// An option that a plugin has registered.
#[derive(Debug, Clone)]
pub struct Registered {
    pub name: CString,
    pub val: c_int,
    pub callback: Option<Callback>,
    pub value: Option<CString>,
}

impl Registered {
    /// Copies what the plugin gives; `None` if it has no name.
    ///
    /// # Safety
    /// The name is null or a C string.
    pub unsafe fn new(option: &SpankOption) -> Option<Registered> {
        if option.name.is_null() {
            return None;
        }
        // SAFETY: not null, so a C string.
        let name = unsafe { CStr::from_ptr(option.name) }.to_owned();
        Some(Registered { name, val: option.val, callback: option.callback, value: None })
    }
}
