//! What does not work on a machine.

use std::time::Duration;

/// The faults of a machine. Codes are `nvmlReturn_t` numbers (nvml.h).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults {
    /// What `nvmlInit` answers instead of success.
    pub init: Option<u32>,
    /// What the handle of a GPU answers: GPU position and code.
    pub handles: Vec<(usize, u32)>,
    /// Functions that the library does not have.
    pub absent: Vec<String>,
    /// Functions that fail, wait, hang or crash.
    pub calls: Vec<CallFault>,
}

/// A fault of one function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFault {
    pub name: String,
    /// Only for this GPU, by position; `None` for every call.
    pub gpu: Option<usize>,
    /// Answer this code instead of doing the work.
    pub code: Option<u32>,
    pub delay: Duration,
    pub hang: bool,
    /// End the process, as a crash in the driver's library would.
    pub crash: bool,
}

impl Faults {
    /// What the handle of this GPU answers, where it is not usable.
    pub fn handle(&self, gpu: usize) -> Option<u32> {
        let mut faults = self.handles.iter();
        faults.find(|(at, _)| *at == gpu).map(|(_, code)| *code)
    }

    /// The faults of one call, about these GPUs.
    pub fn of_call<'a>(
        &'a self,
        name: &'a str,
        gpus: &'a [usize],
    ) -> impl Iterator<Item = &'a CallFault> {
        let hits = move |fault: &&CallFault| {
            fault.name == name && fault.gpu.is_none_or(|gpu| gpus.contains(&gpu))
        };
        self.calls.iter().filter(hits)
    }
}
