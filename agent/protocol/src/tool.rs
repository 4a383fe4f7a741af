//! Parts of the generic tool call: the action `tool` and the observation `tool`.

use serde::{Deserialize, Serialize};

/// Kind of a generic tool call, for icon and policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    Think,
    Fetch,
    SwitchMode,
    Other,
    /// Kind unknown to this version. Kept as it came, and shown as `other`.
    #[serde(untagged)]
    #[cfg_attr(test, ts(skip))]
    Unknown(String),
}

/// End of a generic tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    Completed,
    Failed,
    /// Stopped by an interrupt, or still open at the end of its turn.
    Stopped,
}

/// File that a generic tool call works on, and the line, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
pub struct ToolLocation {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
}

/// Change that a generic tool call made to one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
pub struct ToolFileChange {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<FileChangeKind>,
    /// Unified diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Number of added lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<u64>,
    /// Number of removed lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
}

/// Kind of change to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum FileChangeKind {
    Created,
    Modified,
    Deleted,
    Moved,
    /// Kind unknown to this version. Kept as it came.
    #[serde(untagged)]
    #[cfg_attr(test, ts(skip))]
    Unknown(String),
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Action, EventBody, Observation, ObservationKind};

    /// Asserts that the body is read as its own type, and written as it came.
    fn check(json: Value, expected: impl Into<EventBody>) {
        let body: EventBody = serde_json::from_value(json.clone()).expect("every object is a body");
        assert_eq!(body, expected.into());
        assert_eq!(serde_json::to_value(&body).expect("a body always serializes"), json);
        assert_eq!(body.clone().accept_from_agent(), Ok(body), "an agent may report the body");
    }

    fn search(kind: ToolKind) -> Action {
        let (title, input) = ("Search for `fn main`".to_owned(), json!({ "pattern": ["fn main", { "deep": null }] }));
        let locations = vec![ToolLocation { path: "src".into(), line: None }];
        Action::Tool { kind, title, name: Some("search".into()), input, locations }
    }

    #[test]
    fn generic_tool_call_has_a_stable_wire_format() {
        let args = |kind: &str| {
            json!({ "action": "tool", "args": {
                "kind": kind, "title": "Search for `fn main`", "name": "search",
                "input": { "pattern": ["fn main", { "deep": null }] }, "locations": [{ "path": "src" }],
            } })
        };
        check(args("search"), search(ToolKind::Search));
        check(args("switch_mode"), search(ToolKind::SwitchMode));
        check(args("teleport"), search(ToolKind::Unknown("teleport".into())));
        check(
            json!({ "action": "tool", "args": { "kind": "fetch", "title": "", "input": 7 } }),
            Action::Tool {
                kind: ToolKind::Fetch,
                title: String::new(),
                name: None,
                input: json!(7),
                locations: Vec::new(),
            },
        );
    }

    #[test]
    fn generic_tool_result_has_a_stable_wire_format() {
        let result = |kind, status, changes| Observation {
            kind: ObservationKind::Tool {
                kind,
                title: "Edit".into(),
                name: None,
                status,
                changes,
                locations: vec![ToolLocation { path: "a".into(), line: Some(3) }],
                truncated: None,
            },
            content: "done".into(),
        };
        let json = |kind: &str, status: &str, changes: Value| {
            let mut extras =
                json!({ "kind": kind, "title": "Edit", "status": status, "locations": [{ "path": "a", "line": 3 }] });
            if !changes.is_null() {
                extras["changes"] = changes;
            }
            json!({ "observation": "tool", "extras": extras, "content": "done" })
        };
        check(json("edit", "failed", Value::Null), result(ToolKind::Edit, ToolStatus::Failed, Vec::new()));
        check(
            json(
                "teleport",
                "stopped",
                json!([
                    { "path": "a", "change": "modified", "diff": "@@", "added": 1, "removed": 0 },
                    { "path": "b", "change": "linked" },
                    { "path": "c" },
                ]),
            ),
            result(
                ToolKind::Unknown("teleport".into()),
                ToolStatus::Stopped,
                vec![
                    ToolFileChange {
                        path: "a".into(),
                        change: Some(FileChangeKind::Modified),
                        diff: Some("@@".into()),
                        added: Some(1),
                        removed: Some(0),
                    },
                    change("b", Some(FileChangeKind::Unknown("linked".into()))),
                    change("c", None),
                ],
            ),
        );
    }

    fn change(path: &str, change: Option<FileChangeKind>) -> ToolFileChange {
        ToolFileChange { path: path.into(), change, diff: None, added: None, removed: None }
    }

    /// An agent of an earlier version had no type for `tool` and could report any shape.
    #[test]
    fn other_shapes_are_kept_unchanged() {
        for body in [
            json!({ "action": "tool", "args": { "to": "music" } }),
            json!({ "action": "tool", "args": { "kind": 7, "title": "" } }),
            json!({ "observation": "tool", "extras": { "kind": "read", "title": "", "status": "new" } }),
        ] {
            let read: EventBody = serde_json::from_value(body.clone()).expect("every object is a body");
            assert!(matches!(read, EventBody::Opaque(_)));
            assert_eq!(serde_json::to_value(read).expect("a body always serializes"), body);
        }
    }
}
