//! Open approval requests of the agent.

use greenroom_protocol::link::MAX_OPEN_APPROVALS;
use serde::{Deserialize, Serialize};

/// Ids of the open approval requests, oldest first.
///
/// Bound: [`MAX_OPEN_APPROVALS`], which agents keep. When full: the oldest is withdrawn.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Option<StoredApprovals>", into = "Option<StoredApprovals>")]
pub(super) struct OpenApprovals(Vec<String>);

/// Stored form. Earlier versions hold one request at most, and read any other form as an error.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredApprovals {
    One(String),
    Several(Vec<String>),
}

impl From<Option<StoredApprovals>> for OpenApprovals {
    fn from(stored: Option<StoredApprovals>) -> OpenApprovals {
        OpenApprovals(match stored {
            None => Vec::new(),
            Some(StoredApprovals::One(request)) => vec![request],
            Some(StoredApprovals::Several(requests)) => requests,
        })
    }
}

impl From<OpenApprovals> for Option<StoredApprovals> {
    fn from(OpenApprovals(mut requests): OpenApprovals) -> Option<StoredApprovals> {
        match requests.len() {
            0 | 1 => requests.pop().map(StoredApprovals::One),
            _ => Some(StoredApprovals::Several(requests)),
        }
    }
}

impl OpenApprovals {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a request. A repeated request is open once.
    pub(super) fn add(&mut self, request: String) {
        if !self.0.contains(&request) {
            self.0.push(request);
            self.0.drain(..self.0.len().saturating_sub(MAX_OPEN_APPROVALS));
        }
    }

    /// Removes a request. Returns true if it was open.
    pub(super) fn remove(&mut self, request: &str) -> bool {
        let open = self.0.len();
        self.0.retain(|other| other != request);
        self.0.len() < open
    }

    pub(super) fn withdraw_all(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_stored(requests: &[&str], stored: &str) {
        let approvals = OpenApprovals(requests.iter().map(|request| (*request).to_owned()).collect());
        assert_eq!(serde_json::to_string(&approvals).expect("approvals serialize"), stored);
        assert_eq!(serde_json::from_str::<OpenApprovals>(stored).expect("approvals deserialize"), approvals);
    }

    #[test]
    fn single_request_is_stored_as_by_earlier_versions() {
        check_stored(&[], "null");
        check_stored(&["r"], r#""r""#);
        check_stored(&["r", "s"], r#"["r","s"]"#);
    }

    #[test]
    fn oldest_of_too_many_requests_is_withdrawn() {
        let mut approvals = OpenApprovals::default();
        for n in 0..=MAX_OPEN_APPROVALS {
            approvals.add(n.to_string());
            approvals.add(n.to_string());
        }
        assert!(!approvals.remove("0") && approvals.remove("1"));
        assert_eq!(approvals.0.len(), MAX_OPEN_APPROVALS - 1);
    }
}
