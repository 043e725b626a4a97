//! Every fixture, read through the fake library and file tree, is the node that
//! the fixture describes. A new fixture joins by lying in the folder.
#![allow(clippy::unwrap_used, reason = "a test helper that fails fails its test")]

mod nvml_support;

use gpubind::nvml::{self, NvmlError};
use gpubind_core::node::snapshot::{Fingerprint, MAX_AGE, Snapshot};
use nvml_support::{Fake, names};

#[test]
fn every_fixture_is_read_back_as_it_is() {
    let mut read = 0;
    for name in names() {
        let fake = Fake::with(&name, "");
        let faults = &fake.machine.faults;
        if faults.calls.iter().any(|call| call.hang || call.crash) {
            // Not in this process.
            continue;
        }
        let answer = nvml::read(Some(&fake.library()), &fake.roots());
        if let Some(code) = faults.init {
            assert!(
                matches!(answer, Err(NvmlError::Failed { code: found }) if found == code),
                "{name}: {answer:?}"
            );
            continue;
        }
        let node = answer.unwrap_or_else(|error| panic!("{name}: {error}"));
        node.check().unwrap_or_else(|error| panic!("{name}: {error}"));
        if faults.calls.is_empty() && faults.absent.is_empty() {
            let expected = fake.machine.to_node();
            for (gpu, described) in node.gpus.iter().zip(&expected.gpus) {
                assert_eq!(gpu, described, "{name}");
            }
            for (row, described) in node.links.iter().zip(&expected.links) {
                assert_eq!(row, described, "{name}");
            }
            for (nic, described) in node.nics.iter().zip(&expected.nics) {
                assert_eq!(nic, described, "{name}");
            }
            assert_eq!(node, expected, "{name}");
        }
        read += 1;
    }
    assert!(read >= 6, "only {read} fixtures were read");
}

#[test]
fn every_fixture_goes_through_a_snapshot_unchanged() {
    for name in names() {
        let fake = Fake::with(&name, "");
        let now = std::time::SystemTime::now();
        let node = fake.machine.to_node();
        let snapshot = Snapshot::new(node, Fingerprint::take(&fake.roots()), now);
        let back = Snapshot::parse(snapshot.to_json().as_bytes());
        let back = back.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(back, snapshot, "{name}");
        back.is_current(&fake.roots(), MAX_AGE, now).unwrap();
    }
}
