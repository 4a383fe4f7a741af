//! Port to the security analyzers, and their registry.

use std::{fmt::Debug, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use greenroom_protocol::{
    Action,
    approval::{REASON_LIMIT, REASONS_LIMIT, RiskAssessment, RiskLevel},
};

use super::{http::HttpAnalyzer, risk_rules};
use crate::config::{ANALYZER_NAMES, ApprovalsConfig};

/// Judges the possible harm of tool calls.
pub trait Analyzer: Debug + Send + Sync {
    /// Name in the configuration and on the wire.
    fn name(&self) -> &'static str;

    /// Returns the risk of a call. Never fails: an analyzer that cannot judge returns a high risk
    /// with the reason. The future does not borrow the call.
    fn assess(&self, call: AssessedCall<'_>) -> BoxFuture<'static, RiskAssessment>;

    /// Passes a client's request to the service of the analyzer, without any credentials of the
    /// client.
    ///
    /// # Errors
    /// [`PassError::NotOffered`] if the analyzer has no service.
    fn pass(&self, request: PassedRequest) -> BoxFuture<'static, Result<PassedResponse, PassError>> {
        drop(request);
        async { Err(PassError::NotOffered) }.boxed()
    }
}

/// Tool call with its session, for an analyzer.
#[derive(Debug, Clone, Copy)]
pub struct AssessedCall<'a> {
    pub call: &'a Action,
    /// Id of the session.
    pub session: &'a str,
    /// Working directory of commands, inside the sandbox.
    pub workspace: &'a str,
    /// Name of the session's agent.
    pub agent: &'a str,
}

/// Request of a client for the service of an analyzer.
#[derive(Debug, Clone, Default)]
pub struct PassedRequest {
    pub method: String,
    /// Path below the service's address, without a leading slash.
    pub path: String,
    /// Query, without its question mark.
    pub query: Option<String>,
    pub content_type: Option<String>,
    pub body: Bytes,
}

/// Answer of the service of an analyzer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedResponse {
    pub status: u16,
    pub content_type: Option<String>,
    pub body: Bytes,
}

/// Reason for which a request was not passed, or has no answer.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    #[error("the analyzer of this session has no service; choose the analyzer `http`")]
    NotOffered,
    #[error("the path must name something below the service's address, without `..`")]
    BadPath,
    #[error("`{0}` is no method of HTTP; use one such as `GET` or `POST`")]
    BadMethod(String),
    #[error("the answer of the analyzer's service is larger than {limit} bytes; ask for less")]
    TooLarge { limit: usize },
    #[error("the analyzer's service did not answer in time; try again, or check `approvals.http.url`")]
    Timeout,
    #[error("the analyzer's service cannot be reached: {0}; check `approvals.http.url`")]
    Unreachable(String),
}

/// Analyzers that sessions can choose.
#[derive(Debug, Clone)]
pub struct Analyzers {
    /// Sorted as [`ANALYZER_NAMES`].
    items: Arc<[Arc<dyn Analyzer>]>,
    default_name: &'static str,
}

/// Configuration of the analyzers that does not work.
#[derive(Debug, thiserror::Error)]
pub enum AnalyzersError {
    #[error("analyzer `{0}` has no address; set `approvals.http.url`, or choose another `approvals.analyzer`")]
    NoAddress(String),
    #[error("cannot prepare the client of the analyzer `http`: {0}")]
    Client(#[source] reqwest::Error),
}

/// Name that no usable analyzer has.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("analyzer `{name}` is unknown or not set up; the analyzers are {known}")]
pub struct UnknownAnalyzer {
    name: String,
    known: String,
}

impl Analyzers {
    /// Prepares the analyzers that the configuration allows. `http` needs an address.
    ///
    /// # Errors
    /// [`AnalyzersError`].
    pub fn new(config: &ApprovalsConfig) -> Result<Analyzers, AnalyzersError> {
        let mut items: Vec<Arc<dyn Analyzer>> = vec![Arc::new(NoAnalyzer), Arc::new(RuleAnalyzer)];
        if !config.http.url.is_empty() {
            items.push(Arc::new(HttpAnalyzer::new(&config.http).map_err(AnalyzersError::Client)?));
        }
        match items.iter().map(|analyzer| analyzer.name()).find(|name| *name == config.analyzer) {
            Some(default_name) => Ok(Analyzers { items: items.into(), default_name }),
            None => Err(AnalyzersError::NoAddress(config.analyzer.clone())),
        }
    }

    /// Returns the analyzer of sessions that name none.
    pub fn default_name(&self) -> &'static str {
        self.default_name
    }

    /// Returns the names of the usable analyzers.
    pub fn names(&self) -> Vec<&'static str> {
        self.items.iter().map(|analyzer| analyzer.name()).collect()
    }

    /// Returns the analyzer `name`.
    ///
    /// # Errors
    /// No usable analyzer has this name. The error lists the names.
    pub fn get(&self, name: &str) -> Result<Arc<dyn Analyzer>, UnknownAnalyzer> {
        let found = self.items.iter().find(|analyzer| analyzer.name() == name);
        found.cloned().ok_or_else(|| {
            let known: Vec<String> = self.names().iter().map(|name| format!("`{name}`")).collect();
            UnknownAnalyzer { name: name.chars().take(64).collect(), known: known.join(", ") }
        })
    }
}

/// Analyzer `none`: every call has a low risk, without a reason.
#[derive(Debug)]
struct NoAnalyzer;

impl Analyzer for NoAnalyzer {
    fn name(&self) -> &'static str {
        ANALYZER_NAMES[0]
    }

    fn assess(&self, _: AssessedCall<'_>) -> BoxFuture<'static, RiskAssessment> {
        std::future::ready(assessment(RiskLevel::Low, Vec::new(), self.name())).boxed()
    }
}

/// Analyzer `rules`: fixed rules, without a clock, a network or a file.
#[derive(Debug)]
struct RuleAnalyzer;

impl Analyzer for RuleAnalyzer {
    fn name(&self) -> &'static str {
        ANALYZER_NAMES[1]
    }

    fn assess(&self, call: AssessedCall<'_>) -> BoxFuture<'static, RiskAssessment> {
        let (level, reasons) = risk_rules::assess(call.call, call.workspace);
        std::future::ready(assessment(level, reasons, self.name())).boxed()
    }
}

/// Returns an assessment within the limits of the wire. Control characters of reasons are replaced.
pub(super) fn assessment(level: RiskLevel, reasons: Vec<String>, analyzer: &str) -> RiskAssessment {
    let reasons = reasons.into_iter().take(REASONS_LIMIT).map(|reason| within_limit(&reason)).collect();
    RiskAssessment { level, reasons, analyzer: analyzer.to_owned() }
}

/// Returns the text in one line, cut at [`REASON_LIMIT`] bytes.
fn within_limit(text: &str) -> String {
    let line: String = text.chars().take(REASON_LIMIT).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.len() <= REASON_LIMIT && text.len() <= REASON_LIMIT {
        return line;
    }
    let end = (0..=REASON_LIMIT - '…'.len_utf8()).rev().find(|end| line.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &line[..end])
}

#[cfg(test)]
mod tests;
