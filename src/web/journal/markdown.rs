//! A session as a page to read: what was said and done, without the machinery.

use serde_json::Value;

use crate::store::Record;

pub(super) fn head(record: &Record) -> String {
    format!(
        "# {}\n\nSession `{}`, agent {}, model {}, begun {}.\n",
        one_line(&record.title),
        record.id,
        one_line(&record.agent),
        one_line(&record.model),
        record.created_at
    )
}

/// One event, or nothing where it says nothing to a reader.
pub(super) fn event(json: &[u8]) -> String {
    let Ok(event) = serde_json::from_slice::<Value>(json) else { return String::new() };
    let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let said = |who: &str, text: &str| format!("\n## {who}\n\n{text}\n");
    match (text("/action"), text("/observation")) {
        ("start", _) => said("User", text("/args/task")),
        ("message", _) => said("User", text("/args/content")),
        (_, "message") => said("Agent", text("/content")),
        (_, "think") => format!("\n> {}\n", text("/content").replace('\n', "\n> ")),
        (_, "run") => {
            let code = event.pointer("/extras/exit_code").map(|code| format!(" (exit code {code})")).unwrap_or_default();
            format!("\nRan{code}:\n{}{}", fenced("sh", text("/extras/command")), fenced("", text("/content")))
        }
        (_, "edit") => format!("\nEdited `{}`:\n{}", text("/extras/path"), fenced("diff", text("/extras/diff"))),
        (_, "write") => format!("\nWrote `{}`.\n", text("/extras/path")),
        (_, "plan") => said("Plan", text("/content")),
        (_, "interrupted") => format!("\n*{}*\n", text("/message")),
        (_, "error") => format!("\n**Error:** {}\n", text("/extras/detail")),
        _ => String::new(),
    }
}

/// A block that holds `text` whatever backticks are in it.
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
        assert_eq!(event(json.as_bytes()), expected, "{json}");
    }

    #[test]
    fn events() {
        check(r#"{"action":"start","args":{"task":"go"}}"#, "\n## User\n\ngo\n");
        check(r#"{"observation":"message","content":"done"}"#, "\n## Agent\n\ndone\n");
        check(r#"{"observation":"think","content":"a\nb"}"#, "\n> a\n> b\n");
        check(
            r#"{"observation":"run","extras":{"command":"ls","exit_code":0},"content":"a\n"}"#,
            "\nRan (exit code 0):\n\n```sh\nls\n```\n\n```\na\n```\n",
        );
        check(r#"{"observation":"usage"}"#, "");
        check("no json", "");
    }

    #[test]
    fn output_cannot_break_out_of_its_block() {
        assert_eq!(fenced("", "```\n# x"), "\n````\n```\n# x\n````\n");
    }
}
