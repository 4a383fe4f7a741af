//! Price rows: merges the lists of all layers, and reads the file that `model.prices_file` names.

use std::path::Path;

use serde::Deserialize;
use toml::{Table, Value};

use super::PriceConfig;

/// Content of a prices file: section `model` of a configuration, with these keys alone.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PricesFile {
    model: PricesSection,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PricesSection {
    prices_as_of: Option<String>,
    /// Checked here, and merged as they stand.
    prices: Vec<PriceConfig>,
}

/// Newer price list.
#[derive(Debug)]
pub(super) struct NewerPrices {
    rows: Value,
    as_of: Option<String>,
}

/// Reads a prices file.
///
/// # Errors
/// Returns the reason in words if the file cannot be read, or is no list of prices.
pub(super) fn read(path: &Path) -> Result<NewerPrices, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read `{shown}`: {e}"))?;
    let bad = |e: toml::de::Error| {
        let line = e.span().map_or(1, |span| text.as_bytes()[..span.start].iter().filter(|b| **b == b'\n').count() + 1);
        format!("`{shown}` line {line}: {}; the file must hold rows `[[model.prices]]`", e.message())
    };
    let file: PricesFile = toml::from_str(&text).map_err(bad)?;
    if let Some(invalid) = file.model.prices.iter().find(|row| !row.is_valid()) {
        return Err(format!("`{shown}`: the prices of `{}` must be numbers of at least 0", invalid.model));
    }
    let mut tree: Table = toml::from_str(&text).map_err(bad)?;
    let rows = tree.get_mut("model").and_then(|model| model.get_mut("prices")).map(|rows| rows.clone());
    // Invariant: the typed read above found both.
    Ok(NewerPrices { rows: rows.unwrap_or_else(|| Value::Array(Vec::new())), as_of: file.model.prices_as_of })
}

impl NewerPrices {
    /// Merges the rows into the section `model` of `tree`. Rows of the user win.
    pub(super) fn apply_to(self, tree: &mut Table, own_prices: &Value) {
        let Some(Value::Table(model)) = tree.get_mut("model") else { return };
        if let Some(prices) = model.get_mut("prices") {
            *prices = merge(&merge(prices, self.rows), own_prices.clone());
        }
        if let Some(as_of) = self.as_of {
            model.insert("prices_as_of".to_owned(), Value::String(as_of));
        }
    }
}

/// Merges price rows: all rows of `value`, and the rows of `slot` for other models.
pub(super) fn merge(slot: &Value, value: Value) -> Value {
    let (Value::Array(old), Value::Array(new)) = (slot, &value) else { return value };
    let named = |row: &Value| new.iter().any(|other| other.get("model") == row.get("model"));
    Value::Array(old.iter().filter(|row| !named(row)).chain(new).cloned().collect())
}
