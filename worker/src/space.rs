//! Memory for new texts: pages of the kernel's own, since a program's malloc may be
//! a library's that is not ready before main. Texts of an environment are never
//! freed, so neither are these.

use core::ffi::c_char;
use core::ptr::{copy_nonoverlapping, null_mut};

use gpubind_shim_core::Put;

/// Room for some texts.
pub struct Space {
    next: *mut u8,
    left: usize,
}

impl Space {
    /// Room for so many bytes; `None` if the kernel gives none.
    pub fn of(length: usize) -> Option<Space> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // The kernel's zero behind it ends whatever is cut off.
        // SAFETY: new pages wherever the kernel wants to have them.
        let pages = unsafe { libc::mmap(null_mut(), length + 1, access, kind, -1, 0) };
        (pages != libc::MAP_FAILED).then_some(Space { next: pages.cast(), left: length })
    }

    /// Writes `NAME=value`; what does not fit is cut off.
    pub fn text(&mut self, name: &str, value: impl FnOnce(Put)) -> *mut c_char {
        let text = self.next;
        self.put(name.as_bytes());
        self.put(b"=");
        value(&mut |piece| self.put(piece));
        self.put(&[0]);
        text.cast()
    }

    /// Writes these bytes; what does not fit is cut off.
    pub fn bytes(&mut self, value: impl FnOnce(Put)) -> *const u8 {
        let text = self.next;
        value(&mut |piece| self.put(piece));
        text
    }

    fn put(&mut self, bytes: &[u8]) {
        let length = bytes.len().min(self.left);
        // SAFETY: so many bytes are left, and nobody else has these pages.
        unsafe {
            copy_nonoverlapping(bytes.as_ptr(), self.next, length);
            self.next = self.next.add(length);
        }
        self.left -= length;
    }
}
