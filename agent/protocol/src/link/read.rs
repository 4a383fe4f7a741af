//! Reads what an agent says, the common frames without a detour.
//!
//! The derived readers of tagged enums first make a tree of each frame, of the report in it, and of its body once more, because
//! a tag may stand anywhere. Agents write the tag first, and then a frame can be read as it comes. Whatever looks different
//! takes the derived way: it is read the same, only slower.

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
    /// What is wrong with it.
    pub fn read(text: &str) -> serde_json::Result<FromAgent> {
        // What is shorter has not the bytes for more of them.
        if text.len() > 2 * VALUES_LIMIT && JsonSize::of(text.as_bytes()).values > VALUES_LIMIT {
            return Err(Error::custom(format_args!("it has more than {VALUES_LIMIT} values")));
        }
        let known = match text {
            delta if delta.starts_with(r#"{"delta":"#) => read_delta(delta),
            report if report.starts_with(r#"{"frame":"report","#) => read_event(report),
            _ => None,
        };
        known.map_or_else(|| serde_json::from_str(text), Ok)
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
    let seen = serde_json::from_str(text).ok()?;
    match serde_json::from_str(text).ok()? {
        ObservationContent { content, action: None } => {
            Some(EventBody::Observation(Observation { kind: seen, content }))
        }
        ObservationContent { action: Some(_), .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is read is read as the derived reader does, or refused as it does.
    fn same(text: &str) {
        let derived: Result<FromAgent, String> = serde_json::from_str(text).map_err(|e| e.to_string());
        assert_eq!(FromAgent::read(text).map_err(|e| e.to_string()), derived, "{text}");
    }

    #[test]
    fn a_frame_of_very_many_values_is_refused() {
        let read = |values: usize| {
            let lines = vec!["[]"; values].join(",");
            FromAgent::read(&format!(
                r#"{{"frame":"report","n":1,"report":{{"report":"event","body":{{"observation":"smell","extras":[{lines}]}}}}}}"#
            ))
        };
        assert!(read(VALUES_LIMIT / 2 - 64).is_ok());
        let refused = read(VALUES_LIMIT).expect_err("there are too many");
        assert_eq!(refused.to_string(), "it has more than 32768 values");
        let long = format!(r#"{{"delta":"text","item":"i","offset":0,"content":"{}"}}"#, "[,".repeat(VALUES_LIMIT));
        assert!(FromAgent::read(&long).is_ok(), "a text is one value");
    }

    #[test]
    fn what_agents_write_is_read_without_a_detour() {
        let delta = r#"{"delta":"text","item":"i","offset":3,"content":"a \"b\" ü\n"}"#;
        let event = r#"{"frame":"report","n":4,"report":{"report":"event","item":"i","body":{"observation":"write","extras":{"path":"a","bytes":1},"content":"x\ny"}}}"#;
        let action = r#"{"frame":"report","n":4,"report":{"report":"event","item":"i","body":{"action":"run","args":{"command":"ls"}}}}"#;
        assert!(read_delta(delta).is_some() && read_event(event).is_some() && read_event(action).is_some());
        [delta, event, action].into_iter().for_each(same);
    }

    #[test]
    fn what_looks_different_is_read_the_same() {
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
            same(&report(body));
            same(&report(&format!(" {body} ")));
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
            same(text);
        }
    }
}
