//! Tools that an agent offers to the demo model. Any agent has a tool that runs a command.

use serde_json::{Map, Value, json};

use super::conversation::items;
use crate::gateway::route::GatewayRoute;

/// Parts of a name that stand for a tool which runs commands.
const COMMAND_TOOL_NAMES: [&str; 5] = ["bash", "shell", "run", "exec", "terminal"];

/// Fields that hold the command of such a tool.
const COMMAND_FIELDS: [&str; 2] = ["command", "cmd"];

/// Offered tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DemoTool {
    pub(super) name: String,
    /// JSON schema of the input.
    pub(super) schema: Value,
}

impl DemoTool {
    /// Reads the tools of a request.
    pub(super) fn offered(route: GatewayRoute, tools: &Value) -> Vec<DemoTool> {
        let tool = |function: &Value, schema: &str| {
            let name = function["name"].as_str()?.to_owned();
            Some(DemoTool { name, schema: function[schema].clone() })
        };
        let read = |entry: &Value| -> Vec<DemoTool> {
            match route {
                GatewayRoute::Chat => tool(&entry["function"], "parameters").into_iter().collect(),
                GatewayRoute::Responses => tool(entry, "parameters").into_iter().collect(),
                GatewayRoute::GeminiGenerate | GatewayRoute::GeminiStream => {
                    let functions = items(&entry["functionDeclarations"]).iter();
                    let schema = |function: &Value| match function["parametersJsonSchema"].is_object() {
                        true => "parametersJsonSchema",
                        false => "parameters",
                    };
                    functions.filter_map(|function| tool(function, schema(function))).collect()
                }
                _ => tool(entry, "input_schema").into_iter().collect(),
            }
        };
        items(tools).iter().flat_map(read).collect()
    }

    /// Returns true if the tool runs a command, as far as its name and its input show.
    pub(super) fn runs_commands(&self) -> bool {
        let name = self.name.to_lowercase();
        COMMAND_TOOL_NAMES.iter().any(|part| name.contains(part)) && self.command_field().is_some()
    }

    fn command_field(&self) -> Option<&'static str> {
        COMMAND_FIELDS.into_iter().find(|field| self.schema["properties"][field].is_object())
    }

    /// Returns an input that runs `command`. Other required fields get plain values.
    pub(super) fn input_for(&self, command: &str) -> Map<String, Value> {
        let field = self.command_field().unwrap_or(COMMAND_FIELDS[0]);
        let properties = &self.schema["properties"];
        let mut input = Map::new();
        let command = match is_type(&properties[field], "array") {
            true => json!(["sh", "-c", command]),
            false => json!(command),
        };
        input.insert(field.to_owned(), command);
        for name in items(&self.schema["required"]).iter().filter_map(Value::as_str) {
            let property = &properties[name];
            let plain = match property {
                _ if !items(&property["enum"]).is_empty() => property["enum"][0].clone(),
                _ if is_type(property, "boolean") => json!(false),
                _ if is_type(property, "array") => json!([]),
                _ if is_type(property, "object") => json!({}),
                _ if is_type(property, "integer") || is_type(property, "number") => {
                    property.get("minimum").cloned().unwrap_or(json!(60_000))
                }
                _ => json!("Step of the demo model"),
            };
            input.entry(name).or_insert(plain);
        }
        input
    }
}

/// Returns true if a schema has the type `kind`. Google writes types in capitals.
fn is_type(schema: &Value, kind: &str) -> bool {
    let is_kind = |value: &Value| value.as_str().is_some_and(|text| text.eq_ignore_ascii_case(kind));
    is_kind(&schema["type"]) || items(&schema["type"]).iter().any(is_kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_tools_of_agents_are_recognized() {
        let check = |name: &str, schema: Value, expected: Option<Value>| {
            let tool = DemoTool { name: name.to_owned(), schema };
            let input = tool.runs_commands().then(|| Value::Object(tool.input_for("ls")));
            assert_eq!(input, expected, "{name}");
        };
        let text = json!({"type": "string"});
        let command =
            |required: Value| json!({"properties": {"command": text, "description": text}, "required": required});
        // Claude Code, opencode, Gemini CLI and Qwen Code, both tools of Codex, goose.
        check("Bash", command(json!(["command"])), Some(json!({"command": "ls"})));
        let described = json!({"command": "ls", "description": "Step of the demo model"});
        check("bash", command(json!(["command", "description"])), Some(described));
        let schema = json!({"properties": {"command": {"type": "STRING"}, "is_background": {"type": "BOOLEAN"}}, "required": ["command", "is_background"]});
        check("run_shell_command", schema, Some(json!({"command": "ls", "is_background": false})));
        let list = json!({"properties": {"command": {"type": "array"}}, "required": ["command"]});
        check("shell", list, Some(json!({"command": ["sh", "-c", "ls"]})));
        check("exec_command", json!({"properties": {"cmd": text}}), Some(json!({"cmd": "ls"})));
        check("developer__shell", command(json!(["command"])), Some(json!({"command": "ls"})));

        check("read_file", command(json!(["command"])), None);
        check("run_tests", json!({"properties": {"path": text}}), None);
        check("bash", Value::Null, None);
    }
}
