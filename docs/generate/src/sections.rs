//! What a man page of section 1 has behind its options: exit codes, variables, examples,
//! other pages.

use gpubind_core::variables::VARIABLES;

use crate::roff::{bold, line};

/// What is known of one command.
struct Command {
    name: &'static str,
    /// Exit codes with what they mean, besides 0 and 2.
    exit: &'static [(&'static str, &'static str)],
    examples: &'static [(&'static str, &'static str)],
    see: &'static [&'static str],
}

const FAILED: (&str, &str) = ("1", "It failed; stderr says why.");

const COMMANDS: [Command; 8] = [
    Command {
        name: "gpubind",
        exit: &[FAILED],
        examples: &[
            ("srun --gpu-bind=spank python train.py", "Give each rank its own nearest GPU."),
            ("gpubind plan -n8", "See which GPU each of eight tasks would get here."),
            ("srun --gpu-bind=spank gpubind report --check", "See what each rank has got."),
        ],
        see: &["spank_gpubind(8)", "gpubind.toml(5)", "srun(1)"],
    },
    Command {
        name: "topo",
        exit: &[FAILED],
        examples: &[
            ("gpubind topo", "This machine."),
            ("nvidia-smi topo -m | gpubind topo --from -", "A machine that somebody has pasted."),
            ("gpubind topo --no-nics", "The same without the network adapters."),
            ("gpubind topo --svg topo.svg", "A picture of it."),
        ],
        see: &["gpubind-plan(1)", "nvidia-smi(1)"],
    },
    Command {
        name: "plan",
        exit: &[FAILED],
        examples: &[
            ("gpubind plan -n8", "Eight tasks on all GPUs of this machine."),
            ("gpubind plan -n4 --devices 4-7", "Four tasks on the last four GPUs."),
            ("gpubind plan -n8 --from topo.txt", "The same on another machine."),
        ],
        see: &["gpubind-topo(1)", "gpubind-report(1)", "srun(1)"],
    },
    Command {
        name: "exec",
        exit: &[
            ("126", "COMMAND cannot be run."),
            ("127", "COMMAND is not found."),
            ("other", "COMMAND's own; 1 also where --strict does not let it run."),
        ],
        examples: &[
            ("srun gpubind exec python train.py", "Without the plugin."),
            ("mpirun -n 8 gpubind exec ./solver", "Without Slurm."),
            ("gpubind exec --dry-run", "Print what would change."),
        ],
        see: &["gpubind-report(1)", "spank_gpubind(8)"],
    },
    Command {
        name: "report",
        exit: &[("1", "With --check: something is wrong; stderr says what. Else it failed.")],
        examples: &[
            ("srun --gpu-bind=spank gpubind report --check", "What each rank has; fails if wrong."),
            (
                "srun --gpu-bind=spank gpubind report --lines | gpubind report --merge",
                "One table of all ranks on all nodes.",
            ),
        ],
        see: &["gpubind-plan(1)", "gpubind-check(1)"],
    },
    Command {
        name: "check",
        exit: &[
            ("1", "Nothing is broken, but there are warnings."),
            ("2", "Something is broken, or the arguments are wrong."),
        ],
        examples: &[
            ("gpubind check", "This node."),
            (
                "srun -N100 --ntasks-per-node=1 gpubind check --brief | gpubind check --fold",
                "A hundred nodes at a glance.",
            ),
            ("gpubind check --prometheus", "Metrics for monitoring."),
        ],
        see: &["gpubind-config(1)", "gpubind-snapshot(1)", "spank_gpubind(8)", "gres.conf(5)"],
    },
    Command {
        name: "config",
        exit: &[("1", "The site file is ignored; stderr names the line.")],
        examples: &[
            ("gpubind config", "The settings in effect, and where each comes from."),
            ("gpubind config --partition gpu", "Those of a job in that partition."),
        ],
        see: &["gpubind.toml(5)", "spank_gpubind(8)", "plugstack.conf(5)"],
    },
    Command {
        name: "snapshot",
        exit: &[FAILED],
        examples: &[
            ("gpubind snapshot", "What is known of this node's GPUs."),
            ("gpubind snapshot --save --fresh", "As root: read NVML anew and save it for steps."),
        ],
        see: &["gpubind-topo(1)", "gpubind-check(1)"],
    },
];

/// How a user begins, before the synopsis of the program.
pub const SRUN: &str = "\\fBsrun \\-\\-gpu\\-bind=spank\\fR \\fIPROGRAM\\fR\n.br\n";

/// The sections of this command's page.
///
/// # Panics
/// If nothing is known of it.
pub fn of(name: &str) -> String {
    let command = COMMANDS.iter().find(|command| command.name == name);
    #[allow(clippy::expect_used, reason = "a command without an entry must be noticed")]
    let command = command.expect("docs/generate/src/sections.rs has every command");
    let mut page = ".SH EXIT STATUS\n".to_owned();
    let has_two = command.exit.iter().any(|(code, _)| *code == "2");
    let fixed = [("0", "All is well."), ("2", "The arguments are wrong.")];
    let (zero, two) = (&fixed[..1], if has_two { &fixed[2..] } else { &fixed[1..] });
    let codes = match name {
        "exec" => [command.exit, two].concat(),
        _ => [zero, command.exit, two].concat(),
    };
    for (code, meaning) in codes {
        page += &format!(".TP\n{}{}", bold(code), line(meaning));
    }
    let reads = |by: &str| {
        by.contains("the `gpubind` program") || by.contains(&format!("`gpubind {name}`"))
    };
    page += ".SH ENVIRONMENT\n";
    for variable in VARIABLES.iter().filter(|variable| reads(variable.read_by)) {
        page +=
            &format!(".TP\n{}{}", bold(variable.name), line(&variable.meaning.replace('`', "")));
    }
    page += ".SH EXAMPLES\n";
    for (words, what) in command.examples {
        page += &format!(".TP\n{}{}", bold(words), line(what));
    }
    let see: Vec<String> =
        command.see.iter().map(|page| line(page).trim_end().to_owned()).collect();
    page + &format!(".SH SEE ALSO\n{}\n", see.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_example_is_a_command_line_that_the_program_takes() {
        let mut count = 0;
        for (words, _) in COMMANDS.iter().flat_map(|command| command.examples) {
            for part in words.split(" | ") {
                let words: Vec<&str> = part.split(' ').collect();
                let Some(at) = words.iter().position(|word| *word == "gpubind") else { continue };
                let parsed = gpubind::cli::command().try_get_matches_from(&words[at..]);
                assert!(parsed.is_ok(), "{part}: {}", parsed.unwrap_err());
                count += 1;
            }
        }
        assert!(count > 15, "{count} command lines");
    }
}
