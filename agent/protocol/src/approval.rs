//! Approval of tool calls: modes, risk, choices, and the review that precedes a call.
//!
//! An agent sends each tool call to the server for review before it runs. The server's policy
//! allows, denies or asks. If the policy asks, the agent reports the observation `confirm`, and
//! waits for the command `answer`.

use serde::{Deserialize, Deserializer, Serialize};

use crate::Action;

/// Longest reason of a risk assessment, in bytes.
pub const REASON_LIMIT: usize = 200;

/// Number of reasons that a risk assessment holds at most.
pub const REASONS_LIMIT: usize = 8;

/// Mode of a session: the calls that run without a person's decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr, strum::VariantArray)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ApprovalMode {
    /// The agent reads and searches, and ends with a plan. Changes are denied.
    Plan,
    /// Calls that may change something ask.
    Ask,
    /// Edits inside the workspace run. Commands ask.
    Edits,
    /// Calls run, unless a rule denies one or its risk is high.
    Auto,
}

impl ApprovalMode {
    /// Name on the wire.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Possible harm of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::IntoStaticStr)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RiskLevel {
    Low,
    Medium,
    High,
}

/// Judgement of a security analyzer about one tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
pub struct RiskAssessment {
    pub level: RiskLevel,
    /// Reasons in words, most important first. At most [`REASONS_LIMIT`], each of at most
    /// [`REASON_LIMIT`] bytes.
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub reasons: Vec<String>,
    /// Name of the analyzer. Empty in events of earlier versions.
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub analyzer: String,
}

impl<'de> Deserialize<'de> for RiskAssessment {
    /// Reads an assessment, or the risk in words of earlier versions.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RiskAssessment, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum StoredRisk {
            Assessed {
                level: RiskLevel,
                #[serde(default)]
                reasons: Vec<String>,
                #[serde(default)]
                analyzer: String,
            },
            InWords(String),
        }
        Ok(match StoredRisk::deserialize(deserializer)? {
            StoredRisk::Assessed { level, reasons, analyzer } => RiskAssessment { level, reasons, analyzer },
            StoredRisk::InWords(words) => {
                RiskAssessment { level: RiskLevel::Medium, reasons: vec![words], analyzer: String::new() }
            }
        })
    }
}

/// Choice of a person about an approval request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
pub struct ApprovalChoice {
    /// Value of `choice` in the client request `confirm`.
    pub id: String,
    /// Text for a person.
    pub name: String,
    pub kind: ApprovalChoiceKind,
}

/// Kind of a choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum ApprovalChoiceKind {
    AllowOnce,
    AllowAlways,
    RejectOnce,
    RejectAlways,
    /// Kind unknown to this version. Kept as it came.
    #[serde(untagged)]
    #[cfg_attr(test, ts(skip))]
    Unknown(String),
}

/// Party that decided about an approval request or a reviewed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    Person,
    Policy,
}

/// Tool call that an agent may run only after the server's verdict. Neither numbered nor durable:
/// the agent repeats it on each new connection until the verdict comes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReviewRequest {
    /// Id of the review, unique in the agent's boot.
    pub id: String,
    /// Item of the tool call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    pub action: Action,
}

/// Server's answer to a [`ReviewRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewVerdict {
    pub id: String,
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Verdict of the server's policy about a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    Allow,
    /// The call must not run. `reason` is for the model and for a person.
    Deny {
        reason: String,
    },
    /// A person decides. The agent reports `confirm`.
    Ask,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn risk_in_words_of_earlier_versions_is_readable() {
        let check = |json: &str, level, reasons: &[&str], analyzer: &str| {
            let risk: RiskAssessment = serde_json::from_str(json).expect("a risk is readable");
            let reasons = reasons.iter().map(|reason| (*reason).to_owned()).collect();
            assert_eq!(risk, RiskAssessment { level, reasons, analyzer: analyzer.to_owned() });
        };
        check(r#""deletes files""#, RiskLevel::Medium, &["deletes files"], "");
        check(r#"{"level":"low"}"#, RiskLevel::Low, &[], "");
        check(r#"{"level":"high","reasons":["r"],"analyzer":"rules"}"#, RiskLevel::High, &["r"], "rules");
    }

    #[test]
    fn verdict_has_a_stable_wire_format() {
        let check = |verdict, json: &str| {
            let frame = ReviewVerdict { id: "r".into(), verdict };
            assert_eq!(serde_json::to_string(&frame).expect("a verdict serializes"), json);
            assert_eq!(serde_json::from_str::<ReviewVerdict>(json).expect("a verdict is readable"), frame);
        };
        check(Verdict::Allow, r#"{"id":"r","verdict":"allow"}"#);
        check(Verdict::Deny { reason: "no".into() }, r#"{"id":"r","verdict":"deny","reason":"no"}"#);
        check(Verdict::Ask, r#"{"id":"r","verdict":"ask"}"#);
    }
}
