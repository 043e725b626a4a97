//! `gpubind config`: the effective settings on this node, and where each comes from.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use comfy_table::Table;
use serde::Serialize;

use super::ending::{CommandError, Failure, warn};
use super::output;
use super::site_policy::idle_tables;
use crate::slurm::{PlugstackFile, SlurmConf, plugstack_path};
use gpubind_core::request::{Request, RequestError};
use gpubind_core::site::{
    EffectiveSettings, JobInfo, Layer, LoadError, Origin, PlugstackArgs, PlugstackError, TomlForm,
    Value, load,
};
use gpubind_core::variables;

/// Show the effective settings on this node, and where each comes from
///
/// The weakest first: built-in, gpubind.toml, its [partition.NAME], its
/// [constraint.NAME], the plugin's arguments in plugstack.conf, SLURM_GPUBIND. A
/// request on a command line comes on top of these. Ends with 1 where a file is
/// broken, and says in which line.
#[derive(Debug, clap::Args)]
pub struct ConfigArgs {
    /// The site file [default: config=PATH in plugstack.conf, else /etc/gpubind.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Slurm's plugstack.conf [default: where Slurm's own configuration has it]
    #[arg(long, value_name = "FILE")]
    plugstack: Option<PathBuf>,
    /// Show the effective settings for jobs of this partition
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,
    /// Show the effective settings for jobs with this constraint
    #[arg(long, value_name = "FEATURES")]
    constraint: Option<String>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Failure for ConfigError {}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The site file is ignored; the error names it.
    #[error(transparent)]
    Site(#[from] LoadError),
    /// plugstack.conf, as named on the command line, or the plugin's line in it.
    #[error("{}", .0.join("\ngpubind: "))]
    Plugstack(Vec<String>),
    /// The user's own variable.
    #[error("SLURM_GPUBIND: {0}")]
    Variable(#[from] RequestError),
}

/// Prints the settings.
///
/// # Errors
/// [`CommandError`].
pub fn run(args: &ConfigArgs, out: &mut dyn Write) -> Result<ExitCode, CommandError> {
    let plugstack = plugstack(args.plugstack.as_deref())?;
    let job = JobInfo { partition: args.partition.clone(), constraint: args.constraint.clone() };
    let named = args.config.clone();
    let path = named.unwrap_or_else(|| plugstack.site(None, &job).config);
    let file = load(&path).map_err(ConfigError::Site)?;
    let slurm = slurm_conf().and_then(|path| SlurmConf::read(&path).ok());
    let idle = file.iter().flat_map(|file| idle_tables(&path, file, &plugstack, slurm.as_ref()));
    idle.for_each(|idle| warn(&format!("without effect: {idle}")));
    let variable = variable().map_err(ConfigError::Variable)?;
    let mut layers = file.as_ref().map_or_else(Vec::new, |file| file.layers(&job));
    layers.extend([&plugstack.layer, &variable]);
    let effective = EffectiveSettings::new(layers);
    if args.json {
        let values: Vec<JsonValue> = effective.values().iter().map(JsonValue::new).collect();
        output::pretty_json(&Json { schema: SCHEMA, values }, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.set_header(["KEY", "VALUE", "FROM"]);
    for value in effective.values() {
        let text = if value.text.is_empty() { "-" } else { &value.text };
        table.add_row([value.key.name, text, &value.origin.to_string()]);
    }
    out.write_all(output::lines(table, false).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The plugin's arguments. That nothing loads the plugin here is reported, but
/// no error: this may be a machine where one tries a site file.
fn plugstack(named: Option<&Path>) -> Result<PlugstackArgs, ConfigError> {
    let path = named.map_or_else(|| plugstack_path(slurm_conf().as_deref()), Path::to_owned);
    let found = PlugstackFile::read(&path);
    if named.is_some() && found.files.is_empty() {
        let problems = found.problems.iter().map(ToString::to_string);
        return Err(ConfigError::Plugstack(problems.collect()));
    }
    for problem in &found.problems {
        warn(problem);
    }
    let mut ours = found.gpubind();
    let Some(line) = ours.next() else {
        warn(&format!("no line of {} loads the plugin", path.display()));
        return Ok(PlugstackArgs::default());
    };
    for other in ours {
        let (file, line) = (other.file.display(), other.line);
        warn(&format!("{file}:{line}: loads the plugin a second time; remove one of the lines"));
    }
    let origin = Origin::Plugstack(Some((line.file.clone(), line.line)));
    let (args, errors) = PlugstackArgs::read(line.args.iter().map(String::as_str), &origin);
    if errors.is_empty() {
        return Ok(args);
    }
    Err(ConfigError::Plugstack(errors.iter().map(PlugstackError::to_string).collect()))
}

/// The file that the variable SLURM_CONF names, else the one in a usual place.
fn slurm_conf() -> Option<PathBuf> {
    let named = env::var_os(variables::SLURM_CONF).filter(|value| !value.is_empty());
    named.map(PathBuf::from).or_else(|| SlurmConf::usual_places().1.map(Path::to_owned))
}

/// What the user's SLURM_GPUBIND says.
fn variable() -> Result<Layer, RequestError> {
    let text = env::var(variables::REQUEST).unwrap_or_default();
    let request: Request = text.parse()?;
    Ok(Layer::of_request(&request, &Origin::Variable))
}

/// The version of the JSON form: docs/json.md.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Json<'v> {
    schema: u32,
    values: Vec<JsonValue<'v>>,
}

#[derive(Serialize)]
struct JsonValue<'v> {
    key: &'static str,
    value: serde_json::Value,
    /// `built-in`, `gpubind.toml`, `plugstack.conf` or `SLURM_GPUBIND`.
    from: &'static str,
    file: Option<&'v Path>,
    line: Option<usize>,
}

impl JsonValue<'_> {
    fn new(value: &Value) -> JsonValue<'_> {
        let text = value.text.as_str();
        let (from, place) = match &value.origin {
            Origin::BuiltIn => ("built-in", None),
            Origin::File { path, line } => ("gpubind.toml", Some((path.as_path(), *line))),
            Origin::Plugstack(place) => {
                let place = place.as_ref().map(|(path, line)| (path.as_path(), *line));
                ("plugstack.conf", place)
            }
            Origin::Variable => (variables::REQUEST, None),
        };
        JsonValue {
            key: value.key.name,
            value: match value.key.toml_form() {
                TomlForm::Text => text.into(),
                TomlForm::Number => text.parse::<u64>().unwrap_or_default().into(),
                TomlForm::List => {
                    text.split(',').filter(|name| !name.is_empty()).collect::<Vec<_>>().into()
                }
            },
            from,
            file: place.map(|(file, _)| file),
            line: place.map(|(_, line)| line),
        }
    }
}
