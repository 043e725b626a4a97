//! The `gpubind` program.
fn main() {}
