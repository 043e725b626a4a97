//! NVML's return codes (nvml.h, `nvmlReturn_t`).

use std::ffi::CStr;

/// A return code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u32);

/// What a question has for an answer.
pub type Answer<T> = Result<T, Code>;

impl Code {
    pub const SUCCESS: Code = Code(0);
    pub const UNINITIALIZED: Code = Code(1);
    pub const INVALID_ARGUMENT: Code = Code(2);
    pub const NOT_SUPPORTED: Code = Code(3);
    pub const NO_PERMISSION: Code = Code(4);
    pub const NOT_FOUND: Code = Code(6);
    pub const INSUFFICIENT_SIZE: Code = Code(7);
    pub const FUNCTION_NOT_FOUND: Code = Code(13);
    pub const GPU_IS_LOST: Code = Code(15);
    pub const ARGUMENT_VERSION_MISMATCH: Code = Code(25);
    pub const UNKNOWN: Code = Code(999);

    /// What `nvmlErrorString` says.
    pub fn text(self) -> &'static CStr {
        match self.0 {
            0 => c"The operation was successful",
            1 => c"Uninitialized",
            2 => c"Invalid Argument",
            3 => c"Not Supported",
            4 => c"Insufficient Permissions",
            6 => c"Not Found",
            7 => c"Insufficient Size",
            8 => c"Insufficient External Power",
            9 => c"Driver Not Loaded",
            10 => c"Timeout",
            11 => c"Interrupt Request Issue",
            12 => c"NVML Shared Library Not Found",
            13 => c"Function Not Found",
            14 => c"Corrupted infoROM",
            15 => c"GPU is lost",
            16 => c"GPU requires reset",
            17 => c"GPU access blocked by the operating system",
            18 => c"Driver/library version mismatch",
            19 => c"In use by another client",
            20 => c"Insufficient Memory",
            25 => c"Argument version mismatch",
            _ => c"Unknown Error",
        }
    }
}
