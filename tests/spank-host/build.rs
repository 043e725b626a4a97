//! Builds the functions that take any number of arguments, which stable Rust cannot
//! define, and exports the program's symbols to the plugin that it loads.

fn main() {
    println!("cargo:rerun-if-changed=src/variadic.c");
    // Where it is missing, hooks are not marked for callgrind; see src/mark.rs.
    println!("cargo:rerun-if-changed=/usr/include/valgrind/callgrind.h");
    cc::Build::new().file("src/variadic.c").warnings(true).compile("spank_host_variadic");
    println!("cargo:rustc-link-arg-bins=-rdynamic");
}
