//! Descriptions of the tools for a model.

use serde_json::{Value, json};

/// Description of a tool for a model.
#[derive(Debug, Clone)]
pub struct ToolSchema {
    pub name: &'static str,
    /// Purpose and use, in words for the model.
    pub about: &'static str,
    /// JSON schema of the arguments.
    pub arguments: Value,
}

/// Returns every tool, in the order in which a model sees them.
pub fn all() -> Vec<ToolSchema> {
    let text = |about: &str| json!({ "type": "string", "description": about });
    let number = |about: &str| json!({ "type": "integer", "description": about });
    let path = text("Relative to the working directory, or absolute.");
    let tool = |name, about, required: &[&str], properties: Value| {
        let arguments = json!({ "type": "object", "properties": properties, "required": required });
        ToolSchema { name, about, arguments }
    };
    vec![
        tool(
            "run",
            "Run a shell command in the working directory. Its stdout and stderr come back together, with the exit code. \
             It has no terminal and no stdin. Start what must go on running in the background with `&`.",
            &["command"],
            json!({ "command": text("The command line.") }),
        ),
        tool(
            "read",
            "Read a text file. It comes back with line numbers. Of a long file the middle is left out; use `run` with \
             `sed -n 200,300p file` for a part of it.",
            &["path"],
            json!({ "path": path }),
        ),
        tool(
            "write",
            "Write a whole file; directories are made as needed. To change part of a file, use `edit`.",
            &["path", "content"],
            json!({ "path": path, "content": text("All of the file.") }),
        ),
        tool(
            "edit",
            "Change part of a file. Say where by `old`, a text that occurs exactly once in the file, or by `line` (from 1), \
             not both. REPLACE puts `lines` in place of `old`, or of lines `line` to `end_line`. INSERT puts `lines` before \
             `line` (one past the last line appends), or after `old`. DELETE removes `old`, or lines `line` to `end_line`.",
            &["path", "change"],
            json!({
                "path": path,
                "change": { "type": "string", "enum": ["REPLACE", "INSERT", "DELETE"] },
                "old": text("The text to find, exactly as it stands in the file."),
                "line": number("The first line."),
                "end_line": number("The last line; `line` where it is absent."),
                "lines": { "type": "array", "items": { "type": "string" }, "description": "The new lines, without line ends." },
            }),
        ),
        tool(
            "browse",
            "Fetch a web page and get it as text. Most sandboxes have no network; the answer says so then.",
            &["url"],
            json!({ "url": text("An http or https address.") }),
        ),
        tool(
            "think",
            "Write down a thought before a difficult step. Nothing else happens.",
            &["content"],
            json!({ "content": text("The thought.") }),
        ),
        tool(
            "plan",
            "Write or replace your plan, as markdown with one checkbox for each step (`- [ ] step`, `- [x] step`). The user \
             sees it. Use it for work of several steps, and keep it up to date.",
            &["content"],
            json!({ "content": text("All of the plan.") }),
        ),
        tool(
            "finish",
            "Say that the task is done, or that it cannot be done and why. Ends your turn.",
            &["message"],
            json!({ "message": text("What you did and how you checked it, in a few sentences.") }),
        ),
    ]
}

/// Returns the fields of a tool, for an error message.
pub(super) fn fields(name: &str) -> String {
    let properties = all().into_iter().find(|tool| tool.name == name).map(|tool| tool.arguments);
    let names = properties.as_ref().and_then(|arguments| arguments["properties"].as_object());
    let names = names.into_iter().flatten().map(|(name, _)| format!("`{name}`"));
    names.collect::<Vec<_>>().join(", ")
}
