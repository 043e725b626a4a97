//! gpubind.toml: from its text to layers of values.

use crate::variables;
use std::collections::BTreeMap;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{KEYS, Key, NoKey, Scope, TomlForm};
use super::layer::{Layer, Origin};
use crate::nearest::nearest;

/// What a job is, as far as a step knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobInfo {
    /// SLURM_JOB_PARTITION.
    pub partition: Option<String>,
    /// SLURM_JOB_CONSTRAINTS: the features that the job asked for.
    pub constraint: Option<String>,
}

impl JobInfo {
    /// What a step's environment tells. No release from 22.05 to 26.05 puts the job's
    /// constraint into it; a site's job_submit or cli_filter plugin can.
    pub fn read(env: &dyn Fn(&str) -> Option<String>) -> JobInfo {
        JobInfo {
            partition: env(variables::JOB_PARTITION),
            constraint: env(variables::JOB_CONSTRAINTS),
        }
    }
}

/// A gpubind.toml that has been understood.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiteFile {
    base: Layer,
    partitions: BTreeMap<String, Layer>,
    /// In the order of the file.
    constraints: Vec<(String, Layer)>,
}

/// A gpubind.toml that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct SiteFileError {
    /// Its line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: SiteFileProblem,
}

/// What is wrong in a gpubind.toml.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SiteFileProblem {
    /// No TOML.
    #[error("{0}")]
    Toml(String),
    /// A key that does not exist.
    #[error("unknown key `{name}`; {}", meant(*nearest, valid))]
    Unknown {
        /// The key as written.
        name: String,
        /// The key that it is like.
        nearest: Option<&'static str>,
        /// The keys that may stand there.
        valid: Vec<&'static str>,
    },
    /// A key that may not stand in a table.
    #[error("`{0}` holds for the whole node: it may not stand in a table, put it before the first")]
    NotInTable(&'static str),
    /// A key that belongs into plugstack.conf.
    #[error("`{0}` can only be an argument in plugstack.conf")]
    PlugstackOnly(&'static str),
    /// A value that the key does not take.
    #[error("`{name} = {found}` needs {needs}")]
    Value {
        /// The key.
        name: &'static str,
        /// The value as written.
        found: String,
        /// What it takes.
        needs: String,
    },
    /// `partition` or `constraint` without a name.
    #[error("`{0}` needs a name: [{0}.NAME]")]
    Nameless(String),
}

fn meant(nearest: Option<&str>, valid: &[&str]) -> String {
    match nearest {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("valid keys: {}", valid.join(", ")),
    }
}

const PARTITION: &str = "partition";
const CONSTRAINT: &str = "constraint";

/// A key or value of the file.
type At<T> = Spanned<T>;

impl SiteFile {
    /// Reads the text of the file at `path`.
    ///
    /// # Errors
    /// [`SiteFileError`] with the first line that is wrong.
    pub fn parse(text: &str, path: &Path) -> Result<SiteFile, SiteFileError> {
        let reader = Reader { text, path };
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            reader.error(at, SiteFileProblem::Toml(error.message().trim().replace('\n', "; ")))
        })?;
        let mut file = SiteFile::default();
        for (name, value) in in_order(table.get_ref()) {
            match (name.get_ref().as_ref(), value.get_ref()) {
                (PARTITION, DeValue::Table(table)) => {
                    let tables = reader.tables(PARTITION, table)?;
                    file.partitions = tables.into_iter().collect();
                }
                (CONSTRAINT, DeValue::Table(table)) => {
                    file.constraints = reader.tables(CONSTRAINT, table)?;
                }
                (PARTITION | CONSTRAINT, _) => {
                    let name = name.get_ref().to_string();
                    return Err(reader.error(value.span().start, SiteFileProblem::Nameless(name)));
                }
                _ => reader.take(&mut file.base, name, value, |scope| scope != Scope::Plugstack)?,
            }
        }
        Ok(file)
    }

    /// What the tables set, each with its name as in `partition.NAME`.
    pub fn tables(&self) -> impl Iterator<Item = (String, &Layer)> {
        let named = |kind: &'static str| move |(name, layer)| (format!("{kind}.{name}"), layer);
        let partitions = self.partitions.iter().map(named(PARTITION));
        let constraints = self.constraints.iter().map(|(name, layer)| (name, layer));
        partitions.chain(constraints.map(named(CONSTRAINT)))
    }

    /// The layers that hold for a job, the weakest first: the file's own keys, its
    /// partition's, its constraint's. Of several constraints that match, a later
    /// one in the file wins.
    pub fn layers(&self, job: &JobInfo) -> Vec<&Layer> {
        let partition = job.partition.as_ref().and_then(|name| self.partitions.get(name));
        let asked = job.constraint.as_deref().unwrap_or_default();
        // Features are joined by operators, parentheses and counts (salloc(1), --constraint).
        let asked: Vec<&str> = asked
            .split(|c: char| "&|()[],*! ".contains(c))
            .filter(|name| !name.is_empty())
            .collect();
        let constraints = self.constraints.iter();
        let constraints = constraints.filter(|(name, _)| asked.contains(&name.as_str()));
        [&self.base]
            .into_iter()
            .chain(partition)
            .chain(constraints.map(|(_, layer)| layer))
            .collect()
    }

    /// The names of the partitions that have a table of their own.
    pub fn partitions(&self) -> impl Iterator<Item = &str> {
        self.partitions.keys().map(String::as_str)
    }
}

/// A table's entries as they stand in the file.
fn in_order<'t, 'i>(
    table: &'t DeTable<'i>,
) -> Vec<(&'t At<std::borrow::Cow<'i, str>>, &'t At<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    entries
}

struct Reader<'t> {
    text: &'t str,
    path: &'t Path,
}

impl Reader<'_> {
    /// The line, from 1, at this byte of the text.
    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().iter().take(at);
        1 + before.filter(|byte| **byte == b'\n').count()
    }

    fn error(&self, at: usize, problem: SiteFileProblem) -> SiteFileError {
        SiteFileError { line: self.line(at), problem }
    }

    /// The tables `[KIND.NAME]`.
    fn tables(&self, kind: &str, table: &DeTable) -> Result<Vec<(String, Layer)>, SiteFileError> {
        let mut tables = Vec::new();
        for (name, value) in in_order(table) {
            let DeValue::Table(keys) = value.get_ref() else {
                let problem = SiteFileProblem::Nameless(kind.to_owned());
                return Err(self.error(name.span().start, problem));
            };
            let mut layer = Layer::default();
            for (name, value) in in_order(keys) {
                self.take(&mut layer, name, value, |scope| scope == Scope::PerJob)?;
            }
            tables.push((name.get_ref().to_string(), layer));
        }
        Ok(tables)
    }

    fn take(
        &self,
        layer: &mut Layer,
        name: &At<std::borrow::Cow<'_, str>>,
        value: &At<DeValue>,
        accepts: impl Fn(Scope) -> bool,
    ) -> Result<(), SiteFileError> {
        let at = name.span().start;
        let accepts = |key: &Key| accepts(key.scope);
        let key = Key::find(name.get_ref(), accepts).map_err(|no_key| {
            let problem = match no_key {
                NoKey::Elsewhere(key) if key.scope == Scope::Plugstack => {
                    SiteFileProblem::PlugstackOnly(key.name)
                }
                NoKey::Elsewhere(key) => SiteFileProblem::NotInTable(key.name),
                NoKey::Unknown { nearest: found } => SiteFileProblem::Unknown {
                    name: name.get_ref().to_string(),
                    nearest: found
                        .or_else(|| nearest(name.get_ref(), [PARTITION, CONSTRAINT].into_iter())),
                    valid: KEYS.iter().filter(|key| accepts(key)).map(|key| key.name).collect(),
                },
            };
            self.error(at, problem)
        })?;
        let text = text_of(key, value.get_ref()).and_then(|text| key.canonical(&text));
        let text = text.ok_or_else(|| {
            let found = self.text.get(value.span()).unwrap_or_default();
            // A table's or a list's text may go on over lines.
            let found = found.lines().next().unwrap_or_default().to_owned();
            let needs = match key.toml_form() {
                TomlForm::List => format!("a list of {}", key.expected()),
                TomlForm::Text | TomlForm::Number => key.expected(),
            };
            let problem = SiteFileProblem::Value { name: key.name, found, needs };
            self.error(value.span().start, problem)
        })?;
        let origin = Origin::File { path: self.path.to_owned(), line: self.line(at) };
        layer.set(key.name, text, origin);
        Ok(())
    }
}

/// A value of TOML as the text that plugstack.conf would have.
fn text_of(key: &Key, value: &DeValue) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Boolean(on) => Some(if *on { "on" } else { "off" }.to_owned()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .map(|number| number.to_string()),
        DeValue::Array(list) if key.toml_form() == TomlForm::List => {
            let names = list.iter().map(|name| match name.get_ref() {
                DeValue::String(name) if !name.contains(',') => Some(name.to_string()),
                _ => None,
            });
            names.collect::<Option<Vec<_>>>().map(|names| names.join(","))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Mode;
    use crate::site::{BindDefault, EffectiveSettings, Site};

    const PATH: &str = "/etc/gpubind.toml";

    fn parse(text: &str) -> Result<SiteFile, SiteFileError> {
        SiteFile::parse(text, Path::new(PATH))
    }

    fn site(text: &str, partition: Option<&str>, constraint: Option<&str>) -> Site {
        let job = JobInfo {
            partition: partition.map(str::to_owned),
            constraint: constraint.map(str::to_owned),
        };
        EffectiveSettings::new(parse(text).unwrap().layers(&job)).site()
    }

    #[test]
    fn an_empty_file_says_nothing_and_values_have_their_types() {
        assert_eq!(site("", None, None), Site::default());
        let text = "default = \"always\"\nverbose = true\nshare = \"on\"\nprobe-timeout = 0x10\n\
                    exclude = [\"B7:00.0\",\n \"GPU-1\"]\nnvml = \"/opt/nvml.so\"\n";
        let site = site(text, None, None);
        assert_eq!(site.default, BindDefault::Always);
        assert_eq!(
            site.request.to_string(),
            "share,ids=index,local-rank=virtual,workers=on,cpus=keep,verbose"
        );
        assert_eq!(site.probe_timeout.as_secs(), 16);
        assert_eq!(site.exclude.len(), 2);
        assert_eq!(site.nvml, Some("/opt/nvml.so".into()));
    }

    #[test]
    fn a_partition_overrides_the_file_and_a_constraint_the_partition() {
        let text = "mode = \"single\"\nids = \"uuid\"\n[partition.big]\nmode = \"first\"\nshare = true\n\
                    [partition.\"a b\"]\nids = \"index\"\n\
                    [constraint.z]\nmode = \"ordered\"\n[constraint.a]\nmode = \"auto\"\n";
        let mode = |partition, constraint| site(text, partition, constraint).request.mode.unwrap();
        assert_eq!(mode(None, None), Mode::Single);
        assert_eq!(mode(Some("small"), None), Mode::Single);
        assert_eq!(mode(Some("big"), None), Mode::First);
        assert_eq!(mode(Some("big"), Some("z")), Mode::Ordered);
        assert_eq!(mode(Some("big"), Some("x&[z*2|y]")), Mode::Ordered);
        assert_eq!(mode(Some("big"), Some("a&z")), Mode::Auto, "the later table wins");
        assert_eq!(mode(None, Some("zz")), Mode::Single);
        let big = site(text, Some("big"), None).request;
        assert!(big.share == Some(true) && big.to_string().contains("ids=uuid"), "{big}");
        assert!(site(text, Some("a b"), None).request.to_string().contains("ids=index"));
    }

    #[test]
    fn each_value_knows_its_line() {
        let file =
            parse("# policy\nmode = \"first\"\n\n[partition.big]\nmode = \"single\"\n").unwrap();
        let job = JobInfo { partition: Some("big".to_owned()), constraint: None };
        let origin = |effective: &EffectiveSettings| {
            let value = effective.values().iter().find(|value| value.key.name == "mode").unwrap();
            value.origin.to_string()
        };
        assert_eq!(
            origin(&EffectiveSettings::new(file.layers(&JobInfo::default()))),
            format!("{PATH}:2")
        );
        assert_eq!(origin(&EffectiveSettings::new(file.layers(&job))), format!("{PATH}:5"));
        assert_eq!(origin(&EffectiveSettings::new([])), "built-in");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_what_would_be_right() {
        for (text, told) in [
            ("\nmdoe = \"auto\"", "2: unknown key `mdoe`; did you mean `mode`?"),
            ("xyzzy = 1", "1: unknown key `xyzzy`; valid keys: default, mode, share"),
            (
                "[partitions.x]\nmode = \"auto\"",
                "1: unknown key `partitions`; did you mean `partition`?",
            ),
            (
                "[partition.x]\n\nlocal_rank = \"keep\"",
                "3: unknown key `local_rank`; did you mean `local-rank`?",
            ),
            ("[partition.x]\nnvml = \"/x\"", "2: `nvml` holds for the whole node"),
            (
                "[partition.x]\nfsroot = \"/x\"",
                "2: `fsroot` can only be an argument in plugstack.conf",
            ),
            ("config = \"/x\"", "1: `config` can only be an argument in plugstack.conf"),
            (
                "mode = \"off\"",
                "1: `mode = \"off\"` needs one of by-request, auto, single, ordered, first",
            ),
            ("strict = 1", "1: `strict = 1` needs on or off"),
            ("ids = []", "1: `ids = []` needs index or uuid"),
            (
                "probe-timeout = 0",
                "1: `probe-timeout = 0` needs a number of seconds from 1 to 604800",
            ),
            ("probe-timeout = 1.5", "1: `probe-timeout = 1.5` needs a number"),
            ("exclude = [\n\"0\"]", "1: `exclude = [` needs a list of PCI addresses"),
            ("exclude = [\"GPU-1,GPU-2\"]", "needs a list of PCI addresses"),
            ("program = \"gpubind\"", "1: `program = \"gpubind\"` needs an absolute path"),
            ("[partition]\nx = \"auto\"", "2: `partition` needs a name: [partition.NAME]"),
            ("constraint = \"x\"", "1: `constraint` needs a name: [constraint.NAME]"),
            ("mode = \"auto\"\nmode = \"auto\"", "2: duplicate key"),
            ("mode = auto", "1: "),
            ("mode = \"auto\"\n[x", "2: "),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.starts_with("line ") && message.contains(told), "{text:?}: {message}");
            assert!(!message.contains('\n'), "one line: {message}");
        }
    }
}
