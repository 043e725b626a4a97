//! The `gpubind` program; see [`gpubind::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    gpubind::cli::main()
}
