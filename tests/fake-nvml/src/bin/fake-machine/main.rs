//! `fake-machine FIXTURE DIR`: lays out a machine under a folder, as programs
//! would find it under `/`, for tests and for clusters on one host.
//!
//! Device nodes and mounts are left to whoever uses the folder: they need root.

mod bridges;
mod elf;
mod procfs;
mod root;
mod sysfs;
mod table;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gpubind_machine::Machine;
use root::Root;

const HELP: &str = "\
Lays out a machine fixture as a file-system root.

Usage: fake-machine [--json] [--library FILE] FIXTURE DIR

  FIXTURE         a machine description (tests/machines/*.toml)
  DIR             folder to fill: nvml/machine.toml, proc/, sys/; made if missing
  --json          print the GPUs as JSON, with their MIG instances
  --library FILE  copy the fake NVML to DIR/nvml/libnvidia-ml.so.1, without the
                  functions that the fixture says are absent
  --help          this text

Fingerprints a line for each GPU, separated by tabs: index, minor, PCI address, UUID,
name, NUMA nodes, CPUs (`-` where the machine does not tell).
";

#[derive(Default)]
struct Arguments {
    json: bool,
    library: Option<PathBuf>,
    paths: Vec<PathBuf>,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fake-machine: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = Arguments::default();
    let mut words = std::env::args_os().skip(1);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--help" | "-h") => {
                print!("{HELP}");
                return Ok(());
            }
            Some("--json") => arguments.json = true,
            Some("--library") => {
                let file = words.next().ok_or("--library needs the file to copy")?;
                arguments.library = Some(file.into());
            }
            Some(option) if option.starts_with("--") => {
                return Err(format!("unknown option `{option}`; see --help").into());
            }
            _ => arguments.paths.push(word.into()),
        }
    }
    let [fixture, folder] = arguments.paths.as_slice() else {
        return Err("needs two paths, FIXTURE and DIR; see --help".into());
    };
    let text = fs::read_to_string(fixture).map_err(|error| named(fixture, &error))?;
    let machine = Machine::parse(&text).map_err(|error| named(fixture, &error))?;
    let root = Root::new(folder)?;
    root.write("nvml/machine.toml", &text)?;
    sysfs::lay_out(&root, &machine)?;
    procfs::lay_out(&root, &machine)?;
    if let Some(library) = &arguments.library {
        let bytes = fs::read(library).map_err(|error| named(library, &error))?;
        let bytes = elf::without(bytes, &machine.faults.absent)?;
        root.write_bytes("nvml/libnvidia-ml.so.1", &bytes)?;
    }
    print!("{}", if arguments.json { table::json(&machine)? } else { table::lines(&machine) });
    Ok(())
}

fn named(file: &Path, error: &dyn Error) -> String {
    format!("{}: {error}", file.display())
}
