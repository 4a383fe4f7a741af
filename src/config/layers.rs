//! Layers of the configuration: reads each source into key settings with their origin. Values stay
//! untyped, and [`super::load`] checks them.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use toml::{
    Value,
    de::{DeTable, DeValue},
};

/// Setting of a key by one layer.
#[derive(Debug)]
pub(super) struct ConfigSetting {
    /// Full name of the key, such as `server.bind`.
    pub key: String,
    pub value: Value,
    pub origin: SettingOrigin,
}

/// Origin of a value, as an error names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingOrigin {
    File { path: PathBuf, line: usize },
    Variable(String),
    Flag(&'static str),
}

impl SettingOrigin {
    /// Returns true if both values come from one source: a file, or variables of one family, such
    /// as `OPENAI_API_KEY` and `OPENAI_BASE_URL`.
    pub fn is_same_source(&self, other: &SettingOrigin) -> bool {
        match (self, other) {
            (SettingOrigin::File { path, .. }, SettingOrigin::File { path: other, .. }) => path == other,
            (SettingOrigin::Variable(name), SettingOrigin::Variable(other)) => family(name) == family(other),
            (SettingOrigin::Flag(_), SettingOrigin::Flag(_)) => true,
            (SettingOrigin::File { .. } | SettingOrigin::Variable(_) | SettingOrigin::Flag(_), _) => false,
        }
    }
}

/// Returns the part of a variable's name that stands for its owner.
fn family(variable: &str) -> &str {
    match variable.split_once('_') {
        // Google's own programs read both.
        Some(("GEMINI" | "GOOGLE", _)) => "GOOGLE",
        Some((owner, _)) => owner,
        None => variable,
    }
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingOrigin::File { path, line } => write!(f, "`{}` line {line}", path.display()),
            SettingOrigin::Variable(name) => write!(f, "environment variable `{name}`"),
            SettingOrigin::Flag(name) => write!(f, "flag `{name}`"),
        }
    }
}

/// Variables that are common in this field, with the keys that they set. Later rows win.
const WELL_KNOWN_VARIABLES: [(&str, &str); 14] = [
    ("ANTHROPIC_API_KEY", "model.anthropic.api_key"),
    ("ANTHROPIC_BASE_URL", "model.anthropic.base_url"),
    ("DOCKER_HOST", "sandbox.docker_host"),
    ("GOOGLE_API_KEY", "model.gemini.api_key"),
    ("GEMINI_API_KEY", "model.gemini.api_key"),
    ("GOOGLE_GEMINI_BASE_URL", "model.gemini.base_url"),
    ("GREENROOM_TOKEN", "server.token"),
    ("LLM_API_KEY", "model.api_key"),
    ("LLM_BASE_URL", "model.base_url"),
    ("LLM_MODEL", "model.default"),
    ("OPENAI_API_KEY", "model.openai.api_key"),
    ("OPENAI_BASE_URL", "model.openai.base_url"),
    ("RUST_LOG", "log.level"),
    ("SANDBOX_VOLUMES", "sandbox.volumes"),
];

const ENV_PREFIX: &str = "GREENROOM_";

/// Reads the environment: first the well-known variables, then `GREENROOM_<SECTION>__<KEY>`, which
/// take precedence.
///
/// An empty variable counts as unset, because a shell unsets a variable for a single command this
/// way.
pub(super) fn environment(variables: &BTreeMap<String, String>, defaults: &toml::Table) -> Vec<ConfigSetting> {
    let setting = |name: &str, key: String, text: &str| ConfigSetting {
        value: parse_typed(text, find(defaults, &key)),
        key,
        origin: SettingOrigin::Variable(name.to_owned()),
    };
    let well_known = WELL_KNOWN_VARIABLES.iter().filter_map(|(name, key)| {
        let text = variables.get(*name).filter(|text| !text.is_empty())?;
        Some(setting(name, (*key).to_owned(), text))
    });
    let by_key = variables.iter().filter_map(|(name, text)| {
        let key = name.strip_prefix(ENV_PREFIX).filter(|rest| rest.contains("__") && !text.is_empty())?;
        Some(setting(name, key.to_lowercase().replace("__", "."), text))
    });
    well_known.chain(by_key).collect()
}

/// Reads the flags of the command line.
pub(super) fn flags(flags: &[(&'static str, &'static str, String)], defaults: &toml::Table) -> Vec<ConfigSetting> {
    let setting = |(key, flag, text): &(&str, &'static str, String)| ConfigSetting {
        key: (*key).to_owned(),
        value: parse_typed(text, find(defaults, key)),
        origin: SettingOrigin::Flag(flag),
    };
    flags.iter().map(setting).collect()
}

/// Finds a variable that is a misspelt key, such as `GREENROOM_SERVER_BIND`. Returns its name and
/// the correct name.
pub(super) fn misspelt(variables: &BTreeMap<String, String>, defaults: &toml::Table) -> Option<(String, String)> {
    variables.keys().find_map(|name| {
        let rest = name.strip_prefix(ENV_PREFIX).filter(|rest| !rest.contains("__"))?;
        let (section, key) = rest.split_once('_')?;
        defaults.get(&section.to_lowercase())?.get(key.to_lowercase())?;
        Some((name.clone(), format!("{ENV_PREFIX}{section}__{key}")))
    })
}

/// Parses `text` as the type of the key's default. Text that does not parse stays a string, and is
/// rejected later.
fn parse_typed(text: &str, default: Option<&Value>) -> Value {
    let parsed = || toml::from_str::<toml::Table>(&format!("v = {text}")).ok()?.remove("v");
    match default {
        None | Some(Value::String(_)) => Value::String(text.to_owned()),
        Some(Value::Array(_)) => parsed().filter(Value::is_array).unwrap_or_else(|| {
            Value::Array(text.split(',').map(|item| Value::String(item.trim().to_owned())).collect())
        }),
        Some(_) => parsed().unwrap_or_else(|| Value::String(text.to_owned())),
    }
}

/// Reads a file, with the line of each key.
///
/// # Errors
/// Returns the line and the reason if `text` is no valid TOML.
pub(super) fn file(path: &Path, text: &str, defaults: &toml::Table) -> Result<Vec<ConfigSetting>, (usize, String)> {
    let syntax = |e: toml::de::Error| (e.span().map_or(1, |span| line_of(text, span.start)), e.message().to_owned());
    let values: toml::Table = toml::from_str(text).map_err(syntax)?;
    let spans = DeTable::parse(text).map_err(syntax)?;
    let mut settings = Vec::new();
    walk(&values, defaults, "", &mut |key, value| {
        let line = key_offset(spans.get_ref(), key).map_or(1, |at| line_of(text, at));
        let origin = SettingOrigin::File { path: path.to_owned(), line };
        settings.push(ConfigSetting { key: key.to_owned(), value: value.clone(), origin });
    });
    Ok(settings)
}

/// Calls `each` with every key that is not a section of `defaults`.
fn walk(table: &toml::Table, defaults: &toml::Table, prefix: &str, each: &mut dyn FnMut(&str, &Value)) {
    for (name, value) in table {
        let key = format!("{prefix}{name}");
        match (value, defaults.get(name)) {
            (Value::Table(inner), Some(Value::Table(section))) => walk(inner, section, &format!("{key}."), each),
            _ => each(&key, value),
        }
    }
}

/// Returns the value at `key`.
pub(super) fn find<'a>(table: &'a toml::Table, key: &str) -> Option<&'a Value> {
    let mut names = key.split('.');
    let first = table.get(names.next()?)?;
    names.try_fold(first, |value, name| value.get(name))
}

/// Returns the offset of `key` in the text.
fn key_offset(table: &DeTable<'_>, key: &str) -> Option<usize> {
    let (name, rest) = key.split_once('.').map_or((key, None), |(name, rest)| (name, Some(rest)));
    let (at, value) = table.iter().find(|(k, _)| k.get_ref().as_ref() == name)?;
    match (rest, value.get_ref()) {
        (Some(rest), DeValue::Table(inner)) => key_offset(inner, rest),
        _ => Some(at.span().start),
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}
