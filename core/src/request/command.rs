//! Slurm's commands that take gpubind's options.

use std::ffi::OsStr;
use std::path::Path;

/// A Slurm command with options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// srun.
    Srun,
    /// sbatch.
    Sbatch,
    /// salloc.
    Salloc,
}

impl Command {
    /// The command that `argv[0]`, or a program's path, stands for.
    pub fn from_argv0(program: &OsStr) -> Option<Command> {
        match Path::new(program).file_name()?.to_str()? {
            "srun" => Some(Command::Srun),
            "sbatch" => Some(Command::Sbatch),
            "salloc" => Some(Command::Salloc),
            _ => None,
        }
    }

    /// The command that a process is, by the SPANK context that it is in. Only srun has
    /// the local one, whatever it is called. The allocator's is sbatch's and salloc's,
    /// which `names` tell apart: `argv[0]`, and the program's file. A site may have
    /// renamed one (`sbatch.real`). scrontab and scrun are in that context as well
    /// (`spank_init_allocator` in src/scrontab and src/scrun).
    pub fn of_process(is_allocator: bool, names: &[&OsStr]) -> Option<Command> {
        if !is_allocator {
            return Some(Command::Srun);
        }
        let exact = names.iter().filter_map(|name| Command::from_argv0(name));
        let in_words = names.iter().filter_map(|name| {
            let name = Path::new(name).file_name()?.to_string_lossy();
            match (name.contains("sbatch"), name.contains("salloc")) {
                (true, false) => Some(Command::Sbatch),
                (false, true) => Some(Command::Salloc),
                _ => None,
            }
        });
        exact.chain(in_words).find(|command| *command != Command::Srun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn srun_is_known_by_its_context_and_the_others_by_their_names() {
        let of = |is_allocator, names: [&str; 2]| {
            Command::of_process(is_allocator, &names.map(OsStr::new))
        };
        for name in ["srun", "srun.real", "/opt/bin/mysrun", "x", ""] {
            assert_eq!(of(false, [name, "/usr/bin/x"]), Some(Command::Srun), "{name}");
        }
        for (names, command) in [
            (["sbatch", "/usr/bin/sbatch"], Some(Command::Sbatch)),
            (["./salloc", "/usr/bin/salloc"], Some(Command::Salloc)),
            (["submit", "/usr/bin/sbatch"], Some(Command::Sbatch)),
            (["sbatch.real", "/usr/libexec/sbatch.real"], Some(Command::Sbatch)),
            (["x", "/usr/bin/salloc-25.11"], Some(Command::Salloc)),
            (["srun", "/usr/bin/salloc"], Some(Command::Salloc)),
            (["scrontab", "/usr/bin/scrontab"], None),
            (["scrun", "/usr/bin/scrun"], None),
            (["", ""], None),
        ] {
            assert_eq!(of(true, names), command, "{names:?}");
        }
    }
}
