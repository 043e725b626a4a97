//! Faults, from the text form.

use std::time::Duration;

use toml::Spanned;

use super::calls::CALLS;
use super::error::{Checked, MachineProblem as Problem};
use super::faults::{CallFault, Faults};
use super::file::{CallEntry, FaultsEntry, LinkEntry};
use super::model::MachineGpu;
use super::nvlink::FarEnd;

/// `NVML_ERROR_LIB_RM_VERSION_MISMATCH` (nvml.h).
const MISMATCH: u32 = 18;
/// `NVML_ERROR_GPU_IS_LOST`.
const LOST: u32 = 15;
/// `NVML_ERROR_RESET_REQUIRED`.
const RESET_REQUIRED: u32 = 16;
/// `NVML_ERROR_NO_PERMISSION`.
const FORBIDDEN: u32 = 4;

/// Checks the faults, and takes down the links that are said to be down.
pub(super) fn check(entry: FaultsEntry, gpus: &mut [MachineGpu]) -> Checked<Faults> {
    let count = gpus.len();
    let mut handles: Vec<(usize, u32)> = Vec::new();
    let unusable =
        [(entry.lost, LOST), (entry.reset_required, RESET_REQUIRED), (entry.forbidden, FORBIDDEN)];
    for (list, code) in unusable {
        for gpu in list {
            let at = *gpu.get_ref();
            if at >= count {
                return Err((gpu.span(), Problem::NoSuchGpu { gpu: at, count }));
            }
            if handles.iter().any(|(other, _)| *other == at) {
                return Err((gpu.span(), Problem::TwoHandleFaults(at)));
            }
            handles.push((at, code));
        }
    }
    for link in &entry.link {
        take_down(link, gpus)?;
    }
    let absent = entry.absent.into_iter().map(|name| {
        let span = name.span();
        known(name.into_inner()).map_err(|problem| (span, problem))
    });
    let calls = entry.call.into_iter().map(|call| {
        let span = call.span();
        call_fault(call.into_inner(), count).map_err(|problem| (span, problem))
    });
    Ok(Faults {
        init: entry.mismatch.then_some(MISMATCH),
        handles,
        absent: absent.collect::<Checked<_>>()?,
        calls: calls.collect::<Checked<_>>()?,
    })
}

fn known(name: String) -> Result<String, Problem> {
    match CALLS.contains(&name.as_str()) {
        true => Ok(name),
        false => Err(Problem::NoSuchCall(name)),
    }
}

fn call_fault(entry: CallEntry, count: usize) -> Result<CallFault, Problem> {
    let name = known(entry.name)?;
    if let Some(gpu) = entry.gpu.filter(|gpu| *gpu >= count) {
        return Err(Problem::NoSuchGpu { gpu, count });
    }
    if entry.code.is_none() && entry.delay_ms == 0 && !entry.hang && !entry.crash {
        return Err(Problem::EmptyFault(name));
    }
    Ok(CallFault {
        name,
        gpu: entry.gpu,
        code: entry.code,
        delay: Duration::from_millis(entry.delay_ms),
        hang: entry.hang,
        crash: entry.crash,
    })
}

/// A link is one wire: when it is down, it is down at both ends.
fn take_down(entry: &Spanned<LinkEntry>, gpus: &mut [MachineGpu]) -> Checked<()> {
    let LinkEntry { gpu, link } = *entry.get_ref();
    let count = gpus.len();
    let own = gpus.get_mut(gpu).ok_or((entry.span(), Problem::NoSuchGpu { gpu, count }))?;
    let near = own.nvlinks.get_mut(link).filter(|near| near.up);
    let near = near.ok_or((entry.span(), Problem::NoSuchLink { gpu, link }))?;
    near.up = false;
    if let FarEnd::Gpu { gpu, link } = near.far {
        let far = gpus.get_mut(gpu).and_then(|gpu| gpu.nvlinks.get_mut(link));
        if let Some(far) = far {
            far.up = false;
        }
    }
    Ok(())
}
