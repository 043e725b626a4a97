//! A request as text: `ITEM,…`.

use std::fmt;
use std::str::FromStr;

use super::items::{ITEMS, Item, ItemValue, Mode, Request, written_items};
use crate::nearest::nearest;

/// Why a request cannot be understood. Each message names the item.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// An item that does not exist, or an item with a value it does not take.
    #[error("unknown item `{item}`; {}", meant(nearest.as_deref()))]
    Unknown {
        /// The item as typed, fit to be shown.
        item: String,
        /// The item that it is like.
        nearest: Option<String>,
    },
    /// Two items that exclude each other.
    #[error("`{first}` and `{second}` contradict each other; keep one of them")]
    Contradiction {
        /// The earlier item.
        first: String,
        /// The later item.
        second: String,
    },
    /// Something else than `:` behind the word `spank`.
    #[error("`{text}` is not understood; write spank or spank:ITEM,… with items from: {}", valid())]
    Spelling {
        /// The option's value as typed, fit to be shown.
        text: String,
    },
}

impl RequestError {
    fn unknown(word: &str) -> RequestError {
        let items: Vec<String> = written_items().map(|(_, _, written)| written).collect();
        let nearest = nearest(word, items.iter().map(String::as_str)).map(str::to_owned);
        RequestError::Unknown { item: shown(word), nearest }
    }
}

/// The names of all items, for a message.
fn valid() -> String {
    written_items().map(|(_, _, word)| word).collect::<Vec<_>>().join(", ")
}

fn meant(nearest: Option<&str>) -> String {
    match nearest {
        Some(nearest) => format!("did you mean `{nearest}`? --gpubind=help lists the items"),
        None => format!("valid items: {}", valid()),
    }
}

/// A user's text for a message: not too long, and nothing that a terminal would obey.
pub(super) fn shown(text: &str) -> String {
    const LONGEST: usize = 60;
    let plain =
        |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    let mut shown: String = text.chars().take(LONGEST).map(plain).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}

/// Whether the items ask for their list.
pub(super) fn is_help(items: &str) -> bool {
    items.trim() == "help"
}

/// The list of items for `--gpubind=help`, with a line for each.
pub fn items_help() -> String {
    let items: Vec<_> = written_items().collect();
    let width = items.iter().map(|(_, _, written)| written.len()).max().unwrap_or(0);
    let line = |(_, value, written): &(_, &ItemValue, String)| {
        format!("  {written:width$}  {}\n", value.what)
    };
    let lines: String = items.iter().map(line).collect();
    format!("Items for --gpubind=ITEM,... and --gpu-bind=spank:ITEM,...:\n{lines}")
}

/// What stands for a request without items where an empty text would mean no
/// request at all.
const PLAIN: &str = "spank";

impl FromStr for Request {
    type Err = RequestError;

    /// Reads `ITEM,…`; the empty text, or `spank`, is the plain request.
    fn from_str(text: &str) -> Result<Self, RequestError> {
        let mut request = Request::default();
        let words = text.split(',').map(str::trim);
        for word in words.filter(|word| !word.is_empty() && *word != PLAIN) {
            let Some((item, value, _)) = written_items().find(|(_, _, written)| written == word)
            else {
                return Err(RequestError::unknown(word));
            };
            match item.get(&request) {
                Some(earlier) if earlier != value.text => {
                    return Err(contradiction(item.written(earlier), word));
                }
                _ => item.set(&mut request, value.text),
            }
        }
        if request.mode == Some(Mode::Off) && request.share == Some(true) {
            return Err(contradiction("off".to_owned(), "share"));
        }
        Ok(request)
    }
}

fn contradiction(first: String, second: &str) -> RequestError {
    RequestError::Contradiction { first, second: second.to_owned() }
}

impl Request {
    /// A request that switches gpubind off.
    pub fn off() -> Request {
        Request { mode: Some(Mode::Off), ..Request::default() }
    }

    /// The items that a user is told to type for it.
    pub(super) fn to_type(&self) -> String {
        match *self == Request::default() {
            true => "auto".to_owned(),
            false => self.to_string(),
        }
    }

    /// The items that say this, in the order of [`ITEMS`]; none for a plain request.
    pub fn items(&self) -> Vec<String> {
        let written = |item: &Item| {
            let text = item.get(self)?;
            item.for_users().any(|value| value.text == text).then(|| item.written(text))
        };
        ITEMS.iter().filter_map(written).collect()
    }
}

impl fmt::Display for Request {
    /// Writes the request so that it reads back the same. A plain one is `spank`: what
    /// it leaves open is for the site to set, which `auto` would not leave.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.items() {
            items if items.is_empty() => f.write_str(PLAIN),
            items => f.write_str(&items.join(",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_item_is_read_and_written_back() {
        for (_, _, item) in written_items() {
            let request: Request = item.parse().unwrap();
            let written = request.to_string();
            assert_eq!(written.parse::<Request>().unwrap().to_string(), written);
            assert_eq!(written, item);
        }
        let plain = Request::default();
        assert_eq!((plain.to_string(), "spank".parse()), ("spank".to_owned(), Ok(plain)));
    }

    #[test]
    fn an_unknown_item_is_named_and_the_valid_ones_are_listed() {
        let message = "single,xyzzy".parse::<Request>().unwrap_err().to_string();
        assert!(message.contains("`xyzzy`"), "{message}");
        for (_, _, item) in written_items() {
            assert!(message.contains(&item), "{message} lacks {item}");
        }
        for wrong in
            ["ids", "ids=", "ids=pci", "rank-env", "auto=1", "Single", "share=off", "mode=auto"]
        {
            assert!(
                matches!(wrong.parse::<Request>(), Err(RequestError::Unknown { .. })),
                "{wrong}"
            );
        }
    }

    #[test]
    fn contradictions_name_both_items_and_repetitions_are_harmless() {
        for (text, first, second) in [
            ("single,ordered", "single", "ordered"),
            ("ids=uuid,ids=index", "ids=uuid", "ids=index"),
            ("rank-env=on,verbose,rank-env=off", "rank-env=on", "rank-env=off"),
            ("share,off", "off", "share"),
        ] {
            let error = text.parse::<Request>().unwrap_err();
            let (first, second) = (first.to_owned(), second.to_owned());
            assert_eq!(error, RequestError::Contradiction { first, second }, "{text}");
        }
        assert!("single,single,verbose,verbose".parse::<Request>().is_ok());
    }

    #[test]
    fn a_near_miss_names_what_was_meant() {
        for (typed, meant) in [
            ("atuo", "auto"),
            ("Single", "single"),
            ("ids=uiud", "ids=uuid"),
            ("local_rank=keep", "local-rank=keep"),
            ("verbsoe", "verbose"),
        ] {
            let message = typed.parse::<Request>().unwrap_err().to_string();
            assert!(message.contains(&format!("did you mean `{meant}`?")), "{message}");
        }
    }

    #[test]
    fn what_is_repeated_of_a_users_text_is_short_and_harmless() {
        let message = "\u{1b}[2Jx\n".parse::<Request>().unwrap_err().to_string();
        assert!(message.contains("`\\u{1b}[2Jx`"), "{message:?}");
        let long = "x".repeat(100_000).parse::<Request>().unwrap_err().to_string();
        assert!(long.contains("xxx…`") && long.len() < 500, "{long}");
        assert_eq!(shown("é".repeat(60).as_str()), "é".repeat(60));
    }

    #[test]
    fn the_list_of_items_has_a_line_for_each() {
        let help = items_help();
        assert_eq!(help.lines().count(), 1 + written_items().count());
        for (_, value, item) in written_items() {
            let line = help.lines().find(|line| line.trim_start().starts_with(&item)).unwrap();
            assert!(line.ends_with(value.what), "{line}");
        }
    }
}
