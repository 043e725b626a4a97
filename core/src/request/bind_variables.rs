//! The variables by which srun, sbatch and salloc take `--gpu-bind` and `--tres-bind`.
//!
//! Slurm refuses `SLURM_GPU_BIND=spank` as it does the option, so the plugin replaces
//! the value before Slurm reads it.

use super::Change;
use super::binding::{Binding, accepted_by_slurm, gpu_value};
use super::command::Command;
use super::propagation::VariableError;
use crate::variables;

/// The variables that a command reads for `--gpu-bind` and for `--tres-bind`
/// (`env_vars` in the commands' opt.c).
pub fn bind_variables(command: Command) -> (&'static str, &'static str) {
    match command {
        Command::Srun => (variables::GPU_BIND, variables::TRES_BIND),
        Command::Sbatch => (variables::SBATCH_GPU_BIND, variables::SBATCH_TRES_BIND),
        Command::Salloc => (variables::SALLOC_GPU_BIND, variables::SALLOC_TRES_BIND),
    }
}

/// The changes by which Slurm accepts what the command's variables ask of gpubind.
///
/// # Errors
/// [`VariableError`] where Slurm would refuse the value and gpubind does not understand
/// it either.
pub fn accept_in_variables(
    command: Command,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Change>, VariableError> {
    let (gpu, tres) = bind_variables(command);
    let mut changes = Vec::new();
    if let Some(accepted) = env(gpu).and_then(|value| accepted(gpu, &value).transpose()) {
        changes.push((gpu.to_owned(), Some(accepted?)));
    }
    let Some(text) = env(tres) else { return Ok(changes) };
    let part = |part: &str| -> Result<String, VariableError> {
        let Some(value) = gpu_value(part) else { return Ok(part.to_owned()) };
        let prefix = part.strip_suffix(value).unwrap_or_default();
        Ok(accepted(tres, value)?
            .map_or_else(|| part.to_owned(), |value| format!("{prefix}{value}")))
    };
    let parts: Vec<String> = text.split('+').map(part).collect::<Result<_, _>>()?;
    let accepted = parts.join("+");
    if accepted != text {
        changes.push((tres.to_owned(), Some(accepted)));
    }
    Ok(changes)
}

/// What Slurm accepts in place of a value; `None` where that is the value itself.
fn accepted(name: &'static str, value: &str) -> Result<Option<String>, VariableError> {
    let accepted = accepted_by_slurm(value);
    match Binding::from_gpu_bind(value) {
        Ok(Binding::Gpubind(_)) => Ok(Some(accepted).filter(|accepted| accepted != value)),
        Ok(Binding::Slurm | Binding::Unspecified) => Ok(None),
        // What begins with none passes Slurm, whatever follows.
        Err(_) if accepted == value => Ok(None),
        Err(error) => Err(VariableError { variable: name, error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(command: Command, set: &[(&str, &str)]) -> Result<Vec<Change>, VariableError> {
        let env = |name: &str| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        accept_in_variables(command, &env)
    }

    #[test]
    fn a_request_in_slurms_variables_is_written_as_slurm_accepts_it() {
        for (command, name, typed, accepted) in [
            (Command::Srun, "SLURM_GPU_BIND", "spank", "none,spank"),
            (Command::Srun, "SLURM_GPU_BIND", "verbose,spank:first", "verbose,none,spank:first"),
            (Command::Sbatch, "SBATCH_GPU_BIND", "spank:first", "none,spank:first"),
            (Command::Salloc, "SALLOC_GPU_BIND", "spank", "none,spank"),
            (Command::Srun, "SLURM_TRES_BIND", "gres/gpu:spank", "gres/gpu:none,spank"),
            (
                Command::Sbatch,
                "SBATCH_TRES_BIND",
                "gres/nic:closest+gres/gpu:spank:first",
                "gres/nic:closest+gres/gpu:none,spank:first",
            ),
        ] {
            let changed = vec![(name.to_owned(), Some(accepted.to_owned()))];
            assert_eq!(changes(command, &[(name, typed)]), Ok(changed), "{typed}");
            assert_eq!(changes(command, &[(name, accepted)]), Ok(vec![]), "again");
        }
    }

    #[test]
    fn other_values_and_other_commands_variables_stay() {
        for (name, value) in [
            ("SLURM_GPU_BIND", "closest"),
            ("SLURM_GPU_BIND", "none,spanky"),
            ("SLURM_GPU_BIND", ""),
            ("SBATCH_GPU_BIND", "spank"),
            ("SLURM_TRES_BIND", "gres/nic:spank"),
        ] {
            assert_eq!(changes(Command::Srun, &[(name, value)]), Ok(vec![]), "{value}");
        }
    }

    #[test]
    fn what_slurm_would_refuse_is_named() {
        let error = changes(Command::Salloc, &[("SALLOC_GPU_BIND", "spank:nonsense")]).unwrap_err();
        assert!(error.to_string().starts_with("SALLOC_GPU_BIND: unknown item `nonsense`"));
        assert!(changes(Command::Srun, &[("SLURM_TRES_BIND", "gres/gpu:spanky")]).is_err());
    }
}
