//! The plugin's version word in a Slurm that does not exist: a program that answers
//! slurm_api_version() as given, loads the plugin as Slurm does, and prints the word.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSymbol};

use crate::{Test, dist, run};

pub const TESTS: &[Test] = &[
    ("a_release_to_come_gets_its_word_by_the_rule", a_release_to_come_gets_its_word),
    ("a_number_that_is_no_release_leaves_a_word_that_none_has", a_number_that_is_no_release),
];

/// The word as the file has it: no release's.
const UNSET: u32 = 1;

fn a_release_to_come_gets_its_word() {
    let there = tempfile::tempdir().unwrap();
    let slurm = slurm(there.path(), true);
    // API number, and the release's year and month.
    for (number, year, month) in [(38, 22, 5), (45, 26, 5), (46, 26, 11), (47, 27, 5), (52, 29, 11)]
    {
        assert_eq!(word(&slurm, number << 16), year << 16 | month << 8, "{number}");
    }
}

fn a_number_that_is_no_release() {
    let there = tempfile::tempdir().unwrap();
    // Before 22.05, nonsense, and a Slurm without the function.
    let slurm_of = slurm(there.path(), true);
    for api in [37 << 16, 0, 0xffff << 16, u32::MAX] {
        assert_eq!(word(&slurm_of, api), UNSET, "{api:#x}");
    }
    assert_eq!(word(&slurm(there.path(), false), 0), UNSET);
}

fn word(slurm: &Path, api: u32) -> u32 {
    let plugin = dist().join("lib/spank_gpubind.so");
    let (word, _) = run(Command::new(slurm).arg(plugin).arg(api.to_string()));
    word.trim().parse().unwrap()
}

/// Builds the program. What else the plugin needs of Slurm is there, and does nothing.
fn slurm(folder: &Path, has_number: bool) -> PathBuf {
    let mut source = String::from(
        "#include <dlfcn.h>\n#include <stdio.h>\n#include <stdlib.h>\nstatic long api;\n",
    );
    if has_number {
        source += "long slurm_api_version(void) { return api; }\n";
    }
    for name in of_slurm() {
        writeln!(source, "int {name}(void) {{ return -1; }}").unwrap();
    }
    source += r#"
int main(int argc, char **argv) {
    api = argc > 2 ? atol(argv[2]) : 0;
    void *plugin = dlopen(argv[1], RTLD_LAZY);
    unsigned *word = plugin ? dlsym(plugin, "plugin_version") : NULL;
    if (!word) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    printf("%u\n", *word);
    return 0;
}
"#;
    let file = folder.join("slurm.c");
    let program = folder.join(if has_number { "slurm" } else { "slurm-without" });
    std::fs::write(&file, source).unwrap();
    run(Command::new("cc").args(["-w", "-rdynamic", "-o"]).arg(&program).arg(&file));
    program
}

/// What the plugin takes from the program that loads it: none of libc's names begins
/// so.
fn of_slurm() -> BTreeSet<String> {
    let bytes = std::fs::read(dist().join("lib/spank_gpubind.so")).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let needed = elf.dynamic_symbols().filter(|symbol| symbol.is_undefined());
    let names = needed.map(|symbol| symbol.name().unwrap().to_owned());
    names.filter(|name| name.starts_with("spank_") || name.starts_with("slurm_")).collect()
}
