//! Fields of error bodies: type, code, status, words and requested wait, under the names and in the
//! nesting of many services.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::{
    error::status_of_code,
    error_words::{duration, mentions_payment},
};

/// Deepest nesting that is read. Errors of relays hold the errors behind them.
const MAX_DEPTH: usize = 8;

/// Words of relays that say nothing without the words behind them.
const NO_REASON: &str = "no reason given";

/// Collected fields of an error.
#[derive(Debug, Default)]
pub(crate) struct ErrorReport {
    /// Codes and types, outermost first, codes before types.
    pub(crate) kinds: Vec<String>,
    /// Texts, outermost first.
    texts: Vec<String>,
    pub(crate) retry_after: Option<Duration>,
}

impl ErrorReport {
    /// Reads a body: JSON, a page in HTML, or plain words.
    pub(crate) fn of_body(body: &[u8]) -> ErrorReport {
        let text = String::from_utf8_lossy(body);
        let text = text.trim().trim_start_matches('\u{FEFF}');
        let mut report = ErrorReport::default();
        report.add_text(text, 0);
        report
    }

    pub(crate) fn of_value(value: &Value) -> ErrorReport {
        let mut report = ErrorReport::default();
        report.add(value, 0);
        report
    }

    /// Status that a code stands for, or the words.
    pub(crate) fn status(&self) -> Option<u16> {
        let by_words = || mentions_payment(&self.all_words()).then_some(402);
        self.kinds.iter().find_map(|kind| status_of_code(kind)).or_else(by_words)
    }

    /// Provider's own name of the error: a name rather than a number.
    pub(crate) fn kind(&self) -> &str {
        let is_name = |kind: &&String| kind.parse::<f64>().is_err();
        self.kinds.iter().find(is_name).or(self.kinds.first()).map_or("", String::as_str)
    }

    /// Provider's words, and the words behind them.
    pub(crate) fn words(&self) -> String {
        match &self.texts[..] {
            [] => NO_REASON.to_owned(),
            texts => texts.join(": "),
        }
    }

    /// Words, codes and types in lower case, for a search.
    pub(crate) fn all_words(&self) -> String {
        [&self.texts[..], &self.kinds[..]].concat().join("\n").to_lowercase()
    }

    fn add(&mut self, value: &Value, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        match value {
            Value::String(text) => self.add_text(text, depth),
            Value::Array(items) => items.iter().for_each(|item| self.add(item, depth + 1)),
            Value::Object(fields) => self.add_object(fields, depth),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn add_text(&mut self, text: &str, depth: usize) {
        let text = text.trim();
        if text.starts_with(['{', '['])
            && let Ok(value @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(text)
        {
            return self.add(&value, depth + 1);
        }
        let text = if text.starts_with('<') { text_of_page(text) } else { text.to_owned() };
        let is_new = !text.is_empty() && !self.texts.iter().any(|known| known.contains(&text));
        if is_new {
            self.texts.push(text);
        }
    }

    fn add_object(&mut self, fields: &Map<String, Value>, depth: usize) {
        // Codes first: they say more than types.
        for name in
            ["code", "error_code", "type", "error_type", "__type", "status", "status_code", "statusCode", "http_code"]
        {
            match fields.get(name) {
                // `response.failed` is the type of an event.
                Some(Value::String(kind))
                    if !matches!(kind.as_str(), "" | "error" | "failed") && !kind.starts_with("response.") =>
                {
                    self.kinds.push(kind.clone());
                }
                Some(Value::Number(number)) if number.as_f64() != Some(0.0) => self.kinds.push(number.to_string()),
                _ => {}
            }
        }
        self.add_wait(fields);
        for name in ["message", "msg", "error_message", "error_description", "errorMessage", "status_msg", "Message"] {
            if let Some(text @ Value::String(_)) = fields.get(name) {
                self.add(text, depth + 1);
            }
        }
        // A word such as "Not Found" beside a message is the name of the error.
        match fields.get("error") {
            Some(Value::String(name)) if !self.texts.is_empty() && name.len() < 64 => self.kinds.push(name.clone()),
            Some(error) => self.add(error, depth + 1),
            None => {}
        }
        for name in ["message", "errors", "detail", "response", "base_resp", "choices", "innererror", "cause"] {
            match fields.get(name) {
                Some(Value::String(_)) if name == "message" => {}
                Some(value) => self.add(value, depth + 1),
                None => {}
            }
        }
        // Relays keep the error of the provider behind them here, Google the requested wait.
        if let Some(Value::Object(metadata)) = fields.get("metadata") {
            self.add_wait(metadata);
            let kind = metadata.get("error_type").and_then(Value::as_str);
            self.kinds.extend(kind.map(str::to_owned));
            metadata.get("raw").into_iter().for_each(|raw| self.add(raw, depth + 1));
        }
        if let Some(Value::Array(details)) = fields.get("details") {
            for detail in details.iter().filter_map(Value::as_object) {
                self.add_wait(detail);
                detail.get("metadata").and_then(Value::as_object).into_iter().for_each(|fields| self.add_wait(fields));
            }
        }
    }

    fn add_wait(&mut self, fields: &Map<String, Value>) {
        let number = |value: &Value| value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
        for (name, value) in fields {
            let wait = match name.as_str() {
                "retryDelay"
                | "quotaResetDelay"
                | "retry_after"
                | "retryAfter"
                | "retry_after_seconds"
                | "retry-after" => {
                    let seconds = number(value).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                    seconds.or_else(|| duration(value.as_str()?))
                }
                "retry_after_ms" | "retryAfterMs" | "retry-after-ms" => {
                    number(value).and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok())
                }
                _ => None,
            };
            self.retry_after = self.retry_after.or(wait);
        }
    }
}

/// Returns the title of a page in HTML, or its text.
fn text_of_page(page: &str) -> String {
    let lower = page.to_ascii_lowercase();
    let title = lower.find("<title>").map(|at| at + 7);
    let title = title.and_then(|start| Some(page[start..start + lower[start..].find("</title>")?].trim()));
    if let Some(title) = title.filter(|title| !title.is_empty()) {
        return title.to_owned();
    }
    let texts = page.split('<').filter_map(|part| part.split_once('>')).map(|(_, text)| text.trim());
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
}
