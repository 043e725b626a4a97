//! The committed counts, and what is worse than they are.

use std::fmt::Write;
use std::path::PathBuf;

use crate::machine::root;

/// How much more than the baseline still passes: another compiler or C library counts a
/// little differently.
const MORE_PERCENT: u64 = 10;
const MORE_INSTRUCTIONS: u64 = 3000;
const MORE_SYSTEM_CALLS: u64 = 2;

const HEAD: &str = "scenario;tasks;hook;instructions;system calls";

/// What one run of a hook costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    pub instructions: u64,
    pub system_calls: u64,
}

/// A hook in a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub scenario: String,
    /// 0 where the scenario has none.
    pub tasks: u32,
    pub hook: String,
    pub count: Count,
}

impl Row {
    fn is_of(&self, other: &Row) -> bool {
        (&self.scenario, self.tasks, &self.hook) == (&other.scenario, other.tasks, &other.hook)
    }
}

pub fn file() -> PathBuf {
    root().join("tests/hooks/baseline.csv")
}

/// Reads the file; an error names it.
pub fn read() -> Result<Vec<Row>, String> {
    let file = file();
    let text =
        std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let row = |line: &str| parse(line).ok_or_else(|| format!("{}: `{line}`", file.display()));
    text.lines().skip(1).map(row).collect()
}

fn parse(line: &str) -> Option<Row> {
    let mut cells = line.split(';');
    let row = Row {
        scenario: cells.next()?.to_owned(),
        tasks: cells.next()?.parse().ok()?,
        hook: cells.next()?.to_owned(),
        count: Count {
            instructions: cells.next()?.parse().ok()?,
            system_calls: cells.next()?.parse().ok()?,
        },
    };
    cells.next().is_none().then_some(row)
}

pub fn csv(rows: &[Row]) -> String {
    let mut text = format!("{HEAD}\n");
    for Row { scenario, tasks, hook, count } in rows {
        let Count { instructions, system_calls } = count;
        let _ = writeln!(text, "{scenario};{tasks};{hook};{instructions};{system_calls}");
    }
    text
}

pub fn markdown(rows: &[Row]) -> String {
    let mut text =
        "| scenario | tasks | hook | instructions | system calls |\n|---|---|---|---|---|\n"
            .to_owned();
    for Row { scenario, tasks, hook, count } in rows {
        let tasks = if *tasks == 0 { String::new() } else { tasks.to_string() };
        let Count { instructions, system_calls } = count;
        let _ =
            writeln!(text, "| {scenario} | {tasks} | {hook} | {instructions} | {system_calls} |");
    }
    text
}

/// A line for each hook that costs more than the baseline allows, or is not in it.
pub fn worse(baseline: &[Row], measured: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    for row in measured {
        let hook = &row.hook;
        let Some(old) = baseline.iter().find(|old| old.is_of(row)) else {
            lines.push(format!("{hook}: not in the baseline; scripts/counts --write adds it"));
            continue;
        };
        let limit = |count: u64, more: u64| count + count * MORE_PERCENT / 100 + more;
        let mut compare = |what: &str, new: u64, old: u64, more: u64| {
            if new > limit(old, more) {
                lines.push(format!("{hook}: {new} {what}, {old} in the baseline"));
            }
        };
        let (new, old) = (row.count, old.count);
        compare("instructions", new.instructions, old.instructions, MORE_INSTRUCTIONS);
        compare("system calls", new.system_calls, old.system_calls, MORE_SYSTEM_CALLS);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(hook: &str, instructions: u64, system_calls: u64) -> Row {
        let count = Count { instructions, system_calls };
        Row { scenario: "step".to_owned(), tasks: 8, hook: hook.to_owned(), count }
    }

    #[test]
    fn more_than_the_tolerance_is_worse_and_less_is_not() {
        let baseline = [row("init", 100_000, 50)];
        let worse = |row: Row| worse(&baseline, &[row]);
        assert!(worse(row("init", 113_000, 57)).is_empty());
        assert!(worse(row("init", 10, 0)).is_empty());
        assert_eq!(
            worse(row("init", 113_001, 57)),
            ["init: 113001 instructions, 100000 in the baseline"]
        );
        assert_eq!(worse(row("init", 1, 58)), ["init: 58 system calls, 50 in the baseline"]);
        assert!(worse(row("exit", 1, 1))[0].contains("not in the baseline"));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let rows = [row("init", 1, 2), row("task_init (first)", 3, 4)];
        let text = csv(&rows);
        let again: Vec<Row> = text.lines().skip(1).map(|line| parse(line).unwrap()).collect();
        assert_eq!(again, rows);
        assert_eq!(parse("step;8;init;1"), None);
        assert_eq!(parse("step;8;init;1;2;3"), None);
    }
}
