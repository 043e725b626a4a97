//! What the installed files need of the machine: the plugin a C library no newer than that
//! of Debian 12, the oldest system that gpubind is made for (docs/install.md), and what is
//! started in containers one no newer than the oldest images have.

use object::{Object, ObjectSection};

use crate::{Test, dist};

pub const TESTS: &[Test] =
    &[("what_runs_in_containers_needs_no_newer_glibc_than_2_17", no_file_needs_a_newer_glibc)];

/// Debian 12's.
const GLIBC: (u32, u32) = (2, 36);

/// That of the oldest images in use, CentOS 7's.
const OLD_GLIBC: (u32, u32) = (2, 17);

fn no_file_needs_a_newer_glibc() {
    for (file, limit) in [
        ("lib/spank_gpubind.so", GLIBC),
        ("bin/gpubind", OLD_GLIBC),
        ("lib/libgpubind_worker.so", OLD_GLIBC),
    ] {
        let newest = glibc_versions(file).into_iter().max();
        let newest = newest.unwrap_or_else(|| panic!("{file} needs no glibc at all?"));
        assert!(newest <= limit, "{file} needs glibc {}.{}", newest.0, newest.1);
    }
}

/// The versions of glibc's symbols that a file names. It defines none itself, so
/// whatever of this form is in its table of dynamic strings is needed.
fn glibc_versions(file: &str) -> Vec<(u32, u32)> {
    let bytes = std::fs::read(dist().join(file)).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let strings = elf.section_by_name(".dynstr").unwrap().data().unwrap();
    let strings =
        strings.split(|byte| *byte == 0).filter_map(|text| std::str::from_utf8(text).ok());
    let versions = strings.filter_map(|text| text.strip_prefix("GLIBC_"));
    versions
        .map(|version| {
            let mut numbers = version.split('.').map(|number| number.parse().unwrap());
            (numbers.next().unwrap(), numbers.next().unwrap())
        })
        .collect()
}
