//! Reads the journal into the conversation for a model, after a restart of the agent.

use std::collections::HashMap;

use greenroom_protocol::{
    Action, Event, EventBody, EventSource, Observation, ObservationKind, action::ApprovalDecision, excerpt,
    repository::ForkOrigin,
};
use serde_json::Value;

use super::{
    UserActivity, UserMessage, call_approval,
    conversation::{AgentConversation, AssistantMessage, ToolCallRequest},
    pictures::AttachmentOrigin,
    plan_watch::{PlanWatch, changed_text},
};
use crate::{terminal_text, tools};

/// Size limit of one old result for the model, in bytes.
const RESULT_LIMIT: usize = 30 * 1024;

/// Text for the model at the place where an interrupt stopped its turn.
pub(super) const INTERRUPTED: &str = "[The user interrupted you here.]";

/// Reads a journal, oldest event first, into a conversation.
#[derive(Default)]
pub(super) struct HistoryReader {
    /// User actions without a result, by item.
    pending_user_actions: HashMap<String, String>,
    /// User actions since the agent's last output or input.
    user_activity: UserActivity,
    /// Text of a partial message. Used if the user interrupted it; otherwise the model was asked
    /// again, and answered anew.
    partial_message: Option<String>,
    /// Newest plan in the conversation.
    pub(super) plan: PlanWatch,
    /// Items of the calls that wait for a person's decision, by approval request.
    asked_items: HashMap<String, String>,
    /// Notes about calls that a person changed, by item.
    changed_notes: HashMap<String, String>,
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
            EventBody::Action(Action::Confirm { request, decision, input, .. }) => {
                if let (Some(item), Some(input)) = (self.asked_items.remove(request), input)
                    && *decision != ApprovalDecision::Deny
                {
                    self.changed_notes.insert(item, call_approval::changed_note(input));
                }
            }
            EventBody::Action(action) => {
                if let Action::Run { .. } | Action::Read { .. } | Action::Write { .. } | Action::Browse { .. } = action
                {
                    self.pending_user_actions.insert(item.to_owned(), action.summary_line());
                }
            }
            EventBody::Observation(observation) => match self.pending_user_actions.remove(item) {
                Some(line) => {
                    self.user_activity
                        .push(format!("[The user did this in the sandbox: {line}]\n{}", model_text(observation)));
                }
                None => self.read_observation(conversation, item, observation),
            },
            EventBody::Opaque(_) => {}
        }
    }

    /// Adds the pending user actions to the conversation. Must also be called after the last event.
    pub(super) fn flush_user_activity(&mut self, conversation: &mut AgentConversation) {
        self.user_activity.take().iter().for_each(|text| conversation.add_user_text(text));
    }

    fn read_observation(&mut self, conversation: &mut AgentConversation, item: &str, observation: &Observation) {
        match &observation.kind {
            ObservationKind::Chat { attachments, .. } => {
                self.partial_message = None;
                self.flush_user_activity(conversation);
                let (content, attachments) = (observation.content.clone(), attachments.clone());
                conversation.add_user_message(&UserMessage { content, attachments }, AttachmentOrigin::Journal);
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
            ObservationKind::Compaction { kept, .. } => {
                self.flush_user_activity(conversation);
                conversation.compact(&observation.content, usize::try_from(*kept).unwrap_or(usize::MAX));
            }
            ObservationKind::Forked(origin) => {
                self.partial_message = None;
                // Their results stay in the other session.
                self.pending_user_actions.clear();
                self.flush_user_activity(conversation);
                conversation.add_user_text(&forked_text(origin));
            }
            // A plan without a call: the user or a command changed the file.
            ObservationKind::Plan { path, .. } if item.is_empty() => {
                if self.plan.see(&observation.content) {
                    self.user_activity.push(changed_text(path, &observation.content));
                }
            }
            ObservationKind::Plan { .. } => {
                self.plan.see(&observation.content);
                conversation.add_result(item, model_text(observation));
            }
            // Thoughts are not sent again: a provider rejects a thought without its signature. A
            // thought written with the `think` tool is that call's result, as are the observations
            // below.
            ObservationKind::Think { .. }
            | ObservationKind::Run { .. }
            | ObservationKind::Read { .. }
            | ObservationKind::Write { .. }
            | ObservationKind::Edit { .. }
            | ObservationKind::Browse { .. }
            | ObservationKind::Tool { .. }
            | ObservationKind::Error { .. } => {
                let note = self.changed_notes.remove(item).unwrap_or_default();
                conversation.add_result(item, note + &model_text(observation));
            }
            ObservationKind::Checkpoint(checkpoint) => {
                checkpoint.restore_note().into_iter().for_each(|note| self.user_activity.push(note));
            }
            ObservationKind::Confirm { request, .. } => {
                self.asked_items.insert(request.clone(), item.to_owned());
            }
            ObservationKind::Confirmed { request, .. } => {
                self.asked_items.remove(request);
            }
            ObservationKind::Commands { .. }
            | ObservationKind::Usage(_)
            | ObservationKind::Notice { .. }
            | ObservationKind::AgentStateChanged { .. }
            | ObservationKind::Queue { .. }
            | ObservationKind::Changes(_)
            | ObservationKind::Repository(_)
            | ObservationKind::Pushed { .. }
            | ObservationKind::Sandbox { .. } => {}
        }
    }
}

/// Returns the note for the model at the place where its conversation was forked.
fn forked_text(ForkOrigin { checkpoint, .. }: &ForkOrigin) -> String {
    let files = match checkpoint.as_deref() {
        None => "The workspace was empty then".to_owned(),
        Some("now") => "The files may be newer than this conversation: read them again before you edit them".to_owned(),
        Some(checkpoint) => format!("The files are as they were at the checkpoint `{checkpoint}`"),
    };
    format!(
        "[The user forked this conversation here, into a new sandbox. {files}. Processes of earlier commands are gone, \
         as is everything outside of the workspace.]"
    )
}

fn add_text(conversation: &mut AgentConversation, text: String) {
    conversation.add_assistant_message(AssistantMessage { text, ..AssistantMessage::default() });
}

fn add_call(conversation: &mut AgentConversation, item: &str, action: &Action) {
    if item.is_empty() {
        return;
    }
    let (name, arguments) = match action {
        Action::Tool { name: Some(name), input, .. } => (name.as_str(), input.clone()),
        action => {
            let arguments =
                serde_json::to_value(action).ok().and_then(|mut value| value.get_mut("args").map(Value::take));
            (action.name(), arguments.unwrap_or_default())
        }
    };
    let call = ToolCallRequest { id: item.to_owned(), name: name.to_owned(), arguments, unusable: None };
    conversation.add_assistant_message(AssistantMessage { calls: vec![call], ..AssistantMessage::default() });
    if let Action::Finish { .. } = action {
        conversation.add_result(item, "The turn is over.".to_owned());
    }
}

/// Returns a result as text for the model.
fn model_text(observation: &Observation) -> String {
    let short = |text: &String| excerpt(text, RESULT_LIMIT).map_or_else(|| text.clone(), |cut| cut.text);
    let content = short(&observation.content);
    match &observation.kind {
        ObservationKind::Run { exit_code, signal, timed_out, .. } => {
            let shown = terminal_text::shown(&observation.content, RESULT_LIMIT);
            let end = match exit_code {
                _ if *timed_out => "[It was killed: it ran out of time.]".to_owned(),
                Some(code) => tools::exit_text(*code, signal.as_deref()),
                None => "[It was killed.]".to_owned(),
            };
            format!("{shown}\n{end}")
        }
        ObservationKind::Edit { diff, .. } => tools::numbered_lines(&short(diff)),
        ObservationKind::Error { code, detail } if call_approval::is_denied(code) => {
            call_approval::denied_text(&short(detail))
        }
        ObservationKind::Error { detail, .. } => short(detail),
        _ if content.is_empty() => observation.summary_line(),
        _ => content,
    }
}

#[cfg(test)]
mod tests {
    use greenroom_protocol::observation::EditKind;

    use super::*;
    use crate::turn::conversation::{ConversationEntry, UserInput};

    fn journal(lines: &[&str]) -> Vec<Event> {
        let event = |(index, line): (usize, &&str)| {
            let json = format!(r#"{{"seq":{},"at":"2026-01-01T00:00:00.000Z",{line}}}"#, index + 1);
            serde_json::from_str(&json).expect("an event")
        };
        lines.iter().enumerate().map(event).collect()
    }

    /// Compares the conversation in short form: `user: …`, `agent: … call(…)`, `result: …`.
    fn check(lines: &[&str], expected: &[&str]) {
        let short = |entry: ConversationEntry| match entry {
            ConversationEntry::User(input) => format!("user: {}", input.text),
            ConversationEntry::Assistant(message) => {
                let calls: Vec<String> =
                    message.calls.iter().map(|call| format!("{}#{}{}", call.name, call.id, call.arguments)).collect();
                format!("agent: {} {}", message.text, calls.join(" "))
            }
            ConversationEntry::Results { results, user } => {
                let results: Vec<String> =
                    results.iter().map(|result| format!("{}={}", result.id, result.text)).collect();
                format!("result: {} {}", results.join(" "), user.text)
            }
        };
        let (mut reader, mut conversation) = (HistoryReader::default(), AgentConversation::default());
        journal(lines).iter().for_each(|event| reader.read(event, &mut conversation));
        reader.flush_user_activity(&mut conversation);
        let text: Vec<String> = conversation.to_send().into_iter().map(short).collect();
        assert_eq!(text, expected);
    }

    const START: &str = r#""source":"user","action":"start","args":{"task":"do"}"#;
    const CHAT: &str = r#""source":"user","observation":"chat","extras":{},"content":"do""#;
    const RUN: &str = r#""source":"agent","item":"c1","action":"run","args":{"command":"ls"}"#;
    const RAN: &str = r#""source":"agent","item":"c1","observation":"run","extras":{"command":"ls","exit_code":0,"duration_ms":1},"content":"a""#;
    const MESSAGE: &str = r#""source":"agent","item":"m1","observation":"message","extras":{},"content":"Looking.""#;

    #[test]
    fn turn_with_tool_call() {
        check(
            &[START, CHAT, MESSAGE, RUN, RAN],
            &["user: do", r#"agent: Looking. run#c1{"command":"ls"}"#, "result: c1=a\n[Exit code 0.] "],
        );
    }

    #[test]
    fn fork_is_noted_once_with_its_files() {
        let forked = |extras: &str| {
            format!(r#""source":"server","observation":"forked","extras":{{"from":"s","at":3{extras}}},"content":"""#)
        };
        let unanswered = r#""source":"user","item":"a1","action":"run","args":{"command":"ls"}"#;
        for (extras, files) in [
            ("", "The workspace was empty then"),
            (r#","checkpoint":"turn-1""#, "The files are as they were at the checkpoint `turn-1`"),
            (
                r#","checkpoint":"now""#,
                "The files may be newer than this conversation: read them again before you edit them",
            ),
        ] {
            let note = format!(
                "user: [The user forked this conversation here, into a new sandbox. {files}. Processes of earlier \
                 commands are gone, as is everything outside of the workspace.]\n\ndo"
            );
            check(&[CHAT, MESSAGE, unanswered, &forked(extras), CHAT], &["user: do", "agent: Looking. ", &note]);
        }
    }

    #[test]
    fn generic_tool_call_reads_as_its_own_tool() {
        let call = r#""source":"agent","item":"c1","action":"tool","args":{"kind":"search","title":"Search","name":"search","input":{"pattern":"x"}}"#;
        let result = r#""source":"agent","item":"c1","observation":"tool","extras":{"kind":"search","title":"Search","name":"search","status":"completed"},"content":"a:1:x""#;
        check(&[CHAT, call, result], &["user: do", r#"agent:  search#c1{"pattern":"x"}"#, "result: c1=a:1:x "]);
    }

    #[test]
    fn changed_plan_is_read_once() {
        let plan = |source: &str, content: &str| {
            format!(
                r#""source":"{source}","observation":"plan","extras":{{"path":"p.md","items":[]}},"content":"{content}""#
            )
        };
        let changed = "[The plan in `p.md` was changed, by the user or by a command. The plan is now:]";
        check(
            &[CHAT, MESSAGE, &plan("user", "- [x] a"), &plan("agent", "- [x] a"), CHAT],
            &["user: do", "agent: Looking. ", &format!("user: {changed}\n- [x] a\n\ndo")],
        );
    }

    #[test]
    fn denied_and_changed_calls_read_as_such() {
        let denied = r#""source":"agent","item":"c1","observation":"error","extras":{"code":"denied","detail":"not here"},"content":"""#;
        let call = r#"agent:  run#c1{"command":"ls"}"#;
        check(&[CHAT, RUN, denied], &["user: do", call, "result: c1=This call was denied and did not run: not here "]);
        let asked = r#""source":"agent","item":"c1","observation":"confirm","extras":{"request":"r","action":"ls","options":["allow","deny"]},"content":"""#;
        let changed = r#""source":"user","action":"confirm","args":{"request":"r","decision":"allow","input":{"command":"ls -l"}}"#;
        let note = r#"[The user changed this call before it ran. Its arguments were: {"command":"ls -l"}]"#;
        check(
            &[CHAT, RUN, asked, changed, RAN],
            &["user: do", call, &format!("result: c1={note}\na\n[Exit code 0.] ")],
        );
    }

    #[test]
    fn call_without_result_reads_as_interrupted() {
        check(
            &[CHAT, RUN, CHAT],
            &["user: do", r#"agent:  run#c1{"command":"ls"}"#, "result: c1=[Interrupted before it had a result.] do"],
        );
    }

    #[test]
    fn long_result_keeps_head_and_tail_for_model() {
        let diff = format!("BEGIN{}END", "x".repeat(RESULT_LIMIT));
        for observation in [
            ObservationKind::Edit {
                path: "a".into(),
                line: 1,
                change: EditKind::Delete,
                lines: Vec::new(),
                diff: diff.clone(),
            },
            ObservationKind::Error { code: "c".into(), detail: diff.clone() },
        ] {
            let text = model_text(&Observation { kind: observation, content: String::new() });
            assert!(text.starts_with("BEGIN") && text.trim_end().ends_with("END") && text.len() < RESULT_LIMIT + 100);
        }
    }

    #[test]
    fn only_user_interrupted_partial_answers_are_kept() {
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
    fn duplicate_call_ids_of_a_journal_are_made_unique() {
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
    fn user_action_reaches_model() {
        check(
            &[r#""source":"user","item":"a1","action":"run","args":{"command":"ls"}"#, &RAN.replace("c1", "a1"), CHAT],
            &["user: [The user did this in the sandbox: Running command: ls]\na\n[Exit code 0.]\n\ndo"],
        );
    }

    #[test]
    fn restore_reaches_model() {
        let checkpoint = |kind: &str| {
            format!(
                r#""source":"server","observation":"checkpoint","extras":{{"checkpoint":"c","kind":"{kind}","of":"turn-1","files":1,"bytes":1}},"content":"""#
            )
        };
        let note = "[The user put files of the workspace back to checkpoint `turn-1`. Files may differ from what you \
                    have read or written: read a file again before you change it.]";
        check(
            &[CHAT, MESSAGE, &checkpoint("turn"), &checkpoint("before_restore"), &checkpoint("restore"), CHAT],
            &["user: do", "agent: Looking. ", &format!("user: {note}\n\ndo")],
        );
    }

    #[test]
    fn user_action_during_call_keeps_its_result() {
        let action = r#""source":"user","item":"a1","action":"run","args":{"command":"ls"}"#;
        check(
            &[CHAT, RUN, action, &RAN.replace("c1", "a1"), RAN],
            &[
                "user: do",
                r#"agent:  run#c1{"command":"ls"}"#,
                "result: c1=a\n[Exit code 0.] [The user did this in the sandbox: Running command: ls]\na\n[Exit code 0.]",
            ],
        );
    }

    #[test]
    fn newest_of_many_user_actions_are_kept() {
        let actions = (0..2000).flat_map(|n| {
            let action = format!(r#""source":"user","item":"a{n}","action":"run","args":{{"command":"echo {n}"}}"#);
            [action, RAN.replace("c1", &format!("a{n}"))]
        });
        let actions: Vec<String> = actions.collect();
        let lines: Vec<&str> = actions.iter().map(String::as_str).collect();
        let (mut reader, mut conversation) = (HistoryReader::default(), AgentConversation::default());
        journal(&lines).iter().for_each(|event| reader.read(event, &mut conversation));
        reader.flush_user_activity(&mut conversation);
        let Some(ConversationEntry::User(UserInput { text, .. })) = conversation.to_send().pop() else {
            panic!("the last entry is the user's")
        };
        assert!(text.len() < 70 << 10 && text.starts_with("[Before this the user did"), "{}", text.len());
        assert!(text.contains("echo 1999]") && !text.contains("echo 0]"));
    }
}
