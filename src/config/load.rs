//! Merges the layers, one key at a time, so that each error names the one place that is wrong.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use toml::{Table, Value};

use super::{
    Config,
    layers::{self, ConfigSetting, SettingOrigin},
};

const DEFAULTS: &str = include_str!("../../config/default.toml");

/// The name of the file in the data directory.
const FILE_NAME: &str = "greenroom.toml";

/// Where a configuration is put together from, beside the defaults.
#[derive(Debug, Default)]
pub struct ConfigSources {
    /// `--config`: this file, and no other.
    pub file: Option<PathBuf>,
    pub environment: BTreeMap<String, String>,
    /// Key, flag, value.
    pub flags: Vec<(&'static str, &'static str, String)>,
}

/// What is wrong with the configuration. The text names the place and the way out.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("`{path}` cannot be read: {source}")]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{path}` line {line} is no TOML: {detail}")]
    Syntax { path: PathBuf, line: usize, detail: String },
    #[error("{origin}: there is no key `{key}`; {there_is}")]
    UnknownKey { origin: SettingOrigin, key: String, there_is: String },
    #[error("environment variable `{name}` names no key; write `{meant}`")]
    Misspelt { name: String, meant: String },
    #[error("{origin}: `{key}`: {detail}")]
    BadValue { origin: SettingOrigin, key: String, detail: String },
    #[error("{origin}: `data.dir` cannot be set by a file that lies in the data directory; remove it there")]
    Circular { origin: SettingOrigin },
    #[error("there is no home directory to keep data in; say where with `--data DIR`")]
    NoHome,
}

impl Config {
    /// Defaults, files, environment, flags: what is said later wins.
    pub fn load(sources: &ConfigSources) -> Result<Config, ConfigError> {
        let mut merged = MergedLayers::defaults();
        let above = environment_and_flags(sources, &merged.tree)?;
        match &sources.file {
            Some(path) => merged.apply_file(path)?,
            None => merged.apply_default_files(sources, &above)?,
        }
        for setting in above {
            merged.apply(setting)?;
        }
        let MergedLayers { mut config, .. } = merged;
        config.data.dir = data_dir(&config, &sources.environment)?;
        Ok(config)
    }

    /// The defaults alone, with a data directory of the caller's choice.
    pub fn with_data_dir(dir: impl Into<PathBuf>) -> Config {
        let mut config = MergedLayers::defaults().config;
        config.data.dir = dir.into();
        config
    }
}

/// The environment and the flags, in this order.
fn environment_and_flags(sources: &ConfigSources, defaults: &Table) -> Result<Vec<ConfigSetting>, ConfigError> {
    if let Some((name, meant)) = layers::misspelt(&sources.environment, defaults) {
        return Err(ConfigError::Misspelt { name, meant });
    }
    let mut above = layers::environment(&sources.environment, defaults);
    above.extend(layers::flags(&sources.flags, defaults));
    Ok(above)
}

fn data_dir(config: &Config, environment: &BTreeMap<String, String>) -> Result<PathBuf, ConfigError> {
    if !config.data.dir.as_os_str().is_empty() {
        return std::path::absolute(&config.data.dir)
            .map_err(|source| ConfigError::Unreadable { path: config.data.dir.clone(), source });
    }
    base_dir(environment, "XDG_DATA_HOME", ".local/share").ok_or(ConfigError::NoHome)
}

/// `$variable/greenroom`, or `~/<otherwise>/greenroom`. A relative path there is ignored, as the XDG specification says.
fn base_dir(environment: &BTreeMap<String, String>, variable: &str, otherwise: &str) -> Option<PathBuf> {
    let absolute = |name: &str| environment.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(otherwise)))?;
    Some(base.join("greenroom"))
}

/// The layers so far: as they were written, and as they were understood.
struct MergedLayers {
    tree: Table,
    config: Config,
}

impl MergedLayers {
    fn defaults() -> MergedLayers {
        let tree: Table = toml::from_str(DEFAULTS).expect("the defaults are compiled in, and a test reads them");
        let config = Config::deserialize(tree.clone()).expect("the defaults are compiled in, and a test reads them");
        MergedLayers { tree, config }
    }

    /// The user's file, and the data directory's, wherever that is by then.
    fn apply_default_files(&mut self, sources: &ConfigSources, above: &[ConfigSetting]) -> Result<(), ConfigError> {
        if let Some(dir) = base_dir(&sources.environment, "XDG_CONFIG_HOME", ".config") {
            self.apply_optional_file(&dir.join("config.toml"))?;
        }
        let named = above.iter().rfind(|setting| setting.key == "data.dir").and_then(|s| s.value.as_str());
        let mut so_far = self.config.clone();
        if let Some(dir) = named {
            so_far.data.dir = dir.into();
        }
        let dir = data_dir(&so_far, &sources.environment)?;
        let before = self.config.data.dir.clone();
        let settings = read_settings(&dir.join(FILE_NAME), &self.tree)?;
        self.apply_all(settings)?;
        match self.config.data.dir == before {
            true => Ok(()),
            false => Err(ConfigError::Circular { origin: SettingOrigin::File { path: dir.join(FILE_NAME), line: 1 } }),
        }
    }

    fn apply_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        match path.try_exists() {
            Ok(true) => self.apply_optional_file(path),
            Ok(false) => Err(unreadable(path, io::ErrorKind::NotFound.into())),
            Err(e) => Err(unreadable(path, e)),
        }
    }

    fn apply_optional_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let settings = read_settings(path, &self.tree)?;
        self.apply_all(settings)
    }

    fn apply_all(&mut self, settings: Vec<ConfigSetting>) -> Result<(), ConfigError> {
        settings.into_iter().try_for_each(|setting| self.apply(setting))
    }

    /// Takes one key over. Everything was fine before it, so whatever is wrong now is its fault.
    fn apply(&mut self, setting: ConfigSetting) -> Result<(), ConfigError> {
        let ConfigSetting { key, value, origin } = setting;
        let Some(slot) = slot(&mut self.tree, &key) else {
            let there_is = known_keys(&self.tree, &key);
            return Err(ConfigError::UnknownKey { origin, key, there_is });
        };
        let shown = if is_secret(&key) { String::new() } else { describe_value(&value) };
        *slot = match key.as_str() {
            "model.prices" => merge_price_rows(slot, value),
            _ => value,
        };
        let bad = |detail: String| ConfigError::BadValue { origin: origin.clone(), key: key.clone(), detail };
        self.config = Config::deserialize(self.tree.clone()).map_err(|e| bad(format!("{shown}{}", e.message())))?;
        match self.config.invalid_value() {
            Some(nonsense) if nonsense.key == key => Err(bad(format!("{shown}{}", nonsense.why))),
            Some(nonsense) => Err(bad(format!("{shown}with it `{}` makes no sense: {}", nonsense.key, nonsense.why))),
            None => Ok(()),
        }
    }
}

fn read_settings(path: &Path, defaults: &Table) -> Result<Vec<ConfigSetting>, ConfigError> {
    let text = match std::fs::read_to_string(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|e| unreadable(path, e))?,
    };
    layers::file(path, &text, defaults).map_err(|(line, detail)| ConfigError::Syntax {
        path: path.to_owned(),
        line,
        detail,
    })
}

fn unreadable(path: &Path, source: io::Error) -> ConfigError {
    ConfigError::Unreadable { path: path.to_owned(), source }
}

/// Where the value of `key` lives; `None` for a key that there is not, and for a whole section.
fn slot<'a>(tree: &'a mut Table, key: &str) -> Option<&'a mut Value> {
    let mut names = key.split('.');
    let first = tree.get_mut(names.next()?)?;
    let slot = names.try_fold(first, |value, name| value.get_mut(name))?;
    Some(slot).filter(|value| !value.is_table())
}

/// What there is in place of a key that there is not.
fn known_keys(tree: &Table, key: &str) -> String {
    let names = |table: &Table| table.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let sections = key.match_indices('.').map(|(at, _)| &key[..at]).chain([key]);
    let deepest = sections.filter_map(|name| Some((name, layers::find(tree, name)?.as_table()?))).next_back();
    match deepest {
        Some((section, table)) => format!("`{section}` has {}", names(table)),
        None => format!("there are the sections {}", names(tree)),
    }
}

/// The rows of `value`, and those rows of `slot` whose `model` it does not name.
fn merge_price_rows(slot: &Value, value: Value) -> Value {
    let (Value::Array(old), Value::Array(new)) = (slot, &value) else { return value };
    let named = |row: &Value| new.iter().any(|other| other.get("model") == row.get("model"));
    Value::Array(old.iter().filter(|row| !named(row)).chain(new).cloned().collect())
}

fn is_secret(key: &str) -> bool {
    key.ends_with("api_key") || key.ends_with("token")
}

fn describe_value(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Table(_) => String::new(),
        scalar => format!("{scalar} does not fit: "),
    }
}

#[cfg(test)]
mod tests;
