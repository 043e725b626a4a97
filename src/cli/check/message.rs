//! What a check can say. Every message stands in a table of its group's file, so
//! that all of them can be listed, and nowhere else.

use std::fmt::Display;

use serde::Serialize;

/// How a check came out; the worst one decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Something to know, or that could not be checked here.
    Note,
    /// Jobs run, but not as well as they could.
    Warning,
    /// gpubind does not work, or a node or job fails.
    Broken,
}

impl Level {
    /// The word that is printed.
    pub fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Broken => "broken",
        }
    }
}

/// One outcome of one check. `found` and `advice` are templates: `{name}` stands for
/// a value.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    /// The check.
    pub check: &'static str,
    /// How it came out.
    pub level: Level,
    /// What was found.
    pub found: &'static str,
    /// What to do; empty where there is nothing to do.
    pub advice: &'static str,
}

/// What a check says of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check.
    pub check: &'static str,
    /// How it came out.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What to do.
    pub advice: Option<String>,
}

impl Message {
    /// Fills in the values, by name. Each name of the templates must be among them.
    pub fn with(&self, values: &[(&str, &dyn Display)]) -> Finding {
        let advice = Some(self.advice).filter(|advice| !advice.is_empty());
        Finding {
            check: self.check,
            level: self.level,
            found: fill(self.found, values),
            advice: advice.map(|advice| fill(advice, values)),
        }
    }

    /// The message as it stands.
    pub fn plain(&self) -> Finding {
        self.with(&[])
    }
}

fn fill(template: &str, values: &[(&str, &dyn Display)]) -> String {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, left)) = after.split_once('}') else { break };
        text.push_str(before);
        let value = values.iter().find(|(known, _)| *known == name);
        debug_assert!(value.is_some(), "no value for {name} in {template:?}");
        if let Some((_, value)) = value {
            text.push_str(&value.to_string());
        }
        rest = left;
    }
    // One line for each check, whatever a file name or a program's words hold.
    (text + rest).replace(['\n', '\r'], " ")
}

/// Makes a group's table: a constant for each message, and `MESSAGES` with all.
macro_rules! messages {
    ($($name:ident = $level:ident, $check:literal, $found:literal $(, $advice:literal)?;)*) => {
        $(const $name: $crate::cli::check::message::Message =
            $crate::cli::check::message::Message {
                check: $check,
                level: $crate::cli::check::message::Level::$level,
                found: $found,
                advice: concat!($($advice)?),
            };)*
        /// All that the checks of this file can say.
        pub const MESSAGES: &[&$crate::cli::check::message::Message] = &[$(&$name),*];
    };
}
pub(super) use messages;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_filled_in_by_name_and_lines_stay_lines() {
        let message =
            Message { check: "x", level: Level::Note, found: "{b} of {a}", advice: "do {a}" };
        let finding = message.with(&[("a", &4), ("b", &"two\nlines")]);
        assert_eq!(finding.found, "two lines of 4");
        assert_eq!(finding.advice.as_deref(), Some("do 4"));
    }

    #[test]
    #[should_panic(expected = "no value for a")]
    fn a_value_that_is_missing_is_found_by_tests() {
        Message { check: "x", level: Level::Ok, found: "{a}", advice: "" }.plain();
    }
}
