//! Faults of a machine, as a caller meets them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what fails here fails its test")]

mod common;

use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::{PAIR, Rig};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

fn rig(faults: &str) -> Rig {
    Rig::new(&format!("{PAIR}\n[faults]\n{faults}\n"))
}

#[test]
fn handles_of_unusable_gpus_answer_their_code() {
    let rig = rig("lost = [0]\nreset-required = [1]");
    let nvml = rig.nvml();
    assert_eq!(nvml.device_count().unwrap(), 2);
    assert!(matches!(nvml.device_by_index(0), Err(NvmlError::GpuLost)));
    assert!(matches!(nvml.device_by_index(1), Err(NvmlError::ResetRequired)));
    assert!(matches!(nvml.device_by_pci_bus_id("0000:01:00.0"), Err(NvmlError::GpuLost)));
    // A search by UUID fails for all while one is lost.
    let other = rig.machine.gpus[1].uuid.as_str();
    assert!(matches!(nvml.device_by_uuid(other), Err(NvmlError::GpuLost)));
}

#[test]
fn a_forbidden_gpu_says_so() {
    let rig = rig("forbidden = [1]");
    let nvml = rig.nvml();
    assert!(nvml.device_by_index(0).is_ok());
    assert!(matches!(nvml.device_by_index(1), Err(NvmlError::NoPermission)));
}

#[test]
fn a_fault_of_one_call_can_be_about_one_gpu() {
    let rig = rig("[[faults.call]]\nname = \"nvmlDeviceGetName\"\ngpu = 1\ncode = 999\n\
         [[faults.call]]\nname = \"nvmlDeviceGetMinorNumber\"\ncode = 3\n\
         [[faults.call]]\nname = \"nvmlDeviceGetHandleByPciBusId_v2\"\ngpu = 0\ncode = 17");
    let nvml = rig.nvml();
    let (first, second) = (nvml.device_by_index(0).unwrap(), nvml.device_by_index(1).unwrap());
    assert_eq!(first.name().unwrap(), "NVIDIA A40");
    assert!(matches!(second.name(), Err(NvmlError::Unknown)));
    assert!(matches!(first.minor_number(), Err(NvmlError::NotSupported)));
    assert!(matches!(second.minor_number(), Err(NvmlError::NotSupported)));
    let blocked = nvml.device_by_pci_bus_id("0000:01:00.0");
    assert!(matches!(blocked, Err(NvmlError::OperatingSystem)));
    assert!(nvml.device_by_pci_bus_id("0000:02:00.0").is_ok());
}

#[test]
fn a_driver_of_another_version_refuses_init() {
    let rig = rig("mismatch = true");
    let answer = Nvml::builder().lib_path(rig.library().as_os_str()).init();
    assert!(matches!(answer, Err(NvmlError::LibRmVersionMismatch)));
}

#[test]
fn an_absent_function_of_the_unpatched_library_says_that_it_is_not_there() {
    let rig = rig("absent = [\"nvmlDeviceGetMemoryAffinity\"]");
    let nvml = rig.nvml();
    let answer = nvml.device_by_index(0).unwrap().memory_affinity(4, 0);
    assert!(matches!(answer, Err(NvmlError::FunctionNotFound)));
}

#[test]
fn a_link_that_is_down_is_down_at_both_ends() {
    let rig = rig("link = [{ gpu = 0, link = 1 }]");
    let nvml = rig.nvml();
    for index in [0, 1] {
        let device = nvml.device_by_index(index).unwrap();
        let states = (0..4).map(|link| device.link_wrapper_for(link).is_active().unwrap());
        assert_eq!(states.collect::<Vec<_>>(), [true, false, true, true]);
        let last = device.link_wrapper_for(4).is_active();
        assert!(matches!(last, Err(NvmlError::InvalidArg)));
    }
}

#[test]
fn a_slow_call_waits() {
    let rig = rig("call = [{ name = \"nvmlDeviceGetName\", delay-ms = 150 }]");
    let nvml = rig.nvml();
    let device = nvml.device_by_index(0).unwrap();
    let start = Instant::now();
    assert!(device.name().is_ok());
    assert!(start.elapsed() >= Duration::from_millis(150));
}

#[test]
fn a_hanging_call_does_not_return_and_holds_up_no_other() {
    let rig = rig("call = [{ name = \"nvmlDeviceGetName\", gpu = 0, hang = true }]");
    // The hanging thread keeps the library until the process ends.
    let nvml: &'static Nvml = Box::leak(Box::new(rig.nvml()));
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let _ = send.send(nvml.device_by_index(0).unwrap().name());
    });
    let answer = receive.recv_timeout(Duration::from_millis(300));
    assert_eq!(answer.err(), Some(mpsc::RecvTimeoutError::Timeout));
    assert_eq!(nvml.device_by_index(1).unwrap().name().unwrap(), "NVIDIA A40");
}

#[test]
fn a_crash_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    let rig = rig("call = [{ name = \"nvmlDeviceGetName\", crash = true }]");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_asks_for_a_name", "--ignored"])
        .env("FAKE_NVML_TEST_LIBRARY", rig.library())
        // Where a core file goes away with the rest.
        .current_dir(rig.path())
        .output()
        .unwrap();
    assert_eq!(child.status.signal(), Some(6), "SIGABRT, as abort(3) sends");
}

#[test]
#[ignore = "the other half of a_crash_ends_the_process"]
fn child_that_asks_for_a_name() {
    let library = std::env::var_os("FAKE_NVML_TEST_LIBRARY").unwrap();
    let nvml = Nvml::builder().lib_path(&library).init().unwrap();
    let _ = nvml.device_by_index(0).unwrap().name();
}
