//! Loading: merges the layers key by key, so that each error names exactly one place.

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
    prices,
};

const DEFAULTS: &str = include_str!("../../config/default.toml");

/// Name of the configuration file in the data directory.
const FILE_NAME: &str = "greenroom.toml";

/// Sources of a configuration, besides the defaults.
#[derive(Debug, Default)]
pub struct ConfigSources {
    /// File of `--config`. Replaces the user's file and the data directory's file.
    pub file: Option<PathBuf>,
    pub environment: BTreeMap<String, String>,
    /// Flags as key, flag name and value.
    pub flags: Vec<(&'static str, &'static str, String)>,
}

/// Error in the configuration. The text names the place and the way out.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read `{path}`: {source}")]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{path}` line {line} is not valid TOML: {detail}")]
    Syntax { path: PathBuf, line: usize, detail: String },
    #[error("{origin}: unknown key `{key}`; {known_keys}")]
    UnknownKey { origin: SettingOrigin, key: String, known_keys: String },
    #[error("environment variable `{name}` is not a setting; use `{correct_name}`")]
    Misspelt { name: String, correct_name: String },
    #[error("{origin}: `{key}`: {detail}")]
    BadValue { origin: SettingOrigin, key: String, detail: String },
    #[error("{origin}: `data.dir` cannot be set by the file in the data directory; remove it from that file")]
    Circular { origin: SettingOrigin },
    #[error("no home directory to store data in; choose a directory with `--data DIR`")]
    NoHome,
}

impl Config {
    /// Loads the configuration. Order: defaults, files, environment, flags. Later layers win.
    ///
    /// # Errors
    /// Returns the first invalid setting, with its place.
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
        let MergedLayers { mut config, address_origins, .. } = merged;
        config.model.address_origins = address_origins;
        config.data.dir = data_dir(&config, &sources.environment)?;
        Ok(config)
    }

    /// Returns the defaults with the data directory `dir`.
    pub fn with_data_dir(dir: impl Into<PathBuf>) -> Config {
        let mut config = MergedLayers::defaults().config;
        config.data.dir = dir.into();
        config
    }
}

/// Reads the environment and the flags, in this order.
fn environment_and_flags(sources: &ConfigSources, defaults: &Table) -> Result<Vec<ConfigSetting>, ConfigError> {
    if let Some((name, correct_name)) = layers::misspelt(&sources.environment, defaults) {
        return Err(ConfigError::Misspelt { name, correct_name });
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

/// Returns `$variable/greenroom`, or `~/<otherwise>/greenroom`. A relative path in `variable` is
/// ignored, as the XDG base directory specification requires.
fn base_dir(environment: &BTreeMap<String, String>, variable: &str, otherwise: &str) -> Option<PathBuf> {
    let absolute = |name: &str| environment.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(otherwise)))?;
    Some(base.join("greenroom"))
}

/// Layers merged so far: as written, and as typed configuration.
struct MergedLayers {
    tree: Table,
    config: Config,
    /// Origins of the keys and base URLs of model providers.
    address_origins: BTreeMap<String, SettingOrigin>,
    /// Price rows of the user. Take precedence over the rows of `model.prices_file`.
    own_prices: Value,
}

impl MergedLayers {
    fn defaults() -> MergedLayers {
        let tree: Table = toml::from_str(DEFAULTS).expect("the compiled-in defaults are valid: a test reads them");
        let config = Config::deserialize(tree.clone()).expect("the compiled-in defaults are valid: a test reads them");
        MergedLayers { tree, config, address_origins: BTreeMap::new(), own_prices: Value::Array(Vec::new()) }
    }

    /// Applies the user's file, then the file of the data directory, wherever the layers so far
    /// place it.
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

    /// Applies one setting. The configuration was valid before, so any error is caused by this
    /// setting.
    fn apply(&mut self, setting: ConfigSetting) -> Result<(), ConfigError> {
        let ConfigSetting { key, value, origin } = setting;
        let shown = if is_secret(&key) { String::new() } else { describe_value(&value) };
        let newer = match (key.as_str(), value.as_str()) {
            ("model.prices_file", Some(path)) if !path.is_empty() => {
                Some(prices::read(Path::new(path)).map_err(|detail| ConfigError::BadValue {
                    origin: origin.clone(),
                    key: key.clone(),
                    detail,
                })?)
            }
            _ => None,
        };
        let Some(slot) = slot(&mut self.tree, &key) else {
            let known_keys = known_keys(&self.tree, &key);
            return Err(ConfigError::UnknownKey { origin, key, known_keys });
        };
        if key == "model.prices" {
            self.own_prices = prices::merge(&self.own_prices, value.clone());
            *slot = prices::merge(slot, value);
        } else {
            *slot = value;
        }
        if let Some(newer) = newer {
            newer.apply_to(&mut self.tree, &self.own_prices);
        }
        let bad = |detail: String| ConfigError::BadValue { origin: origin.clone(), key: key.clone(), detail };
        self.config = Config::deserialize(self.tree.clone()).map_err(|e| bad(format!("{shown}{}", e.message())))?;
        match self.config.invalid_value() {
            Some(invalid) if invalid.key == key => Err(bad(format!("{shown}{}", invalid.reason))),
            Some(invalid) => Err(bad(format!("{shown}it makes `{}` invalid: {}", invalid.key, invalid.reason))),
            None => {
                if key.starts_with("model.") && (key.ends_with(".api_key") || key.ends_with(".base_url")) {
                    self.address_origins.insert(key, origin);
                }
                Ok(())
            }
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

/// Only key that is a text by default and may become a table.
const TLS_KEY: &str = "server.tls";

/// Returns the value of `key`. `None` for an unknown key and for a whole section.
fn slot<'a>(tree: &'a mut Table, key: &str) -> Option<&'a mut Value> {
    let mut names = key.split('.');
    let first = tree.get_mut(names.next()?)?;
    let slot = names.try_fold(first, |value, name| value.get_mut(name))?;
    Some(slot).filter(|value| !value.is_table() || key == TLS_KEY)
}

/// Lists the valid keys nearest to an unknown key.
fn known_keys(tree: &Table, key: &str) -> String {
    let names = |table: &Table| table.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let sections = key.match_indices('.').map(|(at, _)| &key[..at]).chain([key]);
    let deepest = sections.filter_map(|name| Some((name, layers::find(tree, name)?.as_table()?))).next_back();
    match deepest {
        Some((section, table)) => format!("`{section}` has {}", names(table)),
        None => format!("the sections are {}", names(tree)),
    }
}

fn is_secret(key: &str) -> bool {
    key.ends_with("api_key") || key.ends_with("token")
}

fn describe_value(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Table(_) => String::new(),
        scalar => format!("{scalar} is invalid: "),
    }
}

#[cfg(test)]
mod tests;
