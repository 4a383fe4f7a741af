//! From the journal to the conversation that a model is told: how an agent that starts anew knows what was.

use std::collections::HashMap;

use greenroom_protocol::{Action, Body, Event, Observation, Seen, Source, excerpt};
use serde_json::Value;

use super::{
    Asides, Message,
    conversation::{Call, Conversation, Said},
};

/// How much of one old result is told, in bytes.
const RESULT_LIMIT: usize = 30 * 1024;

/// What the model is told where an interrupt stopped its turn.
pub(super) const INTERRUPTED: &str = "[The user interrupted you here.]";

/// Reads a journal, oldest event first, into a conversation.
#[derive(Default)]
pub(super) struct Reader {
    /// What the user did beside the agent, by item, until its result comes.
    beside: HashMap<String, String>,
    /// What the user has done since the agent last said, did or heard something.
    asides: Asides,
    /// A message that was cut. It counts if the user cut it; else the model was asked again, and said it anew.
    cut: Option<String>,
}

impl Reader {
    pub(super) fn read(&mut self, event: &Event, conversation: &mut Conversation) {
        let item = event.item.as_deref().unwrap_or_default();
        match &event.body {
            Body::Action(action) if event.source == Source::Agent => {
                self.cut = None;
                self.tell_asides(conversation);
                called(conversation, item, action);
            }
            Body::Action(action) => {
                if let Action::Run { .. } | Action::Read { .. } | Action::Write { .. } | Action::Browse { .. } = action
                {
                    self.beside.insert(item.to_owned(), action.line());
                }
            }
            Body::Observation(seen) => match self.beside.remove(item) {
                Some(line) => {
                    self.asides.push(format!("[The user did this in the sandbox: {line}]\n{}", told(seen)));
                }
                None => self.observed(conversation, item, seen),
            },
            Body::Opaque(_) => {}
        }
    }

    /// Tells what the user did beside the agent up to here. To be called at the end too.
    pub(super) fn tell_asides(&mut self, conversation: &mut Conversation) {
        self.asides.take().iter().for_each(|aside| conversation.user(aside));
    }

    fn observed(&mut self, conversation: &mut Conversation, item: &str, observation: &Observation) {
        match &observation.seen {
            Seen::Chat { attachments, .. } => {
                self.cut = None;
                self.tell_asides(conversation);
                let (content, attachments) = (observation.content.clone(), attachments.clone());
                conversation.message(&Message { content, attachments });
            }
            Seen::Message { partial: true } => self.cut = Some(observation.content.clone()),
            Seen::Message { partial: false } => {
                self.cut = None;
                self.tell_asides(conversation);
                say(conversation, observation.content.clone());
            }
            Seen::Interrupted { .. } => {
                self.tell_asides(conversation);
                self.cut.take().into_iter().for_each(|text| say(conversation, text));
                conversation.user(INTERRUPTED);
            }
            // What the model thought is not told again: a thought without its signature is refused. A thought that it wrote
            // down by its tool is that call's result, like those below.
            Seen::Think { .. }
            | Seen::Run { .. }
            | Seen::Read { .. }
            | Seen::Write { .. }
            | Seen::Edit { .. }
            | Seen::Browse { .. }
            | Seen::Plan { .. }
            | Seen::Error { .. } => conversation.result(item, told(observation)),
            Seen::Confirm { .. }
            | Seen::Confirmed { .. }
            | Seen::Usage(_)
            | Seen::AgentStateChanged { .. }
            | Seen::Queue { .. }
            | Seen::Sandbox { .. } => {}
        }
    }
}

fn say(conversation: &mut Conversation, text: String) {
    conversation.assistant(Said { text, ..Said::default() });
}

fn called(conversation: &mut Conversation, item: &str, action: &Action) {
    if item.is_empty() {
        return;
    }
    let arguments = serde_json::to_value(action).ok().and_then(|mut value| value.get_mut("args").map(Value::take));
    let call = Call { id: item.to_owned(), name: action.name().to_owned(), arguments: arguments.unwrap_or_default() };
    conversation.assistant(Said { calls: vec![call], ..Said::default() });
    if let Action::Finish { .. } = action {
        conversation.result(item, "The turn is over.".to_owned());
    }
}

/// A result as the model is told it.
fn told(observation: &Observation) -> String {
    let short = |text: &String| excerpt(text, RESULT_LIMIT).map_or_else(|| text.clone(), |cut| cut.text);
    let content = short(&observation.content);
    match &observation.seen {
        Seen::Run { timed_out: true, .. } => format!("{content}\n[It was killed: it ran out of time.]"),
        Seen::Run { exit_code: Some(code), .. } => format!("{content}\n[Exit code {code}.]"),
        Seen::Run { exit_code: None, .. } => format!("{content}\n[It was killed.]"),
        Seen::Edit { diff, .. } => short(diff),
        Seen::Error { detail, .. } => short(detail),
        _ if content.is_empty() => observation.line(),
        _ => content,
    }
}

#[cfg(test)]
mod tests {
    use greenroom_protocol::observation::Change;

    use super::*;
    use crate::turn::conversation::Entry;

    fn journal(lines: &[&str]) -> Vec<Event> {
        let event = |(index, line): (usize, &&str)| {
            let json = format!(r#"{{"seq":{},"at":"2026-01-01T00:00:00.000Z",{line}}}"#, index + 1);
            serde_json::from_str(&json).expect("an event")
        };
        lines.iter().enumerate().map(event).collect()
    }

    /// The conversation in short: `user: …`, `agent: … call(…)`, `result: …`.
    fn check(lines: &[&str], expected: &[&str]) {
        let short = |entry: Entry| match entry {
            Entry::User(text) => format!("user: {text}"),
            Entry::Assistant(said) => {
                let calls: Vec<String> =
                    said.calls.iter().map(|call| format!("{}#{}{}", call.name, call.id, call.arguments)).collect();
                format!("agent: {} {}", said.text, calls.join(" "))
            }
            Entry::Results { results, user } => {
                let results: Vec<String> =
                    results.iter().map(|result| format!("{}={}", result.id, result.text)).collect();
                format!("result: {} {user}", results.join(" "))
            }
        };
        let (mut reader, mut conversation) = (Reader::default(), Conversation::default());
        journal(lines).iter().for_each(|event| reader.read(event, &mut conversation));
        reader.tell_asides(&mut conversation);
        let told: Vec<String> = conversation.to_send().into_iter().map(short).collect();
        assert_eq!(told, expected);
    }

    const START: &str = r#""source":"user","action":"start","args":{"task":"do"}"#;
    const CHAT: &str = r#""source":"user","observation":"chat","extras":{},"content":"do""#;
    const RUN: &str = r#""source":"agent","item":"c1","action":"run","args":{"command":"ls"}"#;
    const RAN: &str = r#""source":"agent","item":"c1","observation":"run","extras":{"command":"ls","exit_code":0,"duration_ms":1},"content":"a""#;
    const SAID: &str = r#""source":"agent","item":"m1","observation":"message","extras":{},"content":"Looking.""#;

    #[test]
    fn a_turn_with_a_tool() {
        check(
            &[START, CHAT, SAID, RUN, RAN],
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
            Seen::Edit { path: "a".into(), line: 1, change: Change::Delete, lines: Vec::new(), diff: diff.clone() },
            Seen::Error { code: "c".into(), detail: diff.clone() },
        ] {
            let told = told(&Observation { seen, content: String::new() });
            assert!(told.starts_with("BEGIN") && told.ends_with("END") && told.len() < RESULT_LIMIT + 100);
        }
    }

    #[test]
    fn of_an_answer_that_was_cut_the_model_is_told_what_the_user_cut() {
        let cut = &SAID.replace("{}", r#"{"partial":true}"#);
        let interrupted = r#""source":"server","observation":"interrupted","extras":{"what":"it","stopped_ms":1,"rung":"cancel","partial":true}"#;
        check(&[CHAT, cut, SAID, CHAT], &["user: do", "agent: Looking. ", "user: do"]);
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
        let (mut reader, mut conversation) = (Reader::default(), Conversation::default());
        journal(&lines).iter().for_each(|event| reader.read(event, &mut conversation));
        reader.tell_asides(&mut conversation);
        let Some(Entry::User(told)) = conversation.to_send().pop() else { panic!("it was the user") };
        assert!(told.len() < 70 << 10 && told.starts_with("[Before this the user did"), "{}", told.len());
        assert!(told.contains("echo 1999]") && !told.contains("echo 0]"));
    }
}
