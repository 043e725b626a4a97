//! libFuzzer over one of gpubind's parsers: the one that the variable FUZZ_PARSER names.
#![no_main]

#[path = "../../parser_support/mod.rs"]
mod parser_support;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use parser_support::{PARSERS, Parser};

fuzz_target!(|bytes: &[u8]| {
    static PARSER: OnceLock<Parser> = OnceLock::new();
    let (_, parse) = PARSER.get_or_init(|| {
        let wanted = std::env::var("FUZZ_PARSER").unwrap_or_default();
        let found = PARSERS.into_iter().find(|(name, _)| *name == wanted);
        found.unwrap_or_else(|| panic!("no parser {wanted:?}"))
    });
    parse(bytes);
});
