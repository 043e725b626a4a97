//! gpubind.toml(5), made from etc/gpubind.toml: what that says of a key is all there
//! is to say.

use gpubind_core::site::{KEYS, Key, Scope};

use crate::roff::{bold, line};

/// The file with every key and its explanation, as it is installed.
const SITE_FILE: &str = include_str!("../../../etc/gpubind.toml");

const HEAD: &str = r#".SH NAME
gpubind.toml \- gpubind's site policy
.SH DESCRIPTION
"#;

const TABLES: &str = r#".SH TABLES
A table holds keys for some jobs only. Keys that describe the node may not stand in one.
.TP
.BI [partition. NAME ]
Jobs of a partition.
.TP
.BI [constraint. NAME ]
Jobs that ask for a feature; wins over the partition's.
"#;

const TAIL: &str = r#".SH SEE ALSO
.BR gpubind\-config (1),
.BR spank_gpubind (8),
.BR plugstack.conf (5)
"#;
pub fn page(version: &str) -> String {
    let mut page = format!(".TH gpubind.toml 5 \"\" \"gpubind {version}\" gpubind\n{HEAD}");
    page += &paragraphs(introduction());
    for (place, title) in [(Scope::PerJob, "POLICY KEYS"), (Scope::PerNode, "NODE KEYS")] {
        page += &format!(".SH {title}\n");
        for key in KEYS.iter().filter(|key| key.scope == place) {
            page += &entry(key);
        }
    }
    page + TABLES + TAIL
}

fn entry(key: &Key) -> String {
    let (default, lines) = explained(key.name).unwrap_or(("", Vec::new()));
    format!(".TP\n{}{}", bold(&format!("{} = {default}", key.name)), paragraphs(lines))
}

/// The comment at the top of the file, without its `#`; its first line is the title.
fn introduction() -> Vec<&'static str> {
    let lines = SITE_FILE.lines().map_while(|line| line.strip_prefix('#'));
    lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect()
}

/// The value that a key has in the file, and the comment above it.
fn explained(name: &str) -> Option<(&'static str, Vec<&'static str>)> {
    let mut above: Vec<&str> = Vec::new();
    for line in SITE_FILE.lines() {
        let value = line.strip_prefix('#').and_then(|line| line.strip_prefix(name));
        if let Some(value) = value.and_then(|rest| rest.strip_prefix(" = ")) {
            return Some((value, above));
        }
        match line.strip_prefix("# ") {
            Some(text) => above.push(text),
            None => above.clear(),
        }
    }
    None
}

/// Text in roff: empty lines part paragraphs, and lines indented by two blanks list
/// words with what they mean, which further ones go on with.
fn paragraphs(lines: Vec<&str>) -> String {
    let mut roff = String::new();
    let mut in_list = false;
    for text in lines {
        let begins = text.strip_prefix("  ").filter(|text| !text.starts_with(' '));
        if in_list && !text.starts_with(' ') {
            roff += ".RE\n.IP\n";
            in_list = false;
        } else if !in_list && begins.is_some() {
            roff += ".RS\n";
            in_list = true;
        }
        roff += &match begins.and_then(|item| item.split_once(' ')) {
            Some((word, meaning)) => format!(".TP\n{}{}", bold(word), line(meaning.trim())),
            None if text.is_empty() => ".PP\n".to_owned(),
            None => line(text.trim()),
        };
    }
    if in_list { roff + ".RE\n" } else { roff }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_explained_with_its_default() {
        let page = page("1.2.3");
        for key in KEYS.iter().filter(|key| key.scope != Scope::Plugstack) {
            let (default, lines) = explained(key.name).unwrap();
            assert!(default.contains(key.default), "{}: {default}", key.name);
            assert!(!lines.is_empty(), "{} is not explained", key.name);
            assert!(page.contains(&line(lines[0])), "{} is not in the page", key.name);
        }
        assert!(page.contains("gpubind 1.2.3"));
    }
}
