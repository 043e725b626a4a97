//! Which GPUs a process may see: the device cgroup's part, as far as
//! access(2) tells, which asks the cgroup without opening the device.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The folder of the library file itself.
pub fn library_folder() -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    let here = library_folder as *const libc::c_void;
    // SAFETY: any address may be asked about, and `info` is a whole Dl_info.
    let found = unsafe { libc::dladdr(here, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr found the library, so the name is a terminated text that
    // lives as long as the library is loaded, which runs this very code.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let file = Path::new(OsStr::from_bytes(name.to_bytes()));
    file.parent().map(Path::to_path_buf)
}

/// The folder with the device files, where hiding is wanted.
pub fn device_folder() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("FAKE_NVML_DEV") {
        return Some(folder.into());
    }
    let folder = library_folder()?.join("../dev");
    folder.is_dir().then_some(folder)
}

/// Whether the process may open the GPU's device file; a missing file counts
/// as denied, as in a container that was not given the device.
pub fn may_use(folder: &Path, minor: u32) -> bool {
    accessible(&folder.join(format!("nvidia{minor}")))
}

/// Whether the control device is there but denied, which the real library
/// answers with an unknown error (NVIDIA/nvidia-container-toolkit#251).
pub fn control_denied(folder: &Path) -> bool {
    let control = folder.join("nvidiactl");
    control.exists() && !accessible(&control)
}

fn accessible(file: &Path) -> bool {
    let Ok(file) = CString::new(file.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: a terminated text, which access(2) only reads.
    unsafe { libc::access(file.as_ptr(), libc::R_OK | libc::W_OK) == 0 }
}
