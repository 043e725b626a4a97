//! Marks around hooks, for whoever watches the process.

use std::ffi::{CString, c_char, c_int};

use crate::c_string::c_string;
use crate::settings::Marks;

unsafe extern "C" {
    safe fn spank_host_has_callgrind() -> c_int;
    safe fn spank_host_begin_count();
    fn spank_host_end_count(name: *const c_char);
}

/// Whether hooks can be marked so in this build.
pub fn can(marks: Option<Marks>) -> bool {
    marks != Some(Marks::Callgrind) || spank_host_has_callgrind() != 0
}

/// Runs the work between marks of this name, which is asked for where marks are made.
pub fn around<T>(
    marks: Option<Marks>,
    name: impl FnOnce() -> String,
    work: impl FnOnce() -> T,
) -> T {
    match marks {
        None => work(),
        Some(Marks::Callgrind) => {
            let name = c_string(name());
            spank_host_begin_count();
            let result = work();
            // SAFETY: the name is a C string.
            unsafe { spank_host_end_count(name.as_ptr()) };
            result
        }
        Some(Marks::Strace) => {
            let name = name();
            let path = |what| c_string(format!("/spank-host/{what}/{name}"));
            let (begin, end) = (path("begin"), path("end"));
            call(&begin);
            let result = work();
            call(&end);
            result
        }
    }
}

/// A system call that does nothing, with a path that strace shows.
fn call(path: &CString) {
    // SAFETY: the path is a C string.
    unsafe { libc::access(path.as_ptr(), libc::F_OK) };
}
