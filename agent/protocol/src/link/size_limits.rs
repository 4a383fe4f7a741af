//! What is too large is cut, and says so: no report is too large for a frame, and no event for the journal.

use serde_json::Value;

use super::{AgentReport, WorkOutcome};
use crate::{CONTENT_LIMIT, EventBody, JsonSize, Observation, excerpt};

/// The largest event, in bytes of JSON.
pub const EVENT_LIMIT: usize = 2 * 1024 * 1024;

/// How many values one frame may hold: a reader makes some hundred bytes of the shortest. (Lines of an edit are values.)
pub const VALUES_LIMIT: usize = 32 * 1024;

/// How much of an observation's content goes into one report, in bytes. This much of the worst text (six bytes of JSON for
/// each) still fits into a frame of the link, with all the rest of an event. What is more goes before it in pieces.
pub const REPORT_LIMIT: usize = 2 * 1024 * 1024;

/// The longest line in which something is told of, and the longest name, in bytes.
const LINE: usize = 1024;
const NAME: usize = 256;

/// How far texts and lists are cut, until all fits: so many bytes of each text, so many parts of each list. No name of an
/// item or of a request is as long as the least.
const STEPS: [(usize, usize); 4] = [(CONTENT_LIMIT, 8192), (8192, 1024), (1024, 128), (NAME, 16)];

impl AgentReport {
    /// As it fits into a frame of the link, and without its content into an event.
    pub fn fit(self) -> AgentReport {
        match self {
            AgentReport::Event { item, body: EventBody::Observation(Observation { kind: seen, content }) } => {
                let rest = EventBody::Observation(Observation { kind: seen, content: String::new() });
                let mut body = rest.fit(EVENT_LIMIT / 2);
                if let EventBody::Observation(observation) = &mut body {
                    observation.content = truncate_text(content, REPORT_LIMIT);
                }
                AgentReport::Event { item, body }
            }
            AgentReport::Event { item, body } => AgentReport::Event { item, body: body.fit(EVENT_LIMIT / 2) },
            AgentReport::TurnEnded { turn, outcome } => AgentReport::TurnEnded { turn, outcome: outcome.fit() },
            AgentReport::UserActionEnded { user_action: act, outcome } => {
                AgentReport::UserActionEnded { user_action: act, outcome: outcome.fit() }
            }
            small @ (AgentReport::Piece { .. } | AgentReport::Steered { .. } | AgentReport::SteerMissed { .. }) => {
                small
            }
        }
    }
}

impl EventBody {
    /// In at most `limit` bytes of JSON, if that is possible at all: long texts have their heads and tails, and say how much
    /// is left out; so have long lists of texts.
    pub fn fit(self, limit: usize) -> EventBody {
        if fits(&self, limit) {
            return self;
        }
        // Every type of the vocabulary has string keys and no fallible `Serialize`, so this cannot fail.
        let mut value = serde_json::to_value(&self).expect("a body is JSON");
        for (text, list) in STEPS {
            shorten(&mut value, text, list);
            if fits(&value, limit) {
                break;
            }
        }
        // An object at least, as it was one before.
        serde_json::from_value(value).expect("a body whose texts are shorter is a body")
    }
}

impl WorkOutcome {
    /// In words that fit into an event, and into what a session remembers.
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
    excerpt(&text, limit).map_or(text, |cut| cut.text)
}

fn shorten(value: &mut Value, text: usize, list: usize) {
    match value {
        Value::String(long) => {
            if let Some(cut) = excerpt(long, text) {
                *long = cut.text;
            }
        }
        Value::Array(parts) => {
            if parts.len() > list {
                let (head, tail) = (list / 2, parts.len() - list / 2);
                let omitted = tail - head;
                let says_so = parts[0].is_string().then(|| format!("… {omitted} left out …").into());
                parts.splice(head..tail, says_so);
            }
            parts.iter_mut().for_each(|part| shorten(part, text, list));
        }
        Value::Object(fields) => fields.values_mut().for_each(|field| shorten(field, text, list)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn fits(body: &impl serde::Serialize, limit: usize) -> bool {
    let JsonSize { bytes, values, .. } = size(body);
    // A frame holds a few more than its event.
    bytes <= limit && values < VALUES_LIMIT - 64
}

fn size(body: &impl serde::Serialize) -> JsonSize {
    let mut size = JsonSize::default();
    // As above, and counting cannot fail either.
    serde_json::to_writer(&mut size, body).expect("it is JSON");
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
    };

    /// The worst text: each byte is six of JSON.
    fn worst(bytes: usize) -> String {
        "\u{1}".repeat(bytes)
    }

    fn event(body: impl Into<EventBody>) -> AgentReport {
        AgentReport::Event { item: Some("i".into()), body: body.into() }
    }

    fn observation(seen: ObservationKind, content: String) -> AgentReport {
        event(Observation { kind: seen, content })
    }

    #[test]
    fn whatever_is_reported_fits_and_stays_what_it_was() {
        let large = 3 << 20;
        let lines = vec![worst(200); large / 200];
        let short = vec!["x".to_owned(); VALUES_LIMIT];
        let at = || EditTarget { old: Some(worst(large)), ..EditTarget::default() };
        let items = vec![PlanItem { text: worst(10), done: true }; large / 10];
        let edited = ObservationKind::Edit {
            path: worst(large),
            line: 1,
            change: EditKind::Replace,
            lines: lines.clone(),
            diff: worst(large),
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
            observation(edited, worst(large)),
            observation(ObservationKind::Plan { path: "p".into(), items }, worst(large)),
            observation(ObservationKind::Message { partial: true }, worst(large)),
            observation(ObservationKind::Error { code: worst(large), detail: worst(large) }, String::new()),
        ] {
            let AgentReport::Event { body: before, .. } = report.clone() else { panic!("an event") };
            let fit = report.fit();
            let frame = FromAgent::Report { n: u64::MAX, report: fit.clone() };
            let size = size(&frame);
            assert!(size.bytes <= LINK_FRAME_LIMIT, "`{}`: {size:?}", before.name());
            assert!(size.values <= VALUES_LIMIT, "`{}`: {size:?}", before.name());
            assert!(serde_json::to_string(&fit).expect("JSON").contains("left out …"), "`{}` says so", before.name());
            let AgentReport::Event { mut body, .. } = fit else { panic!("an event") };
            assert_eq!(std::mem::discriminant(&body), std::mem::discriminant(&before));
            assert_eq!(body.name(), before.name());
            if let EventBody::Observation(observation) = &mut body {
                observation.content.clear();
            }
            assert!(fits(&body, EVENT_LIMIT / 2), "`{}`: {:?}", body.name(), self::size(&body));
        }
    }

    #[test]
    fn what_fits_is_left_alone_and_what_does_not_says_so() {
        let small = event(Action::Write { path: "a".into(), content: "x".repeat(EVENT_LIMIT / 2 - 100) });
        assert_eq!(small.clone().fit(), small);
        let content = format!("BEGIN{}END", "x".repeat(EVENT_LIMIT));
        let AgentReport::Event { body, .. } = event(Action::Write { path: "a".into(), content }).fit() else {
            panic!("an event")
        };
        let EventBody::Action(Action::Write { path, content }) = body else { panic!("it is no `write` any more") };
        assert!(content.starts_with("BEGINxx") && content.ends_with("xxEND") && path == "a");
        assert!(
            content.contains(&format!("… {} bytes left out …", EVENT_LIMIT + 8 - CONTENT_LIMIT)),
            "how much is missing"
        );
    }

    #[test]
    fn an_outcome_is_told_in_few_words() {
        let outcome = WorkOutcome::Failed { code: worst(1 << 20), detail: worst(1 << 20) };
        assert!(size(&outcome.fit()).bytes < EVENT_LIMIT / 2);
        let outcome = WorkOutcome::Cancelled { what: worst(1 << 20), partial: true };
        assert!(size(&outcome.fit()).bytes < 8192);
    }
}
