//! Text as roff wants it.

/// A line of text.
pub fn line(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    // A dot or an apostrophe at the beginning would make it a request.
    let guard = if text.starts_with(['.', '\'']) { "\\&" } else { "" };
    format!("{guard}{text}\n")
}

/// A line in bold.
pub fn bold(text: &str) -> String {
    format!("\\fB{}\\fR\n", line(text).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_roff_would_take_for_its_own_is_guarded() {
        assert_eq!(line(".so \\x a-b"), "\\&.so \\ex a\\-b\n");
        assert_eq!(line("'a"), "\\&'a\n");
        assert_eq!(bold("a-b"), "\\fBa\\-b\\fR\n");
    }
}
