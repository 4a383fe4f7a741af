//! Section `approvals`: mode, analyzer and rules for tool calls.

use globset::GlobBuilder;
use greenroom_protocol::approval::ApprovalMode;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, IntoDeserializer},
};

use super::TimeSpan;

/// Names of the security analyzers.
pub const ANALYZER_NAMES: [&str; 3] = ["none", "rules", "http"];

/// Approval of tool calls. Sessions can choose mode and analyzer for themselves.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalsConfig {
    /// Mode of sessions that name none. `None`: `auto` if agents cannot write to files of the host,
    /// else `ask`.
    #[serde(deserialize_with = "mode")]
    pub mode: Option<ApprovalMode>,
    /// Analyzer of sessions that name none: one of [`ANALYZER_NAMES`].
    #[serde(deserialize_with = "analyzer")]
    pub analyzer: String,
    /// Time after which the policy denies an open request. 0: never.
    pub timeout: TimeSpan,
    /// Rules for all sessions. The first rule that matches a call decides.
    #[serde(deserialize_with = "rules")]
    pub rules: Vec<ApprovalRule>,
    pub http: HttpAnalyzerConfig,
    pub loops: LoopLimits,
}

/// Service of the analyzer `http`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpAnalyzerConfig {
    /// Address that receives each call. Empty: sessions cannot use the analyzer.
    #[serde(deserialize_with = "service_url")]
    pub url: String,
    /// Time limit for an answer. Without an answer, the risk is high.
    pub timeout: TimeSpan,
}

/// Repetitions of an agent that count as a loop. 0: not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoopLimits {
    /// Same call with the same result.
    pub same_call: u32,
    /// Rounds of two calls in alternation.
    pub alternations: u32,
    /// Same error, whatever the call.
    pub same_error: u32,
    /// Tool calls in one turn without a change to a file.
    pub steps_without_change: u32,
}

/// Rule about tool calls. A call matches if all fields that are set match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRule {
    /// Name of the tool, or kind of a generic tool call: `run`, `write`, `search`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Pattern of a simple command, word by word. `*` stands for any text: `git push*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Glob of a path, relative to the workspace or absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Host of an address. `*.example.org` stands for the host and its subdomains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Name of the session's agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    pub action: RuleAction,
    /// Reason for the agent and for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Effect of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RuleAction {
    Allow,
    Ask,
    Deny,
}

impl ApprovalRule {
    /// Checks the texts of the rule. The error names the wrong field and the way out.
    ///
    /// # Errors
    /// An empty or overlong text, a control character, an invalid glob, a host with a scheme.
    pub fn check(&self) -> Result<(), String> {
        let fields = [
            ("tool", &self.tool),
            ("command", &self.command),
            ("path", &self.path),
            ("host", &self.host),
            ("agent", &self.agent),
            ("reason", &self.reason),
        ];
        for (name, text) in fields {
            let Some(text) = text else { continue };
            if text.trim().is_empty() || text.len() > RULE_TEXT_LIMIT || text.chars().any(char::is_control) {
                return Err(format!(
                    "`{name}` of a rule must have 1 to {RULE_TEXT_LIMIT} bytes without control characters; remove the \
                     field if it does not matter"
                ));
            }
        }
        if self.command.is_some() && self.path.is_some() {
            return Err("a rule must not have both `command` and `path`; write two rules".to_owned());
        }
        if let Some(path) = &self.path {
            GlobBuilder::new(path)
                .literal_separator(true)
                .build()
                .map_err(|e| format!("`path` of a rule must be a glob such as `src/**`: {}", e.kind()))?;
        }
        if let Some(host) = &self.host {
            let name = host.strip_prefix("*.").unwrap_or(host);
            if name != "*" && !name.chars().all(|c| c.is_alphanumeric() || "-._:[]".contains(c)) {
                return Err(format!(
                    "host `{host}` of a rule must be a name such as `example.org` or `*.example.org`, without scheme and path"
                ));
            }
        }
        Ok(())
    }
}

/// Longest text of a rule, in bytes.
const RULE_TEXT_LIMIT: usize = 1024;

/// Reads a mode. Empty: `None`.
fn mode<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ApprovalMode>, D::Error> {
    match String::deserialize(from)?.as_str() {
        "" => Ok(None),
        name => ApprovalMode::deserialize(name.into_deserializer()).map(Some),
    }
}

fn analyzer<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    match ANALYZER_NAMES.contains(&name.as_str()) {
        true => Ok(name),
        false => Err(de::Error::custom("must be `none`, `rules` or `http`")),
    }
}

fn rules<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<ApprovalRule>, D::Error> {
    let rules = Vec::<ApprovalRule>::deserialize(from)?;
    rules.iter().try_for_each(ApprovalRule::check).map_err(de::Error::custom)?;
    Ok(rules)
}

fn service_url<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    let is_service = |url: reqwest::Url| {
        matches!(url.scheme(), "http" | "https") && url.has_host() && url.username().is_empty() && url.query().is_none()
    };
    match text.is_empty() || text.parse().is_ok_and(is_service) {
        true => Ok(text),
        false => Err(de::Error::custom(
            "must be an address such as `http://127.0.0.1:8900/analyze`, without user and query; leave it empty for none",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_texts_of_a_rule_are_named() {
        let check = |toml: &str, expected: Result<(), &str>| {
            let rule: ApprovalRule = toml::from_str(&format!("action = 'ask'\n{toml}")).expect(toml);
            match (rule.check(), expected) {
                (Ok(()), Ok(())) => {}
                (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
                (got, expected) => panic!("{toml}: {got:?}, expected {expected:?}"),
            }
        };
        check("command = 'git push*'", Ok(()));
        check("path = 'src/**'\ntool = 'write'", Ok(()));
        check("path = '[a'", Err("must be a glob"));
        check("command = ' '", Err("`command` of a rule must have 1 to 1024 bytes"));
        check("command = \"a\\u0007\"", Err("without control characters"));
        check("command = 'rm*'\npath = 'src/**'", Err("write two rules"));
        check("host = '*.example.org'", Ok(()));
        check("host = '[::1]'", Ok(()));
        check("host = 'https://example.org'", Err("without scheme and path"));
    }

    #[test]
    fn modes_analyzers_and_addresses_are_checked() {
        let check = |toml: &str, expected: Result<(), &str>| {
            let text = format!(
                "timeout = 0\n{toml}\n[loops]\nsame_call = 3\nalternations = 3\nsame_error = 5\nsteps_without_change = 50"
            );
            match (toml::from_str::<ApprovalsConfig>(&text), expected) {
                (Ok(_), Ok(())) => {}
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (got, expected) => panic!("{toml}: {got:?}, expected {expected:?}"),
            }
        };
        let with = |mode: &str, analyzer: &str, url: &str| {
            format!("mode = '{mode}'\nanalyzer = '{analyzer}'\nrules = []\nhttp = {{ url = '{url}', timeout = 5 }}")
        };
        check(&with("", "rules", ""), Ok(()));
        check(&with("edits", "http", "https://risk.example/v1"), Ok(()));
        check(&with("yolo", "rules", ""), Err("`plan`, `ask`, `edits`, `auto`"));
        check(&with("ask", "model", ""), Err("must be `none`, `rules` or `http`"));
        check(&with("ask", "http", "ftp://a/"), Err("must be an address such as"));
        check(&with("ask", "http", "http://u:p@a/"), Err("without user and query"));
    }
}
