//! The request: the ITEMs behind `--gpu-bind=spank:` and its other spellings.

use std::fmt;
use std::str::FromStr;

/// How a task sees the step's devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One device for each task; with fewer tasks than devices, an equal share each.
    Auto,
    /// Exactly one device for each task, whatever the counts.
    Single,
    /// All devices in every task, in one order; entry SLURM_LOCALID is the task's own.
    Ordered,
    /// All devices in every task, the task's own first.
    First,
    /// The environment stays as Slurm made it.
    Off,
}

/// How whole GPUs are written; MIG instances are always written as UUIDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// Integers in PCI order among the devices that the task can reach.
    Index,
    /// UUIDs.
    Uuid,
}

/// What LOCAL_RANK means where exactly one device is visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalRank {
    /// LOCAL_RANK is 0, so that `set_device(LOCAL_RANK)` finds the one device.
    Virtual,
    /// LOCAL_RANK is the task's number on its node.
    Keep,
}

/// What was asked for; `None` where nothing was said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// `auto`, `single`, `ordered`, `first` or `off`.
    pub mode: Option<Mode>,
    /// `share`: several tasks on one device are wanted.
    pub share: bool,
    /// `ids=…`.
    pub ids: Option<Ids>,
    /// `local-rank=…`.
    pub local_rank: Option<LocalRank>,
    /// `rank-env=…`.
    pub rank_env: Option<bool>,
    /// `workers=…`.
    pub workers: Option<bool>,
    /// `verbose`.
    pub verbose: bool,
    /// `strict`.
    pub strict: bool,
}

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

/// One item that a user may type.
#[derive(Debug, PartialEq, Eq)]
pub struct Item {
    /// As it is typed.
    pub name: &'static str,
    /// What it does, in a few words.
    pub what: &'static str,
}

const fn item(name: &'static str, what: &'static str) -> Item {
    Item { name, what }
}

/// Every item, in the order of the documentation.
pub static ITEMS: [Item; 16] = [
    item(
        "auto",
        "exactly one GPU for each task; with fewer tasks than GPUs on the node, an equal share each; the default",
    ),
    item("single", "exactly one GPU for each task, whatever the counts"),
    item(
        "ordered",
        "all GPUs of the step in each task, in one order: entry SLURM_LOCALID is the task's own",
    ),
    item("first", "all GPUs of the step in each task, its own first"),
    item("share", "no warning where several tasks share a GPU"),
    item("off", "the environment stays as Slurm makes it"),
    item(
        "ids=index",
        "GPUs as numbers, in PCI order among those that the task can reach; the default",
    ),
    item("ids=uuid", "GPUs as UUIDs; MIG instances are always written so"),
    item("local-rank=virtual", "LOCAL_RANK is 0 where one GPU is visible; the default"),
    item("local-rank=keep", "LOCAL_RANK is the task's number on its node"),
    item(
        "rank-env=on",
        "RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and the like are set where unset; the default where gpubind is asked for",
    ),
    item("rank-env=off", "none of them is set"),
    item(
        "workers=on",
        "where a task keeps several GPUs, each worker that torchrun, mpirun and the like start in it gets one; the default",
    ),
    item("workers=off", "what such a task starts sees all of the task's GPUs"),
    item("verbose", "a line for each rank: its GPU, and why this one"),
    item("strict", "a task that cannot be bound as asked fails, instead of a warning"),
];

/// The names of all items, for a message.
fn valid() -> String {
    ITEMS.each_ref().map(|item| item.name).join(", ")
}

impl Request {
    /// This request, and where it says nothing the other one.
    pub fn or(self, other: &Request) -> Request {
        Request {
            mode: self.mode.or(other.mode),
            share: self.share || other.share,
            ids: self.ids.or(other.ids),
            local_rank: self.local_rank.or(other.local_rank),
            rank_env: self.rank_env.or(other.rank_env),
            workers: self.workers.or(other.workers),
            verbose: self.verbose || other.verbose,
            strict: self.strict || other.strict,
        }
    }
}

impl FromStr for Request {
    type Err = RequestError;

    /// Reads `ITEM,…`; the empty text, or `spank`, is the plain request.
    fn from_str(text: &str) -> Result<Self, RequestError> {
        let mut request = Request::default();
        let mut said: Vec<&str> = Vec::new();
        let items = text.split(',').map(str::trim);
        let items = items.filter(|item| !item.is_empty() && *item != PLAIN);
        for item in items {
            let contradicts = |earlier: &&&str| kind(earlier) == kind(item) && **earlier != item;
            if let Some(first) = said.iter().find(contradicts) {
                return Err(RequestError::Contradiction {
                    first: (*first).to_owned(),
                    second: item.to_owned(),
                });
            }
            said.push(item);
            match item {
                "auto" => request.mode = Some(Mode::Auto),
                "single" => request.mode = Some(Mode::Single),
                "ordered" => request.mode = Some(Mode::Ordered),
                "first" => request.mode = Some(Mode::First),
                "off" => request.mode = Some(Mode::Off),
                "share" => request.share = true,
                "ids=index" => request.ids = Some(Ids::Index),
                "ids=uuid" => request.ids = Some(Ids::Uuid),
                "local-rank=virtual" => request.local_rank = Some(LocalRank::Virtual),
                "local-rank=keep" => request.local_rank = Some(LocalRank::Keep),
                "rank-env=on" => request.rank_env = Some(true),
                "rank-env=off" => request.rank_env = Some(false),
                "workers=on" => request.workers = Some(true),
                "workers=off" => request.workers = Some(false),
                "verbose" => request.verbose = true,
                "strict" => request.strict = true,
                _ => return Err(RequestError::Unknown { item: item.to_owned() }),
            }
        }
        if request.mode == Some(Mode::Off) && request.share {
            return Err(RequestError::Contradiction {
                first: "off".into(),
                second: "share".into(),
            });
        }
        Ok(request)
    }
}

/// What an item is about: two different items of one kind contradict each other.
fn kind(item: &str) -> &str {
    match item {
        "auto" | "single" | "ordered" | "first" | "off" => "mode",
        _ => item.split_once('=').map_or(item, |(key, _)| key),
    }
}

/// What stands for a request without items where an empty text would mean no
/// request at all.
const PLAIN: &str = "spank";

impl Request {
    /// The items that say this, in the order of [`ITEMS`]; none for a plain request.
    pub fn items(&self) -> Vec<&'static str> {
        let items = [
            self.mode.map(|mode| match mode {
                Mode::Auto => "auto",
                Mode::Single => "single",
                Mode::Ordered => "ordered",
                Mode::First => "first",
                Mode::Off => "off",
            }),
            self.share.then_some("share"),
            self.ids.map(|ids| match ids {
                Ids::Index => "ids=index",
                Ids::Uuid => "ids=uuid",
            }),
            self.local_rank.map(|local_rank| match local_rank {
                LocalRank::Virtual => "local-rank=virtual",
                LocalRank::Keep => "local-rank=keep",
            }),
            self.rank_env.map(|on| if on { "rank-env=on" } else { "rank-env=off" }),
            self.workers.map(|on| if on { "workers=on" } else { "workers=off" }),
            self.verbose.then_some("verbose"),
            self.strict.then_some("strict"),
        ];
        items.into_iter().flatten().collect()
    }

    /// The request as a `--gpu-bind` value that Slurm accepts, see [`BindText::Ours`].
    pub fn slurm_text(&self) -> String {
        let items = self.items();
        let colon = if items.is_empty() { "" } else { ":" };
        format!("none,spank{colon}{}", items.join(","))
    }
}

impl fmt::Display for Request {
    /// Writes the request so that it reads back the same. A plain one is `spank`: what
    /// it leaves open is the site's to say, which `auto` would not leave.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.items()[..] {
            [] => f.write_str(PLAIN),
            _ => f.write_str(&self.items().join(",")),
        }
    }
}

/// What the value of a `--gpu-bind` option says to gpubind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindText {
    /// The user wants gpubind. The text is what Slurm accepts in its place: a
    /// value that begins with `none` passes every release's checks, binds
    /// nothing and keeps all of the step's GPUs reachable
    /// (src/common/tres_bind.c).
    Ours {
        /// The items.
        request: Request,
        /// The value to give to Slurm.
        slurm: String,
    },
    /// The user wants Slurm's own binding.
    Slurms,
}

/// Reads the value of a `--gpu-bind` option: `[verbose,]spank[:ITEM,…]`, the
/// same with `none,` before `spank`, or anything of Slurm's own.
pub fn bind_text(value: &str) -> Result<BindText, RequestError> {
    let (verbose, rest) = match value.get(..8) {
        Some(prefix) if prefix.eq_ignore_ascii_case("verbose,") => (true, &value[8..]),
        _ => (false, value),
    };
    let rest = rest.strip_prefix("none,").unwrap_or(rest);
    let Some(items) = rest.strip_prefix("spank") else {
        return Ok(BindText::Slurms);
    };
    let items = match items.strip_prefix(':') {
        Some(items) => items,
        None if items.is_empty() => items,
        None => return Err(RequestError::Spelling { text: value.to_owned() }),
    };
    let mut request: Request = items.parse()?;
    request.verbose |= verbose;
    let verbose = if verbose { "verbose," } else { "" };
    let colon = if items.is_empty() { "" } else { ":" };
    Ok(BindText::Ours { request, slurm: format!("{verbose}none,spank{colon}{items}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_item_is_read_and_written_back() {
        for item in ITEMS.iter().map(|item| item.name) {
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
        for item in ITEMS.iter().map(|item| item.name) {
            assert!(message.contains(item), "{message} lacks {item}");
        }
        for wrong in ["ids", "ids=", "ids=pci", "rank-env", "auto=1", "Single"] {
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
    fn the_bind_text_is_rewritten_once_and_only_once() {
        for (typed, slurm) in [
            ("spank", "none,spank"),
            ("spank:single", "none,spank:single"),
            ("verbose,spank:ids=uuid", "verbose,none,spank:ids=uuid"),
            ("none,spank:first", "none,spank:first"),
            ("verbose,none,spank", "verbose,none,spank"),
        ] {
            let Ok(BindText::Ours { slurm: rewritten, request }) = bind_text(typed) else {
                panic!("{typed} is a request");
            };
            assert_eq!(rewritten, slurm);
            assert_eq!(bind_text(&rewritten), Ok(BindText::Ours { slurm: rewritten, request }));
        }
    }

    #[test]
    fn slurms_own_values_are_left_to_slurm() {
        for value in
            ["closest", "none", "single:2", "map_gpu:0,1", "verbose,closest", "mask_gpu:0x1", ""]
        {
            assert_eq!(bind_text(value), Ok(BindText::Slurms), "{value}");
        }
    }

    #[test]
    fn a_near_miss_is_told_how_to_write_it() {
        for value in ["spank,single", "spanky", "spank=single"] {
            let message = bind_text(value).unwrap_err().to_string();
            assert!(message.contains("spank:ITEM"), "{message}");
        }
    }
}
