//! Open approval requests, their choices, and their stored form.

use greenroom_protocol::{
    Action,
    approval::{ApprovalChoice, ApprovalChoiceKind, RiskAssessment},
    link::MAX_OPEN_APPROVALS,
};
use serde::{Deserialize, Serialize};

use super::{ApprovalReply, RequestError, RuleScope, decision_of};
use crate::approvals::{ApprovalRule, describe};

/// Ids of the choices.
pub(super) const ONCE: &str = "once";
pub(super) const SESSION: &str = "session";
pub(super) const PROJECT: &str = "project";
/// The agent itself remembers the decision, and asks no more.
const AGENT: &str = "agent";
const DENY: &str = "deny";

/// Approval request that waits for a decision.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OpenApproval {
    pub request: String,
    /// Item of the tool call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// Time of the request, in milliseconds since 1970.
    #[serde(default)]
    pub since_ms: i64,
    /// Call without its contents, for another decision of the policy. `None`: a person decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Box<Action>>,
    /// Name of the tool that the call uses. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Risk of the call, without its reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<RiskAssessment>,
    /// True if a person may change the arguments of the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub editable: bool,
    /// Rule that a choice "always" adds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<ApprovalRule>,
    /// True if the rule can be added to the project of the session's workspace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_project: bool,
    /// True if the agent itself can remember the decision.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub agent_remembers: bool,
}

impl OpenApproval {
    /// Returns the choices of a person.
    pub fn choices(&self) -> Vec<ApprovalChoice> {
        let choice = |id: &str, name: String, kind| ApprovalChoice { id: id.to_owned(), name, kind };
        let mut choices = vec![choice(ONCE, "Allow once".to_owned(), ApprovalChoiceKind::AllowOnce)];
        if let Some(rule) = &self.rule {
            let name = |scope| format!("Allow {}", rule_in_words(rule, scope));
            choices.push(choice(SESSION, name(RuleScope::Session), ApprovalChoiceKind::AllowAlways));
            if self.has_project {
                choices.push(choice(PROJECT, name(RuleScope::Project), ApprovalChoiceKind::AllowAlways));
            }
        } else if self.agent_remembers {
            choices.push(choice(AGENT, "Allow always".to_owned(), ApprovalChoiceKind::AllowAlways));
        }
        choices.push(choice(DENY, "Deny".to_owned(), ApprovalChoiceKind::RejectOnce));
        choices
    }

    /// Returns the id of the choice that an answer makes.
    ///
    /// # Errors
    /// Returns [`RequestError::BadArgs`] with the ids of the choices if the request does not have
    /// the choice, or if the choice contradicts the decision.
    pub(super) fn choice_of(&self, answer: &ApprovalReply) -> Result<String, RequestError> {
        let choices = self.choices();
        let fits = |choice: &&ApprovalChoice| decision_of(&choice.kind) == Some(answer.decision);
        let made = match &answer.choice {
            None => choices.iter().find(fits),
            Some(id) => choices.iter().find(|choice| choice.id == *id),
        };
        let ids = || choices.iter().map(|choice| format!("`{}`", choice.id)).collect::<Vec<_>>().join(", ");
        match (made, &answer.choice) {
            (Some(choice), _) if fits(&choice) => Ok(choice.id.clone()),
            (Some(choice), _) => Err(RequestError::BadArgs(format!(
                "choice `{}` contradicts the decision; send the decision of its kind",
                choice.id
            ))),
            (None, Some(id)) => {
                Err(RequestError::BadArgs(format!("the request has no choice `{id}`; its choices are {}", ids())))
            }
            (None, None) => {
                Err(RequestError::BadArgs(format!("no choice fits the decision; the choices are {}", ids())))
            }
        }
    }
}

/// Describes the calls that a rule allows, and its scope.
pub(super) fn rule_in_words(rule: &ApprovalRule, scope: RuleScope) -> String {
    let calls = describe(rule);
    match scope {
        RuleScope::Session => format!("{calls} in this session"),
        RuleScope::Project => format!("{calls} in this project"),
    }
}

/// Open approval requests, oldest first.
///
/// Bound: [`MAX_OPEN_APPROVALS`], which agents keep. When full: the oldest is withdrawn.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(from = "StoredApprovals", into = "StoredApprovals")]
pub struct OpenApprovals(Vec<OpenApproval>);

/// Stored form: fields of the session state. Earlier versions read and write `confirm` alone.
#[derive(Serialize, Deserialize)]
struct StoredApprovals {
    #[serde(default)]
    confirm: Option<StoredRequests>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    approvals: Vec<OpenApproval>,
}

/// Ids of the requests. The earliest versions hold one request at most, and read any other form as
/// an error.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredRequests {
    One(String),
    Several(Vec<String>),
}

impl From<StoredApprovals> for OpenApprovals {
    fn from(StoredApprovals { confirm, mut approvals }: StoredApprovals) -> OpenApprovals {
        let requests = match confirm {
            None => Vec::new(),
            Some(StoredRequests::One(request)) => vec![request],
            Some(StoredRequests::Several(requests)) => requests,
        };
        let stored = |request: String| match approvals.iter().position(|approval| approval.request == request) {
            Some(at) => approvals.swap_remove(at),
            None => OpenApproval { request, ..OpenApproval::default() },
        };
        OpenApprovals(requests.into_iter().map(stored).collect())
    }
}

impl From<OpenApprovals> for StoredApprovals {
    fn from(OpenApprovals(approvals): OpenApprovals) -> StoredApprovals {
        let mut requests: Vec<_> = approvals.iter().map(|approval| approval.request.clone()).collect();
        let confirm = match requests.len() {
            0 | 1 => requests.pop().map(StoredRequests::One),
            _ => Some(StoredRequests::Several(requests)),
        };
        StoredApprovals { confirm, approvals }
    }
}

impl OpenApprovals {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn all(&self) -> &[OpenApproval] {
        &self.0
    }

    pub(super) fn find(&self, request: &str) -> Option<&OpenApproval> {
        self.0.iter().find(|approval| approval.request == request)
    }

    /// Adds a request. A repeated request is open once, with its newest call, and stays as old as
    /// it is. Returns the oldest request if there is no room for it.
    pub(super) fn add(&mut self, approval: OpenApproval) -> Option<OpenApproval> {
        if let Some(open) = self.0.iter_mut().find(|open| open.request == approval.request) {
            *open = OpenApproval { since_ms: open.since_ms, ..approval };
            return None;
        }
        self.0.push(approval);
        (self.0.len() > MAX_OPEN_APPROVALS).then(|| self.0.remove(0))
    }

    /// Removes a request. Returns the request if it was open.
    pub(super) fn remove(&mut self, request: &str) -> Option<OpenApproval> {
        let at = self.0.iter().position(|approval| approval.request == request)?;
        Some(self.0.remove(at))
    }

    pub(super) fn take_all(&mut self) -> Vec<OpenApproval> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::approvals::RuleAction;

    fn open(request: &str) -> OpenApproval {
        OpenApproval { request: request.to_owned(), ..OpenApproval::default() }
    }

    #[test]
    fn earlier_versions_read_the_ids() {
        let check = |requests: &[&str], confirm: serde_json::Value| {
            let approvals = OpenApprovals(requests.iter().map(|request| open(request)).collect());
            let stored = serde_json::to_value(&approvals).expect("approvals serialize");
            assert_eq!(stored["confirm"], confirm);
            assert_eq!(serde_json::from_value::<OpenApprovals>(stored).expect("approvals deserialize"), approvals);
            let earlier = json!({ "confirm": confirm });
            assert_eq!(serde_json::from_value::<OpenApprovals>(earlier).expect("ids are readable"), approvals);
        };
        check(&[], json!(null));
        check(&["r"], json!("r"));
        check(&["r", "s"], json!(["r", "s"]));
    }

    #[test]
    fn oldest_of_too_many_requests_is_returned() {
        let mut approvals = OpenApprovals::default();
        let returned: Vec<_> = (0..=MAX_OPEN_APPROVALS).filter_map(|n| approvals.add(open(&n.to_string()))).collect();
        assert_eq!(returned, [open("0")]);
        assert_eq!(approvals.add(open("1")), None, "a repeated request is open once");
        assert_eq!(approvals.all().len(), MAX_OPEN_APPROVALS);
    }

    #[test]
    fn choices_name_the_rule_and_its_scope() {
        let rule = ApprovalRule {
            tool: Some("run".into()),
            command: Some("git push *".into()),
            path: None,
            host: None,
            agent: None,
            action: RuleAction::Allow,
            reason: None,
        };
        let names = |approval: OpenApproval| -> Vec<String> {
            approval.choices().into_iter().map(|choice| format!("{}: {}", choice.id, choice.name)).collect()
        };
        assert_eq!(names(open("r")), ["once: Allow once", "deny: Deny"]);
        assert_eq!(
            names(OpenApproval { agent_remembers: true, ..open("r") }),
            ["once: Allow once", "agent: Allow always", "deny: Deny"]
        );
        assert_eq!(
            names(OpenApproval { rule: Some(rule), has_project: true, ..open("r") }),
            [
                "once: Allow once",
                "session: Allow `git push *` in this session",
                "project: Allow `git push *` in this project",
                "deny: Deny"
            ]
        );
    }
}
