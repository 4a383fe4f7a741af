//! Markdown export of a session: the messages and the agent's work, without technical events.

use serde_json::Value;

use crate::store::SessionRecord;

/// Converts a session's events in their order.
///
/// A user's message appears at the position and in the form in which the agent received it. A
/// queued message may have been changed or withdrawn before. Messages that the agent never received
/// follow at the end.
#[derive(Default)]
pub(super) struct MarkdownExport {
    undelivered: Vec<UndeliveredMessage>,
}

/// Message that the agent has not received so far.
struct UndeliveredMessage {
    item: String,
    content: String,
    /// True once the queue has contained the message. A later queue without the message withdraws
    /// it.
    queued: bool,
}

/// Returns the title and the facts of the session.
pub(super) fn head(record: &SessionRecord) -> String {
    format!(
        "# {}\n\nSession `{}`, agent {}, model {}, started {}.\n",
        one_line(&record.title),
        record.id,
        one_line(&record.agent),
        one_line(&record.model),
        record.created_at
    )
}

impl MarkdownExport {
    /// Converts one event. Returns an empty string if the event has nothing for a reader.
    pub(super) fn event(&mut self, json: &[u8]) -> String {
        let Ok(event) = serde_json::from_slice::<Value>(json) else { return String::new() };
        let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default();
        match (text("/action"), text("/observation")) {
            ("start", _) => self.add_undelivered(text("/item"), text("/args/task")),
            ("message", _) => self.add_undelivered(text("/item"), text("/args/content")),
            ("end", _) => self.queue_cleared(),
            (_, "queue") => self.update_queue(event.pointer("/extras/items").and_then(Value::as_array)),
            (_, "chat") => {
                self.undelivered.retain(|message| message.item != text("/item"));
                section("User", text("/content"))
            }
            (_, "message") => section("Agent", text("/content")),
            (_, "think") => format!("\n> {}\n", text("/content").replace('\n', "\n> ")),
            (_, "run") => {
                let signal = Some(text("/extras/signal")).filter(|signal| !signal.is_empty());
                let code = event.pointer("/extras/exit_code").map(|code| match signal {
                    Some(signal) => format!(" (exit code {code}, {})", one_line(signal)),
                    None => format!(" (exit code {code})"),
                });
                let code = code.unwrap_or_default();
                format!("\nRan{code}:\n{}{}", fenced("sh", text("/extras/command")), fenced("", text("/content")))
            }
            (_, "edit") => format!("\nEdited `{}`:\n{}", text("/extras/path"), fenced("diff", text("/extras/diff"))),
            (_, "write") => format!("\nWrote `{}`.\n", text("/extras/path")),
            (_, "plan") => section("Plan", text("/content")),
            (_, "interrupted") => format!("\n*{}*\n", text("/message")),
            // Tool call that the model did not finish. The agent asks the model again.
            (_, "error") if text("/extras/code") == "cut" && event.get("cause").is_none() => String::new(),
            (_, "error") => format!("\n**Error:** {}\n", text("/extras/detail")),
            _ => String::new(),
        }
    }

    /// Keeps queued messages as undelivered. The end of a session empties the queue without
    /// withdrawing messages.
    fn queue_cleared(&mut self) -> String {
        self.undelivered.iter_mut().for_each(|message| message.queued = false);
        String::new()
    }

    /// Returns the messages that the agent has not received by the end.
    pub(super) fn end(&self) -> String {
        self.undelivered.iter().map(|message| section("User (not given to the agent)", &message.content)).collect()
    }

    fn add_undelivered(&mut self, item: &str, content: &str) -> String {
        self.undelivered.push(UndeliveredMessage { item: item.to_owned(), content: content.to_owned(), queued: false });
        String::new()
    }

    fn update_queue(&mut self, items: Option<&Vec<Value>>) -> String {
        let content = |item: &str| {
            let found = items?.iter().find(|queued| queued["item"] == item)?;
            found["content"].as_str().map(str::to_owned)
        };
        self.undelivered.retain_mut(|message| match content(&message.item) {
            Some(content) => {
                message.content = content;
                message.queued = true;
                true
            }
            // A steering message is in no queue.
            None => !message.queued,
        });
        String::new()
    }
}

fn section(heading: &str, text: &str) -> String {
    format!("\n## {heading}\n\n{text}\n")
}

/// Returns a code block around `text`, with a fence longer than any run of backticks in it.
fn fenced(language: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("\n{fence}{language}\n{text}{end}{fence}\n")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expected: &str) {
        assert_eq!(MarkdownExport::default().event(json.as_bytes()), expected, "{json}");
    }

    #[test]
    fn events_become_markdown() {
        check(r#"{"observation":"chat","item":"message-1","content":"go"}"#, "\n## User\n\ngo\n");
        check(r#"{"observation":"message","content":"done"}"#, "\n## Agent\n\ndone\n");
        check(r#"{"observation":"think","content":"a\nb"}"#, "\n> a\n> b\n");
        check(
            r#"{"observation":"run","extras":{"command":"ls","exit_code":0},"content":"a\n"}"#,
            "\nRan (exit code 0):\n\n```sh\nls\n```\n\n```\na\n```\n",
        );
        check(
            r#"{"observation":"run","extras":{"command":"x","exit_code":139,"signal":"SIGSEGV"},"content":""}"#,
            "\nRan (exit code 139, SIGSEGV):\n\n```sh\nx\n```\n\n```\n```\n",
        );
        check(r#"{"observation":"error","extras":{"code":"model_error","detail":"no"}}"#, "\n**Error:** no\n");
        check(r#"{"observation":"error","item":"c1","extras":{"code":"cut","detail":"no"}}"#, "");
        check(r#"{"observation":"usage"}"#, "");
        check("no json", "");
    }

    #[test]
    fn messages_appear_as_the_agent_received_them() {
        let mut export = MarkdownExport::default();
        let queue = |items: &str| format!(r#"{{"observation":"queue","extras":{{"items":[{items}]}}}}"#);
        let message =
            |n: u8| format!(r#"{{"action":"message","item":"message-{n}","args":{{"content":"typed {n}"}}}}"#);
        let item = |n: u8, content: &str| format!(r#"{{"item":"message-{n}","content":"{content}"}}"#);
        let events = [
            r#"{"action":"start","item":"message-1","args":{"task":"go"}}"#.to_owned(),
            r#"{"observation":"chat","item":"message-1","content":"go"}"#.to_owned(),
            message(2),
            queue(&item(2, "typed 2")),
            message(3),
            queue(&format!("{},{}", item(2, "typed 2"), item(3, "typed 3"))),
            message(4),
            queue(&format!("{},{}", item(2, "changed"), item(3, "typed 3"))),
            queue(&item(2, "changed")),
            r#"{"observation":"chat","item":"message-2","content":"changed"}"#.to_owned(),
            message(5),
            queue(&item(5, "typed 5")),
        ];
        let page: String = events.iter().map(|event| export.event(event.as_bytes())).collect();
        assert_eq!(page, "\n## User\n\ngo\n\n## User\n\nchanged\n");
        let heading = "User (not given to the agent)";
        let expected = format!("\n## {heading}\n\ntyped 4\n\n## {heading}\n\ntyped 5\n");
        assert_eq!(export.end(), expected);
        for last in [r#"{"action":"end"}"#.to_owned(), queue("")] {
            assert_eq!(export.event(last.as_bytes()), "");
        }
        assert_eq!(export.end(), expected, "the messages were not withdrawn");
    }

    #[test]
    fn fence_is_longer_than_the_backticks_in_the_text() {
        assert_eq!(fenced("", "```\n# x"), "\n````\n```\n# x\n````\n");
    }
}
