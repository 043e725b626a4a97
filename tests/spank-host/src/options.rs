//! Options that the plugin registers, and their values.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::null;

use crate::state::{Context, c_string, state};

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

type Callback = unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int;

/// An option that a plugin has registered.
#[derive(Debug, Clone)]
pub struct Registered {
    pub name: CString,
    val: c_int,
    callback: Option<Callback>,
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

/// Gives the plugin the values of `NAME=VALUE` words, as Slurm does between
/// slurm_spank_init and slurm_spank_init_post_opt. False where a callback fails or there
/// is no such option.
pub fn set_all(words: &[String]) -> bool {
    words.iter().all(|word| {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let (name, value) = (c_string(name), c_string(value));
        let mut state = state();
        let remote = c_int::from(state.context == Context::Remote);
        let Some(option) = state.options.iter_mut().find(|option| option.name == name) else {
            eprintln!("spank-host: the plugin has no option `{}`", name.to_string_lossy());
            return false;
        };
        option.value = Some(value.clone());
        let option = option.clone();
        // The callback may call back.
        drop(state);
        // SAFETY: the plugin has registered the function with this type.
        option.callback.is_none_or(|call| unsafe { call(option.val, value.as_ptr(), remote) } == 0)
    })
}

/// The option's value for spank_option_getopt; good until options are set again.
pub fn value(name: &CStr) -> Option<*const c_char> {
    let state = state();
    let option = state.options.iter().find(|option| option.name.as_c_str() == name)?;
    Some(option.value.as_ref().map_or(null(), |value| value.as_ptr()))
}
