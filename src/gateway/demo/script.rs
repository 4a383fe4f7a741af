//! Script of the demo model: selects the next step. Pure.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::conversation::DemoConversation;
use crate::gateway::question::COMMIT_MESSAGE_REQUEST;

/// Speed of `slow: N`, whatever the demo's own speed. The command exists to be interrupted.
const SLOW_TOKENS_PER_SECOND: u32 = 20;

/// Limit of words that `slow: N` sends.
const MAX_SLOW_WORDS: usize = 10_000;

/// Limit of a repeated tool result, characters.
const MAX_RESULT_CHARS: usize = 4_000;

/// Response of the model: its thinking, its text and its tool call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DemoStep {
    pub(super) think: String,
    pub(super) say: String,
    /// Name of the tool. Empty: no call, which ends the turn.
    pub(super) tool: String,
    pub(super) input: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DemoScript {
    task: Vec<DemoStep>,
    follow_up: Vec<DemoStep>,
    run: Vec<DemoStep>,
    /// Task of an agent that offers only a tool of its own, which runs commands.
    command_task: Vec<DemoStep>,
    no_tools: Vec<DemoStep>,
    /// After a call that was denied.
    denied: Vec<DemoStep>,
    over: Vec<DemoStep>,
}

static SCRIPT: LazyLock<DemoScript> = LazyLock::new(|| {
    toml::from_str(include_str!("script.toml")).expect("the compiled-in script is valid: a test parses it")
});

/// Returns the next step, and its own speed in tokens per second, if any.
pub(super) fn next_step(conversation: &DemoConversation) -> (DemoStep, Option<u32>) {
    if let Some(count) = command_argument(&conversation.task, "slow:").and_then(|count| count.trim().parse().ok()) {
        return (slow_step(count), Some(SLOW_TOKENS_PER_SECOND));
    }
    if conversation.task.starts_with(COMMIT_MESSAGE_REQUEST) {
        return (commit_step(&conversation.task), None);
    }
    let offers = |tool: &str| conversation.tools.iter().any(|offered| offered.name == tool);
    let command = command_argument(&conversation.task, "run:").map(str::trim);
    let has_own_tools = offers("run") && offers("write");
    let command_tool = conversation.tools.iter().find(|tool| !has_own_tools && tool.runs_commands());
    let scene = match command {
        _ if !has_own_tools && command_tool.is_none() => &SCRIPT.no_tools,
        Some(_) => &SCRIPT.run,
        None if conversation.tasks > 1 => &SCRIPT.follow_up,
        None if command_tool.is_some() => &SCRIPT.command_task,
        None => &SCRIPT.task,
    };
    let (scene, at) = if conversation.is_denied() {
        (&SCRIPT.denied, conversation.steps_since_result)
    } else {
        (scene, conversation.steps)
    };
    // Plan steps are skipped if the agent offers no plan tool. A final step is then only text.
    let mut steps = scene.iter().filter(|step| step.tool != "plan" || offers("plan"));
    let step = steps.nth(at).unwrap_or(&SCRIPT.over[0]);
    let mut step = fill_step(step, &Placeholders::from_conversation(conversation, command));
    match command_tool {
        Some(tool) if step.tool == "run" => {
            step.input = tool.input_for(step.input["command"].as_str().unwrap_or_default());
            step.tool = tool.name.clone();
        }
        _ if !offers(&step.tool) => step.tool.clear(),
        _ => {}
    }
    (step, None)
}

/// Returns the text after the command `word`. The command may also follow a message that was
/// stopped before its response, because an agent sends both as one text.
fn command_argument<'a>(task: &'a str, word: &str) -> Option<&'a str> {
    task.strip_prefix(word).or_else(|| task.rsplit_once("\n\n")?.1.strip_prefix(word))
}

fn slow_step(count: usize) -> DemoStep {
    let words = (1..=count.clamp(1, MAX_SLOW_WORDS)).map(|n| format!("{n} ")).collect();
    DemoStep { say: words, ..DemoStep::default() }
}

/// Answers a question for a commit message, from its list of changed files.
fn commit_step(question: &str) -> DemoStep {
    let listed = question.split_once("Changed files:\n").map_or("", |(_, rest)| rest);
    let files: Vec<&str> = listed.lines().take_while(|line| !line.is_empty()).collect();
    let first = files.first().map_or("files", |line| line.split_once(' ').map_or(*line, |(_, path)| path));
    let say = match files.len() {
        0 | 1 => format!("Change {first}"),
        count => format!("Change {first} and {} more", count - 1),
    };
    DemoStep { say, ..DemoStep::default() }
}

/// Values of the script's placeholders.
struct Placeholders {
    task: String,
    file: String,
    word: String,
    program: String,
    command: String,
    result: String,
}

impl Placeholders {
    fn from_conversation(conversation: &DemoConversation, command: Option<&str>) -> Placeholders {
        let task = &conversation.task;
        let file = file_in(task).unwrap_or("hello.sh").to_owned();
        let word = word_in(task).unwrap_or("hello").to_owned();
        let (interpreter, program) = if file.ends_with(".py") {
            ("python3", format!("print({})\n", serde_json::Value::from(word.as_str())))
        } else {
            ("sh", format!("#!/bin/sh\necho '{}'\n", word.replace('\'', r"'\''")))
        };
        let command = command.map_or_else(|| format!("{interpreter} {file}"), str::to_owned);
        let result = shortened(conversation.result.trim_end(), MAX_RESULT_CHARS);
        Placeholders { task: shortened(task, 200), file, word, program, command, result }
    }

    fn get(&self, name: &str) -> Option<&str> {
        match name {
            "task" => Some(&self.task),
            "file" => Some(&self.file),
            "word" => Some(&self.word),
            "program" => Some(&self.program),
            "command" => Some(&self.command),
            "result" => Some(&self.result),
            _ => None,
        }
    }
}

fn fill_step(step: &DemoStep, placeholders: &Placeholders) -> DemoStep {
    DemoStep {
        think: fill_placeholders(step.think.trim(), placeholders),
        say: fill_placeholders(step.say.trim(), placeholders),
        tool: step.tool.clone(),
        input: step.input.iter().map(|(name, value)| (name.clone(), fill_value(value, placeholders))).collect(),
    }
}

fn fill_value(value: &Value, placeholders: &Placeholders) -> Value {
    value.as_str().map_or_else(|| value.clone(), |text| fill_placeholders(text, placeholders).into())
}

/// Replaces all placeholders in one pass, so that a placeholder in the user's own text stays
/// unchanged.
fn fill_placeholders(text: &str, placeholders: &Placeholders) -> String {
    let mut parts = text.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('}').and_then(|(name, rest)| Some((placeholders.get(name)?, rest))) {
            Some((word, rest)) => filled.extend([word, rest]),
            None => filled.extend(["{", part]),
        }
    }
    filled
}

/// Finds a file name in the task, of a kind that the script can write.
fn file_in(task: &str) -> Option<&str> {
    task.split(|c: char| c.is_whitespace() || "\"'`,;:()".contains(c))
        .map(|word| word.trim_end_matches(['.', '?', '!']))
        .find(|word| (word.ends_with(".sh") || word.ends_with(".py")) && word.len() > 3 && is_plain(word))
}

fn is_plain(name: &str) -> bool {
    !name.starts_with('-') && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

/// Finds the text to print: the quoted text after the verb, or else the word after it.
fn word_in(task: &str) -> Option<&str> {
    let rest = ["prints ", "print ", "says ", "say ", "echoes ", "echo "].iter().find_map(|verb| {
        let at = task.find(verb)?;
        Some(task[at + verb.len()..].trim_start())
    })?;
    let quote = rest.chars().next().filter(|c| "\"'`".contains(*c));
    let word = match quote {
        Some(quote) => rest[1..].split(quote).next(),
        None => rest.split(|c: char| c.is_whitespace() || ".,;:!?".contains(c)).next(),
    };
    word.filter(|word| !word.is_empty() && !word.contains('\n'))
}

fn shortened(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gateway::{demo::tool::DemoTool, route::GatewayRoute};

    const TOOLS: [&str; 4] = ["plan", "write", "run", "finish"];

    fn at(task: &str, tasks: usize, steps: usize, result: &str, tools: &[&str]) -> DemoStep {
        let tools = tools.iter().map(|tool| json!({"name": tool, "input_schema": {"properties": {"command": {}}}}));
        let tools = DemoTool::offered(GatewayRoute::Messages, &tools.collect());
        let (task, result) = (task.into(), result.into());
        let conversation = DemoConversation { task, tasks, steps, result, steps_since_result: 0, tools };
        next_step(&conversation).0
    }

    fn check(task: &str, tasks: usize, expected: &[(&str, &str, &str)]) {
        for (steps, &(tool, input, value)) in expected.iter().enumerate() {
            let step = at(task, tasks, steps, "the output", &TOOLS);
            assert_eq!(step.tool, tool, "{task}, step {steps}");
            assert_eq!(
                step.input.get(input).map_or("", |value| value.as_str().unwrap_or_default()),
                value,
                "{task}, step {steps}"
            );
        }
    }

    #[test]
    fn tasks_and_commands_play_their_steps() {
        check(
            "write a bash script that prints hello",
            1,
            &[
                ("plan", "content", "- [ ] Write `hello.sh`\n- [ ] Run it\n- [ ] Report the output\n"),
                ("write", "content", "#!/bin/sh\necho 'hello'\n"),
                ("run", "command", "sh hello.sh"),
                ("plan", "content", "- [x] Write `hello.sh`\n- [x] Run it\n- [x] Report the output\n"),
                ("finish", "message", "Wrote `hello.sh` and ran it with `sh hello.sh`. (Played by the demo model.)"),
                ("", "", ""),
            ],
        );
        check(
            r#"Write greet.py that prints "it's {word}"."#,
            1,
            &[
                ("plan", "content", "- [ ] Write `greet.py`\n- [ ] Run it\n- [ ] Report the output\n"),
                ("write", "content", "print(\"it's {word}\")\n"),
                ("run", "command", "python3 greet.py"),
            ],
        );
        check("print 'a b' with x.sh", 1, &[("plan", "", ""), ("write", "content", "#!/bin/sh\necho 'a b'\n")]);
        check("print \"don't\"", 1, &[("plan", "", ""), ("write", "content", "#!/bin/sh\necho 'don'\\''t'\n")]);
        check("run: sleep 9 | cat {file}", 1, &[("run", "command", "sleep 9 | cat {file}"), ("finish", "", "")]);
        check("run: id", 2, &[("run", "command", "id"), ("finish", "", "")]);
        check("be brief\n\nrun: id", 2, &[("run", "command", "id"), ("finish", "", "")]);
        check("and now?", 2, &[("run", "command", "ls -l"), ("finish", "", ""), ("", "", "")]);
        check("slow: 3", 1, &[("", "", "")]);
    }

    #[test]
    fn text_names_the_demo_and_repeats_the_result() {
        assert!(at("x", 1, 0, "", &TOOLS).say.contains("demo model"));
        assert!(at("x", 1, 4, "exit 7\n", &TOOLS).say.contains("```\nexit 7\n```"));
        assert!(at("run: x", 1, 1, "{task}", &TOOLS).say.contains("```\n{task}\n```"));
        assert_eq!(at("slow: 3", 1, 0, "", &[]).say, "1 2 3 ");
    }

    #[test]
    fn commit_message_names_the_changed_files() {
        let say = |files: &str| {
            let question = format!("{COMMIT_MESSAGE_REQUEST}\n\n```\nChanged files:\n{files}\nPatch:\n```");
            at(&question, 1, 0, "", &[]).say
        };
        assert_eq!(say("added a b.txt\n"), "Change a b.txt");
        assert_eq!(say("modified x\nremoved y\nadded z\n"), "Change x and 2 more");
    }

    #[test]
    fn denied_call_ends_with_a_plan() {
        let tools = DemoTool::offered(
            GatewayRoute::Messages,
            &json!([{"name": "run"}, {"name": "write"}, {"name": "plan"}, {"name": "finish"}]),
        );
        let step = |steps_since_result| {
            let (task, result) = ("run: id".into(), "This call was denied and did not run: plan mode".into());
            next_step(&DemoConversation { task, tasks: 1, steps: 3, result, steps_since_result, tools: tools.clone() })
                .0
        };
        let (plan, end, over) = (step(0), step(1), step(2));
        assert!(plan.tool == "plan" && plan.say.contains("did not run: plan mode"), "{plan:?}");
        assert_eq!(
            plan.input["content"],
            "- [ ] Get the call allowed\n- [ ] Continue with: run: id\n- [ ] Report the output\n"
        );
        assert_eq!((end.tool.as_str(), over.tool.as_str()), ("finish", ""));
    }

    #[test]
    fn only_offered_tools_are_called() {
        let step = at("x", 1, 0, "", &["search"]);
        assert!(step.tool.is_empty() && step.say.contains("no tool that runs a command"), "{step:?}");
        assert_eq!(at("x", 1, 0, "", &["write", "run"]).tool, "write");
        let foreign = at("write hi.sh that prints ho", 1, 0, "", &["read", "Bash", "shell"]);
        let command = "cat > hi.sh <<'END_OF_PROGRAM'\n#!/bin/sh\necho 'ho'\nEND_OF_PROGRAM\nsh hi.sh";
        assert_eq!((foreign.tool.as_str(), foreign.input["command"].as_str()), ("Bash", Some(command)));
        let end = at("write hi.sh that prints ho", 1, 1, "ho\n", &["Bash"]);
        assert!(end.tool.is_empty() && end.say.contains("```\nho\n```"), "{end:?}");
        let asked = at("run: id", 2, 0, "", &["Bash"]);
        assert_eq!((asked.tool.as_str(), asked.input["command"].as_str()), ("Bash", Some("id")));
        assert_eq!(at("x", 1, 2, "", &["write", "run"]).tool, "");
    }
}
