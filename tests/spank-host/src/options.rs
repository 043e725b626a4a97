//! Options that the plugin registers, and their values.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null;

use crate::c_string::c_string;
use crate::state::{Context, state};

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
