//! The table of items: what a user writes behind `--gpu-bind=spank:` and in the
//! option's other spellings, and a site in gpubind.toml.
//!
//! Everything that knows an item by its name goes by this table: [`Request`] and
//! [`Settings`], the parser and its messages, the keys of gpubind.toml and of
//! plugstack.conf, `gpubind config` and the documentation. A new item is one more
//! entry here, and what it does in [`crate::bind`].

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

/// Which of its CPUs a rank keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cpus {
    /// All that Slurm gives it.
    Keep,
    /// Those that are local to its devices, apart from other ranks'.
    Local,
}

/// How a user writes an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The value alone, such as `single`.
    Value,
    /// The name alone, which stands for `on`, such as `strict`.
    Name,
    /// Both, such as `ids=uuid`.
    NameAndValue,
}

/// Who may give a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenBy {
    /// Users and the site.
    Both,
    /// Users only.
    User,
    /// The site only.
    Site,
}

/// One value of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemValue {
    /// As text.
    pub text: &'static str,
    /// Who may give it.
    pub by: GivenBy,
    /// What it does, in a few words; empty where only the site gives it, which finds
    /// that in etc/gpubind.toml.
    pub what: &'static str,
}

/// One item.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    /// Its name, which is the name of the site's key, too.
    pub name: &'static str,
    /// How a user writes it.
    pub form: Form,
    /// The built-in value.
    pub default: &'static str,
    /// What it is about, in a few words.
    pub what: &'static str,
    /// What it takes, in the order of the documentation.
    pub values: &'static [ItemValue],
    get: fn(&Request) -> Option<&'static str>,
    set: fn(&mut Request, &str),
}

/// Makes [`Request`], [`Settings`] and [`ITEMS`] from the entries below. Each value
/// is `text = what a request says by it, who may give it: what it does`; the default
/// is also given as a function of whether gpubind was asked for.
macro_rules! items {
    ($($name:literal, $field:ident: $type:ty, $form:ident, default $default:literal = $built_in:expr,
        $about:literal { $($text:literal = $value:expr, $by:ident: $what:literal;)* })*) => {
        /// What was asked for; `None` where nothing was said.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Request {
            $(#[doc = $about] pub $field: Option<$type>,)*
        }

        impl Request {
            /// This request, and where it says nothing the other one.
            pub fn or(self, other: &Request) -> Request {
                Request { $($field: self.$field.or(other.$field),)* }
            }
        }

        /// The settings in effect for a step.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Settings {
            /// Whether the user asked for gpubind, and not only the site's default.
            pub asked: bool,
            /// What user and site have said, without the built-in values.
            pub said: Request,
            $(#[doc = $about] pub $field: $type,)*
        }

        impl Settings {
            /// What `request` says, and otherwise the built-in values.
            pub fn new(asked: bool, request: &Request) -> Settings {
                let said = request.clone();
                Settings { asked, said, $($field: request.$field.unwrap_or(($built_in)(asked)),)* }
            }
        }

        /// All items, in the order of the documentation and of etc/gpubind.toml.
        pub static ITEMS: &[Item] = &[$(Item {
            name: $name,
            form: Form::$form,
            default: $default,
            what: $about,
            values: &[$(ItemValue { text: $text, by: GivenBy::$by, what: $what },)*],
            get: |request| {
                let value = Some(request.$field?);
                $(if value == $value {
                    return Some($text);
                })*
                None
            },
            set: |request, text| {
                $(if text == $text {
                    request.$field = $value;
                })*
            },
        },)*];
    };
}

items! {
    // Where nobody has asked, nothing may break: `ordered` keeps the number of visible
    // devices, and makes device SLURM_LOCALID, which such programs take, the nearest one.
    "mode", mode: Mode, Value, default "by-request" = |asked| if asked { Mode::Auto } else { Mode::Ordered }, "how a task sees the step's GPUs" {
        "by-request" = None, Site: "";
        "auto" = Some(Mode::Auto), Both: "exactly one GPU for each task; with fewer tasks than GPUs on the node, an equal share each; the default where gpubind is asked for";
        "single" = Some(Mode::Single), Both: "exactly one GPU for each task, whatever the counts";
        "ordered" = Some(Mode::Ordered), Both: "all GPUs of the step in each task, in one order: entry SLURM_LOCALID is the task's own; the default for steps that nobody asked for";
        "first" = Some(Mode::First), Both: "all GPUs of the step in each task, its own first";
        "off" = Some(Mode::Off), User: "the environment stays as Slurm makes it";
    }
    "share", share: bool, Name, default "off" = |_| false, "no warning where several tasks, or a launcher's workers, share a GPU" {
        "on" = Some(true), Both: "no warning where several tasks, or a launcher's workers, share a GPU";
        "off" = Some(false), Site: "";
    }
    "ids", ids: Ids, NameAndValue, default "index" = |_| Ids::Index, "how GPUs are written" {
        "index" = Some(Ids::Index), Both: "GPUs as numbers, in PCI order among those that the task can reach; the default";
        "uuid" = Some(Ids::Uuid), Both: "GPUs as UUIDs; MIG instances are always written so";
    }
    "local-rank", local_rank: LocalRank, NameAndValue, default "virtual" = |_| LocalRank::Virtual, "what LOCAL_RANK is where one GPU is visible" {
        "virtual" = Some(LocalRank::Virtual), Both: "LOCAL_RANK is 0 where one GPU is visible; the default";
        "keep" = Some(LocalRank::Keep), Both: "LOCAL_RANK is the task's number on its node";
    }
    // Who asks for gpubind wants ranks; a site's default must not make every program
    // believe that it runs under torchrun.
    "rank-env", rank_env: bool, NameAndValue, default "on-request" = |asked| asked, "whether RANK, WORLD_SIZE and the like are set" {
        "on-request" = None, Site: "";
        "on" = Some(true), Both: "RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and the like are set where unset; the default where gpubind is asked for";
        "off" = Some(false), Both: "none of them is set";
    }
    "workers", workers: bool, NameAndValue, default "on" = |_| true, "whether tasks with several GPUs load the worker shim" {
        "on" = Some(true), Both: "where a task keeps several GPUs, each worker that torchrun, mpirun and the like start in it gets one; the default";
        "off" = Some(false), Both: "what such a task starts sees all of the task's GPUs";
    }
    "cpus", cpus: Cpus, NameAndValue, default "keep" = |_| Cpus::Keep, "which of its CPUs a rank keeps" {
        "keep" = Some(Cpus::Keep), Both: "a rank keeps all CPUs that Slurm gives it; the default";
        "local" = Some(Cpus::Local), Both: "of the CPUs that Slurm gives it a rank keeps those that are local to its GPU; ranks that have the same ones get equal parts of whole cores";
    }
    "omp", omp: bool, Name, default "off" = |_| false, "whether cpus=local also sets OMP_NUM_THREADS" {
        "on" = Some(true), Both: "with cpus=local, OMP_NUM_THREADS is the number of the rank's cores where it is unset";
        "off" = Some(false), Site: "";
    }
    "verbose", verbose: bool, Name, default "off" = |_| false, "a line for each rank" {
        "on" = Some(true), Both: "a line for each rank: its GPU, and why this one; and one for each node";
        "off" = Some(false), Site: "";
    }
    "strict", strict: bool, Name, default "off" = |_| false, "a task that cannot be bound as asked fails" {
        "on" = Some(true), Both: "a task that cannot be bound as asked fails, instead of a warning";
        "off" = Some(false), Site: "";
    }
}

impl Item {
    /// What a request says, as text.
    pub fn get(&self, request: &Request) -> Option<&'static str> {
        (self.get)(request)
    }

    /// Has a request say one of this item's values.
    pub fn set(&self, request: &mut Request, text: &str) {
        (self.set)(request, text);
    }

    /// How a user writes a value of it.
    pub fn written(&self, value: &str) -> String {
        match self.form {
            Form::Value => value.to_owned(),
            Form::Name => self.name.to_owned(),
            Form::NameAndValue => format!("{}={value}", self.name),
        }
    }

    /// The values that a user may give.
    pub fn for_users(&self) -> impl Iterator<Item = &'static ItemValue> {
        self.values.iter().filter(|value| value.by != GivenBy::Site)
    }

    /// The values that the site may give.
    pub fn for_the_site(&self) -> impl Iterator<Item = &'static ItemValue> {
        self.values.iter().filter(|value| value.by != GivenBy::User)
    }
}

/// Everything that a user may write: the item, its value, and both as one word.
pub fn written_items() -> impl Iterator<Item = (&'static Item, &'static ItemValue, String)> {
    ITEMS
        .iter()
        .flat_map(|item| item.for_users().map(move |value| (item, value, item.written(value.text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_of_the_table_is_set_and_got_and_each_default_is_the_built_in_setting() {
        for item in ITEMS {
            for value in item.values {
                let mut request = Request::default();
                item.set(&mut request, value.text);
                let is_open = ["on-request", "by-request"].contains(&value.text);
                let said = (!is_open).then_some(value.text);
                assert_eq!(item.get(&request), said, "{}", item.name);
                assert_eq!(value.what.is_empty(), value.by == GivenBy::Site, "{}", item.name);
            }
            for asked in [false, true] {
                let mut request = Request::default();
                item.set(&mut request, item.default);
                let plain = Settings::new(asked, &Request::default());
                let said = Settings { said: plain.said.clone(), ..Settings::new(asked, &request) };
                assert_eq!(said, plain, "{}", item.name);
            }
            assert!(item.for_the_site().any(|value| value.text == item.default), "{}", item.name);
        }
    }

    #[test]
    fn no_two_items_are_written_alike() {
        let mut words: Vec<String> = written_items().map(|(_, _, word)| word).collect();
        let count = words.len();
        words.sort();
        words.dedup();
        assert_eq!((words.len(), count), (19, 19));
    }
}
