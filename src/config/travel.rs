//! How a request gets from srun, sbatch and salloc to the tasks.

use super::command_line::{Command, Wish};
use super::request::{BindText, Mode, Request, RequestError, bind_text};
use super::settings::REQUEST_VARIABLE;

/// What makes Slurm itself bind nothing; see [`bind_text`].
const NO_BINDING: &str = "none,spank";

/// The environment variables that a command sets for the steps below it, from
/// its command line's wish and the environment that it was started with.
///
/// # Errors
/// A request in the environment that cannot be understood, where it counts.
pub fn variables(
    command: Command,
    wish: &Wish,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<(&'static str, String)>, RequestError> {
    let inherited = env(REQUEST_VARIABLE).filter(|text| !text.trim().is_empty());
    match wish {
        Wish::Ours(request) => Ok(vec![(REQUEST_VARIABLE, request.to_string())]),
        // Stand aside for this command, also where an outer one had asked for us.
        Wish::Slurms if inherited.is_some() => Ok(vec![(REQUEST_VARIABLE, "off".to_owned())]),
        Wish::Slurms => Ok(Vec::new()),
        Wish::Nothing => {
            let request = match &inherited {
                Some(text) => Some(text.parse::<Request>()?),
                None => from_slurms_variables(env),
            };
            let Some(request) = request else {
                return Ok(Vec::new());
            };
            let mut set = vec![(REQUEST_VARIABLE, request.to_string())];
            if command == Command::Srun && request.mode != Some(Mode::Off) {
                set.extend(without_slurms_binding(env));
            }
            Ok(set)
        }
    }
}

/// The request in the variables by which sbatch and salloc hand their own
/// `--gpu-bind` down to srun: `#SBATCH --gpu-bind=none,spank:…` arrives so.
fn from_slurms_variables(env: &dyn Fn(&str) -> Option<String>) -> Option<Request> {
    // The later one wins in srun, too (src/srun/libsrun/opt.c, env_vars).
    let tres = env("SLURM_TRES_BIND");
    let tres = tres.as_deref().and_then(|text| {
        text.split('+')
            .find_map(|part| part.strip_prefix("gres/gpu:").or(part.strip_prefix("gpu:")))
    });
    let text = tres.map(str::to_owned).or_else(|| env("SLURM_GPU_BIND"))?;
    match bind_text(&text) {
        Ok(BindText::Ours { request, .. }) => Some(request),
        Ok(BindText::Slurms) | Err(_) => None,
    }
}

/// Keeps Slurm from narrowing each task to some GPUs, as `--gpus-per-task` and
/// inherited options would. 23.11 and later hand SLURM_TRES_BIND down and read
/// it after SLURM_GPU_BIND, so where it is set it must say the same.
fn without_slurms_binding(env: &dyn Fn(&str) -> Option<String>) -> Vec<(&'static str, String)> {
    let mut set = vec![("SLURM_GPU_BIND", NO_BINDING.to_owned())];
    if env("SLURM_TRES_BIND").is_some() {
        set.push(("SLURM_TRES_BIND", format!("gres/gpu:{NO_BINDING}")));
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The variables that are set, as `NAME=value` words.
    fn set(command: Command, wish: &Wish, env: &[(&str, &str)]) -> String {
        let get = |name: &str| {
            env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let set = variables(command, wish, &get).unwrap();
        let words: Vec<String> =
            set.iter().map(|(name, value)| format!("{name}={value}")).collect();
        words.join(" ")
    }

    #[test]
    fn the_command_line_replaces_what_was_inherited() {
        let single = Wish::Ours("single".parse().unwrap());
        let inherited = [("SLURM_GPUBIND", "first,verbose")];
        assert_eq!(set(Command::Srun, &single, &inherited), "SLURM_GPUBIND=single");
        assert_eq!(
            set(Command::Sbatch, &Wish::Ours(Request::default()), &[]),
            "SLURM_GPUBIND=auto"
        );
    }

    #[test]
    fn slurms_own_binding_switches_an_inherited_request_off_and_adds_nothing_else() {
        assert_eq!(
            set(Command::Srun, &Wish::Slurms, &[("SLURM_GPUBIND", "auto")]),
            "SLURM_GPUBIND=off"
        );
        assert_eq!(set(Command::Srun, &Wish::Slurms, &[]), "");
    }

    #[test]
    fn an_inherited_request_keeps_slurm_from_binding_in_srun() {
        let env = [("SLURM_GPUBIND", "single")];
        assert_eq!(
            set(Command::Srun, &Wish::Nothing, &env),
            "SLURM_GPUBIND=single SLURM_GPU_BIND=none,spank"
        );
        assert_eq!(set(Command::Sbatch, &Wish::Nothing, &env), "SLURM_GPUBIND=single");
        let env = [("SLURM_GPUBIND", "single"), ("SLURM_TRES_BIND", "gres/gpu:per_task:1")];
        let set = set(Command::Srun, &Wish::Nothing, &env);
        assert!(set.ends_with("SLURM_TRES_BIND=gres/gpu:none,spank"), "{set}");
    }

    #[test]
    fn a_batch_scripts_bind_text_arrives_by_slurms_variables() {
        for (name, value) in [
            ("SLURM_GPU_BIND", "none,spank:first"),
            ("SLURM_TRES_BIND", "gres/gpu:none,spank:first"),
            ("SLURM_TRES_BIND", "gres/nic:closest+gres/gpu:none,spank:first"),
        ] {
            let set = set(Command::Srun, &Wish::Nothing, &[(name, value)]);
            assert!(set.starts_with("SLURM_GPUBIND=first "), "{name}={value}: {set}");
        }
    }

    #[test]
    fn without_a_request_nothing_is_set() {
        for env in [&[][..], &[("SLURM_GPUBIND", " ")], &[("SLURM_GPU_BIND", "closest")]] {
            assert_eq!(set(Command::Srun, &Wish::Nothing, env), "");
        }
        let off = [("SLURM_GPUBIND", "off")];
        assert_eq!(set(Command::Srun, &Wish::Nothing, &off), "SLURM_GPUBIND=off");
    }

    #[test]
    fn a_bad_request_in_the_environment_counts_only_where_it_is_used() {
        let env = |name: &str| (name == "SLURM_GPUBIND").then(|| "nonsense".to_owned());
        assert!(variables(Command::Srun, &Wish::Nothing, &env).is_err());
        assert!(variables(Command::Srun, &Wish::Slurms, &env).is_ok());
        assert!(variables(Command::Srun, &Wish::Ours(Request::default()), &env).is_ok());
    }
}
