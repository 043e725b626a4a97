//! NVML's C functions. Each names itself for the call log and the faults, asks
//! the model, and stores the answer; nothing is decided here.

mod affinity;
mod identity;
mod life;
mod links;
mod mig;
mod pcie;
mod topology;
