//! A request as text: `ITEM,…`.

use std::fmt;
use std::str::FromStr;

use super::items::{ITEMS, Item, Mode, Request, written_items};

/// Why a request cannot be understood. Each message names the item.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// An item that does not exist, or an item with a value it does not take.
    #[error("unknown item `{item}`; valid items: {}", valid())]
    Unknown {
        /// The item as typed.
        item: String,
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
        /// The option's value as typed.
        text: String,
    },
}

/// The names of all items, for a message.
fn valid() -> String {
    written_items().map(|(_, _, word)| word).collect::<Vec<_>>().join(", ")
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
                return Err(RequestError::Unknown { item: word.to_owned() });
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
        let message = "single,nonsense".parse::<Request>().unwrap_err().to_string();
        assert!(message.contains("`nonsense`"), "{message}");
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
}
