//! Links the shim so that an undefined symbol, above all the one that its panic
//! handler calls, fails the build instead of a user's process.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,defs");
    println!("cargo:rerun-if-changed=build.rs");
}
