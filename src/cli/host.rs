//! The node's name.

use gpubind_core::variables;

/// Slurm's name where it tells, else the machine's own.
pub(super) fn host() -> String {
    std::env::var(variables::NODE_NAME)
        .unwrap_or_else(|_| rustix::system::uname().nodename().to_string_lossy().into_owned())
}
