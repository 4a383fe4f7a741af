//! Size limits of reports and events: too large texts and lists are cut, with a note. A report
//! always fits into a frame, and an event into the journal.

use serde_json::Value;

use super::{AgentReport, WorkOutcome};
use crate::{CONTENT_LIMIT, EventBody, JsonSize, Observation, excerpt};

/// Largest event, in bytes of JSON.
pub const EVENT_LIMIT: usize = 2 * 1024 * 1024;

/// Limit of values in one frame.
///
/// A reader needs some hundred bytes for the shortest value. Each line of an edit is a value.
pub const VALUES_LIMIT: usize = 32 * 1024;

/// Limit of an observation's content in one report, in bytes.
///
/// The worst text has six bytes of JSON per byte. Even so, this much content and the rest of an
/// event fit into a frame of the link. Longer content is sent in pieces before the report.
pub const REPORT_LIMIT: usize = 2 * 1024 * 1024;

/// Longest description of stopped work, in bytes.
const LINE: usize = 1024;
/// Longest name, in bytes.
const NAME: usize = 256;

/// Limits that are applied in turn until the event fits: bytes of each text, entries of each list.
///
/// Even the smallest text limit exceeds any name of an item or a request, so these names stay
/// whole.
const STEPS: [(usize, usize); 4] = [(CONTENT_LIMIT, 8192), (8192, 1024), (1024, 128), (NAME, 16)];

impl AgentReport {
    /// Cuts the report so that it fits into a frame of the link, and without its content into an
    /// event.
    pub fn fit(self) -> AgentReport {
        match self {
            AgentReport::Event { item, body: EventBody::Observation(Observation { kind, content }) } => {
                let rest = EventBody::Observation(Observation { kind, content: String::new() });
                let mut body = rest.fit(EVENT_LIMIT / 2);
                if let EventBody::Observation(observation) = &mut body {
                    observation.content = truncate_text(content, REPORT_LIMIT);
                }
                AgentReport::Event { item, body }
            }
            AgentReport::Event { item, body } => AgentReport::Event { item, body: body.fit(EVENT_LIMIT / 2) },
            AgentReport::TurnEnded { turn, outcome } => AgentReport::TurnEnded { turn, outcome: outcome.fit() },
            AgentReport::UserActionEnded { user_action, outcome } => {
                AgentReport::UserActionEnded { user_action, outcome: outcome.fit() }
            }
            small @ (AgentReport::Piece { .. } | AgentReport::Steered { .. } | AgentReport::SteerMissed { .. }) => {
                small
            }
        }
    }
}

impl EventBody {
    /// Cuts the body to at most `limit` bytes of JSON, if possible.
    ///
    /// Long texts keep head and tail, with the number of omitted bytes. Long lists of texts keep
    /// their first and last entries, with the number of omitted entries.
    pub fn fit(self, limit: usize) -> EventBody {
        if fits(&self, limit) {
            return self;
        }
        // Types of this crate have string keys and no fallible `Serialize`, so this call cannot
        // fail.
        let mut value = serde_json::to_value(&self).expect("a body always serializes");
        for (text, list) in STEPS {
            shorten(&mut value, text, list);
            if fits(&value, limit) {
                break;
            }
        }
        // No step bounds the number of an object's fields, and a tool's input may have any shape.
        if !fits(&value, limit)
            && let Some(input) = value.pointer_mut("/args/input")
        {
            *input = truncate_text(input.to_string(), CONTENT_LIMIT).into();
        }
        // The shortened value is still an object, and every object is a body (`Opaque` at least).
        serde_json::from_value(value).expect("every object is a body")
    }
}

impl WorkOutcome {
    /// Cuts the words of the outcome so that they fit into an event and into the session state.
    pub fn fit(self) -> WorkOutcome {
        match self {
            WorkOutcome::Done => WorkOutcome::Done,
            WorkOutcome::Cancelled { what, partial } => {
                WorkOutcome::Cancelled { what: truncate_text(what, LINE), partial }
            }
            WorkOutcome::Failed { code, detail } => {
                WorkOutcome::Failed { code: truncate_text(code, NAME), detail: truncate_text(detail, CONTENT_LIMIT) }
            }
        }
    }
}

fn truncate_text(text: String, limit: usize) -> String {
    excerpt(&text, limit).map_or(text, |excerpt| excerpt.text)
}

fn shorten(value: &mut Value, text: usize, list: usize) {
    match value {
        Value::String(string) => {
            if let Some(excerpt) = excerpt(string, text) {
                *string = excerpt.text;
            }
        }
        Value::Array(parts) => {
            if parts.len() > list {
                let (head, tail) = (list / 2, parts.len() - list / 2);
                let omitted = tail - head;
                let marker = parts[0].is_string().then(|| format!("… {omitted} left out …").into());
                parts.splice(head..tail, marker);
            }
            parts.iter_mut().for_each(|part| shorten(part, text, list));
        }
        Value::Object(fields) => fields.values_mut().for_each(|field| shorten(field, text, list)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn fits(body: &impl serde::Serialize, limit: usize) -> bool {
    let JsonSize { bytes, values, .. } = size(body);
    // A frame holds a few values more than its event.
    bytes <= limit && values < VALUES_LIMIT - 64
}

fn size(body: &impl serde::Serialize) -> JsonSize {
    let mut size = JsonSize::default();
    // The body always serializes, and the counting writer never fails.
    serde_json::to_writer(&mut size, body).expect("a body always serializes");
    size
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Action, LINK_FRAME_LIMIT, ObservationKind,
        action::{EditTarget, FileEdit},
        link::FromAgent,
        observation::{EditKind, PlanItem},
        tool::{FileChangeKind, ToolFileChange, ToolKind, ToolLocation, ToolStatus},
    };

    /// Worst text for the limits: each byte becomes six bytes of JSON.
    fn worst(bytes: usize) -> String {
        "\u{1}".repeat(bytes)
    }

    fn event(body: impl Into<EventBody>) -> AgentReport {
        AgentReport::Event { item: Some("i".into()), body: body.into() }
    }

    fn observation(kind: ObservationKind, content: String) -> AgentReport {
        event(Observation { kind, content })
    }

    #[test]
    fn large_reports_fit_and_keep_their_kind() {
        let large = 3 << 20;
        let lines = vec![worst(200); large / 200];
        let short = vec!["x".to_owned(); VALUES_LIMIT];
        let at = || EditTarget { old: Some(worst(large)), ..EditTarget::default() };
        let items = vec![PlanItem { text: worst(10), done: true, state: None }; large / 10];
        let edited = ObservationKind::Edit {
            path: worst(large),
            line: 1,
            change: EditKind::Replace,
            lines: lines.clone(),
            diff: worst(large),
        };
        let many_fields = (0..VALUES_LIMIT).map(|n| (format!("{n}{}", "k".repeat(100)), n)).collect();
        let tool = |input| Action::Tool {
            kind: ToolKind::Unknown(worst(large)),
            title: worst(large),
            name: Some(worst(large)),
            input,
            locations: vec![ToolLocation { path: worst(200), line: Some(1) }; large / 200],
        };
        let change = ToolFileChange {
            path: worst(200),
            change: Some(FileChangeKind::Modified),
            diff: Some(worst(1 << 16)),
            added: Some(1),
            removed: None,
        };
        let tool_result = ObservationKind::Tool {
            kind: ToolKind::Edit,
            title: worst(large),
            name: None,
            status: ToolStatus::Failed,
            changes: vec![change; 100],
            locations: Vec::new(),
            truncated: None,
        };
        for report in [
            event(Action::Run { command: worst(large) }),
            event(Action::Write { path: worst(large), content: worst(large) }),
            event(Action::Edit { path: "a".into(), edit: FileEdit::Replace { at: at(), lines } }),
            event(Action::Finish { message: worst(large) }),
            event(Action::Edit {
                path: "a".into(),
                edit: FileEdit::Replace { at: EditTarget::default(), lines: short },
            }),
            event(tool(serde_json::json!({ "content": worst(large) }))),
            event(tool(many_fields)),
            observation(edited, worst(large)),
            observation(tool_result, worst(large)),
            observation(ObservationKind::Plan { path: "p".into(), items }, worst(large)),
            observation(ObservationKind::Message { partial: true }, worst(large)),
            observation(ObservationKind::Compaction { dropped_bytes: 1, kept: 6 }, worst(large)),
            observation(ObservationKind::Error { code: worst(large), detail: worst(large) }, String::new()),
            observation(
                ObservationKind::Notice {
                    code: worst(large),
                    detail: worst(large),
                    attempts: Some(2),
                    waited_ms: Some(1),
                },
                String::new(),
            ),
        ] {
            let AgentReport::Event { body: before, .. } = report.clone() else { panic!("the report is not an event") };
            let fit = report.fit();
            let frame = FromAgent::Report { n: u64::MAX, report: fit.clone() };
            let size = size(&frame);
            assert!(size.bytes <= LINK_FRAME_LIMIT, "`{}`: {size:?}", before.name());
            assert!(size.values <= VALUES_LIMIT, "`{}`: {size:?}", before.name());
            assert!(
                serde_json::to_string(&fit).expect("a report always serializes").contains("left out …"),
                "`{}` states the omission",
                before.name()
            );
            let AgentReport::Event { mut body, .. } = fit else { panic!("the report is not an event") };
            assert_eq!(std::mem::discriminant(&body), std::mem::discriminant(&before));
            assert_eq!(body.name(), before.name());
            if let EventBody::Observation(observation) = &mut body {
                observation.content.clear();
            }
            assert!(fits(&body, EVENT_LIMIT / 2), "`{}`: {:?}", body.name(), self::size(&body));
        }
    }

    #[test]
    fn small_report_is_unchanged_and_large_one_states_the_omission() {
        let small = event(Action::Write { path: "a".into(), content: "x".repeat(EVENT_LIMIT / 2 - 100) });
        assert_eq!(small.clone().fit(), small);
        let content = format!("BEGIN{}END", "x".repeat(EVENT_LIMIT));
        let AgentReport::Event { body, .. } = event(Action::Write { path: "a".into(), content }).fit() else {
            panic!("the report is not an event")
        };
        let EventBody::Action(Action::Write { path, content }) = body else {
            panic!("the action is no longer `write`")
        };
        assert!(content.starts_with("BEGINxx") && content.ends_with("xxEND") && path == "a");
        assert!(
            content.contains(&format!("… {} bytes left out …", EVENT_LIMIT + 8 - CONTENT_LIMIT)),
            "the content states the number of omitted bytes"
        );
    }

    #[test]
    fn outcome_is_cut_to_its_limits() {
        let outcome = WorkOutcome::Failed { code: worst(1 << 20), detail: worst(1 << 20) };
        assert!(size(&outcome.fit()).bytes < EVENT_LIMIT / 2);
        let outcome = WorkOutcome::Cancelled { what: worst(1 << 20), partial: true };
        assert!(size(&outcome.fit()).bytes < 8192);
    }
}
