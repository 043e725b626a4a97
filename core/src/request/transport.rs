//! Bindings as a variable carries them: one for a whole command, or one for each
//! component of a heterogeneous one.

use std::fmt;

use super::binding::Binding;
use super::grammar::{RequestError, shown};
use super::items::Request;

/// What one variable says of a job's or a step's bindings.
///
/// As text: a binding, or `GROUP:BINDING` for each component, with `;` between them. A
/// binding is a request's items, [`SLURM`], or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Bindings {
    /// Nothing.
    #[default]
    Unspecified,
    /// The same for all components.
    All(Binding),
    /// By the component's number, in rising order.
    ByGroup(Vec<(usize, Binding)>),
}

/// Slurm's own binding, as a variable says it.
const SLURM: &str = "slurm";

impl Bindings {
    /// From the bindings of a command's components, each with its number.
    pub fn of(components: Vec<(usize, Binding)>) -> Bindings {
        let said = |(_, binding): &&(usize, Binding)| *binding != Binding::Unspecified;
        let count = components.iter().filter(said).count();
        match components.first() {
            None => Bindings::Unspecified,
            _ if count == 0 => Bindings::Unspecified,
            Some((_, first)) if components.iter().all(|(_, other)| other == first) => {
                Bindings::All(first.clone())
            }
            Some(_) => {
                let mut list = components;
                list.sort_by_key(|(group, _)| *group);
                Bindings::ByGroup(list)
            }
        }
    }

    /// Reads a variable.
    ///
    /// # Errors
    /// Items that cannot be understood.
    pub fn read(text: &str) -> Result<Bindings, RequestError> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Bindings::Unspecified);
        }
        if !text.starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(Bindings::All(binding(text)?));
        }
        let entry = |entry: &str| {
            let (group, text) = entry.split_once(':').unwrap_or(("", entry));
            let unknown = || RequestError::Spelling { text: shown(entry) };
            Ok((group.parse().map_err(|_| unknown())?, binding(text)?))
        };
        text.split(';').map(entry).collect::<Result<_, _>>().map(Bindings::ByGroup)
    }

    /// The binding of the component with this number.
    pub fn of_group(&self, group: usize) -> Binding {
        match self {
            Bindings::Unspecified => Binding::Unspecified,
            Bindings::All(binding) => binding.clone(),
            Bindings::ByGroup(list) => {
                let found = list.iter().find(|(number, _)| *number == group);
                found.map_or(Binding::Unspecified, |(_, binding)| binding.clone())
            }
        }
    }
}

fn binding(text: &str) -> Result<Binding, RequestError> {
    match text {
        "" => Ok(Binding::Unspecified),
        SLURM => Ok(Binding::Slurm),
        items => items.parse::<Request>().map(Binding::Gpubind),
    }
}

impl fmt::Display for Bindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |binding: &Binding| match binding {
            Binding::Gpubind(request) => request.to_string(),
            Binding::Slurm => SLURM.to_owned(),
            Binding::Unspecified => String::new(),
        };
        match self {
            Bindings::Unspecified => Ok(()),
            Bindings::All(binding) => f.write_str(&text(binding)),
            Bindings::ByGroup(list) => {
                let entry =
                    |(group, binding): &(usize, Binding)| format!("{group}:{}", text(binding));
                f.write_str(&list.iter().map(entry).collect::<Vec<_>>().join(";"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(items: &str) -> Binding {
        Binding::Gpubind(items.parse().unwrap())
    }

    #[test]
    fn bindings_are_read_as_they_are_written() {
        for (components, text) in [
            (vec![], ""),
            (vec![(0, Binding::Unspecified)], ""),
            (vec![(0, ours("spank"))], "spank"),
            (vec![(0, Binding::Slurm), (1, Binding::Slurm)], "slurm"),
            (vec![(0, ours("ids=uuid,strict"))], "ids=uuid,strict"),
            (
                vec![(2, ours("first")), (0, ours("ids=uuid")), (1, Binding::Unspecified)],
                "0:ids=uuid;1:;2:first",
            ),
            (vec![(0, Binding::Unspecified), (1, Binding::Slurm)], "0:;1:slurm"),
        ] {
            let bindings = Bindings::of(components.clone());
            assert_eq!(bindings.to_string(), text);
            assert_eq!(Bindings::read(text).unwrap(), bindings);
            for (group, binding) in components {
                assert_eq!(bindings.of_group(group), binding, "{text}");
            }
        }
    }

    #[test]
    fn a_text_of_another_form_is_refused() {
        for text in ["0", "0:nonsense", "1;2", "nonsense", "0:first;x"] {
            assert!(Bindings::read(text).is_err(), "{text}");
        }
        assert_eq!(Bindings::read("first").unwrap().of_group(7), ours("first"));
    }
}
