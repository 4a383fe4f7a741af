//! From the journal to the conversation that a model is told: how an agent that starts anew knows what was.

use std::collections::HashMap;

use greenroom_protocol::{Action, Event, EventBody, EventSource, Observation, ObservationKind, excerpt};
use serde_json::Value;

use super::{
    UserActivity, UserMessage,
    conversation::{AgentConversation, AssistantMessage, ToolCallRequest},
};

/// How much of one old result is told, in bytes.
const RESULT_LIMIT: usize = 30 * 1024;

/// What the model is told where an interrupt stopped its turn.
pub(super) const INTERRUPTED: &str = "[The user interrupted you here.]";

/// Reads a journal, oldest event first, into a conversation.
#[derive(Default)]
pub(super) struct HistoryReader {
    /// What the user did beside the agent, by item, until its result comes.
    pending_user_actions: HashMap<String, String>,
    /// What the user has done since the agent last said, did or heard something.
    user_activity: UserActivity,
    /// A message that was cut. It counts if the user cut it; else the model was asked again, and said it anew.
    partial_message: Option<String>,
}

impl HistoryReader {
    pub(super) fn read(&mut self, event: &Event, conversation: &mut AgentConversation) {
        let item = event.item.as_deref().unwrap_or_default();
        match &event.body {
            EventBody::Action(action) if event.source == EventSource::Agent => {
                self.partial_message = None;
                self.flush_user_activity(conversation);
                add_call(conversation, item, action);
            }
            EventBody::Action(action) => {
                if let Action::Run { .. } | Action::Read { .. } | Action::Write { .. } | Action::Browse { .. } = action
                {
                    self.pending_user_actions.insert(item.to_owned(), action.summary_line());
                }
            }
            EventBody::Observation(seen) => match self.pending_user_actions.remove(item) {
                Some(line) => {
                    self.user_activity
                        .push(format!("[The user did this in the sandbox: {line}]\n{}", model_text(seen)));
                }
                None => self.read_observation(conversation, item, seen),
            },
            EventBody::Opaque(_) => {}
        }
    }

    /// Tells what the user did beside the agent up to here. To be called at the end too.
    pub(super) fn flush_user_activity(&mut self, conversation: &mut AgentConversation) {
        self.user_activity.take().iter().for_each(|aside| conversation.add_user_text(aside));
    }

    fn read_observation(&mut self, conversation: &mut AgentConversation, item: &str, observation: &Observation) {
        match &observation.kind {
            ObservationKind::Chat { attachments, .. } => {
                self.partial_message = None;
                self.flush_user_activity(conversation);
                let (content, attachments) = (observation.content.clone(), attachments.clone());
                conversation.add_user_message(&UserMessage { content, attachments });
            }
            ObservationKind::Message { partial: true } => self.partial_message = Some(observation.content.clone()),
            ObservationKind::Message { partial: false } => {
                self.partial_message = None;
                self.flush_user_activity(conversation);
                add_text(conversation, observation.content.clone());
            }
            ObservationKind::Interrupted { .. } => {
                self.flush_user_activity(conversation);
                self.partial_message.take().into_iter().for_each(|text| add_text(conversation, text));
                conversation.add_user_text(INTERRUPTED);
            }
            // What the model thought is not told again: a thought without its signature is refused. A thought that it wrote
            // down by its tool is that call's result, like those below.
            ObservationKind::Think { .. }
            | ObservationKind::Run { .. }
            | ObservationKind::Read { .. }
            | ObservationKind::Write { .. }
            | ObservationKind::Edit { .. }
            | ObservationKind::Browse { .. }
            | ObservationKind::Plan { .. }
            | ObservationKind::Error { .. } => conversation.add_result(item, model_text(observation)),
            ObservationKind::Confirm { .. }
            | ObservationKind::Confirmed { .. }
            | ObservationKind::Usage(_)
            | ObservationKind::AgentStateChanged { .. }
            | ObservationKind::Queue { .. }
            | ObservationKind::Sandbox { .. } => {}
        }
    }
}

fn add_text(conversation: &mut AgentConversation, text: String) {
    conversation.add_assistant_message(AssistantMessage { text, ..AssistantMessage::default() });
}

fn add_call(conversation: &mut AgentConversation, item: &str, action: &Action) {
    if item.is_empty() {
        return;
    }
    let arguments = serde_json::to_value(action).ok().and_then(|mut value| value.get_mut("args").map(Value::take));
    let call = ToolCallRequest {
        id: item.to_owned(),
        name: action.name().to_owned(),
        arguments: arguments.unwrap_or_default(),
    };
    conversation.add_assistant_message(AssistantMessage { calls: vec![call], ..AssistantMessage::default() });
    if let Action::Finish { .. } = action {
        conversation.add_result(item, "The turn is over.".to_owned());
    }
}

/// A result as the model is told it.
fn model_text(observation: &Observation) -> String {
    let short = |text: &String| excerpt(text, RESULT_LIMIT).map_or_else(|| text.clone(), |cut| cut.text);
    let content = short(&observation.content);
    match &observation.kind {
        ObservationKind::Run { timed_out: true, .. } => format!("{content}\n[It was killed: it ran out of time.]"),
        ObservationKind::Run { exit_code: Some(code), .. } => format!("{content}\n[Exit code {code}.]"),
        ObservationKind::Run { exit_code: None, .. } => format!("{content}\n[It was killed.]"),
        ObservationKind::Edit { diff, .. } => short(diff),
        ObservationKind::Error { detail, .. } => short(detail),
        _ if content.is_empty() => observation.summary_line(),
        _ => content,
    }
}

#[cfg(test)]
mod tests {
    use greenroom_protocol::observation::EditKind;

    use super::*;
    use crate::turn::conversation::ConversationEntry;

    fn journal(lines: &[&str]) -> Vec<Event> {
        let event = |(index, line): (usize, &&str)| {
            let json = format!(r#"{{"seq":{},"at":"2026-01-01T00:00:00.000Z",{line}}}"#, index + 1);
            serde_json::from_str(&json).expect("an event")
        };
        lines.iter().enumerate().map(event).collect()
    }

    /// The conversation in short: `user: …`, `agent: … call(…)`, `result: …`.
    fn check(lines: &[&str], expected: &[&str]) {
        let short = |entry: ConversationEntry| match entry {
            ConversationEntry::User(text) => format!("user: {text}"),
            ConversationEntry::Assistant(said) => {
                let calls: Vec<String> =
                    said.calls.iter().map(|call| format!("{}#{}{}", call.name, call.id, call.arguments)).collect();
                format!("agent: {} {}", said.text, calls.join(" "))
            }
            ConversationEntry::Results { results, user } => {
                let results: Vec<String> =
                    results.iter().map(|result| format!("{}={}", result.id, result.text)).collect();
                format!("result: {} {user}", results.join(" "))
            }
        };
        let (mut reader, mut conversation) = (HistoryReader::default(), AgentConversation::default());
        journal(lines).iter().for_each(|event| reader.read(event, &mut conversation));
        reader.flush_user_activity(&mut conversation);
        let told: Vec<String> = conversation.to_send().into_iter().map(short).collect();
        assert_eq!(told, expected);
    }

    const START: &str = r#""source":"user","action":"start","args":{"task":"do"}"#;
    const CHAT: &str = r#""source":"user","observation":"chat","extras":{},"content":"do""#;
    const RUN: &str = r#""source":"agent","item":"c1","action":"run","args":{"command":"ls"}"#;
    const RAN: &str = r#""source":"agent","item":"c1","observation":"run","extras":{"command":"ls","exit_code":0,"duration_ms":1},"content":"a""#;
    const MESSAGE: &str = r#""source":"agent","item":"m1","observation":"message","extras":{},"content":"Looking.""#;

    #[test]
    fn a_turn_with_a_tool() {
        check(
            &[START, CHAT, MESSAGE, RUN, RAN],
            &["user: do", r#"agent: Looking. run#c1{"command":"ls"}"#, "result: c1=a\n[Exit code 0.] "],
        );
    }

    #[test]
    fn a_call_without_a_result_was_interrupted() {
        check(
            &[CHAT, RUN, CHAT],
            &["user: do", r#"agent:  run#c1{"command":"ls"}"#, "result: c1=[Interrupted before it had a result.] do"],
        );
    }

    #[test]
    fn of_a_long_result_the_model_is_told_head_and_tail() {
        let diff = format!("BEGIN{}END", "x".repeat(RESULT_LIMIT));
        for seen in [
            ObservationKind::Edit {
                path: "a".into(),
                line: 1,
                change: EditKind::Delete,
                lines: Vec::new(),
                diff: diff.clone(),
            },
            ObservationKind::Error { code: "c".into(), detail: diff.clone() },
        ] {
            let told = model_text(&Observation { kind: seen, content: String::new() });
            assert!(told.starts_with("BEGIN") && told.ends_with("END") && told.len() < RESULT_LIMIT + 100);
        }
    }

    #[test]
    fn of_an_answer_that_was_cut_the_model_is_told_what_the_user_cut() {
        let cut = &MESSAGE.replace("{}", r#"{"partial":true}"#);
        let interrupted = r#""source":"server","observation":"interrupted","extras":{"what":"it","stopped_ms":1,"rung":"cancel","partial":true}"#;
        check(&[CHAT, cut, MESSAGE, CHAT], &["user: do", "agent: Looking. ", "user: do"]);
        check(
            &[CHAT, cut, RUN, RAN],
            &["user: do", r#"agent:  run#c1{"command":"ls"}"#, "result: c1=a\n[Exit code 0.] "],
        );
        check(&[CHAT, cut, CHAT], &["user: do\n\ndo"]);
        check(
            &[CHAT, cut, interrupted, CHAT],
            &["user: do", "agent: Looking. ", &format!("user: {INTERRUPTED}\n\ndo")],
        );
    }

    #[test]
    fn a_journal_in_which_two_calls_share_an_id_is_told_so_that_a_provider_takes_it() {
        let run = |id: &str| format!(r#"run#{id}{{"command":"ls"}}"#);
        check(
            &[CHAT, RUN, RAN, RUN, RAN],
            &[
                "user: do",
                &format!("agent:  {}", run("c1")),
                "result: c1=a\n[Exit code 0.] ",
                &format!("agent:  {}", run("c1-again")),
                "result: c1-again=a\n[Exit code 0.] ",
            ],
        );
    }

    #[test]
    fn what_the_user_did_is_told() {
        check(
            &[r#""source":"user","item":"a1","action":"run","args":{"command":"ls"}"#, &RAN.replace("c1", "a1"), CHAT],
            &["user: [The user did this in the sandbox: Running command: ls]\na\n[Exit code 0.]\n\ndo"],
        );
    }

    #[test]
    fn what_the_user_did_while_the_agent_worked_takes_no_result_away() {
        let act = r#""source":"user","item":"a1","action":"run","args":{"command":"ls"}"#;
        check(
            &[CHAT, RUN, act, &RAN.replace("c1", "a1"), RAN],
            &[
                "user: do",
                r#"agent:  run#c1{"command":"ls"}"#,
                "result: c1=a\n[Exit code 0.] [The user did this in the sandbox: Running command: ls]\na\n[Exit code 0.]",
            ],
        );
    }

    #[test]
    fn of_many_things_that_the_user_did_the_newest_are_told() {
        let acts = (0..2000).flat_map(|n| {
            let act = format!(r#""source":"user","item":"a{n}","action":"run","args":{{"command":"echo {n}"}}"#);
            [act, RAN.replace("c1", &format!("a{n}"))]
        });
        let acts: Vec<String> = acts.collect();
        let lines: Vec<&str> = acts.iter().map(String::as_str).collect();
        let (mut reader, mut conversation) = (HistoryReader::default(), AgentConversation::default());
        journal(&lines).iter().for_each(|event| reader.read(event, &mut conversation));
        reader.flush_user_activity(&mut conversation);
        let Some(ConversationEntry::User(told)) = conversation.to_send().pop() else { panic!("it was the user") };
        assert!(told.len() < 70 << 10 && told.starts_with("[Before this the user did"), "{}", told.len());
        assert!(told.contains("echo 1999]") && !told.contains("echo 0]"));
    }
}
