//! What fuzzing has kept, read by every parser again: scripts/fuzz finds more.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

mod parser_support;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use parser_support::PARSERS;

#[test]
fn every_parser_reads_its_corpus_soon_and_without_a_panic() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    for (name, parse) in PARSERS {
        let files = fs::read_dir(corpus.join(name)).unwrap();
        let mut count = 0;
        for file in files.map(|entry| entry.unwrap().path()) {
            let bytes = fs::read(&file).unwrap();
            let begin = Instant::now();
            parse(&bytes);
            assert!(begin.elapsed() < Duration::from_secs(5), "{}", file.display());
            count += 1;
        }
        assert!(count > 3, "{name} has {count} inputs");
    }
}
