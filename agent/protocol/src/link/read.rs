//! Reader of the agent's frames, with a fast path for the common frames.
//!
//! A tag may stand anywhere in a frame. Derived readers of tagged enums therefore build a tree of
//! each frame, of its report, and of the report's body. Agents write the tag first, so a frame can
//! be read in one pass. Any other frame goes to the derived reader, with the same result at less
//! speed.

use std::borrow::Cow;

use serde::{
    Deserialize,
    de::{Error, IgnoredAny},
};
use serde_json::value::RawValue;

use super::{AgentReport, FromAgent, VALUES_LIMIT};
use crate::{Delta, JsonSize, Observation, delta::DeltaKind, event::EventBody};

impl FromAgent {
    /// Reads a frame.
    ///
    /// # Errors
    /// Describes the first fault of the frame, or reports more than [`VALUES_LIMIT`] values.
    pub fn read(text: &str) -> serde_json::Result<FromAgent> {
        // A shorter text has too few bytes for that many values.
        if text.len() > 2 * VALUES_LIMIT && JsonSize::of(text.as_bytes()).values > VALUES_LIMIT {
            return Err(Error::custom(format_args!("the frame has more than {VALUES_LIMIT} values")));
        }
        let fast = match text {
            delta if delta.starts_with(r#"{"delta":"#) => read_delta(delta),
            report if report.starts_with(r#"{"frame":"report","#) => read_event(report),
            _ => None,
        };
        fast.map_or_else(|| serde_json::from_str(text), Ok)
    }
}

fn read_delta(text: &str) -> Option<FromAgent> {
    #[derive(Deserialize)]
    struct DeltaFrame {
        delta: DeltaKind,
        item: String,
        offset: u64,
        content: String,
        frame: Option<IgnoredAny>,
    }
    match serde_json::from_str(text).ok()? {
        DeltaFrame { delta, item, offset, content, frame: None } => {
            Some(FromAgent::Delta(Delta { kind: delta, item, offset, content }))
        }
        DeltaFrame { frame: Some(_), .. } => None,
    }
}

fn read_event(text: &str) -> Option<FromAgent> {
    #[derive(Deserialize)]
    struct ReportFrame<'a> {
        n: u64,
        #[serde(borrow)]
        report: EventReport<'a>,
    }
    #[derive(Deserialize)]
    struct EventReport<'a> {
        #[serde(borrow)]
        report: Cow<'a, str>,
        item: Option<String>,
        #[serde(borrow)]
        body: &'a RawValue,
    }
    let ReportFrame { n, report: EventReport { report, item, body } } = serde_json::from_str(text).ok()?;
    if report != "event" {
        return None;
    }
    let body = read_body(body.get())?;
    Some(FromAgent::Report { n, report: AgentReport::Event { item, body } })
}

fn read_body(text: &str) -> Option<EventBody> {
    #[derive(Deserialize)]
    struct ObservationContent {
        #[serde(default)]
        content: String,
        action: Option<IgnoredAny>,
    }
    if text.starts_with(r#"{"action":"#) {
        return serde_json::from_str(text).ok().map(EventBody::Action);
    }
    if !text.starts_with(r#"{"observation":"#) {
        return None;
    }
    let kind = serde_json::from_str(text).ok()?;
    match serde_json::from_str(text).ok()? {
        ObservationContent { content, action: None } => Some(EventBody::Observation(Observation { kind, content })),
        ObservationContent { action: Some(_), .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that a frame is read, or rejected, exactly as the derived reader does it.
    fn check_against_derived(text: &str) {
        let derived: Result<FromAgent, String> = serde_json::from_str(text).map_err(|e| e.to_string());
        assert_eq!(FromAgent::read(text).map_err(|e| e.to_string()), derived, "{text}");
    }

    #[test]
    fn frame_with_too_many_values_is_rejected() {
        let read = |values: usize| {
            let lines = vec!["[]"; values].join(",");
            FromAgent::read(&format!(
                r#"{{"frame":"report","n":1,"report":{{"report":"event","body":{{"observation":"smell","extras":[{lines}]}}}}}}"#
            ))
        };
        assert!(read(VALUES_LIMIT / 2 - 64).is_ok());
        let error = read(VALUES_LIMIT).expect_err("the frame has too many values");
        assert_eq!(error.to_string(), "the frame has more than 32768 values");
        let long = format!(r#"{{"delta":"text","item":"i","offset":0,"content":"{}"}}"#, "[,".repeat(VALUES_LIMIT));
        assert!(FromAgent::read(&long).is_ok(), "a string is one value");
    }

    #[test]
    fn common_frames_take_the_fast_path() {
        let delta = r#"{"delta":"text","item":"i","offset":3,"content":"a \"b\" ü\n"}"#;
        let event = r#"{"frame":"report","n":4,"report":{"report":"event","item":"i","body":{"observation":"write","extras":{"path":"a","bytes":1},"content":"x\ny"}}}"#;
        let action = r#"{"frame":"report","n":4,"report":{"report":"event","item":"i","body":{"action":"run","args":{"command":"ls"}}}}"#;
        assert!(read_delta(delta).is_some() && read_event(event).is_some() && read_event(action).is_some());
        [delta, event, action].into_iter().for_each(check_against_derived);
    }

    #[test]
    fn other_frames_are_read_like_the_derived_reader() {
        let report = |body: &str| format!(r#"{{"frame":"report","n":1,"report":{{"report":"event","body":{body}}}}}"#);
        for body in [
            r#"{"observation":"smell","extras":{"of":"smoke"},"content":"hm"}"#,
            r#"{"observation":"write","extras":{"path":"a"}}"#,
            r#"{"observation":"write","extras":{"path":"a","bytes":1,"more":[1]},"content":"x","and":"more"}"#,
            r#"{"observation":"write","extras":null}"#,
            r#"{"observation":"think","content":"x"}"#,
            r#"{"observation":"think","extras":{},"content":"x","content":"y"}"#,
            r#"{"observation":"think","extras":{},"action":"run","args":{"command":"ls"}}"#,
            r#"{"content":"x","extras":{"path":"a","bytes":1},"observation":"write"}"#,
            r#"{"action":"run","args":{"command":"ls","more":1},"extra":true}"#,
            r#"{"action":"run","args":{}}"#,
            r#"{"action":"dance","args":{"to":"music"}}"#,
            r#"{"args":{"command":"ls"},"action":"run"}"#,
            "{}",
            "[]",
            "null",
            "7",
        ] {
            check_against_derived(&report(body));
            check_against_derived(&report(&format!(" {body} ")));
        }
        for text in [
            r#"{"delta":"text","item":"i","offset":0,"content":"c","frame":"taken","command":"x"}"#,
            r#"{"delta":"text","item":"i","offset":0,"content":"c","frame":null}"#,
            r#"{"delta":"song","item":"i","offset":0,"content":"c"}"#,
            r#"{"delta":"text","item":"i","offset":-1,"content":"c"}"#,
            r#"{"delta":"text","item":"i","offset":0}"#,
            r#"{"item":"i","delta":"output","offset":0,"content":"c"}"#,
            r#"{"frame":"report","n":1,"report":{"report":"steered","command":"c"}}"#,
            r#"{"frame":"report","n":1,"report":{"report":"steered","command":"c","body":{"action":"end"}}}"#,
            r#"{"frame":"report","n":-1,"report":{"report":"event","body":{}}}"#,
            r#"{"frame":"report","n":1,"report":{"body":{"action":"end","args":{}},"report":"event"}}"#,
            r#"{"frame":"report","n":1,"report":{"report":"event","item":null,"body":{"action":"end","args":{}}}}"#,
            r#"{"frame":"taken","command":"c"}"#,
            r#"{"frame":"nothing"}"#,
            "",
            "{",
            "nonsense",
            r#"{"frame":"report","n":1"#,
        ] {
            check_against_derived(text);
        }
    }
}
